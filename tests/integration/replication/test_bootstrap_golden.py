"""Every ACID golden table, replicated: real Hive reads on the target what it read where it wrote them.

The hard ones are here: files under streaming with aborted write ids in the middle, a file still being
written, compacted directories, original files, truncations.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.embedded.sql import HiveSql
from airflow_hive_federation.metastore import MetastoreClient
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.model.partitions import partition_name
from airflow_hive_federation.model.write_ids import ValidWriteIds
from airflow_hive_federation.storage.filesystem import local_path
from tests.support.replicating import Replication, replication
from tests.support.small_source import storage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GOLDEN = Path(__file__).parents[2] / "golden"
DATABASE = "golden"
TABLES = sorted(path.stem for path in GOLDEN.glob("*.json") if path.stem.startswith(("acid_", "insert_only")))


def description(table: str) -> dict[str, Any]:
    description: dict[str, Any] = json.loads((GOLDEN / f"{table}.json").read_text(encoding="utf-8"))
    return description


@pytest.fixture(scope="module")
def replicated(
    source: EmbeddedMetastore,
    target: EmbeddedMetastore,
    spark: SparkSession,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Replication]:
    root = tmp_path_factory.mktemp("golden")
    with replication(source, target, spark, root, source_database=DATABASE) as site:
        with site.source.client() as client:
            client.create_database(types.Database(name=DATABASE))
            (committed,) = client.open_txns(1)
            client.commit_txn(committed)
            for table in TABLES:
                mount(client, table, committed)
        site.load(site.dump().dump)
        yield site


def mount(client: MetastoreClient, name: str, committed: int) -> None:
    """Make a golden table a table of the source, write ids and all.

    :param committed: a transaction of the source, in place of those that compacted the table.
    """
    golden = description(name)
    table = types.Table(
        dbName=DATABASE,
        tableName=name,
        owner="root",
        sd=storage(None),
        partitionKeys=[types.FieldSchema(name=key, type=kind) for key, kind in golden["partition_keys"]],
        parameters=golden["parameters"],
        tableType="MANAGED_TABLE",
    )
    table.sd.cols = [types.FieldSchema(name=column, type=kind) for column, kind in golden["columns"]]  # type: ignore[union-attr]
    client.create_table(table)
    made: Any = client.get_table(DATABASE, name)
    location = Path(local_path(made.sd.location) or "")
    shutil.copytree(GOLDEN / name, location, dirs_exist_ok=True)
    for directory in location.rglob("*_v*"):
        # Its compaction was a transaction of another metastore.
        directory.rename(directory.with_name(re.sub(r"_v\d+$", f"_v{committed:07d}", directory.name)))
    for partition in golden["partitions"]:
        place = made.sd.__class__(
            **{**vars_of(made.sd), "location": f"{made.sd.location}/{partition['path']}"}
        )
        client.add_partitions(
            [
                types.Partition(
                    dbName=DATABASE, tableName=name, values=partition["values"], sd=place, parameters={}
                )
            ]
        )
    allocate(client, name, ValidWriteIds.parse(golden["write_ids"]))


def vars_of(struct: Any) -> dict[str, Any]:
    return {name: getattr(struct, name) for name in (spec[1] for spec in struct.thrift_spec.values())}


def allocate(client: MetastoreClient, name: str, write_ids: ValidWriteIds) -> None:
    """Bring the table's write ids to where Hive left them, the aborted ones aborted."""
    if write_ids.high_watermark > 1_000_000:
        first = 10_000_001
        request = types.SeedTableWriteIdsRequest(dbName=DATABASE, tableName=name, seedWriteId=first - 1)
        client.call("seed_write_id", request)
    else:
        first = 1
    for write_id in range(first, write_ids.high_watermark + 1):
        (txn_id,) = client.open_txns(1)
        component = types.LockComponent(
            type=types.LockType.SHARED_WRITE,
            level=types.LockLevel.TABLE,
            dbname=DATABASE,
            tablename=name,
            operationType=types.DataOperationType.UPDATE,
            isTransactional=True,
        )
        client.lock([component], txn_id=txn_id)
        assert client.allocate_table_write_ids(DATABASE, name, [txn_id]) == {txn_id: write_id}
        if write_ids.is_aborted(write_id):
            client.abort_txns([txn_id])
        else:
            client.commit_txn(txn_id)


@pytest.mark.parametrize("vectorized", [True, False])
@pytest.mark.parametrize("name", TABLES)
def test_hive_reads_the_golden_rows_on_the_target(
    replicated: Replication, hive_sql_target: HiveSql, name: str, vectorized: bool
) -> None:
    golden = description(name)
    expected = golden["rows_with_id"] or golden["rows"]
    hive_sql_target.set("hive.vectorized.execution.enabled", str(vectorized).lower())
    columns = "ROW__ID, *" if golden["rows_with_id"] else "*"
    rows = hive_sql_target.execute(f"SELECT {columns} FROM {DATABASE}.{name}")
    assert sorted(map(list, rows), key=repr) == sorted(expected, key=repr)


def test_both_sides_count_the_same(replicated: Replication) -> None:
    (dump,) = Path(local_path(replicated.policy.directory) or "").glob("[0-9]*")
    report = replicated.verify(f"file:{dump}")
    assert report.differences == []
    counted = {table.name: (table.source_rows, table.target_rows) for table in report.tables}
    expected = {name: len(description(name)["rows"]) for name in TABLES}
    assert counted == {name: (rows, rows) for name, rows in expected.items()}


def test_partitions_keep_their_names(replicated: Replication) -> None:
    with replicated.target.client() as client:
        for name in TABLES:
            golden = description(name)
            keys = [key for key, _ in golden["partition_keys"]]
            if keys:
                expected = {partition_name(keys, partition["values"]) for partition in golden["partitions"]}
                assert set(client.list_partition_names(DATABASE, name)) == expected
