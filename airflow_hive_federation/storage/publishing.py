"""Files that get their names when they are whole, and that a crash of the machine does not take back.

Every writer has a hidden name of its own beside the file. On the machine's own file systems (NFS included)
the bytes are on the disk before the file is renamed, and the name is when the writing ends.
"""

from __future__ import annotations

import errno
import os
import stat
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from airflow_hive_federation.errors import FileVanishedError, StorageError, StoragePermissionError
from airflow_hive_federation.storage import durable
from airflow_hive_federation.storage.filesystem import (
    OBJECT_STORES,
    WITH_MODES,
    open_filesystem,
    parse_location,
    protocols,
    storage_errors,
)

#: Modes of what only its owner may read.
PRIVATE_FILE, PRIVATE_DIRECTORY = 0o600, 0o700

#: Names of files that are being written: Hive and Spark ignore names that begin with ``.`` or ``_``
#: (org.apache.hadoop.hive.common.FileUtils.HIDDEN_FILES_PATH_FILTER).
TEMPORARY_PREFIX = "._copy_"


def write_atomically(
    uri: str, chunks: Iterable[bytes], options: Mapping[str, Any] | None = None, *, private: bool = False
) -> int:
    """Write a file so that it is there whole or not at all, making its directory; return its size in bytes.

    :param private: only the owner may read the file, and enter directories that are made, where the store has
        such modes.
    :raises StorageError: it could not be written; what was there before is untouched.
    """
    written = 0
    with publishing(uri, options, mode=PRIVATE_FILE if private else 0o666) as file, storage_errors(uri):
        for chunk in chunks:
            file.write(chunk)
            written += len(chunk)
    return written


@contextmanager
def publishing(
    uri: str,
    options: Mapping[str, Any] | None = None,
    *,
    run_id: str = "",
    mode: int = 0o666,
    temporary: str = "",
    private: bool | None = None,
) -> Iterator[Any]:
    """Open a binary file that gets its name when the block ends well, and leaves nothing otherwise.

    :param mode: of a file where the store has modes, less the umask.
    :param temporary: URI of the file until then, as of :func:`temporary_uri`; by default another of those.
    :param private: directories that are made for it are its owner's alone; by default if the file is.
    """
    location = parse_location(uri)
    temporary = temporary or temporary_uri(uri, run_id)
    private = mode == PRIVATE_FILE if private is None else private
    if location.is_local:
        writing = _renaming_local(parse_location(temporary).path, location.path, uri, mode, private)
    elif location.scheme in OBJECT_STORES:
        writing = _committing(*open_filesystem(uri, options), uri)
    else:
        filesystem, path = open_filesystem(uri, options)
        hidden = open_filesystem(temporary, options)[1]
        writing = _renaming(filesystem, hidden, path, uri, mode=mode, private=private)
    with writing as file:
        yield file


def make_directory(uri: str, options: Mapping[str, Any] | None = None) -> None:
    """Make a directory, and those above it, where the store has such.

    :raises StorageError: it cannot be made.
    """
    location = parse_location(uri)
    with storage_errors(uri):
        if location.is_local:
            durable.make_directories(location.path)
        else:
            filesystem, path = open_filesystem(uri, options)
            filesystem.makedirs(path, exist_ok=True)


def make_private(uri: str, options: Mapping[str, Any] | None = None) -> None:
    """Make a directory that only its owner may enter, where the store has modes; one that is ours is made so.

    :raises StorageError: it cannot be made.
    """
    location = parse_location(uri)
    with storage_errors(uri):
        if location.is_local:
            _make_private_locally(location.path)
        elif location.scheme in WITH_MODES:
            filesystem, path = open_filesystem(uri, options)
            filesystem.makedirs(path, exist_ok=True, mode=PRIVATE_DIRECTORY)
            if filesystem.info(path)["permission"] != PRIVATE_DIRECTORY:
                # One of somebody else's is theirs to close.
                with suppress(StoragePermissionError):
                    filesystem.set_mode(path, PRIVATE_DIRECTORY)


def _make_private_locally(path: str) -> None:
    durable.make_directories(Path(path).parent)
    durable.make_directory(path, PRIVATE_DIRECTORY)
    found = Path(path).stat()
    if stat.S_IMODE(found.st_mode) != PRIVATE_DIRECTORY and found.st_uid == os.geteuid():
        Path(path).chmod(PRIVATE_DIRECTORY)


def make_parents(path: str, *, private: bool) -> None:
    """Make the directories that a local path lacks.

    :param private: only their owner may enter them.
    """
    durable.make_directories(Path(path).parent, PRIVATE_DIRECTORY if private else 0o777)


def temporary_uri(uri: str, run_id: str = "") -> str:
    """A hidden name beside ``uri`` that nobody else uses.

    :param run_id: marks the names of one run; run ids ascend with time, and ``0`` is before them all.
    """
    folder, _, name = uri.rpartition("/")
    # File names end at 255 bytes; what is cut off here only made the name telling.
    shown = name.encode()[:160].decode(errors="ignore")
    return f"{folder}/{TEMPORARY_PREFIX}{shown}.{run_id or '0'}-{uuid.uuid4().hex[:12]}"


def temporary_run(name: str) -> str | None:
    """The run id in a file name made by :func:`temporary_uri`; ``None`` for other names."""
    if not name.startswith(TEMPORARY_PREFIX):
        return None
    return name.rpartition(".")[2].rpartition("-")[0]


def rename(filesystem: Any, source: str, target: str) -> None:
    """Give a file or directory its final name, replacing what has it, and wait for the name.

    What is renamed is on the disk already: who wrote it has waited for it.
    """
    if "file" in protocols(filesystem):
        replace_local(source, target)
        return
    if "hdfs" in protocols(filesystem):
        # In one step of the NameNode's: no reader finds the name missing.
        filesystem.mv(source, target, overwrite=True)
        return
    # fsspec's memory merges where the name is taken.
    if filesystem.exists(target):
        filesystem.rm_file(target)
    filesystem.mv(source, target)


def replace_local(source: str, target: str, *, sync: bool = True) -> None:
    """Give a file of this machine its final name, replacing what has it.

    :param sync: wait for the name; the bytes must be on the disk already.

    The checksum beside the file that is replaced goes with it: a reader would find it wrong for the new
    bytes. It goes first, for a file without one is read as it is.
    """
    remove_checksum(target)
    if sync:
        durable.rename(source, target)
    else:
        Path(source).replace(target)


def remove_checksum(path: str) -> None:
    """Remove the checksum that Hadoop's local file system has written beside a file of this machine, if any.

    ``.<name>.crc`` (``org.apache.hadoop.fs.ChecksumFileSystem.getChecksumFile``): who reads the file by
    ``LocalFileSystem`` compares.
    """
    folder, _, name = path.rpartition("/")
    try:
        Path(f"{folder}/.{name}.crc").unlink()
    except OSError as error:
        # There is none; nor can there be one where its name would be too long.
        if error.errno not in {errno.ENOENT, errno.ENAMETOOLONG}:
            raise


def remove_quietly(filesystem: Any, path: str) -> None:
    """Remove a temporary file if it is there; one that stays is hidden, and a later run sweeps it."""
    try:
        with storage_errors(path):
            filesystem.rm_file(path)
    except StorageError:
        return


def remove_file(uri: str, options: Mapping[str, Any] | None = None) -> bool:
    """Remove a file; return whether it was there.

    :raises StorageError: it cannot be removed.
    """
    filesystem, path = open_filesystem(uri, options)
    try:
        with storage_errors(uri):
            if "file" in protocols(filesystem):
                # Left behind, it would be taken for that of the next file of this name.
                remove_checksum(path)
            filesystem.rm_file(path)
    except FileVanishedError:
        return False
    return True


@contextmanager
def _renaming_local(temporary: str, path: str, uri: str, mode: int, private: bool) -> Iterator[Any]:
    # Without fsspec, whose import costs a Spark task more than its writing does.
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
    filesystem: Any, temporary: str, path: str, uri: str, *, mode: int, private: bool
) -> Iterator[Any]:
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


def _closing(file: Any, uri: str, *, sync: bool = False) -> Iterator[Any]:
    """Yield the file and close it: the body's own errors are not storage's, those of closing are.

    :param sync: wait until it is on the disk.
    """
    try:
        yield file
    except BaseException:
        # Closing flushes what is buffered, which fails once more on a full disk; the first error is told.
        with suppress(OSError, StorageError):
            file.close()
        raise
    with storage_errors(uri), file:
        if sync:
            durable.sync_open_file(file)


@contextmanager
def _committing(filesystem: Any, path: str, uri: str) -> Iterator[Any]:
    # `close` of a buffered upload finishes it, so an error must discard the upload before anything closes it.
    with storage_errors(uri):
        file = filesystem.open(path, "wb", autocommit=False)
    committed = False
    try:
        yield file
        with storage_errors(uri):
            file.close()
            file.commit()
        committed = True
    finally:
        if not committed:
            file.discard()
