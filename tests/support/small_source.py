"""A source database made through the metastore alone: quick, for tests that need no rows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.metastore import MetastoreClient, MetastoreSettings
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.storage.filesystem import local_path

#: The database that the fixture ``small_source`` makes.
DATABASE = "small"
ORC = "org.apache.hadoop.hive.ql.io.orc"


def connected(metastore: EmbeddedMetastore) -> MetastoreClient:
    return MetastoreClient(MetastoreSettings(uris=(metastore.uri,)))


def make_small_source(metastore: EmbeddedMetastore, database: str) -> None:
    """An ACID table with two partitions and two commits, an external table, and a view."""
    with connected(metastore) as client:
        client.create_database(types.Database(name=database, parameters={"a": "b"}))
        make_table(client, database, "acid", partitioned=True)
        for value in ("one", "a:b"):
            add_partition(client, database, value)
        for _ in range(2):
            commit_files(client, database, "acid")
        external = metastore.external_warehouse / f"{database}_ext"
        external.mkdir(parents=True)
        (external / "data").write_text("hello\n", encoding="utf-8")
        make_table(client, database, "ext", location=f"file:{external}")
        view = types.Table(
            dbName=database,
            tableName="seen",
            owner="root",
            sd=storage(None),
            partitionKeys=[],
            parameters={},
            tableType="VIRTUAL_VIEW",
            viewOriginalText=f"SELECT a FROM {database}.ext",
            viewExpandedText=f"SELECT `ext`.`a` FROM `{database}`.`ext`",
        )
        client.create_table(view)


def storage(location: str | None) -> types.StorageDescriptor:
    return types.StorageDescriptor(
        cols=[types.FieldSchema(name="a", type="int"), types.FieldSchema(name="b", type="string")],
        location=location,
        inputFormat=f"{ORC}.OrcInputFormat",
        outputFormat=f"{ORC}.OrcOutputFormat",
        numBuckets=-1,
        serdeInfo=types.SerDeInfo(serializationLib=f"{ORC}.OrcSerde", parameters={}),
        bucketCols=[],
        sortCols=[],
        parameters={},
    )


def make_table(
    client: MetastoreClient,
    database: str,
    name: str,
    *,
    partitioned: bool = False,
    location: str | None = None,
) -> None:
    """An ACID table, or an external one at ``location``."""
    keys = [types.FieldSchema(name="p", type="string")] if partitioned else []
    parameters = {"EXTERNAL": "TRUE"} if location else {"transactional": "true", "bucketing_version": "2"}
    client.create_table(
        types.Table(
            dbName=database,
            tableName=name,
            owner="root",
            sd=storage(location),
            partitionKeys=keys,
            parameters=parameters,
            tableType="EXTERNAL_TABLE" if location else "MANAGED_TABLE",
        )
    )


def add_partition(client: MetastoreClient, database: str, value: str) -> None:
    table: Any = client.get_table(database, "acid")
    place = storage(f"{table.sd.location}/p={value.replace(':', '%3A')}")
    client.add_partitions(
        [types.Partition(dbName=database, tableName="acid", values=[value], sd=place, parameters={})]
    )


def commit_files(
    client: MetastoreClient, database: str, table: str, names: Sequence[str] | None = None
) -> int:
    """Commit a delta in every partition, or in those named; return its write id. (Nobody opens the files.)"""
    (txn_id,) = client.open_txns(1)
    write_id = client.allocate_table_write_ids(database, table, [txn_id])[txn_id]
    for partition in client.iter_partitions(database, table, names=names):
        location = Path(local_path(partition.sd.location) or "")  # type: ignore[union-attr,arg-type]
        delta = location / f"delta_{write_id:07d}_{write_id:07d}_0000"
        delta.mkdir(parents=True)
        (delta / "bucket_00000_0").write_text(f"{location.name} {write_id}", encoding="utf-8")
    client.commit_txn(txn_id)
    return write_id
