"""Syncs files, names and directories of local file systems (NFS included), so that they survive a crash.

A file system may write a rename to its disk before the bytes of the renamed file, and lose a name that no
process has synced. So a publisher calls ``fsync(2)`` for the file, then renames it, then calls ``fsync(2)``
for the directory that has its name. Other stores acknowledge only files that they keep.

Errors of ``fsync(2)`` are final: after one, the kernel may have dropped the bytes, and a second call would
succeed.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from airflow_hive_federation.storage.filesystem import local_path, storage_errors

#: Errors of file systems that cannot sync a directory; CIFS and some FUSE file systems keep names themselves.
_NO_DIRECTORIES = {errno.EINVAL, errno.ENOTSUP, errno.EBADF}


def sync_open_file(file: BinaryIO) -> None:
    """Wait until a local file that is open for writing is on the disk, including Python's buffer.

    :param file: file object with a descriptor.
    :raises OSError: if the disk failed, or is full (NFS and quotas report this only here).
    """
    file.flush()
    os.fsync(file.fileno())


def sync_file(path: str | Path) -> None:
    """Wait until the bytes of a closed local file are on the disk, whichever process wrote them.

    :raises OSError: as :func:`sync_open_file`.
    """
    _sync(path, os.O_RDONLY)


def sync_directory(path: str | Path) -> None:
    """Wait until the names in a local directory are on the disk.

    :raises OSError: if the directory does not exist, or the disk failed.
    """
    try:
        _sync(path, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        if error.errno not in _NO_DIRECTORIES:
            raise


def sync_directories(uris: Iterable[str]) -> None:
    """Wait until the names in the local ones of these directories are on the disk, once per directory.

    :raises StorageError: if a directory does not exist, or its disk failed.
    """
    for uri in sorted(set(uris)):
        path = local_path(uri)
        if path is not None:
            with storage_errors(uri):
                sync_directory(path)


def make_directories(path: str | Path, mode: int = 0o777) -> None:
    """Create a local directory and its missing parents, so that their names are on the disk.

    :param mode: mode of each new directory, before the umask.
    :raises OSError: if a directory cannot be created.
    """
    for directory in missing_directories(path):
        make_directory(directory, mode)


def make_directory(path: str | Path, mode: int = 0o777) -> None:
    """Create a local directory in an existing one; its name is on the disk when this returns.

    :param mode: mode of a new directory, before the umask.
    :raises OSError: if the directory cannot be created.
    """
    try:
        Path(path).mkdir(mode=mode)
    except FileExistsError:
        # Another process created it, and may not have synced its name yet.
        if not Path(path).is_dir():
            raise
    sync_directory(Path(path).parent)


def missing_directories(path: str | Path) -> Iterator[Path]:
    """Yield the missing ones of a local directory and its parents, outermost first."""
    yield from reversed(
        [directory for directory in (Path(path), *Path(path).parents) if not directory.exists()]
    )


def rename(source: str | Path, target: str | Path) -> None:
    """Rename a local file or directory, and wait until the new name is on the disk.

    Its bytes must be on the disk already; see :func:`sync_open_file`.

    :raises OSError: if it cannot be renamed.
    """
    Path(source).replace(target)
    sync_directory(Path(target).parent)
    if Path(source).parent != Path(target).parent:
        sync_directory(Path(source).parent)


def _sync(path: str | Path, flags: int) -> None:
    descriptor = os.open(path, flags | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
