"""SHA-256 of files, and the buffer they are read through."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from airflow_hive_federation.errors import FileVanishedError
from airflow_hive_federation.storage.bandwidth import TokenBucket
from airflow_hive_federation.storage.filesystem import local_path, open_filesystem, storage_errors
from airflow_hive_federation.storage.sources import SourceRoots

#: Bytes read at once. Below 1 MiB stores with latency suffer, above 8 MiB nothing is gained.
CHUNK_BYTES = 4 * 1024 * 1024

_buffers = threading.local()


@dataclass(frozen=True, kw_only=True, slots=True)
class FileToDigest:
    """One file whose digest is wanted.

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
    bandwidth: TokenBucket | None = None,
    options: Mapping[str, Any] | None = None,
    sources: SourceRoots | None = None,
) -> FileDigest:
    """Read a file and return its digest.

    :param uri: URI of the file.
    :param size_bytes: the length it must have; ``None`` takes any.
    :param bandwidth: caps the reading.
    :param options: storage options, see :func:`.filesystem.options_for`.
    :param sources: where the file may lie; ``None`` reads any.
    :raises FileVanishedError: it is gone, or has another length.
    :raises StorageError: it cannot be read.
    """
    sha = hashlib.sha256()
    read = 0
    with storage_errors(uri):
        for chunk in read_chunks(uri, options=options, sources=sources):
            if bandwidth is not None:
                bandwidth.take(len(chunk))
            sha.update(chunk)
            read += len(chunk)
    if size_bytes is not None:
        check_length(uri, size_bytes, read)
    return FileDigest(uri=uri, size_bytes=read, digest=sha.hexdigest())


def read_chunks(
    uri: str, *, options: Mapping[str, Any] | None = None, sources: SourceRoots | None = None
) -> Iterator[memoryview]:
    """Yield a file's bytes in chunks of one buffer that the next chunk overwrites.

    :param sources: where the file may lie; ``None`` reads any.
    :raises SourceNotAllowedError: it lies elsewhere.
    :raises StorageError: it cannot be read.
    """
    local = local_path(uri)
    view = _buffer()
    with storage_errors(uri):
        if sources is not None:
            sources.check_written(uri, "the file")
        if local is not None and sources is not None:
            source: Any = sources.opened(uri)
        elif local is not None:
            # No buffering: one copy less, and `readinto` a large buffer is one system call a chunk.
            source = open(local, "rb", buffering=0)  # noqa: SIM115, PTH123
        else:
            filesystem, path = open_filesystem(uri, options)
            source = filesystem.open(path, "rb")
        with source as file:
            while count := file.readinto(view):
                yield view[:count]


def check_length(uri: str, expected_bytes: int, read_bytes: int) -> None:
    """Refuse a file that is not as long as its listing said.

    :raises FileVanishedError: what was listed is not what was read.
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
