"""Disks of a test's own: full or read-only ones."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def disk(path: Path, options: str) -> Iterator[Callable[[str], None]]:
    """A disk of its own at ``path``; yields a function that mounts it anew with other options."""
    path.mkdir(parents=True)
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(path)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("mounting needs root")

    def remount(options: str) -> None:
        subprocess.run(["mount", "-o", f"remount,{options}", str(path)], check=True)

    try:
        yield remount
    finally:
        subprocess.run(["umount", str(path)], check=True)
