"""Tables made by Spark: where their data is, what of them follows it, and which stay out."""

from __future__ import annotations

import pytest

from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.replication.metadata.definitions import (
    definition,
    not_replicated,
    target_partition,
    target_table,
)
from airflow_hive_federation.replication.metadata.spark_tables import at_its_data, data_location
from airflow_hive_federation.replication.metadata.table_locations import TableLocations
from tests.support.spark_definitions import HERE, THERE, table

CLASSES = (
    "com.databricks.spark.csv",
    "org.apache.spark.sql.json",
    "org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat",
)


@pytest.mark.parametrize(
    "provider", ["parquet", "ORC", "csv", "json", "text", "avro", "hive", None, *CLASSES]
)
def test_formats_of_files_are_replicated(provider: str | None) -> None:
    assert not_replicated(table(provider=provider)) is None


@pytest.mark.parametrize(
    ("definition", "reason"),
    [
        (table(provider="delta"), "data source delta"),
        (table(provider="hudi"), "data source hudi"),
        (table(provider="iceberg"), "data source iceberg"),
        (table(provider="org.example.parquetlike"), "data source org.example.parquetlike"),
        (table(provider="jdbc", path=None), "data source jdbc"),
        (table(provider=None, input_format="io.delta.hive.DeltaInputFormat"), "Delta Lake"),
        (table(provider=None, input_format="org.apache.hudi.hadoop.HoodieParquetInputFormat"), "Hudi"),
        (
            table(provider=None, input_format="org.apache.hadoop.hive.ql.io.SymlinkTextInputFormat"),
            "symbolic links",
        ),
        (table(path="hdfs://a/w/d.db/*/x"), "by a pattern"),
        (table(path="hdfs://a/w/d.db/renamed"), "SET LOCATION in Spark"),
        (table(path="hdfs://b/w/d.db/t"), "SET LOCATION in Spark"),
        (table(options={"basePath": "hdfs://a/w"}), "option basePath"),
        (table(options={"avroSchemaUrl": "hdfs://a/schema.avsc"}), "option avroSchemaUrl"),
        (table(kind="MANAGED_TABLE", keys=("p",)), "MSCK REPAIR TABLE"),
    ],
)
def test_what_would_be_no_replica_stays_out(definition: types.Table, reason: str) -> None:
    assert reason in (not_replicated(definition) or "")


@pytest.mark.parametrize(
    "definition",
    [
        table(kind="MANAGED_TABLE", keys=("p",), spark__sql__partitionProvider="catalog"),
        table(kind="MANAGED_TABLE"),
        table(keys=("p",)),
        # One of the two spellings may lack scheme or authority.
        table(path="/w/d.db/t"),
        table(path="hdfs:/w/d.db/t"),
        table(location="file:///w/t", path="file:/w/t/"),
    ],
)
def test_one_place_in_two_spellings(definition: types.Table) -> None:
    assert not_replicated(definition) is None
    made = target_table(definition, database="e", location=THERE, parameters={})
    assert made.sd.serdeInfo.parameters == {"path": THERE, "serialization.format": "1"}


def test_the_data_of_a_table_that_hive_cannot_read_is_at_its_path() -> None:
    placeholder = table(location="hdfs://a/w/d.db/t-__PLACEHOLDER__", path="hdfs://a/data/t", provider="csv")
    assert not_replicated(placeholder) is None
    assert data_location(placeholder) == TableLocations(placeholder).root == "hdfs://a/data/t"
    before = definition(placeholder)
    assert definition(at_its_data(placeholder)) == before
    assert placeholder.sd.location == "hdfs://a/data/t"
    # A table of Hive's may be called so.
    other = table(location="hdfs://a/w/d.db/t-__PLACEHOLDER__", path="hdfs://a/data/t", provider=None)
    assert data_location(other) == "hdfs://a/w/d.db/t-__PLACEHOLDER__"


def test_spellings_of_a_place_make_no_difference() -> None:
    first, other, another = (
        table(location=f"{scheme}://b/t", path=f"{scheme}://b/{name}") for scheme, name in
        (("s3a", "t"), ("s3", "t"), ("s3a", "u"))
    )  # fmt: skip
    assert definition(first) == definition(other)
    assert definition(first) != definition(another)


def test_places_follow_and_nothing_else_does() -> None:
    options = {"Path": HERE, "basePath": f"{HERE}/x", "header": "true", "quote": "/"}
    definition = table(path=None, options=options)
    made = target_table(definition, database="e", location=THERE, parameters={})
    assert made.sd.serdeInfo.parameters == {
        "Path": THERE,
        "basePath": f"{THERE}/x",
        "header": "true",
        "quote": "/",
        "serialization.format": "1",
    }
    assert definition.sd.serdeInfo.parameters == {**options, "serialization.format": "1"}


@pytest.mark.parametrize(
    ("path", "moved"),
    [
        (f"{HERE}/p=1", f"{THERE}/p=1"),
        (HERE, THERE),
        ("$.a.b", "$.a.b"),
        ("hdfs://elsewhere/x", "hdfs://elsewhere/x"),
    ],
)
def test_of_a_partition_the_path_may_be_the_tables(path: str, moved: str) -> None:
    partition = types.Partition(
        dbName="d",
        tableName="t",
        parameters={},
        sd=types.StorageDescriptor(
            location=f"{HERE}/p=1", serdeInfo=types.SerDeInfo(parameters={"path": path})
        ),
    )
    made = target_partition(partition, database="e", location=f"{THERE}/p=1", parameters={})
    assert made.sd.serdeInfo.parameters == {"path": moved}
