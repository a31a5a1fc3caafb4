"""The per-user cache: jars, the prepared schema, Java wrappers, and the register of running metastores."""

from __future__ import annotations

import fcntl
import hashlib
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

CACHE_VARIABLE = "AIRFLOW_HIVE_FEDERATION_CACHE"
DATA_VARIABLE = "AIRFLOW_HIVE_FEDERATION_DATA"
_NAME = "airflow-hive-federation"


def cache_directory(environ: Mapping[str, str] = os.environ, platform: str = sys.platform) -> Path:
    """Return the cache's directory (not created yet).

    ``AIRFLOW_HIVE_FEDERATION_CACHE`` names it outright; else it is ``airflow-hive-federation`` in the
    platform's cache directory (``XDG_CACHE_HOME``, ``~/.cache``, or ``~/Library/Caches``).
    """
    if named := environ.get(CACHE_VARIABLE):
        return Path(named).expanduser().absolute()
    if base := environ.get("XDG_CACHE_HOME"):
        return Path(base) / _NAME
    home = Path(environ["HOME"]) if environ.get("HOME") else Path.home()
    return (home / "Library" / "Caches" if platform == "darwin" else home / ".cache") / _NAME


def data_directory(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the directory of the metastores that the command line starts (not created yet).

    ``AIRFLOW_HIVE_FEDERATION_DATA`` names it outright; else it is ``airflow-hive-federation`` in the home
    directory. It is not in the cache, nor in ``XDG_DATA_HOME`` (``~/.local/share``), because Hive reads ACID
    tables below a directory whose name begins with a dot as empty.
    """
    if named := environ.get(DATA_VARIABLE):
        return Path(named).expanduser().absolute()
    return (Path(environ["HOME"]) if environ.get("HOME") else Path.home()) / _NAME


@contextmanager
def exclusively(lock_path: Path) -> Iterator[None]:
    """Hold a lock file, waiting for other processes; the kernel frees it when its holder is killed.

    ``flock``, not ``lockf``: it holds between threads of one process too.
    """
    lock_path.parent.mkdir(parents=True, exist_ok=True)
    with lock_path.open("a+b") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def is_locked(lock_path: Path) -> bool:
    """Say whether another process holds a record lock on the file, as Java's ``FileChannel`` takes it."""
    try:
        with lock_path.open("r+b") as handle:
            try:
                fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
            return False
    except FileNotFoundError:
        return False


def write_atomically(path: Path, content: bytes, *, private: bool = False) -> None:
    """Put ``content`` at ``path`` so that no reader, and no kill, ever sees half of it.

    :param private: nobody but its owner may read the file, at no moment.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    partial.unlink(missing_ok=True)
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if private else 0o666)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    partial.replace(path)


def short_digest(*parts: bytes) -> str:
    """Return twelve hex digits that name the content, for cache entries that must not outlive it."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "big"))
        digest.update(part)
    return digest.hexdigest()[:12]
