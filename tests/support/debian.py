"""Programs that tests need beside Python and Java, from Debian's packages."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest

from airflow_hive_federation.runtime.cache import cache_directory, exclusively

_SYSTEM_PATH = "/usr/sbin:/usr/local/sbin:/sbin"


def require_program(name: str, *packages: str) -> str:
    """Path of a program; installs it where that is possible, and skips the test where it is not."""
    path = _which(name)
    if path is None:
        install(*packages)
        path = _which(name)
    if path is None:
        pytest.skip(f"needs {name} (packages {', '.join(packages)})")
    return path


def install(*packages: str) -> None:
    """Install packages, as root on Debian; does nothing elsewhere."""
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        return
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    # Tests run side by side, and apt-get fails beside another one.
    with exclusively(cache_directory() / "apt-get.lock"):
        for arguments in (["update", "-q"], ["install", "-y", "-q", "--no-install-recommends", *packages]):
            subprocess.run(
                ["apt-get", *arguments], env=environment, capture_output=True, check=False, timeout=600
            )


def _which(name: str) -> str | None:
    return shutil.which(name) or shutil.which(name, path=_SYSTEM_PATH)
