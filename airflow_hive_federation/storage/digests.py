"""Computes the SHA-256 of files, and reads files in chunks."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from airflow_hive_federation.errors import FileVanishedError
from airflow_hive_federation.storage.bandwidth import TokenBucket
from airflow_hive_federation.storage.filesystem import (
    local_path,
    open_filesystem,
    storage_errors,
    store_errors,
)
from airflow_hive_federation.storage.options import StorageOptions
from airflow_hive_federation.storage.sources import SourceRoots

#: Bytes per read. Below 1 MiB, stores with latency are slower; above 8 MiB, no store is faster.
CHUNK_BYTES = 4 * 1024 * 1024

_buffers = threading.local()


@dataclass(frozen=True, kw_only=True, slots=True)
class FileToDigest:
    """A file to digest.

    :param uri: URI of the file.
    :param size_bytes: its length when it was listed.
    """

    uri: str
    size_bytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class FileDigest:
    """The digest of one file.

    :param uri: URI of the file.
    :param size_bytes: bytes read.
    :param digest: lower-case hexadecimal SHA-256 of them.
    """

    uri: str
    size_bytes: int
    digest: str


def digest_file(
    uri: str,
    *,
    size_bytes: int | None = None,
    prefix: bool = False,
    bandwidth: TokenBucket | None = None,
    options: StorageOptions | None = None,
    sources: SourceRoots | None = None,
) -> FileDigest:
    """Read a file and return its digest.

    :param uri: URI of the file.
    :param size_bytes: the length it must have; ``None`` takes any.
    :param prefix: digest the first ``size_bytes`` bytes of a file that may be longer.
    :param bandwidth: limit of the bytes read per second.
    :param options: storage options, see :func:`.filesystem.options_for`.
    :param sources: directories that the file may lie in; ``None`` reads any file.
    :raises FileVanishedError: if the file is gone, or has another length.
    :raises StorageError: if the file cannot be read.
    """
    sha = hashlib.sha256()
    read = 0
    with storage_errors(uri):
        end = size_bytes if prefix else None
        for chunk in read_chunks(uri, end=end, options=options, sources=sources):
            if bandwidth is not None:
                bandwidth.take(len(chunk))
            sha.update(chunk)
            read += len(chunk)
    if size_bytes is not None:
        check_length(uri, size_bytes, read)
    return FileDigest(uri=uri, size_bytes=read, digest=sha.hexdigest())


def read_chunks(
    uri: str,
    *,
    end: int | None = None,
    options: StorageOptions | None = None,
    sources: SourceRoots | None = None,
) -> Iterator[memoryview]:
    """Yield a file's bytes in chunks, all of which use one buffer: each chunk overwrites the one before.

    :param end: the number of bytes to read; ``None`` reads to the end of the file.
    :param sources: directories that the file may lie in; ``None`` reads any file.
    :raises SourceNotAllowedError: if the file lies elsewhere.
    :raises StorageError: if the file cannot be read.
    """
    local = local_path(uri)
    view = _buffer()
    with store_errors(uri, options):
        if sources is not None:
            sources.check_written(uri, "the file")
        if local is not None and sources is not None:
            source: Any = sources.opened(uri)
        elif local is not None:
            # No buffering: it saves one copy, and `readinto` a large buffer is one system call per chunk.
            source = open(local, "rb", buffering=0)  # noqa: SIM115, PTH123
        else:
            filesystem, path = open_filesystem(uri, options)
            source = filesystem.open(path, "rb")
        with source as file:
            left = end
            while count := file.readinto(view if left is None else view[:left]):
                yield view[:count]
                left = None if left is None else left - count


def check_length(uri: str, expected_bytes: int, read_bytes: int) -> None:
    """Refuse a file whose length differs from its listing.

    :raises FileVanishedError: if the lengths differ.
    """
    if expected_bytes != read_bytes:
        raise FileVanishedError(
            f"{uri} changed while it was read: {expected_bytes} bytes were listed, {read_bytes} were read.",
            remedy="List it again: the file that was listed is no longer there.",
            path=uri,
            listed_bytes=expected_bytes,
            read_bytes=read_bytes,
        )


def _buffer() -> memoryview:
    view: memoryview | None = getattr(_buffers, "view", None)
    if view is None:
        _buffers.view = view = memoryview(bytearray(CHUNK_BYTES))
    return view
