"""Reads files of HDFS: all bytes that the NameNode lists, or an error.

A NameNode with ``dfs.namenode.file.close.num-committed-allowed`` closes a file before a DataNode has reported
its last block. Until then, the bytes of this block are in the file's status (``INodeFile.computeFileSize``),
but not in the length that comes with the places of its blocks (``computeFileSizeNotIncludingLastUcBlock``).
hdfs-native reads up to the latter. Java's ``DFSInputStream`` asks a DataNode for the rest, and so does
libhdfs. The same holds for a file that is open for an append.
"""

from __future__ import annotations

import io
import os
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

from airflow_hive_federation.errors import StorageUnavailableError
from airflow_hive_federation.waiting import PollPolicy, wait_until

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

#: DataNodes report a block at once, or after ``dfs.blockreport.incremental.intervalMsec``.
REPORTS = PollPolicy(first_s=0.01, factor=1.5, longest_s=0.5, timeout_s=10.0)


class NativeReader(Protocol):
    """A reader of a client; its length is that of the bytes that it can read."""

    def __len__(self) -> int: ...
    def read_range(self, offset: int, length: int, /) -> bytes: ...


class NativeStatus(Protocol):
    """The metadata of a file."""

    @property
    def length(self) -> int: ...


class NativeClient(Protocol):
    """The calls of ``hdfs_native.Client`` that open a file."""

    def get_file_info(self, path: str, /) -> NativeStatus: ...
    def read(self, path: str, /) -> NativeReader: ...


def open_whole(
    client: NativeClient,
    path: str,
    uri: str,
    policy: PollPolicy,
    *,
    sleep: Callable[[float], None] = time.sleep,
) -> NativeReader:
    """Return a reader of all bytes that the file has according to its status.

    No byte is read before: after a wait, the name may be that of another file. The status comes first, so
    that a file which grows in between is opened once.

    :param uri: URI of the file, for the error.
    :param policy: pauses and timeout of the wait for the report of the last block.
    :raises FileNotFoundError: if the file does not exist.
    :raises StorageUnavailableError: if the NameNode does not get the report in time, or a writer has the file
        open for an append.
    """
    listed = known = 0

    def opened() -> list[NativeReader]:
        nonlocal listed, known
        listed = client.get_file_info(path).length
        reader = client.read(path)
        known = len(reader)
        return [reader] if known >= listed else []

    if found := wait_until(opened, policy, sleep=sleep):
        return found[0]
    raise StorageUnavailableError(
        f"{uri} cannot be read whole: it has {listed} bytes, of which the NameNode offers the first {known}. "
        "A writer has it open, or no DataNode has reported its last block.",
        remedy="Run again when the writer has closed the file. If there is none any more, check the "
        "DataNodes (hdfs dfsadmin -report), and let the NameNode close the file "
        f"(hdfs debug recoverLease -path {path}).",
        path=uri,
        listed_bytes=listed,
        readable_bytes=known,
    )


class HdfsReader(io.RawIOBase):
    """A reader that keeps the position itself, because the driver's reader aborts on seeks beyond the end.

    :param inner: the driver's reader.
    :param errors: translates the driver's errors in a block.
    """

    def __init__(self, inner: NativeReader, errors: Callable[[], AbstractContextManager[None]]) -> None:
        self._inner, self._errors = inner, errors
        self._size = len(inner)
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        if base + offset < 0:
            raise ValueError(f"negative position {base + offset}")
        self._at = base + offset
        return self._at

    def readinto(self, buffer: WriteableBuffer) -> int:
        data = self._read(memoryview(buffer).nbytes)
        memoryview(buffer)[: len(data)] = data
        return len(data)

    def readall(self) -> bytes:
        return self._read(max(0, self._size - self._at))

    def _read(self, length: int) -> bytes:
        length = min(length, self._size - self._at)
        if length <= 0:
            return b""
        with self._errors():
            data = self._inner.read_range(self._at, length)
        self._at += len(data)
        return data

    def close(self) -> None:
        if self.closed:
            return
        super().close()
        # hdfs-native's reader holds nothing that has to be closed.
        if (close := getattr(self._inner, "close", None)) is not None:
            with self._errors():
                close()
