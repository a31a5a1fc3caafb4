"""Publishes files only when they are complete, and keeps them across a crash of the machine.

Every writer uses a hidden name of its own beside the file. On local file systems (NFS included) the bytes are
on the disk before the file is renamed, and its name is on the disk when the write ends.
"""

from __future__ import annotations

import errno
import os
import stat
import uuid
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from airflow_hive_federation.errors import FileVanishedError, StorageError, StoragePermissionError
from airflow_hive_federation.storage import durable
from airflow_hive_federation.storage.filesystem import (
    OBJECT_STORES,
    WITH_MODES,
    open_filesystem,
    parse_location,
    protocols,
    storage_errors,
    store_errors,
)
from airflow_hive_federation.storage.options import StorageOptions

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem


#: Modes of files and directories that only their owner may read.
PRIVATE_FILE, PRIVATE_DIRECTORY = 0o600, 0o700

#: Prefix of the names of unfinished files: Hive and Spark ignore names that begin with ``.`` or ``_``
#: (org.apache.hadoop.hive.common.FileUtils.HIDDEN_FILES_PATH_FILTER).
TEMPORARY_PREFIX = "._copy_"
_THREADS = 8


def write_atomically(
    uri: str, chunks: Iterable[bytes], options: StorageOptions | None = None, *, private: bool = False
) -> int:
    """Write a file completely or not at all, and create its directory; return its size in bytes.

    :param private: let only the owner read the file, and enter new directories, if the store has modes.
    :raises StorageError: if the file cannot be written; an existing file is unchanged then.
    """
    written = 0
    with (
        publishing(uri, options, mode=PRIVATE_FILE if private else 0o666) as file,
        store_errors(uri, options),
    ):
        for chunk in chunks:
            file.write(chunk)
            written += len(chunk)
    return written


@contextmanager
def publishing(
    uri: str,
    options: StorageOptions | None = None,
    *,
    mode: int = 0o666,
    temporary: str = "",
    private: bool | None = None,
) -> Iterator[BinaryIO]:
    """Open a binary file that is published if the block raises no error, and removed otherwise.

    :param mode: mode of the file before the umask, if the store has modes.
    :param temporary: URI of the file until then, from :func:`temporary_uri`; by default a new one.
    :param private: let only the owner enter new directories; by default if only the owner may read the file.
    """
    location = parse_location(uri)
    temporary = temporary or temporary_uri(uri)
    private = mode == PRIVATE_FILE if private is None else private
    if location.is_local:
        writing = _renaming_local(parse_location(temporary).path, location.path, uri, mode, private)
    elif location.scheme in OBJECT_STORES:
        writing = _committing(*open_filesystem(uri, options), uri, options)
    else:
        filesystem, path = open_filesystem(uri, options)
        hidden = open_filesystem(temporary, options)[1]
        writing = _renaming(filesystem, hidden, path, uri, mode=mode, private=private)
    with writing as file:
        yield file


def make_directory(uri: str, options: StorageOptions | None = None) -> None:
    """Create a directory and its parents, if the store has directories.

    :raises StorageError: if it cannot be created.
    """
    location = parse_location(uri)
    if location.scheme in OBJECT_STORES:
        # s3fs would create a missing bucket.
        return
    with storage_errors(uri):
        if location.is_local:
            durable.make_directories(location.path)
        else:
            filesystem, path = open_filesystem(uri, options)
            filesystem.makedirs(path, exist_ok=True)


def make_private(uri: str, options: StorageOptions | None = None) -> None:
    """Create a directory that only its owner may enter, if the store has modes; restrict an existing one.

    An existing directory of another user keeps its mode.

    :raises StorageError: if it cannot be created.
    """
    location = parse_location(uri)
    with storage_errors(uri):
        if location.is_local:
            _make_private_locally(location.path)
        elif location.scheme in WITH_MODES:
            filesystem, path = open_filesystem(uri, options)
            filesystem.makedirs(path, exist_ok=True, mode=PRIVATE_DIRECTORY)
            if filesystem.info(path)["permission"] != PRIVATE_DIRECTORY:
                # Only its owner may restrict a directory.
                with suppress(StoragePermissionError):
                    filesystem.set_mode(path, PRIVATE_DIRECTORY)


def _make_private_locally(path: str) -> None:
    durable.make_directories(Path(path).parent)
    durable.make_directory(path, PRIVATE_DIRECTORY)
    status = Path(path).stat()
    if stat.S_IMODE(status.st_mode) != PRIVATE_DIRECTORY and status.st_uid == os.geteuid():
        Path(path).chmod(PRIVATE_DIRECTORY)


def make_parents(path: str, *, private: bool) -> None:
    """Create the missing parent directories of a local path.

    :param private: let only the owner enter them.
    """
    durable.make_directories(Path(path).parent, PRIVATE_DIRECTORY if private else 0o777)


def temporary_uri(uri: str, run_id: str = "") -> str:
    """Return a unique hidden name beside ``uri``.

    :param run_id: id of the run in the name; run ids ascend with time, and ``0`` precedes all of them.
    """
    folder, _, name = uri.rpartition("/")
    # File names have at most 255 bytes; the original name only helps people, so that it may be cut.
    shown = name.encode()[:160].decode(errors="ignore")
    return f"{folder}/{TEMPORARY_PREFIX}{shown}.{run_id or '0'}-{uuid.uuid4().hex[:12]}"


def temporary_run(name: str) -> str | None:
    """Return the run id in a file name from :func:`temporary_uri`; ``None`` for other names."""
    if not name.startswith(TEMPORARY_PREFIX):
        return None
    return name.rpartition(".")[2].rpartition("-")[0]


def rename(
    filesystem: AbstractFileSystem, source: str, target: str, *, check: Callable[[], None] = lambda: None
) -> None:
    """Rename a file or directory to its final name, replacing an existing file, and sync the name.

    The bytes must be on the disk already: their writer has synced them.

    :param check: runs before each object that an object store copies or removes, and may raise.
    """
    if "file" in protocols(filesystem):
        replace_local(source, target)
        return
    if "hdfs" in protocols(filesystem):
        # The NameNode replaces the file in one step, so that the name exists for readers at any time.
        filesystem.mv(source, target, overwrite=True)
        return
    if not OBJECT_STORES.isdisjoint(protocols(filesystem)):
        _move_objects(filesystem, source, target, check)
        return
    # fsspec's memory file system would merge with an existing directory.
    if filesystem.exists(target):
        filesystem.rm_file(target)
    filesystem.mv(source, target)


def _move_objects(
    filesystem: AbstractFileSystem, source: str, target: str, check: Callable[[], None]
) -> None:
    """Copy an object, or all objects below a directory, to the new name, and then remove the old ones.

    A copy replaces an existing object in one step. ``mv`` of such a driver would copy nothing of a directory,
    and report no error.
    """
    keys = [str(key) for key in filesystem.find(source) if not str(key).endswith("/")]
    if not keys:
        raise FileNotFoundError(errno.ENOENT, "nothing lies there", source)

    def copy(key: str) -> None:
        check()
        filesystem.cp_file(key, f"{target}{key[len(source) :]}")

    with ThreadPoolExecutor(_THREADS, thread_name_prefix="move") as pool:
        list(pool.map(copy, keys))
    for key in keys:
        check()
        filesystem.rm_file(key)


def replace_local(source: str, target: str, *, sync: bool = True) -> None:
    """Rename a local file to its final name, replacing an existing file.

    :param sync: wait until the name is on the disk; the bytes must be on the disk already.

    The function also removes the checksum beside the replaced file, which would be wrong for the new bytes.
    It does so first, because readers accept a file without a checksum.
    """
    remove_checksum(target)
    if sync:
        durable.rename(source, target)
    else:
        Path(source).replace(target)


def remove_checksum(path: str) -> None:
    """Remove the checksum file that Hadoop's local file system has written beside a local file, if any.

    Its name is ``.<name>.crc`` (``org.apache.hadoop.fs.ChecksumFileSystem.getChecksumFile``), and Hadoop's
    ``LocalFileSystem`` compares it when it reads the file.
    """
    folder, _, name = path.rpartition("/")
    try:
        Path(f"{folder}/.{name}.crc").unlink()
    except OSError as error:
        # The checksum file does not exist, or cannot exist because its name would be too long.
        if error.errno not in {errno.ENOENT, errno.ENAMETOOLONG}:
            raise


def remove_quietly(filesystem: AbstractFileSystem, path: str) -> None:
    """Remove a temporary file if possible; otherwise it stays hidden until a later run removes it."""
    try:
        with storage_errors(path):
            filesystem.rm_file(path)
    except StorageError:
        return


def remove_file(uri: str, options: StorageOptions | None = None) -> bool:
    """Remove a file; return whether it existed.

    :raises StorageError: if it cannot be removed.
    """
    filesystem, path = open_filesystem(uri, options)
    try:
        with store_errors(uri, options):
            if "file" in protocols(filesystem):
                # Otherwise Hadoop would compare it with the next file of this name.
                remove_checksum(path)
            filesystem.rm_file(path)
    except FileVanishedError:
        return False
    return True


@contextmanager
def _renaming_local(temporary: str, path: str, uri: str, mode: int, private: bool) -> Iterator[BinaryIO]:
    # This uses no fsspec, whose import takes a Spark task longer than the write.
    published = False
    try:
        with storage_errors(uri):
            make_parents(path, private=private)
            file = open(temporary, "xb", opener=lambda name, flags: os.open(name, flags, mode))  # noqa: SIM115
        yield from _closing(file, uri, sync=True)
        with storage_errors(uri):
            replace_local(temporary, path)
        published = True
    finally:
        if not published:
            with suppress(OSError):
                Path(temporary).unlink()


@contextmanager
def _renaming(
    filesystem: AbstractFileSystem, temporary: str, path: str, uri: str, *, mode: int, private: bool
) -> Iterator[BinaryIO]:
    published = False
    directory = path.rpartition("/")[0] or "/"
    try:
        with storage_errors(uri):
            if "hdfs" in protocols(filesystem):
                filesystem.makedirs(directory, exist_ok=True, mode=PRIVATE_DIRECTORY if private else 0o777)
                file = filesystem.open(temporary, "xb", permission=mode)
            else:
                filesystem.makedirs(directory, exist_ok=True)
                file = filesystem.open(temporary, "wb")
        yield from _closing(file, uri)
        with storage_errors(uri):
            rename(filesystem, temporary, path)
        published = True
    finally:
        if not published:
            remove_quietly(filesystem, temporary)


def _closing(file: BinaryIO, uri: str, *, sync: bool = False) -> Iterator[BinaryIO]:
    """Yield the file and close it; translate errors of closing to storage errors, but not those of the body.

    :param sync: wait until the file is on the disk.
    """
    try:
        yield file
    except BaseException:
        # Closing flushes the buffer, which fails again on a full disk; the first error is the one to raise.
        with suppress(OSError, StorageError):
            file.close()
        raise
    with storage_errors(uri), file:
        if sync:
            durable.sync_open_file(file)


@contextmanager
def _committing(
    filesystem: AbstractFileSystem, path: str, uri: str, options: StorageOptions | None = None
) -> Iterator[BinaryIO]:
    # `close` of a buffered upload completes it, so an error must discard the upload before any `close`.
    with store_errors(uri, options):
        file = filesystem.open(path, "wb", autocommit=False)
    committed = False
    try:
        yield file
        with store_errors(uri, options):
            file.close()
            file.commit()
        committed = True
    finally:
        if not committed:
            # The first error is the one to raise. What is left of the upload is no file.
            with suppress(StorageError), storage_errors(uri):
                file.discard()
