"""Rows of small tables are counted without Spark; integration tests compare the counts with Spark's."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import orc, parquet

from airflow_hive_federation.acid.snapshot import AcidState, acid_state
from airflow_hive_federation.errors import AcidFormatError, FileVanishedError
from airflow_hive_federation.model.write_ids import ValidWriteIds
from airflow_hive_federation.storage.listing import list_files
from airflow_hive_federation.tables.read import row_counts
from airflow_hive_federation.tables.read.row_counts import acid_row_count, plain_row_count

INSERT, DELETE = 0, 2
BUCKET = 0x20000000


def write(path: Path, *events: tuple[int, int, int, int]) -> None:
    """Write an ACID file.

    :param events: operation, write id and row id of the row, and write id of the event.
    """
    columns = [list(column) for column in zip(*events, strict=True)]
    table = pa.table(
        {
            "operation": pa.array(columns[0], pa.int32()),
            "originalTransaction": pa.array(columns[1], pa.int64()),
            "bucket": pa.array([BUCKET] * len(events), pa.int32()),
            "rowId": pa.array(columns[2], pa.int64()),
            "currentTransaction": pa.array(columns[3], pa.int64()),
            "row": pa.array([{"id": row} for row in columns[2]], pa.struct([("id", pa.int32())])),
        }
    )
    path.parent.mkdir(parents=True)
    orc.write_table(table, str(path))


def counted(table: Path, write_ids: ValidWriteIds) -> int | None:
    state = acid_state(list_files(table.as_uri()), write_ids)
    return acid_row_count([(table.as_uri(), state)], write_ids, None)


def valid(high_watermark: int, *invalid: int) -> ValidWriteIds:
    return ValidWriteIds(table="d.t", high_watermark=high_watermark, open_ids=tuple(invalid), aborted_ids=())


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Write ids 1 and 2 to 4 insert three rows each; 5 deletes one of 1, and 6 deletes one of 3."""
    write(tmp_path / "delta_0000001_0000001_0000/bucket_00000", *((INSERT, 1, row, 1) for row in range(3)))
    write(
        tmp_path / "delta_0000002_0000004/bucket_00000",
        *((INSERT, write_id, row, write_id) for write_id in (2, 3, 4) for row in range(3)),
    )
    write(tmp_path / "delete_delta_0000005_0000006/bucket_00000", (DELETE, 1, 2, 5), (DELETE, 3, 0, 6))
    return tmp_path


@pytest.mark.parametrize(
    ("write_ids", "rows"),
    [
        (valid(6), 10),
        (valid(5), 11),
        (valid(4), 12),
        (valid(1), 3),
        (valid(6, 3), 8),  # the row that 6 deletes is one of 3
        (valid(6, 2, 5), 8),
    ],
)
def test_rows_of_valid_write_ids_without_the_deleted_ones(
    table: Path, write_ids: ValidWriteIds, rows: int
) -> None:
    assert counted(table, write_ids) == rows


def test_deletes_of_one_partition_concern_no_other(table: Path, tmp_path: Path) -> None:
    """Writers number the rows of every partition from 0."""
    other = tmp_path / "other"
    write(other / "delta_0000001_0000001_0000/bucket_00000", *((INSERT, 1, row, 1) for row in range(3)))
    write_ids = valid(6)
    first = acid_state(
        [entry for entry in list_files(table.as_uri()) if not entry.path.startswith("other/")], write_ids
    )
    second = acid_state(list_files(other.as_uri()), write_ids)
    places = [(table.as_uri(), first), (other.as_uri(), second)]
    assert acid_row_count(places, write_ids, None) == 13


def test_a_table_of_many_rows_is_left_to_spark(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_counts, "MOST_ROWS", 13)
    assert counted(table, valid(6)) is None
    monkeypatch.setattr(row_counts, "MOST_ROWS", 14)
    assert counted(table, valid(6)) == 10


def test_files_of_no_bytes_have_no_rows_and_only_deletes_delete(table: Path) -> None:
    for name in ("delta_0000001_0000001_0000/bucket_00001", "delete_delta_0000005_0000006/bucket_00001"):
        (table / name).touch()
    write(table / "delete_delta_0000007_0000007_0000/bucket_00000", (INSERT, 1, 0, 7), (DELETE, 1, 1, 7))
    assert counted(table, valid(7)) == 9


@pytest.mark.parametrize("special", ["original", "in part", "raw"])
def test_rows_without_a_written_identity_are_left_to_spark(table: Path, special: str) -> None:
    if special == "in part":
        (table / "delta_0000002_0000004/bucket_00000_flush_length").write_bytes(b"\0" * 8)
    else:
        folder = table if special == "original" else table / "delta_0000007_0000007_0000"
        folder.mkdir(exist_ok=True)
        orc.write_table(pa.table({"id": [1]}), str(folder / "000000_0"))
    assert counted(table, valid(7)) is None


@pytest.mark.parametrize("how", ["gone", "cut", "other columns"])
def test_files_that_cannot_be_read_are_errors(table: Path, how: str) -> None:
    file = table / "delta_0000001_0000001_0000/bucket_00000"
    state = acid_state(list_files(table.as_uri()), valid(6))
    if how == "gone":
        file.unlink()
    elif how == "cut":
        file.write_bytes(file.read_bytes()[:-9])
    else:
        orc.write_table(pa.table({"id": [1]}), str(file))
    with pytest.raises(FileVanishedError if how == "gone" else AcidFormatError):
        acid_row_count([(table.as_uri(), state)], valid(6), None)


def test_an_empty_table_has_no_rows() -> None:
    nothing = AcidState(base=None, originals=(), deltas=(), delete_deltas=())
    assert acid_row_count([("file:/nowhere", nothing)], valid(1), None) == 0
    assert plain_row_count([], None) == 0


def plain(folder: Path, file_format: str) -> int | None:
    return plain_row_count([(folder.as_uri(), file_format, list_files(folder.as_uri()))], None)


@pytest.mark.parametrize(
    ("content", "lines"),
    [(b"a\nb\n", 2), (b"a\nb", 2), (b"a\r\nb\r\n", 2), (b"a\rb", 2), (b"\n\n", 2), (b"\r\n\r", 2), (b"a", 1)],
)
@pytest.mark.parametrize("piece_bytes", [1, 2, 1 << 20])
def test_lines_end_as_hadoop_ends_them(
    tmp_path: Path, content: bytes, lines: int, piece_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_counts, "_PIECE_BYTES", piece_bytes)
    (tmp_path / "000000_0").write_bytes(content)
    (tmp_path / "empty").touch()
    assert plain(tmp_path, "text") == lines


def test_compressed_text_is_left_to_spark(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("1\n")
    assert plain(tmp_path, "text") == 1
    (tmp_path / "b.gz").write_bytes(b"\x1f\x8b")
    assert plain(tmp_path, "text") is None


def test_files_of_a_partition_inside_another_ones_directory_count_once(tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    orc.write_table(pa.table({"id": [1, 2]}), str(tmp_path / "000000_0"))
    (tmp_path / "000001_0").touch()
    parquet.write_table(pa.table({"id": [1, 2, 3]}), str(inner / "000000_0"))
    outer_files, inner_files = list_files(tmp_path.as_uri()), list_files(inner.as_uri())
    places = [
        (tmp_path.as_uri(), "orc", [entry for entry in outer_files if "/" not in entry.path]),
        (inner.as_uri(), "parquet", inner_files),
        (f"{tmp_path.as_uri()}/", "parquet", [entry for entry in outer_files if "/" in entry.path]),
    ]
    assert plain_row_count(places, None) == 5
