"""Statistics of a replica: all of the source's, and called accurate only where the source calls them so."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.metastore import MetastoreClient
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.replication.metadata import statistics
from tests.support.small_source import connected, storage

DATABASE = "statistics"
BOTH = '{"BASIC_STATS":"true","COLUMN_STATS":{"a":"true","b":"true"}}'
FLAGS = {
    "both": BOTH,
    "basic": '{"BASIC_STATS":"true"}',
    "one": '{"BASIC_STATS":"true","COLUMN_STATS":{"a":"true"}}',
    "columns": '{"COLUMN_STATS":{"a":"true","b":"true"}}',
    "none": None,
}
WRITE_IDS = {"both": 3, "basic": 3, "one": 4, "columns": 5, "none": 5}


@pytest.fixture(scope="module")
def client(target: EmbeddedMetastore) -> Iterator[MetastoreClient]:
    with connected(target) as client:
        client.create_database(types.Database(name=DATABASE))
        yield client
        client.drop_database(DATABASE, delete_data=True, cascade=True)


@pytest.mark.parametrize("transactional", [True, False])
def test_partitions_keep_the_sources_flags_and_column_statistics(
    client: MetastoreClient, tmp_path: Path, transactional: bool
) -> None:
    name = f"partitioned_{transactional}".lower()
    text = valid_write_ids(name) if transactional else None
    table = make_table(client, name, tmp_path, transactional=transactional, partitioned=True)
    for _ in range(2):  # a load that is repeated
        made = [make_partition(table, value, transactional=transactional) for value in FLAGS]
        statistics.add_partitions(client, made, valid_write_ids=text)
    partitions = {partition.values[0]: partition for partition in partitions_with_statistics(client, name)}
    assert {
        value: partition.parameters.get("COLUMN_STATS_ACCURATE") for value, partition in partitions.items()
    } == FLAGS
    assert {
        value: partition.parameters["numRows"] for value, partition in partitions.items()
    } == dict.fromkeys(FLAGS, "5")
    described = {
        value: sorted(statistics.columns(partition.colStats)) for value, partition in partitions.items()
    }
    assert described == {value: ["a", "b"] for value in FLAGS}
    if transactional:
        assert {value: partition.writeId for value, partition in partitions.items()} == WRITE_IDS


@pytest.mark.parametrize("transactional", [True, False])
@pytest.mark.parametrize("state", FLAGS)
def test_tables_have_no_column_statistics_that_the_source_calls_stale(
    client: MetastoreClient, tmp_path: Path, state: str, transactional: bool
) -> None:
    name = f"plain_{state}_{transactional}".lower()
    make_table(client, name, tmp_path, transactional=transactional, partitioned=False, state=state)
    # Without write ids a metastore gives the statistics it has, whether they hold for a reader or not.
    described: Any = client.get_table(DATABASE, name, with_column_stats=True)
    assert described.parameters.get("COLUMN_STATS_ACCURATE") == FLAGS[state]
    assert bool(described.colStats and described.colStats.statsObj) == (state == "both")


def partitions_with_statistics(client: MetastoreClient, name: str) -> list[Any]:
    return list(client.iter_partitions(DATABASE, name, with_column_stats=True))


def valid_write_ids(name: str) -> str:
    return f"{DATABASE}.{name}:7:9223372036854775807::"


def make_table(
    client: MetastoreClient,
    name: str,
    tmp_path: Path,
    *,
    transactional: bool,
    partitioned: bool,
    state: str | None = None,
) -> Any:
    table: Any = types.Table(
        dbName=DATABASE,
        tableName=name,
        owner="root",
        sd=storage(None if transactional else f"file:{tmp_path}/{name}"),
        partitionKeys=[types.FieldSchema(name="p", type="string")] if partitioned else [],
        parameters={"transactional": "true"} if transactional else {"EXTERNAL": "TRUE"},
        tableType="MANAGED_TABLE" if transactional else "EXTERNAL_TABLE",
    )
    if state is not None:
        describe(table, state, transactional=transactional)
    if transactional:
        client.repl_tbl_writeid_state(DATABASE, name, valid_write_ids(name))
    client.create_table(statistics.without_stale_statistics(table), environment=statistics.KEEP_STATISTICS)
    return client.get_table(DATABASE, name)


def make_partition(table: Any, value: str, *, transactional: bool) -> Any:
    partition = types.Partition(
        dbName=DATABASE,
        tableName=table.tableName,
        values=[value],
        sd=storage(f"{table.sd.location}/p={value}"),
        parameters={},
    )
    describe(partition, value, transactional=transactional)
    return partition


def describe(described: Any, state: str, *, transactional: bool) -> None:
    """Give a table or partition statistics of five rows, in a state of ``FLAGS``."""
    described.parameters |= {"numRows": "5", "numFiles": "1", "totalSize": "100"}
    if FLAGS[state] is not None:
        described.parameters["COLUMN_STATS_ACCURATE"] = FLAGS[state]
    if transactional:
        described.writeId = WRITE_IDS[state]
    text = types.StringColumnStatsData(maxColLen=4, avgColLen=2.0, numNulls=0, numDVs=5)
    number = types.LongColumnStatsData(lowValue=1, highValue=5, numNulls=0, numDVs=5)
    partitioned = isinstance(described, types.Partition)
    described.colStats = types.ColumnStatistics(
        statsDesc=types.ColumnStatisticsDesc(
            isTblLevel=not partitioned,
            dbName=DATABASE,
            tableName=described.tableName,
            partName=f"p={state}" if partitioned else None,
            catName="hive",
        ),
        statsObj=[
            types.ColumnStatisticsObj(
                colName="a", colType="int", statsData=types.ColumnStatisticsData(longStats=number)
            ),
            types.ColumnStatisticsObj(
                colName="b", colType="string", statsData=types.ColumnStatisticsData(stringStats=text)
            ),
        ],
        engine="hive",
    )
