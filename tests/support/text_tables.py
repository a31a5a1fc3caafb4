"""External tables of text files."""

from __future__ import annotations

from pathlib import Path

from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.metastore.idl import types
from tests.support.small_source import connected


def storage(location: str | None) -> types.StorageDescriptor:
    return types.StorageDescriptor(
        cols=[types.FieldSchema(name="id", type="int"), types.FieldSchema(name="name", type="string")],
        location=location,
        inputFormat="org.apache.hadoop.mapred.TextInputFormat",
        outputFormat="org.apache.hadoop.hive.ql.io.HiveIgnoreKeyTextOutputFormat",
        numBuckets=-1,
        serdeInfo=types.SerDeInfo(
            serializationLib="org.apache.hadoop.hive.serde2.lazy.LazySimpleSerDe",
            parameters={"field.delim": ",", "serialization.format": ","},
        ),
        bucketCols=[],
        sortCols=[],
        parameters={},
    )


def text_table(metastore: EmbeddedMetastore, database: str, name: str, *, rows: dict[str, str]) -> Path:
    """An external text table; ``rows`` by partition ``p=…``, or under the empty name."""
    place = metastore.external_warehouse / database / name
    partitioned = "" not in rows
    with connected(metastore) as client:
        client.create_table(
            types.Table(
                dbName=database,
                tableName=name,
                owner="root",
                sd=storage(f"file:{place}"),
                partitionKeys=[types.FieldSchema(name="p", type="string")] if partitioned else [],
                parameters={"EXTERNAL": "TRUE", "external.table.purge": "TRUE", "colour": "red"},
                tableType="EXTERNAL_TABLE",
            )
        )
    for partition, text in rows.items():
        (place / partition).mkdir(parents=True, exist_ok=True)
        (place / partition / "data").write_text(text, encoding="utf-8")
        if partitioned:
            add_partition(metastore, database, name, partition)
    return place


def add_partition(metastore: EmbeddedMetastore, database: str, name: str, partition: str) -> None:
    place = metastore.external_warehouse / database / name / partition
    with connected(metastore) as client:
        client.add_partitions(
            [
                types.Partition(
                    dbName=database,
                    tableName=name,
                    values=[partition.partition("=")[2]],
                    sd=storage(f"file:{place}"),
                    parameters={},
                )
            ]
        )
