"""Transactional tables of a remote: described locally, not read there, read by their owner's write ids."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from airflow_hive_federation.catalog.hive import HiveCatalog
from airflow_hive_federation.catalog.roles import EventSource, MetastoreOwner, Reader
from airflow_hive_federation.compaction.plan import CompactionKind
from airflow_hive_federation.compaction.requests import compact_table
from airflow_hive_federation.compaction.runners import in_threads
from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.embedded.sql import HiveSql, HiveSqlError
from airflow_hive_federation.metastore import MetastoreSettings
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.remotes.definitions import UNREADABLE
from airflow_hive_federation.remotes.read import read_remote_table, reading_remote_tables
from airflow_hive_federation.remotes.session import Remotes
from airflow_hive_federation.remotes.statement import Kind, Name
from tests.support.catalog_contract import DATABASE as CONTRACT
from tests.support.catalog_contract import check_reader, tables
from tests.support.small_source import connected
from tests.support.steady_links import check_steady

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FAR = "remote_acid_far"
NEAR = "remote_acid_near"
ACID = "STORED AS ORC TBLPROPERTIES ('transactional'='true'"


@pytest.fixture
def remotes(target: EmbeddedMetastore) -> Iterator[Remotes]:
    with connected(target) as client:
        client.create_database(types.Database(name=NEAR))
    with Remotes(MetastoreSettings(uris=(target.uri,)), database=NEAR) as opened:
        yield opened


@pytest.mark.slow
def test_transactional_tables(
    remotes: Remotes,
    source: EmbeddedMetastore,
    target: EmbeddedMetastore,
    hive_sql_source: HiveSql,
    hive_sql_target: HiveSql,
    spark: SparkSession,
    tmp_path: Path,
) -> None:
    for statement in (
        f"CREATE DATABASE {FAR}",
        f"CREATE TABLE {FAR}.full_acid (id INT, name STRING) PARTITIONED BY (p STRING) {ACID})",
        f"INSERT INTO {FAR}.full_acid VALUES (1, 'a', 'x'), (2, 'b', 'x'), (3, 'c', 'y')",
        f"UPDATE {FAR}.full_acid SET name = 'B' WHERE id = 2",
        f"CREATE TABLE {FAR}.insert_only (id INT) {ACID}, 'transactional_properties'='insert_only')",
        f"INSERT INTO {FAR}.insert_only VALUES (1), (2)",
        f"CREATE EXTERNAL TABLE {FAR}.counted (id INT) STORED AS ORC",
        f"INSERT INTO {FAR}.counted VALUES (1), (2)",
        f"ANALYZE TABLE {FAR}.counted COMPUTE STATISTICS FOR COLUMNS",
        f"CREATE EXTERNAL TABLE {FAR}.parted (id INT) PARTITIONED BY (p STRING) STORED AS ORC",
        f"INSERT INTO {FAR}.parted VALUES (1, 'a'), (2, 'b')",
        f"ANALYZE TABLE {FAR}.parted PARTITION (p) COMPUTE STATISTICS FOR COLUMNS",
    ):
        hive_sql_source.execute(statement)
    remotes.run(f"CREATE REMOTE DATABASE acid_link CONNECTED TO {FAR} 'hive.metastore.uris' = '{source.uri}'")

    check_steady(remotes, MetastoreSettings(uris=(target.uri,)), "acid_link")
    # Described, and not read, by an engine that knows only the local metastore.
    described = hive_sql_target.execute("DESCRIBE acid_link.full_acid")
    columns = [(row[0].strip(), row[1].strip()) for row in described[:3] if row[0] and row[1]]
    assert columns == [("id", "int"), ("name", "string"), ("p", "string")]
    assert len(hive_sql_target.execute("SHOW PARTITIONS acid_link.full_acid")) == 2
    for table in ("full_acid", "insert_only"):
        for query in ("SELECT *", "SELECT count(*)"):
            with pytest.raises(HiveSqlError) as caught:
                hive_sql_target.execute(f"{query} FROM acid_link.{table}")
            assert UNREADABLE in str(caught.value)
        # What is moved there, the remote would take for rows.
        with pytest.raises(HiveSqlError, match="LOAD"):
            hive_sql_target.execute(f"LOAD DATA LOCAL INPATH '{tmp_path}' INTO TABLE acid_link.{table}")

    # The column statistics are here; Hive answers from the files where they differ.
    with connected(target) as client:
        (statistics,) = client.get_table_column_statistics("acid_link", "counted").tableStats or []
        assert statistics.colName == "id"
        by_partition = client.get_partitions_column_statistics("acid_link", "parted", ["p=a", "p=b"])
        assert sorted(by_partition) == ["p=a", "p=b"]
    hive_sql_source.execute(f"INSERT INTO {FAR}.counted VALUES (3), (4)")
    assert hive_sql_target.execute("SELECT count(*), max(id) FROM acid_link.counted") == [("4", "4")]

    # By the owner's write ids: what Hive at the remote sees, and nothing of an open transaction.
    def rows(name: str) -> list[tuple[object, ...]]:
        return sorted(tuple(row) for row in read_remote_table(spark, remotes, f"acid_link.{name}").collect())

    assert rows("full_acid") == [(1, "a", "x"), (2, "B", "x"), (3, "c", "y")]
    assert rows("insert_only") == [(1,), (2,)]
    both = ["acid_link.full_acid", "acid_link.insert_only"]
    with reading_remote_tables(spark, remotes, both) as tables:
        hive_sql_source.execute(f"DELETE FROM {FAR}.full_acid WHERE id = 1")
        settings = MetastoreSettings(uris=(source.uri,))
        reports = compact_table(settings, f"{FAR}.full_acid", CompactionKind.MAJOR, in_threads(1))
        assert "compacted" in {report.state for report in reports}
        assert tables[both[0]].count() == 3
        assert tables[both[1]].count() == 2
    assert rows("full_acid") == [(2, "B", "x"), (3, "c", "y")]
    # Rows come and go without a refresh; a new partition comes with one.
    hive_sql_source.execute(f"INSERT INTO {FAR}.full_acid VALUES (4, 'd', 'z')")
    report = remotes.refresh(Kind.DATABASE, Name(database="acid_link"))
    assert not report.whole
    assert report.partitions_added == 1
    assert hive_sql_target.execute("SHOW PARTITIONS acid_link.full_acid")[-1] == ("p=z",)
    remotes.run("DROP REMOTE DATABASE acid_link")
    assert hive_sql_source.execute(f"SELECT count(*) FROM {FAR}.full_acid") == [("3",)]


def test_a_metastore_keeps_the_contract_of_catalogs(source: EmbeddedMetastore) -> None:
    root = f"file:{source.external_warehouse}/contract"
    with connected(source) as client:
        client.create_database(types.Database(name=CONTRACT))
        for table, partitions in tables(root).values():
            client.create_table(table)
            client.add_partitions(partitions)
    catalog = HiveCatalog(MetastoreSettings(uris=(source.uri,)))
    try:
        check_reader(catalog, root)
        (partition,) = catalog.find_partitions(CONTRACT, "parted", "p >= 'b' AND p < \"c\"")
        assert partition.values == ["b c"]
        assert isinstance(catalog, Reader)
        assert isinstance(catalog, EventSource)
        assert isinstance(catalog, MetastoreOwner)
        assert catalog.identity()
        last = catalog.last_event_id()
        assert catalog.has_events_after(last)
        assert catalog.has_events_after(last - 3)
        events = list(catalog.events(last - 3, last))
        assert [event.eventId for event in events] == [last - 2, last - 1, last]
    finally:
        catalog.close()
