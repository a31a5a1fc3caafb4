"""The reader's rows of golden tables equal those that real Hive read; see tests/golden/README.md."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from airflow_hive_federation.errors import NoSuchObjectError
from airflow_hive_federation.model.types import Column, parse_type
from airflow_hive_federation.orc.assembly import HYBRID, PROLEPTIC, AssembledFile, encode, type_messages
from airflow_hive_federation.tables.read import deletes, scan
from airflow_hive_federation.tables.read.formats.plain import _text_rows
from airflow_hive_federation.tables.read.formats.text import TextForm
from airflow_hive_federation.tables.read.reader import read_table
from airflow_hive_federation.tables.spark_types import spark_schema
from tests.support.golden_tables import GOLDEN, GoldenTable, _parsed_row

TABLES = sorted(path.stem for path in GOLDEN.glob("*.json") if path.with_suffix("").is_dir())


@pytest.mark.parametrize("name", TABLES)
def test_rows(name: str, spark: SparkSession) -> None:
    golden = GoldenTable(name)
    rows = read_table(spark, golden, f"golden.{name}", snapshot=golden.snapshot)  # type: ignore[arg-type]
    every = [*golden.columns, *golden.keys]
    assert _collected(rows, every) == golden.expected
    assert rows.count() == len(golden.expected)
    # Named, they may be read by position, without the columns of identities.
    named = _named(spark, golden, [column.name for column in every])
    assert _collected(named, every) == golden.expected
    assert named.count() == len(golden.expected)


def _named(spark: SparkSession, golden: GoldenTable, columns: Sequence[str]) -> DataFrame:
    return read_table(
        spark,
        golden,  # type: ignore[arg-type]
        f"golden.{golden.name}",
        columns=columns,
        snapshot=golden.snapshot,
    )


@pytest.mark.parametrize("content", [b"ORC and what was not committed", b""])
def test_a_file_without_a_commit_yet_has_no_rows(content: bytes, spark: SparkSession, tmp_path: Path) -> None:
    golden = GoldenTable("acid_unfinished")
    golden.location = shutil.copytree(golden.location, tmp_path / "t")
    begun = golden.location / "delta_0000001_0000003" / "bucket_00001"
    begun.write_bytes(content)
    begun.with_name("bucket_00001_flush_length").write_bytes(bytes(8))
    rows = read_table(spark, golden, "golden.t", snapshot=golden.snapshot)  # type: ignore[arg-type]
    assert _collected(rows, golden.columns) == golden.expected


def test_a_head_goes_by_the_calendar_of_its_file(spark: SparkSession, tmp_path: Path) -> None:
    """Its dates of 1500 are Hive's: of the Julian calendar."""
    golden = GoldenTable("acid_types")
    golden.location = shutil.copytree(golden.location, tmp_path / "t")
    for file in golden.location.glob("delta_*/bucket_00000_0"):
        content = file.read_bytes()
        file.with_name(f"{file.name}_flush_length").write_bytes(len(content).to_bytes(8, "big"))
        file.write_bytes(content + b"what was not committed")
    rows = read_table(spark, golden, "golden.t", snapshot=golden.snapshot)  # type: ignore[arg-type]
    assert _collected(rows, golden.columns) == golden.expected


@pytest.mark.parametrize("calendar", [None, HYBRID, PROLEPTIC])
def test_dates_of_original_files_are_the_same_with_row_ids(
    calendar: int | None, spark: SparkSession, tmp_path: Path
) -> None:
    golden = GoldenTable("acid_converted")
    golden.location = tmp_path
    golden.description["columns"] = [["id", "int"], ["day", "date"], ["days", "array<date>"]]
    days = pa.array([-719_162, -170_000, -141_500, -141_438, -141_427, 0, None], pa.int32()).cast(pa.date32())
    table = pa.table(
        {
            "id": pa.array(range(len(days)), pa.int32()),
            "day": days,
            "days": pa.ListArray.from_arrays(pa.array(range(len(days) + 1), pa.int32()), days),
        }
    )
    _write_original(tmp_path, table, "struct<id:int,day:date,days:array<date>>", calendar)

    def texts(*, row_ids: bool) -> list[tuple[Any, ...]]:
        chosen = (
            _read(spark, golden, row_ids=row_ids)
            .orderBy("id")
            .selectExpr("cast(day as string)", "cast(days[0] as string)")
        )
        return [tuple(row) for row in chosen.collect()]

    # Without row ids, Spark reads them.
    assert texts(row_ids=True) == texts(row_ids=False)
    day = "1582-10-04" if calendar == PROLEPTIC else "1582-09-24"
    assert texts(row_ids=True)[3] == (day, day)


@pytest.mark.parametrize("calendar", [HYBRID, PROLEPTIC])
def test_far_timestamps_of_original_files_are_the_same_with_row_ids(
    calendar: int, spark: SparkSession, tmp_path: Path
) -> None:
    golden = GoldenTable("acid_converted")
    golden.location = tmp_path
    golden.description["columns"] = [["at", "timestamp"]]
    at = pa.array([-12_300_000_000_000_000, 253_402_300_799_999_999], pa.timestamp("us"))
    _write_original(tmp_path, pa.table({"at": at}), "struct<at:timestamp>", calendar)

    def read(*, row_ids: bool) -> list[Any]:
        rows = _read(spark, golden, row_ids=row_ids)
        return [row.at for row in rows.selectExpr("cast(at as string) at").collect()]

    early = "1580-03-24 21:20:00" if calendar == PROLEPTIC else "1580-03-14 21:20:00"
    assert read(row_ids=False) == read(row_ids=True) == [early, "9999-12-31 23:59:59.999999"]


def _read(spark: SparkSession, golden: GoldenTable, *, row_ids: bool) -> DataFrame:
    snapshot: Any = golden.snapshot
    return read_table(spark, golden, "golden.t", row_ids=row_ids, snapshot=snapshot)


def _write_original(directory: Path, rows: pa.Table, hive_type: str, calendar: int | None) -> None:
    with (directory / "000000_0").open("wb") as file:
        made = AssembledFile(
            file, type_messages(parse_type(hive_type)), compression="zlib", calendar=calendar
        )
        for stripe in encode(rows, "zlib"):
            made.add(stripe)
        made.finish({})


@pytest.mark.parametrize(
    ("name", "row_ids"),
    [
        ("insert_only", False),
        *itertools.product(["acid_changed", "acid_converted", "acid_loaded"], [False, True]),
    ],
)
def test_files_of_no_bytes_have_no_rows(
    name: str, row_ids: bool, spark: SparkSession, tmp_path: Path
) -> None:
    golden = GoldenTable(name)
    golden.location = shutil.copytree(golden.location, tmp_path / "t")
    # Beside every file one of another bucket, and a statement that wrote nothing else.
    for file in [path for path in golden.location.rglob("*_?") if path.is_file()]:
        file.with_name(file.name.replace("0000", "0099", 1)).touch()
    for directory in [path for path in golden.location.rglob("*delta_*") if path.is_dir()]:
        empty = directory.with_name(directory.name.rsplit("_", 1)[0] + "_0009")
        empty.mkdir()
        (empty / "bucket_00000_0").touch()
    rows = _read(spark, golden, row_ids=row_ids)
    columns = [*golden.columns, *golden.keys]
    if not row_ids:
        assert _collected(rows, columns) == golden.expected
        return
    row_id = Column.of("ROW__ID", "struct<writeid:bigint>")
    assert _collected(rows, [row_id, *columns]) == golden.expected_with_ids


@pytest.mark.parametrize("broadcast", [True, False])
@pytest.mark.parametrize("name", ["acid_changed", "acid_merged", "acid_converted", "acid_streamed"])
def test_deletes_that_are_joined(
    name: str, broadcast: bool, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deletes, "_MOST_DELETES", 0)
    if not broadcast:
        monkeypatch.setattr(scan, "_BROADCAST_ROWS", 0)
    golden = GoldenTable(name)
    rows = read_table(spark, golden, f"golden.{name}", snapshot=golden.snapshot)  # type: ignore[arg-type]
    assert ("Join" in rows._jdf.queryExecution().toString()) is bool(golden.expected)
    assert _collected(rows, [*golden.columns, *golden.keys]) == golden.expected


@pytest.mark.parametrize("whole_stage", ["true", "false"])
def test_rows_whose_numbers_are_far_from_those_deleted(whole_stage: str, spark: SparkSession) -> None:
    """Spark computes slots for rows that have none, too, where conditions share something."""
    keys = np.array([[0, 0, 1], [3, 7, 7], [0, 4095, 2], [0, 1, 1]])
    gone = deletes.Deletes(keys, np.array([1, 1, 2]), np.array([5, 5, 5, 6]))
    numbers = [0, 1, 7, 2**31, 2**40, 2**62, 2**63 - 1]
    properties = [
        0x20000000 | bucket << 16 | statement for bucket in (0, 2, 4095) for statement in (0, 1, 4095)
    ]
    every = list(itertools.product((0, 1, 2**31 - 1), (*numbers, 3), (*properties, 0, -1), (*numbers, 5, 6)))
    deleted = {(0, 3, 0x20000000, 5), (0, 7, 0x2FFF0001, 5), (1, 7, 0x20020001, 5), (1, 7, 0x20020001, 6)}
    schema = f"{scan.PLACE} int, {scan.WRITE_ID} bigint, {scan.BUCKET} int, {scan.ROW_ID} bigint"
    spark.conf.set("spark.sql.codegen.wholeStage", whole_stage)
    try:
        rows = scan.Rows.named(spark.createDataFrame(every, schema), [scan.PLACE, *scan.KEYS])
        left = gone.without(spark, rows).made().collect()
    finally:
        spark.conf.unset("spark.sql.codegen.wholeStage")
    assert sorted(map(tuple, left)) == sorted(set(every) - deleted)


@pytest.mark.parametrize("name", ["acid_changed", "acid_streamed"])
def test_any_choice_of_columns_can_be_read(name: str, spark: SparkSession) -> None:
    golden = GoldenTable(name)
    rows = read_table(spark, golden, f"golden.{name}", snapshot=golden.snapshot)  # type: ignore[arg-type]
    for index, column in enumerate(rows.columns):
        counted = rows.select(fn.count("*"), fn.count(column)).first()
        filled = sum(row[index] is not None for row in golden.expected)
        assert counted is not None
        assert tuple(counted) == (len(golden.expected), filled)
    for many in range(1, len(rows.columns) + 1):
        first = _named(spark, golden, rows.columns[:many])
        last = first.select(first.columns[-1]).collect()
        assert sorted(map(repr, last)) == sorted(map(repr, rows.select(first.columns[-1]).collect()))
    with_ids = read_table(
        spark,
        golden,
        f"golden.{name}",
        row_ids=True,
        snapshot=golden.snapshot,  # type: ignore[arg-type]
    ).where("ROW__ID.writeid = 1 and ROW__ID.bucketid > 0")
    assert with_ids.count() == sum(row[0]["writeid"] == 1 for row in golden.expected_with_ids)
    # Nothing may be pushed down to ORC, which would look for it among the user's columns.
    assert "PushedFilters: [IsNotNull" not in with_ids._jdf.queryExecution().toString()
    # A column called like one of the six ACID columns must not be mixed up with it.
    if "bucket" in rows.columns:
        assert [row["id"] for row in rows.where("bucket > 15").orderBy("id").collect()] == [2, 4, 6]


def test_named_columns_are_read_without_those_of_identities(spark: SparkSession) -> None:
    golden = GoldenTable("acid_aborted")
    names = [column.name for column in golden.columns]
    plan = _plan(_named(spark, golden, names).select(names[-1]))
    fields = ",".join(f"__acid_column_{i}:{column.type}" for i, column in enumerate(golden.columns))
    # The row as a whole, or ORC would take one column for another; and nothing else.
    assert f"ReadSchema: struct<row:struct<{fields}>>" in plan
    assert "Filter " not in plan


def test_deletes_are_looked_up_in_the_scan(spark: SparkSession) -> None:
    golden = GoldenTable("acid_changed")
    plan = _plan(_named(spark, golden, [column.name for column in golden.columns]))
    assert "getbit" in plan
    assert "currentTransaction" not in plan
    # A subquery, as a join, would be executed before and apart.
    assert not any(node in plan for node in ("Subquery", "Join", "Adaptive"))


def _plan(frame: DataFrame) -> str:
    return str(frame._jdf.queryExecution().executedPlan().toString())


@pytest.mark.parametrize("row_ids", [False, True])
def test_original_files_of_partitions(row_ids: bool, spark: SparkSession, tmp_path: Path) -> None:
    golden = GoldenTable("acid_converted")
    golden.location = tmp_path
    golden.description["partition_keys"] = [["part", "int"]]
    golden.description["partitions"] = [{"path": f"part={n}", "values": [str(n)]} for n in (1, 2)]
    for number in (1, 2):
        (tmp_path / f"part={number}" / "sub").mkdir(parents=True)
        for name in ("000000_0", "000001_0"):
            home = tmp_path / f"part={number}" / ("sub" if number == 2 else "")
            shutil.copy(GOLDEN / "acid_converted" / name, home / name)
    rows = read_table(
        spark,
        golden,
        "golden.acid_converted",
        row_ids=row_ids,
        snapshot=golden.snapshot,  # type: ignore[arg-type]
    )
    counts = {row["part"]: row["count"] for row in rows.groupBy("part").count().collect()}
    assert counts[1] > 0
    assert counts == {1: counts[1], 2: counts[1]}


def test_only_the_partitions_named(spark: SparkSession) -> None:
    golden = GoldenTable("insert_only")
    named = read_table(
        spark,
        golden,
        "golden.insert_only",
        partitions=["part=2"],
        columns=["part", "id"],
        snapshot=golden.snapshot,  # type: ignore[arg-type]
    )
    assert [tuple(row) for row in named.collect()] == [(2, 3)]
    with pytest.raises(NoSuchObjectError, match="0 of the 1 partitions"):
        read_table(
            spark,
            golden,
            "golden.insert_only",
            partitions=["part=9"],
            snapshot=golden.snapshot,  # type: ignore[arg-type]
        )


@pytest.mark.parametrize("name", [name for name in TABLES if GoldenTable(name).description["rows_with_id"]])
def test_row_ids(name: str, spark: SparkSession) -> None:
    golden = GoldenTable(name)
    rows = read_table(
        spark,
        golden,
        f"golden.{name}",
        row_ids=True,
        snapshot=golden.snapshot,  # type: ignore[arg-type]
    )
    columns = [Column.of("ROW__ID", "struct<writeid:bigint>"), *golden.columns, *golden.keys]
    assert _collected(rows, columns) == golden.expected_with_ids


def _collected(rows: DataFrame, columns: Sequence[Column]) -> list[tuple[Any, ...]]:
    assert rows.columns == [column.name for column in columns]
    selected = []
    for column in columns:
        value = fn.col(f"`{column.name}`")
        if column.type.name in {"array", "map", "struct"}:
            value = fn.to_json(value, {"ignoreNullFields": "false"})
        elif column.type.name == "binary":
            value = fn.lower(fn.hex(value))
        selected.append(value.cast("string").alias(column.name))
    kinds = [column.type.name for column in columns]
    return sorted((_parsed_row(row, kinds) for row in rows.select(selected).collect()), key=repr)


def test_lines_end_as_hive_ends_them(spark: SparkSession, tmp_path: Path) -> None:
    """A file of Windows, as LOAD DATA brings it, leaves no carriage return in the last column."""
    file = tmp_path / "000000_0"
    file.write_bytes(b"1\x01one\r\n2\x01two\r3\x01three\n")
    form = TextForm(delimiter="\x01", null="\\N")
    columns = [Column.of("id", "int"), Column.of("name", "string")]
    types = [column.type for column in columns]
    rows = _text_rows(spark, [str(file)], spark_schema(columns), form, types).drop(scan.FILE).collect()
    assert sorted(rows) == [(1, "one"), (2, "two"), (3, "three")]
