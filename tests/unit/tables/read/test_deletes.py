"""Deletes: the files that may hold deleted rows, and a bit per deleted row."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import orc

from airflow_hive_federation.acid.snapshot import acid_state
from airflow_hive_federation.errors import AcidFormatError
from airflow_hive_federation.model.write_ids import ValidWriteIds
from airflow_hive_federation.storage.listing import list_files
from airflow_hive_federation.tables.read import deletes as module
from airflow_hive_federation.tables.read.arrow_rows import bucket_property
from airflow_hive_federation.tables.read.deletes import Deletes, read_deletes
from airflow_hive_federation.tables.read.partition_scans import PartitionScan

Event = tuple[int, int, int, int]  # original write id, bucket property, row id, current write id


def make(directory: Path, events: list[Event], *, operation: int = 2) -> None:
    file = directory / "bucket_00000_0"
    directory.mkdir(parents=True)
    columns = [pa.array(column, pa.int64()) for column in zip(*events, strict=True)]
    row = pa.array([None] * len(events), pa.struct([("id", pa.int32())]))
    table = pa.table(
        {
            "operation": pa.array([operation] * len(events), pa.int32()),
            "originalTransaction": columns[0],
            "bucket": columns[1].cast(pa.int32()),
            "rowId": columns[2],
            "currentTransaction": columns[3],
            "row": row,
        }
    )
    orc.write_table(table, file)


def place(path: Path, write_ids: ValidWriteIds) -> PartitionScan:
    state = acid_state(list_files(path.as_uri()), write_ids)
    return PartitionScan(path.as_uri(), path.as_uri(), state, ())


def everything(high_watermark: int = 9, text: str = "::") -> ValidWriteIds:
    return ValidWriteIds.parse(f"d.t:{high_watermark}:9223372036854775807{text}")


def bits_of(deletes: Deletes) -> set[tuple[int, int]]:
    """Slots and row ids whose bit is set."""
    firsts, words = (values.tolist() for values in deletes._bits())
    return {
        (slot, 64 * index + bit)
        for slot, (first, end) in enumerate(itertools.pairwise(firsts))
        for index, word in enumerate(words[first:end])
        for bit in range(64)
        if word >> bit & 1
    }


def test_every_deleted_row_has_its_bit(tmp_path: Path) -> None:
    first, second = bucket_property(0, 0), bucket_property(0, 1)
    rows = {3: {0, 63, 64, 1000}, 4: {5}}
    make(tmp_path / "delete_delta_5_5_0000", [(w, first, r, 5) for w, rs in rows.items() for r in sorted(rs)])
    make(tmp_path / "delete_delta_6_6_0000", [(4, second, 7, 6)])
    read = read_deletes([place(tmp_path, everything())], everything(), None)
    assert read is not None
    # Write ids 3 and 4, statements 0 and 1.
    assert bits_of(read) == {(0, 0), (0, 63), (0, 64), (0, 1000), (2, 5), (3, 7)}
    assert read.touch(0, (3, 3), 0)
    assert read.touch(0, (0, 9), 0)
    assert not read.touch(0, (5, 9), 0)
    assert not read.touch(0, (0, 2), 0)
    assert not read.touch(0, (3, 3), 1)
    assert not read.touch(1, (3, 3), 0)


def test_deletes_that_are_not_visible_delete_nothing(tmp_path: Path) -> None:
    bucket = bucket_property(0, 0)
    make(tmp_path / "delete_delta_4_6", [(1, bucket, row, 4 + row) for row in range(3)])
    write_ids = everything(text="::5")  # 5 was aborted
    read = read_deletes([place(tmp_path, write_ids)], write_ids, None)
    assert read is not None
    assert sorted(read.rows) == [0, 2]


@pytest.mark.parametrize(
    "events",
    [
        [(1, 3, 0, 5)],  # the bucket as Hive 2 wrote it
        [(1, bucket_property(0, 0), 400_000_000, 5)],  # too many words
        [(1, bucket_property(0, 0), 0, 5), (2_000_000, bucket_property(0, 0), 0, 5)],  # too many write ids
    ],
)
def test_what_cannot_be_looked_up_is_left_to_a_join(events: list[Event], tmp_path: Path) -> None:
    make(tmp_path / "delete_delta_5_5_0000", events)
    assert read_deletes([place(tmp_path, everything())], everything(), None) is None


def test_too_many_deletes_are_left_to_a_join(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path / "delete_delta_5_5_0000", [(1, bucket_property(0, 0), row, 5) for row in range(3)])
    monkeypatch.setattr(module, "_MOST_DELETES", 2)
    assert read_deletes([place(tmp_path, everything())], everything(), None) is None


def test_a_file_that_is_no_delete_file(tmp_path: Path) -> None:
    directory = tmp_path / "delete_delta_5_5_0000"
    directory.mkdir()
    orc.write_table(pa.table({"a": np.arange(3)}), directory / "bucket_00000")
    with pytest.raises(AcidFormatError, match="does not have the columns"):
        read_deletes([place(tmp_path, everything())], everything(), None)


def test_files_of_no_bytes_delete_nothing(tmp_path: Path) -> None:
    for name in ("delete_delta_5_5_0000", "delete_delta_6_6_0000", "delta_5_5_0000"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "bucket_00000_0").touch()
    make(tmp_path / "delete_delta_7_7_0000", [(1, bucket_property(0, 0), 3, 7)])
    without_rows = place(tmp_path, everything()).with_rows(None)
    assert [delete_delta.path for delete_delta in without_rows.state.delete_deltas] == [
        "delete_delta_7_7_0000"
    ]
    assert [delta.files for delta in without_rows.state.deltas] == [()]
    deletes = read_deletes([without_rows], everything(), None)
    assert deletes is not None
    assert deletes.rows.tolist() == [3]


@pytest.mark.parametrize(("flushed", "has_rows"), [(0, False), (8_000, True)])
def test_a_file_that_is_listed_as_empty_while_it_grows(flushed: int, has_rows: bool, tmp_path: Path) -> None:
    """As HDFS lists one until its first block is full."""
    directory = tmp_path / "delta_5_6"
    directory.mkdir()
    (directory / "bucket_00000").touch()
    (directory / "bucket_00000_flush_length").write_bytes(flushed.to_bytes(8, "big"))
    (delta,) = place(tmp_path, everything()).with_rows(None).state.deltas
    assert bool(delta.files) is has_rows


def test_no_deletes() -> None:
    read = read_deletes([], everything(), None)
    assert read is not None
    assert not read.touch(0, (0, 9), 0)
    assert read.fits()
