"""Parquet files of several writers become one without a change of what Hive shows, or none is made."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from airflow_hive_federation.compaction.parquet_files import append_parquet
from airflow_hive_federation.compaction.plan import BucketMerge, CompactedTable, FileFormat, MergeInput
from airflow_hive_federation.errors import AcidFormatError

EARLY, NEAR, FAR = map(
    dt.datetime.fromisoformat, ("1500-02-28T12:00:00", "2026-01-01T00:00:00", "9999-12-31T00:00:00")
)
# Hive reads INT96 that has no zone by Julian day numbers: that of 1500-02-28 is the proleptic calendar's of
# this day.
EARLY_AS_INT96 = dt.datetime.fromisoformat("1500-03-09T12:00:00")


def merged(location: Path, *tables: pa.Table | tuple[pa.Table, dict[str, Any]]) -> pa.Table:
    """Write files, merge them, and return the rows as microseconds."""
    for number, table_part in enumerate(tables):
        table, settings = table_part if isinstance(table_part, tuple) else (table_part, {})
        parquet.write_table(table, location / f"{number}.parquet", **settings)
    return appended(location, len(tables))


def appended(location: Path, number_of_files: int) -> pa.Table:
    table = CompactedTable(
        name="shop.sales",
        location=str(location),
        columns=(),
        file_format=FileFormat.PARQUET,
        partition="day=1",
    )
    names = [f"{number}.parquet" for number in range(number_of_files)]
    inputs = tuple(MergeInput(path=name, size_bytes=(location / name).stat().st_size) for name in names)
    output = location / "all.parquet"
    merge = BucketMerge(table=table, bucket=0, inserts=inputs, write_ids="", output=output.name)
    rows, size_bytes = append_parquet(merge, None)
    assert output.stat().st_size == size_bytes
    rows_read = parquet.ParquetFile(output, coerce_int96_timestamp_unit="us").read()
    assert rows_read.num_rows == rows
    return rows_read


def clocks(values: list[Any], unit: str = "us") -> pa.Table:
    return pa.table({"t": pa.array(values, pa.timestamp(unit))})


def test_columns_by_name(tmp_path: Path) -> None:
    first = pa.table({"id": [1, 2], "x": ["a", None]})
    second = pa.table({"new": [[True], None], "id": [3, 4]})
    rows = merged(tmp_path, (first, {"compression": "zstd"}), (second, {"compression": "none"}))
    assert rows.to_pydict() == {
        "id": [1, 2, 3, 4],
        "x": ["a", None, None, None],
        "new": [None, None, [True], None],
    }
    metadata = parquet.read_metadata(tmp_path / "all.parquet")
    assert metadata.row_group(0).column(0).compression == "ZSTD"
    assert metadata.metadata[b"writer.date.proleptic"] == b"true"


def test_dates_of_both_calendars(tmp_path: Path) -> None:
    days = pa.table({"d": pa.array([dt.date(1500, 3, 10), None], pa.date32())})
    of_hive = days.replace_schema_metadata({"writer.model.name": "4.2.1"})
    rows = merged(tmp_path, of_hive, days)
    assert rows["d"].to_pylist() == [dt.date(1500, 3, 1), None, dt.date(1500, 3, 10), None]


def test_clocks_beside_int96(tmp_path: Path) -> None:
    int96 = (clocks([EARLY_AS_INT96, None, FAR]), {"use_deprecated_int96_timestamps": True})
    rows = merged(tmp_path, int96, clocks([EARLY, None, NEAR]))
    leaf = parquet.ParquetFile(tmp_path / "all.parquet").schema.column(0)
    assert leaf.physical_type == "INT96"
    assert rows["t"].to_pylist() == [EARLY_AS_INT96, None, FAR, EARLY_AS_INT96, None, NEAR]


def test_units_become_the_finer_one(tmp_path: Path) -> None:
    rows = merged(tmp_path, clocks([NEAR], "ms"), clocks([NEAR], "ns"))
    assert rows.schema.field("t").type == pa.timestamp("ns")
    assert rows["t"].cast(pa.timestamp("us")).to_pylist() == [NEAR, NEAR]


def test_far_years_beside_whole_microseconds(tmp_path: Path) -> None:
    rows = merged(tmp_path, clocks([FAR, None]), clocks([NEAR], "ns"))
    assert rows["t"].to_pylist() == [FAR, None, NEAR]


def test_digits_that_microseconds_would_lose(tmp_path: Path) -> None:
    with pytest.raises(AcidFormatError, match=r"1.parquet or another one .* in the column t, beside some"):
        merged(tmp_path, clocks([FAR]), clocks([1_001], "ns"))
    assert not (tmp_path / "all.parquet").exists()


@pytest.mark.parametrize(
    ("table", "settings", "why"),
    [
        (pa.table({"t": [1]}), {}, "and those before it differ: .*Field t has incompatible types"),
        (
            pa.table({"t": pa.array([NEAR], pa.timestamp("us", "UTC"))}),
            {},
            "has instants, where others have wall-clock times",
        ),
        (
            clocks([NEAR]).replace_schema_metadata({"org.apache.spark.legacyINT96": ""}),
            {},
            "was written by Spark in its legacy mode",
        ),
    ],
)
def test_what_does_not_fit_is_refused(
    tmp_path: Path, table: pa.Table, settings: dict[str, Any], why: str
) -> None:
    int96 = (clocks([NEAR]), {"use_deprecated_int96_timestamps": True})
    with pytest.raises(AcidFormatError, match=f"shop.sales partition day=1: .*/1.parquet {why}") as caught:
        merged(tmp_path, int96, (table, settings))
    assert "nothing was changed" in str(caught.value.remedy)
    assert (caught.value.table, caught.value.partition) == ("shop.sales", "day=1")
    assert not (tmp_path / "all.parquet").exists()


@pytest.mark.parametrize(("keep", "why"), [(100, "is not a whole Parquet file"), (None, "cannot be read")])
def test_damaged_files(tmp_path: Path, keep: int | None, why: str) -> None:
    rows = pa.table({"x": [f"row {number}" for number in range(10_000)]})
    settings = {"use_dictionary": False, "write_page_checksum": True}
    parquet.write_table(rows, tmp_path / "0.parquet", **settings)
    content = bytearray((tmp_path / "0.parquet").read_bytes())
    content[200] ^= 1
    (tmp_path / "0.parquet").write_bytes(content[:keep])
    with pytest.raises(AcidFormatError, match=f"0.parquet {why}"):
        appended(tmp_path, 1)
    assert not (tmp_path / "all.parquet").exists()
