"""The length of a file whose last block no DataNode has reported, without a server."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from airflow_hive_federation.errors import StorageUnavailableError
from airflow_hive_federation.storage.hdfs_reader import NativeReader, open_whole
from airflow_hive_federation.waiting import PollPolicy

AT_ONCE = PollPolicy(first_s=0.0, timeout_s=0.0)
SOON = PollPolicy(first_s=0.25, factor=2.0)


@dataclass
class Status:
    length: int


@dataclass
class Reader:
    content: bytes

    def __len__(self) -> int:
        return len(self.content)

    def read_range(self, offset: int, length: int, /) -> bytes:
        return self.content[offset : offset + length]


@dataclass
class Client:
    """A client of a NameNode that answers with these lengths and contents, the last one for ever."""

    lengths: list[int]
    contents: list[bytes]
    calls: list[str] = field(default_factory=list)

    def get_file_info(self, path: str, /) -> Status:
        self.calls.append(f"status {path}")
        return Status(self.lengths.pop(0) if len(self.lengths) > 1 else self.lengths[0])

    def read(self, path: str, /) -> NativeReader:
        self.calls.append(f"open {path}")
        return Reader(self.contents.pop(0) if len(self.contents) > 1 else self.contents[0])


def read(client: Client, policy: PollPolicy = SOON) -> tuple[bytes, list[float]]:
    pauses: list[float] = []
    reader = open_whole(client, "/f", "hdfs://n/f", policy, sleep=pauses.append)
    return reader.read_range(0, len(reader)), pauses


@pytest.mark.parametrize(
    ("length", "content"),
    [
        (3, b"abc"),
        (0, b""),
        # It has grown after the status.
        (3, b"abcd"),
    ],
)
def test_a_whole_file_is_opened_once(length: int, content: bytes) -> None:
    client = Client([length], [content])
    assert read(client) == (content, [])
    assert client.calls == ["status /f", "open /f"]


@pytest.mark.parametrize(
    ("lengths", "contents", "content"),
    [
        ([6], [b"", b"", b"abcdef"], b"abcdef"),
        # The first of two blocks is complete.
        ([6], [b"abc", b"abcdef"], b"abcdef"),
        # Another file has taken the name meanwhile, a shorter one.
        ([6, 2], [b"abc", b"no"], b"no"),
    ],
)
def test_a_file_without_its_last_block_is_opened_anew(
    lengths: list[int], contents: list[bytes], content: bytes
) -> None:
    tries = len(contents)
    client = Client(lengths, contents)
    assert read(client) == (content, [0.25, 0.5][: tries - 1])
    assert client.calls == ["status /f", "open /f"] * tries


def test_a_file_that_stays_short_is_an_error() -> None:
    with pytest.raises(StorageUnavailableError, match=r"has 6 bytes, .* the first 3") as caught:
        read(Client([6], [b"abc"]), AT_ONCE)
    assert caught.value.retryable
    assert "recoverLease -path /f" in caught.value.remedy
    assert caught.value.facts == {"path": "hdfs://n/f", "listed_bytes": 6, "readable_bytes": 3}


def test_a_file_that_is_removed_meanwhile_is_missing() -> None:
    class Removed(Client):
        def read(self, path: str, /) -> NativeReader:
            if self.calls.count(f"open {path}"):
                raise FileNotFoundError(path)
            return super().read(path)

    with pytest.raises(FileNotFoundError):
        read(Removed([6], [b""]))
