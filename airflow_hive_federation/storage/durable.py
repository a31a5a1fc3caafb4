"""What survives a crash of the machine: bytes, names and directories of its own file systems, NFS included.

A file system may write a rename to its disk before the bytes of the file that is renamed, and forget a name
that nobody waited for. So whoever publishes waits (``fsync(2)``): for the file, then renames it, then for the
directory that has its name. The other stores acknowledge only what they keep.

Errors of waiting are final: after one, the kernel may have dropped the bytes, and asking again would succeed.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from airflow_hive_federation.storage.filesystem import local_path, storage_errors

#: Errors of file systems that cannot wait for a directory; some of FUSE, and CIFS, keep names themselves.
_NO_DIRECTORIES = {errno.EINVAL, errno.ENOTSUP, errno.EBADF}


def sync_open_file(file: Any) -> None:
    """Wait until a local file that is open for writing is on the disk, what Python buffers included.

    :param file: file object with a descriptor.
    :raises OSError: the disk failed, or is full (NFS and quotas say so now).
    """
    file.flush()
    os.fsync(file.fileno())


def sync_file(path: str | Path) -> None:
    """Wait until the bytes of a local file that somebody has written are on the disk.

    :raises OSError: as :func:`sync_open_file`.
    """
    _sync(path, os.O_RDONLY)


def sync_directory(path: str | Path) -> None:
    """Wait until the names in a local directory are on the disk.

    :raises OSError: it is not there, or the disk failed.
    """
    try:
        _sync(path, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        if error.errno not in _NO_DIRECTORIES:
            raise


def sync_directories(uris: Iterable[str]) -> None:
    """Wait, once each, for the names in those of some directories that are local.

    :raises StorageError: one is not there, or its disk failed.
    """
    for uri in sorted(set(uris)):
        path = local_path(uri)
        if path is not None:
            with storage_errors(uri):
                sync_directory(path)


def sync_tree(path: str | Path) -> None:
    """Wait for all files and directories of a local tree, each directory after what lies in it.

    :raises OSError: as :func:`sync_open_file`.
    """
    for folder, _, files in os.walk(path, topdown=False, onerror=_raise):
        for name in sorted(files):
            sync_file(Path(folder, name))
        sync_directory(folder)


def make_directories(path: str | Path, mode: int = 0o777) -> None:
    """Make a local directory and those above it that are missing, so that their names are on the disk.

    :param mode: of each directory that is made, less the umask.
    :raises OSError: one cannot be made.
    """
    for one in missing_directories(path):
        make_directory(one, mode)


def make_directory(path: str | Path, mode: int = 0o777) -> None:
    """Make a local directory in one that is there; its name is on the disk when this returns.

    :param mode: of the directory, less the umask, if it is not there yet.
    :raises OSError: it cannot be made.
    """
    try:
        Path(path).mkdir(mode=mode)
    except FileExistsError:
        # By somebody who may not have waited for it yet.
        if not Path(path).is_dir():
            raise
    sync_directory(Path(path).parent)


def missing_directories(path: str | Path) -> Iterator[Path]:
    """Those of a local directory and the ones above it that are not there, outermost first."""
    yield from reversed([one for one in (Path(path), *Path(path).parents) if not one.exists()])


def rename(source: str | Path, target: str | Path) -> None:
    """Give a local file or directory another name, and wait for it.

    Its bytes must be on the disk already; see :func:`sync_open_file` and :func:`sync_tree`.

    :raises OSError: it cannot be renamed.
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


def _raise(error: OSError) -> None:
    raise error
