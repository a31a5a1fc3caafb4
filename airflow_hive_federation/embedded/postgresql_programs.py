"""Fetches and unpacks PostgreSQL's programs."""

from __future__ import annotations

import platform
import shutil
import tarfile
import tempfile
import zipfile
from pathlib import Path

from airflow_hive_federation.embedded.jars import fetch
from airflow_hive_federation.embedded.lock import POSTGRESQL, locked
from airflow_hive_federation.embedded.server_user import ServerUser, is_reachable
from airflow_hive_federation.errors import ConfigurationError, JarDownloadError
from airflow_hive_federation.runtime.cache import cache_directory, exclusively
from airflow_hive_federation.runtime.java import Java

_PROCESSORS = {"x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64v8", "arm64": "arm64v8"}


def programs(java: Java) -> Path:
    """Return the directory of PostgreSQL's ``bin``, ``lib`` and ``share`` in the cache; unpack it once.

    :raises ConfigurationError: if there are no programs for this machine.
    :raises JarDownloadError: if they could not be fetched.
    """
    system, processor = platform.system(), platform.machine().lower()
    wanted = f"-{system.lower()}-{_PROCESSORS.get(processor, processor)}"
    artifacts = [artifact for artifact in locked(POSTGRESQL) if artifact.name.endswith(wanted)]
    if not artifacts:
        raise ConfigurationError(
            f"no PostgreSQL programs are known for {system} on {processor}.",
            remedy="Start the metastore on Derby, which is the default.",
        )
    folder = cache_directory() / "postgresql" / artifacts[0].sha256[:12]
    if not folder.is_dir():
        (jar,) = fetch(java, artifacts)
        with exclusively(cache_directory() / "postgresql.lock"):
            if not folder.is_dir():
                _unpack(jar, folder)
    return folder


def _unpack(jar: Path, folder: Path) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(dir=folder.parent))
    try:
        with zipfile.ZipFile(jar) as packed:
            (name,) = (name for name in packed.namelist() if name.endswith(".txz"))
            with packed.open(name) as file, tarfile.open(fileobj=file, mode="r|xz") as archive:
                # The lock has the archive's digest; a Python without filters ignores the attribute.
                archive.extraction_filter = getattr(tarfile, "data_filter", None)
                archive.extractall(partial)  # noqa: S202
        # Servers of another user may use the programs.
        partial.chmod(0o755)
        partial.rename(folder)
    except (OSError, tarfile.TarError, zipfile.BadZipFile, ValueError) as error:
        raise JarDownloadError(
            f"{jar} cannot be unpacked into {folder}: {error}",
            remedy=f"Free space in {cache_directory()}, or remove {jar} and start again.",
        ) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def reachable_programs(java: Java, home: Path, user: ServerUser) -> Path:
    """Return the programs' directory; copy it into the server's directory if its user cannot reach the cache.

    :raises ConfigurationError: as :func:`programs`.
    :raises JarDownloadError: as :func:`programs`.
    """
    cached = programs(java)
    if user.user is None or is_reachable(cached / "bin"):
        return cached
    copied = home / f"programs-{cached.name}"
    if not copied.is_dir():
        partial = home / ".programs"
        shutil.rmtree(partial, ignore_errors=True)
        unneeded = shutil.ignore_patterns("*.a", "pkgconfig", "include", "doc")
        shutil.copytree(cached, partial, symlinks=True, ignore=unneeded)
        partial.rename(copied)
    return copied
