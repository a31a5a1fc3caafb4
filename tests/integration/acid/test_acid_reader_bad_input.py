"""The reader refuses golden tables that were tampered with, and names the fault."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from pyarrow import orc
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from airflow_hive_federation.errors import AcidFormatError, ConfigurationError, FileVanishedError
from airflow_hive_federation.model.write_ids import ValidTxns, ValidWriteIds
from airflow_hive_federation.orc.tail import read_tail, replace_footer
from airflow_hive_federation.tables.read.reader import read_table
from airflow_hive_federation.transactions.snapshots import Snapshot
from tests.support.golden_tables import GoldenTable

INSERTED = "delta_0000001_0000001_0000/bucket_00000_0"
DELETED = "delete_delta_0000004_0000004_0000/bucket_00000_0"


@pytest.fixture
def golden(tmp_path: Path) -> GoldenTable:
    """A golden table that may be spoilt."""
    table = GoldenTable("acid_changed")
    table.location = tmp_path / "acid_changed"
    shutil.copytree(GoldenTable("acid_changed").location, table.location)
    return table


def read(spark: SparkSession, golden: GoldenTable, **choice: Any) -> DataFrame:
    choice = {"snapshot": golden.snapshot, **choice}
    return read_table(spark, golden, f"golden.{golden.name}", **choice)  # type: ignore[arg-type]


@pytest.mark.parametrize("path", [INSERTED, DELETED])
def test_a_truncated_file(path: str, golden: GoldenTable, spark: SparkSession) -> None:
    bucket = golden.location / path
    bucket.write_bytes(bucket.read_bytes()[:-10])
    with pytest.raises(AcidFormatError, match=path) as caught:
        read(spark, golden)
    assert caught.value.path.endswith(path)


@pytest.mark.parametrize("path", [INSERTED, DELETED])
def test_a_file_of_another_schema(path: str, golden: GoldenTable, spark: SparkSession) -> None:
    orc.write_table(pa.table({"id": [1]}), golden.location / path)
    with pytest.raises(AcidFormatError, match=f"{path} does not have the columns"):
        read(spark, golden)


@pytest.mark.parametrize("version", [b"1", b"3", b""])
def test_a_directory_of_another_version(version: bytes, golden: GoldenTable, spark: SparkSession) -> None:
    marker = golden.location / "delta_0000002_0000002_0000/_orc_acid_version"
    marker.write_bytes(version)
    with pytest.raises(AcidFormatError, match=f"{marker} is of ACID version"):
        read(spark, golden)


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"hive.acid.version": b"3"}, "is of ACID version '3'"),
        ({"hive.acid.stats": b"1,1,0"}, "updates"),
        ({"hive.acid.stats": b"1,0,1"}, "deletes"),
    ],
)
def test_a_file_of_another_version(
    metadata: dict[str, bytes], message: str, golden: GoldenTable, spark: SparkSession
) -> None:
    with (golden.location / INSERTED).open("r+b") as file:
        tail = read_tail(file, INSERTED)
        replace_footer(
            file,
            INSERTED,
            types=tail.types,
            calendar=tail.calendar,
            user_metadata={**tail.user_metadata, **metadata},
        )
    with pytest.raises(AcidFormatError, match=message):
        read(spark, golden)


def test_an_event_without_a_row_among_inserts(golden: GoldenTable, spark: SparkSession) -> None:
    path = golden.location / INSERTED
    table = orc.read_table(path)
    rows = pa.array([None, *table.column("row").to_pylist()[1:]], table.schema.field("row").type)
    orc.write_table(table.set_column(5, "row", rows), path)
    named = read(spark, golden, columns=[column.name for column in golden.columns])
    with pytest.raises((Py4JJavaError, PySparkException), match="has an event without a row"):
        named.collect()


def test_a_column_that_the_table_has_not(golden: GoldenTable, spark: SparkSession) -> None:
    with pytest.raises(ConfigurationError, match="acid_changed has no column operation, row"):
        read(spark, golden, columns=["ID", "operation", "row"])


def test_files_that_the_cleaner_has_removed(golden: GoldenTable, spark: SparkSession) -> None:
    rows = read(spark, golden)
    shutil.rmtree(golden.location / "delta_0000001_0000001_0000")
    spark.conf.set("spark.sql.files.ignoreMissingFiles", "true")
    try:
        # Whatever the session's settings, rows are never left out.
        with pytest.raises(Py4JJavaError, match="FILE_NOT_EXIST"):
            rows.collect()
    finally:
        spark.conf.unset("spark.sql.files.ignoreMissingFiles")


def test_files_that_go_while_they_are_looked_at(
    golden: GoldenTable, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow_hive_federation.tables.read import locations

    real = locations.list_many

    def list_and_remove(*args: Any, **options: Any) -> Any:
        result = real(*args, **options)
        (golden.location / DELETED).unlink()
        return result

    monkeypatch.setattr(locations, "list_many", list_and_remove)
    with pytest.raises(FileVanishedError, match=DELETED):
        read(spark, golden)


def test_history_that_was_compacted_away(golden: GoldenTable, spark: SparkSession) -> None:
    for path in golden.location.iterdir():
        shutil.rmtree(path)
    shutil.copytree(
        GoldenTable("acid_changed").location / "delta_0000001_0000001_0000", golden.location / "base_0000004"
    )
    old = Snapshot(write_ids=ValidWriteIds.parse("golden.acid_changed:2:2:2:"), txns=ValidTxns.everything())
    # Hive 3's compactor notes it in a file, Hive 4's in the directory's name.
    marker = golden.location / "base_0000004" / "_metadata_acid"
    marker.write_text('{"thisFileVersion":"0","dataFormat":"compacted"}', encoding="utf-8")
    assert read(spark, golden).count() > 0
    with pytest.raises(AcidFormatError, match="Not enough history available"):
        read(spark, golden, snapshot=old)
    marker.write_text("compacted", encoding="utf-8")
    with pytest.raises(AcidFormatError, match=f"{marker} cannot be read"):
        read(spark, golden)


def test_a_write_id_that_was_never_given_out_is_invisible(golden: GoldenTable, spark: SparkSession) -> None:
    before = read(spark, golden).count()
    shutil.copytree(
        golden.location / "delta_0000002_0000002_0000", golden.location / "delta_0000009_0000009_0000"
    )
    assert read(spark, golden).count() == before


def test_tables_that_are_not_what_they_should_be(golden: GoldenTable, spark: SparkSession) -> None:
    golden.description["parameters"] = {}
    with pytest.raises(ConfigurationError, match="not a full ACID table"):
        read(spark, golden, snapshot=None, row_ids=True)
    for parameters in ({}, {"transactional": "true"}):
        golden.description["parameters"] = parameters
        golden.description["input_format"] = "org.apache.hadoop.hive.ql.io.avro.AvroContainerInputFormat"
        with pytest.raises(ConfigurationError, match=r"golden\.acid_changed is in a format"):
            read(spark, golden)
    golden.description["parameters"] = {"storage_handler": "org.apache.kudu"}
    with pytest.raises(ConfigurationError, match="are stored by"):
        read(spark, golden)


def test_partitions_that_share_a_location(spark: SparkSession) -> None:
    golden = GoldenTable("insert_only")
    golden.description["partitions"][1]["path"] = "part=1"
    with pytest.raises(
        AcidFormatError, match=r"Partitions part=1 and part=2 of .* have one location"
    ) as caught:
        read(spark, golden)
    assert "partitions=" in str(caught.value.remedy)
