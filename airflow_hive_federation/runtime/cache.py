"""Locates the cache and data directories of a user, and locks and writes files there.

The cache holds jars, the prepared schema, Java wrappers, and the register of running metastores.
"""

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
    """Return the cache directory, without creating it.

    It is the path in ``AIRFLOW_HIVE_FEDERATION_CACHE``; by default it is ``airflow-hive-federation`` in the
    platform's cache directory (``XDG_CACHE_HOME``, ``~/.cache``, or ``~/Library/Caches``).
    """
    if named := environ.get(CACHE_VARIABLE):
        return Path(named).expanduser().absolute()
    if base := environ.get("XDG_CACHE_HOME"):
        return Path(base) / _NAME
    home = Path(environ["HOME"]) if environ.get("HOME") else Path.home()
    return (home / "Library" / "Caches" if platform == "darwin" else home / ".cache") / _NAME


def data_directory(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the directory of the metastores that the command line starts, without creating it.

    It is the path in ``AIRFLOW_HIVE_FEDERATION_DATA``; by default it is ``airflow-hive-federation`` in the
    home directory. It is not in the cache, nor in ``XDG_DATA_HOME`` (``~/.local/share``), because Hive reads
    ACID tables below a directory whose name begins with a dot as empty.
    """
    if named := environ.get(DATA_VARIABLE):
        return Path(named).expanduser().absolute()
    return (Path(environ["HOME"]) if environ.get("HOME") else Path.home()) / _NAME


@contextmanager
def exclusively(lock_path: Path) -> Iterator[None]:
    """Lock a file exclusively while the block runs; the kernel releases the lock if its holder is killed.

    The function uses ``flock`` instead of ``lockf``, because ``flock`` also excludes threads of the same
    process.
    """
    lock_path.parent.mkdir(parents=True, exist_ok=True)
    with lock_path.open("a+b") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def is_locked(lock_path: Path) -> bool:
    """Return whether another process holds a record lock on the file, as Java's ``FileChannel`` takes it."""
    try:
        with lock_path.open("r+b") as handle:
            try:
                fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
            return False
    except (FileNotFoundError, NotADirectoryError):
        return False


def write_atomically(path: Path, content: bytes, *, private: bool = False) -> None:
    """Write ``content`` to ``path`` completely or not at all, even if the process is killed.

    :param private: only the owner may read the file, from its creation on.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    partial.unlink(missing_ok=True)
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if private else 0o666)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    partial.replace(path)


def short_digest(*parts: bytes) -> str:
    """Return twelve hex digits of the content's SHA-256, for names of cache entries that depend on it."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "big"))
        digest.update(part)
    return digest.hexdigest()[:12]
