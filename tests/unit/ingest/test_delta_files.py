"""Files that grow by a stripe and a tail for each commit."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import orc

from airflow_hive_federation.acid.orc_tail import read_tail
from airflow_hive_federation.acid.write_plan import TableLayout
from airflow_hive_federation.ingest.delta_files import DeltaFile, acid_types
from airflow_hive_federation.model.types import Column

LAYOUT = TableLayout(
    database="d",
    table="t",
    location="/t",
    file_format="acid",
    columns=(Column.of("id", "int"), Column.of("c", "char(3)")),
)


def rows(*ids: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"id": pa.array(ids, pa.int32()), "c": [f"{one:<3}" for one in ids]})


@pytest.fixture(params=[True, False], ids=["optimized", "thorough"])
def file(tmp_path: Path, request: pytest.FixtureRequest) -> DeltaFile:
    return DeltaFile(
        str(tmp_path / "delta_0000001_0000004"),
        3,
        acid_types(LAYOUT),
        compression="uncompressed" if request.param else "zlib",
        side=True,
        optimized=request.param,
    )


def readable(tmp_path: Path) -> list[tuple[int, int, int]]:
    """What a reader that obeys the flushed length sees: write id, row id, id."""
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


def test_each_commit_can_be_read_while_the_file_grows(file: DeltaFile, tmp_path: Path) -> None:
    expected = []
    for write_id in (1, 2, 3):
        file.begin()
        file.add(write_id, rows(write_id, 10))
        file.add(write_id, rows(20))
        assert readable(tmp_path) == expected
        file.flush()
        expected += [(write_id, 0, write_id), (write_id, 1, 10), (write_id, 2, 20)]
        assert readable(tmp_path) == expected
    file.close()
    assert readable(tmp_path) == expected
    place = tmp_path / "delta_0000001_0000004"
    assert sorted(one.name for one in place.iterdir()) == ["_orc_acid_version", "bucket_00003"]
    with (place / "bucket_00003").open("rb") as opened:
        tail = read_tail(opened, "file")
    assert tail.user_metadata["hive.acid.stats"] == b"9,0,0"
    assert tail.user_metadata["hive.acid.key.index"].split(b";")[:3] == [
        b"1,537067520,1",
        b"1,537067520,2",
        b"2,537067520,1",
    ]
    assert len(tail.stripe_rows) == 6


def test_an_abort_takes_its_rows_out_again(file: DeltaFile, tmp_path: Path) -> None:
    place = tmp_path / "delta_0000001_0000004"
    file.add(1, rows(1))
    file.rewind()
    assert not (place / "bucket_00003").exists()
    file.begin()
    file.add(2, rows(2, 3))
    file.flush()
    before = (place / "bucket_00003").read_bytes()
    file.begin()
    file.add(3, rows(4))
    assert (place / "bucket_00003").read_bytes() != before
    file.rewind()
    assert (place / "bucket_00003").read_bytes() == before
    file.begin()
    file.add(4, rows(5))
    file.flush()
    file.close()
    assert readable(tmp_path) == [(2, 0, 2), (2, 1, 3), (4, 0, 5)]


def test_a_file_without_committed_rows_goes_with_its_directory(file: DeltaFile, tmp_path: Path) -> None:
    file.add(1, rows(1))
    file.rewind()
    file.close()
    assert not (tmp_path / "delta_0000001_0000004").exists()


def test_rows_of_a_commit_that_failed_stay_hidden_by_their_write_id(file: DeltaFile, tmp_path: Path) -> None:
    file.add(1, rows(1))
    file.flush()
    file.rewind()
    file.close()
    assert readable(tmp_path) == [(1, 0, 1)]


def test_flushing_again_changes_nothing(file: DeltaFile, tmp_path: Path) -> None:
    file.add(1, rows(1))
    assert file.flush() == file.flush()
    assert (tmp_path / "delta_0000001_0000004" / "bucket_00003_flush_length").stat().st_size == 8


def test_rows_added_between_two_attempts_to_commit_count(file: DeltaFile, tmp_path: Path) -> None:
    file.add(1, rows(1))
    file.flush()
    file.add(1, rows(2))
    file.flush()
    assert readable(tmp_path) == [(1, 0, 1), (1, 1, 2)]
