"""Compressed input that holds far more than it takes: read within bounds of memory, or refused by name."""

from __future__ import annotations

import random
import resource
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from airflow_hive_federation.errors import StorageError
from airflow_hive_federation.ingest.errors import SerializationError
from airflow_hive_federation.ingest.inputs import Position, text_records

KINDS = {"gz": "gzip", "bz2": "bz2", "zst": "zstd", "lz4": "lz4"}
#: These take seconds to compress all of a bomb.
MEMBERS_OF_SLOW = {"gz": 8, "bz2": 8}
#: What the bombs hold.
BOMB_MIB = 400
_CHUNK = 4 << 20
#: Addresses that the child may take beside those that it has at its beginning.
BUDGET = 300 << 20


def write(path: Path, codec: str, piece: bytes, times: int, *, members: int = 1) -> None:
    """Write a file of one piece again and again.

    :param members: compressed streams that follow each other in the file; they are equal, and only one is
        compressed.
    """
    with pa.OSFile(str(path), "wb") as raw, pa.CompressedOutputStream(raw, codec) as made:
        for _ in range(times // members):
            made.write(piece)
    path.write_bytes(path.read_bytes() * members)


@pytest.fixture(scope="module")
def bombs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("bombs")
    for suffix, codec in KINDS.items():
        members = MEMBERS_OF_SLOW.get(suffix, 1)
        write(directory / f"line.{suffix}", codec, b"x" * (1 << 20), BOMB_MIB, members=members)
    return directory


@pytest.mark.parametrize("suffix", KINDS)
def test_a_line_without_end(suffix: str, bombs: Path) -> None:
    """In a process of its own, whose addresses are bounded."""
    path = bombs / f"line.{suffix}"
    assert path.stat().st_size < 10 << 20
    call = f"from tests.unit.ingest.test_compressed_bombs import main; main({str(path)!r})"
    done = subprocess.run(
        [sys.executable, "-c", call],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr[-2000:]) == (0, "")


def main(path: str) -> None:
    """Run in the child process of the test."""
    used = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + BUDGET, used + BUDGET))
    uri = f"file:{path}"
    bounded = text_records(Position(uri=uri, offset=0), None, header=False, max_record_bytes=8 << 20)
    with pytest.raises(SerializationError, match="line 1"):
        assert not any(records for records, _ in bounded)


@pytest.mark.parametrize("suffix", KINDS)
def test_short_lines_come_in_pieces(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"lines.{suffix}"
    write(path, KINDS[suffix], b"a\n" * (1 << 20), 4, members=4)
    sizes = [
        len(records)
        for records, _ in text_records(Position(uri=f"file:{path}", offset=0), None, header=False)
    ]
    assert sum(sizes) == 4 << 20
    assert max(sizes) <= _CHUNK // 2 + 1


@pytest.mark.parametrize("suffix", KINDS)
@pytest.mark.parametrize("kept", [0.5, 0.99])
def test_half_a_file_is_an_error_that_names_it(suffix: str, kept: float, tmp_path: Path) -> None:
    path = tmp_path / f"lines.{suffix}"
    chance = random.Random(suffix)
    write(path, KINDS[suffix], b"".join(b"%x\n" % chance.getrandbits(40) for _ in range(100_000)), 1)
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * kept)])
    with pytest.raises(StorageError, match=f"lines.{suffix} cannot be decompressed"):
        list(text_records(Position(uri=f"file:{path}", offset=0), None, header=False))


def test_a_frame_of_zstd_that_looks_back_2_gib_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "far.zst"
    path.write_bytes(b"\x28\xb5\x2f\xfd" + bytes([0, (31 - 10) << 3]) + b"\x01\0\0")
    with pytest.raises(StorageError, match=r"far\.zst cannot be decompressed"):
        list(text_records(Position(uri=f"file:{path}", offset=0), None, header=False))
