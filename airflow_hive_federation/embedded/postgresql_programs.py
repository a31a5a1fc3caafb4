"""Unpacks PostgreSQL's programs, and finds the user and the directory that a server of theirs can have."""

from __future__ import annotations

import os
import platform
import pwd
import shutil
import stat
import tarfile
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from airflow_hive_federation.embedded.jars import fetch
from airflow_hive_federation.embedded.lock import POSTGRESQL, locked
from airflow_hive_federation.errors import ConfigurationError, JarDownloadError
from airflow_hive_federation.runtime.cache import cache_directory, exclusively
from airflow_hive_federation.runtime.java import Java

_DRIVER = "postgresql"
_PROCESSORS = {"x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64v8", "arm64": "arm64v8"}
#: The user of servers that root starts: PostgreSQL refuses to run as root.
_USER = "nobody"
_ROOTS_SERVERS = Path("/var/lib/airflow-hive-federation")


@dataclass(frozen=True, kw_only=True)
class ServerUser:
    """The user and group that a server runs as; ``None`` for those of this process."""

    user: int | None = None
    group: int | None = None


def driver_jars(java: Java) -> list[Path]:
    """Return PostgreSQL's JDBC driver, and fetch it if the cache lacks it.

    :raises JarDownloadError: if it could not be fetched.
    """
    return fetch(java, [artifact for artifact in locked(POSTGRESQL) if artifact.name == _DRIVER])


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
            remedy="start the metastore on Derby, which is the default.",
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
            remedy=f"free space in {cache_directory()}, or remove {jar} and start again.",
        ) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def server_user() -> ServerUser:
    """Return the user that a server has to run as: that of this process, except for root.

    :raises ConfigurationError: if this process is root's, and the machine has no user ``nobody``.
    """
    if os.geteuid() != 0:
        return ServerUser()
    try:
        entry = pwd.getpwnam(_USER)
    except KeyError as error:
        raise ConfigurationError(
            f"PostgreSQL does not run as root, and this machine has no user {_USER!r}.",
            remedy="start the metastore as another user, or on Derby.",
        ) from error
    return ServerUser(user=entry.pw_uid, group=entry.pw_gid)


def reachable_home(wanted: Path, user: ServerUser) -> Path:
    """Return ``wanted``, or, if the server's user cannot reach it, a new directory elsewhere.

    A server of a temporary directory gets another temporary one.
    """
    if user.user is None or is_reachable(wanted):
        return wanted
    temporary = Path(tempfile.gettempdir()).resolve()
    base = temporary if wanted.resolve().is_relative_to(temporary) and is_reachable(temporary / "x") else None
    if base is None:
        base = _ROOTS_SERVERS
        base.mkdir(parents=True, exist_ok=True)
    return Path(tempfile.mkdtemp(prefix="hive-postgresql-", dir=base))


def is_reachable(path: Path) -> bool:
    """Return whether all users may pass the parents of ``path``."""
    return all(parent.stat().st_mode & stat.S_IXOTH for parent in path.absolute().parents if parent.is_dir())


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
