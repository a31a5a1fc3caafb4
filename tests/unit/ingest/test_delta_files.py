"""Files that grow by a stripe and a tail for each commit."""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import orc

from airflow_hive_federation.errors import StorageError
from airflow_hive_federation.ingest.delta_files import DeltaFile, acid_types, encoded
from airflow_hive_federation.model.types import Column
from airflow_hive_federation.orc.tail import read_tail
from airflow_hive_federation.storage import durable
from airflow_hive_federation.tables.write.plan import TableLayout

Add = Callable[[int, pa.RecordBatch], None]
LAYOUT = TableLayout(
    database="d",
    table="t",
    location="/t",
    file_format="acid",
    columns=(Column.of("id", "int"), Column.of("c", "char(3)")),
)


def rows(*ids: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {"id": pa.array(ids, pa.int32()), "c": [f"{row_id:<3}" for row_id in ids]}
    )


@pytest.fixture(params=[True, False], ids=["optimized", "thorough"])
def optimized(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def file(tmp_path: Path, optimized: bool) -> DeltaFile:
    place = str(tmp_path / "delta_0000001_0000004")
    return DeltaFile(
        place, 3, acid_types(LAYOUT), compression=compression(optimized), indexed=not optimized, side=True
    )


@pytest.fixture
def add(file: DeltaFile, optimized: bool) -> Add:
    def added(write_id: int, batch: pa.RecordBatch) -> None:
        stripes = encoded(
            batch,
            bucket=3,
            write_id=write_id,
            first_row_id=file.next_row_id,
            compression=compression(optimized),
            optimized=optimized,
        )
        file.append(write_id, stripes)

    return added


def compression(optimized: bool) -> str:
    return "uncompressed" if optimized else "zlib"


def readable(tmp_path: Path) -> list[tuple[int, int, int]]:
    """Return the rows of a reader that obeys the flushed length: write id, row id, id."""
    place = tmp_path / "delta_0000001_0000004"
    side = place / "bucket_00003_flush_length"
    if not (place / "bucket_00003").exists():
        return []
    content = (place / "bucket_00003").read_bytes()
    if side.exists():
        lengths = side.read_bytes()
        assert len(lengths) % 8 == 0
        content = content[: int.from_bytes(lengths[-8:], "big")]
    table = orc.ORCFile(pa.BufferReader(content)).read()
    assert set(table.column("bucket").to_pylist()) <= {0x20030000}
    return [(row["currentTransaction"], row["rowId"], row["row"]["id"]) for row in table.to_pylist()]


def test_each_commit_can_be_read_while_the_file_grows(file: DeltaFile, add: Add, tmp_path: Path) -> None:
    expected = []
    for write_id in (1, 2, 3):
        file.begin()
        add(write_id, rows(write_id, 10))
        add(write_id, rows(20))
        assert readable(tmp_path) == expected
        file.flush()
        expected += [(write_id, 0, write_id), (write_id, 1, 10), (write_id, 2, 20)]
        assert readable(tmp_path) == expected
    file.close()
    assert readable(tmp_path) == expected
    place = tmp_path / "delta_0000001_0000004"
    assert sorted(path.name for path in place.iterdir()) == ["_orc_acid_version", "bucket_00003"]
    with (place / "bucket_00003").open("rb") as opened:
        tail = read_tail(opened, "file")
    assert tail.user_metadata["hive.acid.stats"] == b"9,0,0"
    assert tail.user_metadata["hive.acid.key.index"].split(b";")[:3] == [
        b"1,537067520,1",
        b"1,537067520,2",
        b"2,537067520,1",
    ]
    assert len(tail.stripe_rows) == 6


def test_an_abort_takes_its_rows_out_again(file: DeltaFile, add: Add, tmp_path: Path) -> None:
    place = tmp_path / "delta_0000001_0000004"
    add(1, rows(1))
    file.rewind()
    assert not (place / "bucket_00003").exists()
    file.begin()
    add(2, rows(2, 3))
    file.flush()
    before = (place / "bucket_00003").read_bytes()
    file.begin()
    add(3, rows(4))
    assert (place / "bucket_00003").read_bytes() != before
    file.rewind()
    assert (place / "bucket_00003").read_bytes() == before
    file.begin()
    add(4, rows(5))
    file.flush()
    file.close()
    assert readable(tmp_path) == [(2, 0, 2), (2, 1, 3), (4, 0, 5)]


def test_a_file_without_committed_rows_goes_with_its_directory(
    file: DeltaFile, add: Add, tmp_path: Path
) -> None:
    add(1, rows(1))
    file.rewind()
    file.close()
    assert not (tmp_path / "delta_0000001_0000004").exists()


def test_rows_of_a_commit_that_failed_stay_hidden_by_their_write_id(
    file: DeltaFile, add: Add, tmp_path: Path
) -> None:
    add(1, rows(1))
    file.flush()
    file.rewind()
    file.close()
    assert readable(tmp_path) == [(1, 0, 1)]


def failing_disk(*_args: object) -> None:
    raise OSError(errno.EIO, os.strerror(errno.EIO))


def test_rows_that_never_came_to_the_disk_are_taken_out(
    file: DeltaFile, add: Add, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the side file, the whole file counts, and its tail must be one that is on the disk."""
    add(1, rows(1))
    file.flush()
    place = tmp_path / "delta_0000001_0000004"
    before = (place / "bucket_00003").read_bytes()
    file.begin()
    add(2, rows(2))
    with monkeypatch.context() as patch:
        patch.setattr(durable, "sync_file", failing_disk)
        with pytest.raises(StorageError, match="Input/output error"):
            file.flush()
    assert readable(tmp_path) == [(1, 0, 1)]
    file.rewind()
    file.close()
    assert sorted(path.name for path in place.iterdir()) == ["_orc_acid_version", "bucket_00003"]
    assert (place / "bucket_00003").read_bytes() == before


def test_the_side_file_stays_if_the_file_cannot_be_cut_off(
    file: DeltaFile, add: Add, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk may have lost any byte behind the first commit, and a second wait for it would not tell."""
    add(1, rows(1))
    length = file.flush()
    file.begin()
    add(2, rows(2))
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", failing_disk)
        for call in (file.flush, file.rewind):
            with pytest.raises(StorageError, match="Input/output error"):
                call()
    file.rewind()
    file.close()
    side = tmp_path / "delta_0000001_0000004" / "bucket_00003_flush_length"
    assert side.read_bytes() == length.to_bytes(8, "big")
    assert readable(tmp_path) == [(1, 0, 1)]


def test_rows_whose_length_may_have_been_read_stay(
    file: DeltaFile, add: Add, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(1, rows(1))
    file.flush()
    file.begin()
    add(2, rows(2))
    with monkeypatch.context() as patch:
        patch.setattr(durable, "sync_open_file", failing_disk)
        with pytest.raises(StorageError, match="Input/output error"):
            file.flush()
    file.rewind()
    assert readable(tmp_path) == [(1, 0, 1), (2, 0, 2)]
    file.close()
    assert readable(tmp_path) == [(1, 0, 1), (2, 0, 2)]


def test_rows_added_after_a_commit_that_failed_are_taken_out(
    file: DeltaFile, add: Add, tmp_path: Path
) -> None:
    add(1, rows(1))
    file.flush()
    add(1, rows(2))
    file.rewind()
    file.close()
    assert readable(tmp_path) == [(1, 0, 1)]


def test_a_first_commit_that_never_came_to_the_disk_leaves_no_file(
    file: DeltaFile, add: Add, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(1, rows(1))
    with monkeypatch.context() as patch:
        patch.setattr(durable, "sync_file", failing_disk)
        with pytest.raises(StorageError):
            file.flush()
    file.rewind()
    file.begin()
    add(2, rows(2))
    file.flush()
    file.close()
    assert readable(tmp_path) == [(2, 0, 2)]


def test_flushing_again_changes_nothing(file: DeltaFile, add: Add, tmp_path: Path) -> None:
    add(1, rows(1))
    assert file.flush() == file.flush()
    assert (tmp_path / "delta_0000001_0000004" / "bucket_00003_flush_length").stat().st_size == 8


def test_rows_added_between_two_attempts_to_commit_count(file: DeltaFile, add: Add, tmp_path: Path) -> None:
    add(1, rows(1))
    file.flush()
    add(1, rows(2))
    file.flush()
    assert readable(tmp_path) == [(1, 0, 1), (1, 1, 2)]


def test_a_file_in_the_making_holds_nothing_of_its_rows(file: DeltaFile, add: Add) -> None:
    """Thousands may be open: one for each bucket of each partition."""
    batch = rows(*range(50_000))
    before = pa.total_allocated_bytes()
    add(1, batch)
    assert pa.total_allocated_bytes() == before


def test_quick_files_have_neither_indexes_nor_compression_nor_dictionaries(
    file: DeltaFile, add: Add, optimized: bool, tmp_path: Path
) -> None:
    """(``hive.exec.orc.delta.streaming.optimizations.enabled``.)"""
    file.begin()
    add(1, rows(*([1] * 5000)))
    file.flush()
    file.close()
    content = (tmp_path / "delta_0000001_0000004" / "bucket_00003").read_bytes()
    tail = read_tail(io.BytesIO(content), "file")
    assert tail.compression == compression(optimized)
    assert any(stripe.index_bytes for stripe in tail.stripes) is not optimized
    # A dictionary holds a text once; without one, each value is there as it is.
    assert (content.count(b"1  ") >= 5000 - 10) is optimized
