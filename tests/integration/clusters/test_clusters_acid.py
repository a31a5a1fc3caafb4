"""Copies of transactional tables, of snapshots of what real Hive writes, and statements that read them."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from airflow_hive_federation.clusters.acid_inputs import acid_inputs
from airflow_hive_federation.clusters.altering import alter_partition_metadata, partitions_by_name
from airflow_hive_federation.clusters.catalog import MetastoreFacts
from airflow_hive_federation.clusters.copies.copying import copy_to_cluster, drop_copies
from airflow_hive_federation.clusters.metadata import ClusterMetadata, Secondary, read_metadata
from airflow_hive_federation.clusters.primary import change_primary
from airflow_hive_federation.clusters.registry import ClusterRegistry, read_registry
from airflow_hive_federation.compaction.plan import CompactionKind
from airflow_hive_federation.compaction.requests import compact_table
from airflow_hive_federation.compaction.runners import in_threads
from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.embedded.sql import HiveSql
from airflow_hive_federation.errors import FileVanishedError, PrimaryRefusedError, ReadTransactionLostError
from airflow_hive_federation.ingest import HiveStreamingConnection, StrictDelimitedInputWriter
from airflow_hive_federation.metastore import MetastoreClient
from airflow_hive_federation.operators.routed_sql import RoutedSqlOperator
from airflow_hive_federation.spark.acid_tables import acid_frames, sql_with_frames
from airflow_hive_federation.spark.copy_files import copy_plan
from airflow_hive_federation.spark.workers import SparkWorkers
from airflow_hive_federation.storage.filesystem import local_path
from airflow_hive_federation.tables.read.guard import guarded
from airflow_hive_federation.transactions.locks import TableWrite, WriteKind, lock_components

DATABASE = "copied_acid"
ACID = "STORED AS ORC TBLPROPERTIES ('transactional'='true', 'no_auto_compaction'='true')"
INSERT_ONLY = (
    "STORED AS PARQUET TBLPROPERTIES ('transactional'='true', 'transactional_properties'='insert_only')"
)
RunCopy = Callable[[str, str], None]
Rows = list[list[Any]]


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    root = tmp_path_factory.mktemp("roots")
    properties = {name: {"fileSystem": f"{root}/{name}", "jobTracker": name} for name in ("C1", "C2")}
    return {"hive.cluster.properties": properties, "hive.default.cluster.name": "C1"}


@pytest.fixture(scope="module")
def registry(document: dict[str, Any]) -> ClusterRegistry:
    return read_registry(document, origin="the test")


@pytest.fixture(scope="module")
def run_copy(spark: SparkSession) -> RunCopy:
    def run(plan: str, outcomes: str) -> None:
        copy_plan(SparkWorkers(spark), plan, outcomes)

    return run


@pytest.fixture(scope="module")
def hive(hive_sql_source: HiveSql) -> HiveSql:
    for statement in (
        f"CREATE DATABASE {DATABASE}",
        f"CREATE TABLE {DATABASE}.orders (id INT, v STRING) {ACID}",
        f"INSERT INTO {DATABASE}.orders VALUES (1, 'a'), (2, 'b'), (3, 'c')",
        f"UPDATE {DATABASE}.orders SET v = 'changed' WHERE id = 2",
        f"DELETE FROM {DATABASE}.orders WHERE id = 3",
        f"CREATE TABLE {DATABASE}.parted (id INT) PARTITIONED BY (p STRING) {ACID}",
        f"INSERT INTO {DATABASE}.parted VALUES (1, 'a'), (2, 'b')",
        f"CREATE TABLE {DATABASE}.added (id INT) {INSERT_ONLY}",
        f"INSERT INTO {DATABASE}.added VALUES (1)",
        f"INSERT INTO {DATABASE}.added VALUES (2)",
    ):
        hive_sql_source.execute(statement)
    return hive_sql_source


def never(plan: str, outcomes: str) -> None:
    raise AssertionError(Path(plan).read_text(encoding="utf-8"))


def copy_in_c2(client: MetastoreClient, table: str, partition: str = "") -> Secondary:
    described = client.get_table(DATABASE, table)
    parameters = described.parameters
    if partition:
        parameters = partitions_by_name(client, described)[partition].parameters
    return read_metadata(parameters, table).secondaries["C2"]


def is_stale(client: MetastoreClient, registry: ClusterRegistry, table: str = "orders") -> bool:
    facts = MetastoreFacts(client, registry)
    facts_of_table = facts.table(DATABASE, table)
    assert facts_of_table is not None
    placements = (
        [placement.placement for placement in facts.partitions(facts_of_table)]
        if facts_of_table.is_partitioned
        else []
    )
    placements = [placement for placement in [*placements, facts_of_table.placement] if placement is not None]
    assert not facts.check_files(DATABASE, table, "C2")
    return any(placement.stale for placement in placements)


def described(client: MetastoreClient, tables: Sequence[str], cluster: str = "C2") -> list[dict[str, Any]]:
    with acid_inputs(client, [f"{DATABASE}.{table}" for table in tables], cluster) as inputs:
        return inputs


def rows(spark: SparkSession, inputs: list[dict[str, Any]], sql: str) -> Rows:
    session = guarded(spark)
    answer = sql_with_frames(session, sql, acid_frames(session, inputs), "default")
    return sorted([str(value) for value in row] for row in answer.collect())


def unfinished(client: MetastoreClient, table: str) -> int:
    """Have a transaction write a delta that a reader must not see, and leave it open."""
    (txn,) = client.open_txns()
    # An aborted transaction of which no write is noted is forgotten.
    write = TableWrite(database=DATABASE, table=table, kind=WriteKind.INSERT)
    client.lock(lock_components([write]), txn_id=txn)
    write_id = client.allocate_table_write_ids(DATABASE, table, [txn])[txn]
    place = Path(str(local_path(str(client.get_table(DATABASE, table).sd.location))))  # type: ignore[union-attr]
    shutil.copytree(min(place.glob("delta_*")), place / f"delta_{write_id:07}_{write_id:07}_0000")
    return txn


def directories(uri: str) -> set[str]:
    return {path.name for path in Path(str(local_path(uri))).iterdir()}


def places(inputs: list[dict[str, Any]]) -> list[str]:
    return [place["location"] for dataset in inputs for read in dataset["reads"] for place in read["places"]]


def test_a_copy_is_of_a_snapshot(
    hive: HiveSql, client: MetastoreClient, registry: ClusterRegistry, run_copy: RunCopy, spark: SparkSession
) -> None:
    name = f"{DATABASE}.orders"
    still_open, aborted = unfinished(client, "orders"), unfinished(client, "orders")
    client.abort_txns([aborted])
    locks: list[int] = []

    def locked(plan: str, outcomes: str) -> None:
        locks.extend(lock.type or 0 for lock in client.show_locks(database=DATABASE, table="orders"))
        run_copy(plan, outcomes)

    assert copy_to_cluster(client, registry, name, "C2", locked).copied == [name]
    assert locks == [1, 1]  # SHARED_READ of the copy, and of the open transaction
    first = copy_in_c2(client, "orders")
    assert first.snapshot is not None
    assert first.snapshot.open_ids == (4,)
    assert not {
        directory
        for directory in directories(first.location)
        if "0000004" in directory or "0000005" in directory
    }
    theirs = [[str(value) for value in row] for row in hive.execute(f"SELECT id, v FROM {name}")]
    assert sorted(theirs) == [["1", "a"], ["2", "changed"]]
    inputs = described(client, ["orders"])
    assert places(inputs) == [first.location]
    sql = f"""WITH o AS (SELECT * FROM {name}) SELECT o.id, {DATABASE}.orders.v FROM o JOIN {name}
              ON o.id = {DATABASE}.orders.id WHERE o.id IN (SELECT id FROM spark_catalog.{name})"""
    assert rows(spark, inputs, sql) == sorted(theirs)
    # A compaction moves rows to other files of the primary.
    (report,) = compact_table(client.settings, name, CompactionKind.MAJOR, in_threads(1))
    assert report.state == "compacted"
    assert not is_stale(client, registry)
    assert copy_to_cluster(client, registry, name, "C2", never).current == [name]
    assert rows(spark, described(client, ["orders"]), sql) == sorted(theirs)
    # A write does.
    client.commit_txn(still_open)
    assert is_stale(client, registry)
    now = described(client, ["orders"])
    assert first.location not in places(now)
    assert rows(spark, inputs, f"SELECT id, v FROM {name}") == sorted(theirs)
    assert len(rows(spark, now, f"SELECT id, v FROM {name}")) == 5
    assert copy_to_cluster(client, registry, name, "C2", run_copy).copied == [name]
    second = copy_in_c2(client, "orders")
    assert second.former == first.location
    assert not is_stale(client, registry)
    assert places(described(client, ["orders"])) == [second.location]
    assert len(rows(spark, described(client, ["orders"]), f"SELECT id, v FROM {name}")) == 5


def test_partitions_that_are_not_written_stay_current(
    hive: HiveSql, client: MetastoreClient, registry: ClusterRegistry, run_copy: RunCopy, spark: SparkSession
) -> None:
    name = f"{DATABASE}.parted"
    assert copy_to_cluster(client, registry, name, "C2", run_copy).copied == ["p=a", "p=b"]
    kept = copy_in_c2(client, "parted", "p=a")
    hive.execute(f"DELETE FROM {name} WHERE p = 'b'")
    assert is_stale(client, registry, "parted")
    report = copy_to_cluster(client, registry, name, "C2", run_copy)
    assert (report.copied, report.current) == (["p=b"], ["p=a"])
    assert copy_in_c2(client, "parted", "p=a").location == kept.location
    assert not is_stale(client, registry, "parted")
    inputs = described(client, ["parted"])
    assert all("/C2/" in place for place in places(inputs))
    assert rows(spark, inputs, f"SELECT id, p FROM {name}") == [["1", "a"]]
    # A copy that lacks files is not read, not even by a statement that was planned before.
    min(Path(str(local_path(kept.location))).glob("delta_*/bucket_*")).unlink()
    with pytest.raises(
        FileVanishedError, match=re.escape(f"{kept.location} does not hold exactly the files")
    ):
        rows(spark, inputs, f"SELECT id, p FROM {name}")
    shutil.rmtree(str(local_path(kept.location)))
    assert MetastoreFacts(client, registry).check_files(DATABASE, "parted", "C2") == [f"{name}/p=a"]
    assert rows(spark, described(client, ["parted"]), f"SELECT id, p FROM {name}") == [["1", "a"]]
    assert set(drop_copies(client, registry, name, "C2").copied) == {"p=a", "p=b"}


def test_an_insert_only_table(
    hive: HiveSql, client: MetastoreClient, registry: ClusterRegistry, run_copy: RunCopy, spark: SparkSession
) -> None:
    name = f"{DATABASE}.added"
    client.abort_txns([unfinished(client, "added")])
    copy_to_cluster(client, registry, name, "C2", run_copy)
    inputs = described(client, ["added"])
    assert places(inputs) == [copy_in_c2(client, "added").location]
    assert rows(spark, inputs, f"SELECT id FROM {name}") == [["1"], ["2"]]
    hive.execute(f"INSERT OVERWRITE TABLE {name} SELECT 7")
    assert is_stale(client, registry, "added")
    assert rows(spark, inputs, f"SELECT id FROM {name}") == [["1"], ["2"]]
    copy_to_cluster(client, registry, name, "C2", run_copy)
    assert rows(spark, described(client, ["added"]), f"SELECT id FROM {name}") == [["7"]]


def test_a_copy_holds_what_a_streaming_writer_has_committed(
    hive: HiveSql, client: MetastoreClient, registry: ClusterRegistry, run_copy: RunCopy, spark: SparkSession
) -> None:
    name = f"{DATABASE}.streamed"
    hive.execute(f"CREATE TABLE {name} (id INT, v STRING) {ACID}")
    builder = HiveStreamingConnection.new_builder().with_database(DATABASE).with_table("streamed")
    builder = builder.with_record_writer(StrictDelimitedInputWriter(field_delimiter=","))
    builder = builder.with_conf(client.settings).with_transaction_batch_size(4)

    def copied() -> tuple[Rows, int]:
        assert copy_to_cluster(client, registry, name, "C2", run_copy).copied == [name]
        assert not is_stale(client, registry, "streamed")
        copy = copy_in_c2(client, "streamed")
        inputs = described(client, ["streamed"])
        assert places(inputs) == [copy.location]
        (file,) = Path(str(local_path(copy.location))).glob("delta_*/bucket_*")
        return rows(spark, inputs, f"SELECT id, v FROM {name}"), file.stat().st_size

    with builder.connect() as connection:
        with connection.transaction():
            connection.write(b"1,a")
        connection.begin_transaction()
        connection.write(b"2,b")
        # The file now holds a stripe behind the length up to which it may be read.
        connection.flush()
        place = Path(str(local_path(str(client.get_table(DATABASE, "streamed").sd.location))))  # type: ignore[union-attr]
        (primary,) = place.glob("delta_*/bucket_00000")
        first, size_bytes = copied()
        assert first == [["1", "a"]]
        assert size_bytes < primary.stat().st_size
        connection.commit_transaction()
        assert is_stale(client, registry, "streamed")
        assert copied()[0] == [["1", "a"], ["2", "b"]]
    # Write ids that the writer has aborted at its end do not make the copy stale.
    assert copy_to_cluster(client, registry, name, "C2", never).current == [name]
    assert rows(spark, described(client, ["streamed"]), f"SELECT id, v FROM {name}") == [
        ["1", "a"],
        ["2", "b"],
    ]


def test_a_copy_whose_files_were_no_longer_kept_is_not_published(
    hive: HiveSql, client: MetastoreClient, registry: ClusterRegistry, run_copy: RunCopy
) -> None:
    hive.execute(f"CREATE TABLE {DATABASE}.lost (id INT) {ACID}")
    hive.execute(f"INSERT INTO {DATABASE}.lost VALUES (1)")

    def losing(plan: str, outcomes: str) -> None:
        run_copy(plan, outcomes)
        (lock,) = client.show_locks(database=DATABASE, table="lost")
        client.abort_txns([lock.txnid or 0])

    with pytest.raises(ReadTransactionLostError):
        copy_to_cluster(client, registry, f"{DATABASE}.lost", "C2", losing)
    assert not read_metadata(client.get_table(DATABASE, "lost").parameters, "lost").secondaries


@pytest.mark.slow
def test_routed_statements_read_snapshots(
    hive: HiveSql,
    source: EmbeddedMetastore,
    client: MetastoreClient,
    registry: ClusterRegistry,
    document: dict[str, Any],
    run_copy: RunCopy,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = f"{DATABASE}.routed"
    hive.execute(f"CREATE TABLE {name} (id INT, v STRING) {ACID}")
    hive.execute(f"INSERT INTO {name} VALUES (1, 'a'), (2, 'b')")
    hive.execute(f"DELETE FROM {name} WHERE id = 1")
    copy_to_cluster(client, registry, name, "C2", run_copy)
    host, port = source.uri.removeprefix("thrift://").split(":")
    connection = {"conn_type": "hive_federation", "host": host, "port": int(port)}
    monkeypatch.setenv("AIRFLOW_CONN_HERE", json.dumps(connection))
    monkeypatch.setenv("AIRFLOW_CONN_C2", json.dumps({"conn_type": "spark", "host": "local[1]"}))
    monkeypatch.setenv("AIRFLOW_VAR_HIVE_FEDERATION_CLUSTERS", json.dumps(document))
    # A table whose primary cannot change is made anew in the other cluster.
    with pytest.raises(PrimaryRefusedError, match="it is transactional") as caught:
        change_primary(client, registry, name, "C2")
    assert "run USE CLUSTER C2; CREATE TABLE ... AS SELECT" in str(caught.value.remedy)
    script = (
        f"use cluster c2; select r.id, x.v from routed r join {name} x on r.id = x.id;"
        f"create table moved using parquet as select * from {name}"
    )
    task = RoutedSqlOperator(task_id="routed", metastore_conn_id="here", database=DATABASE, sql=script)
    routes = task.execute({})["statements"]
    assert [statement.get("rows") for statement in routes[1:]] == [[["2", "b"]], []]
    moved = client.get_table(DATABASE, "moved")
    assert [tuple(row) for row in spark.read.parquet(str(moved.sd.location)).collect()] == [(2, "b")]  # type: ignore[union-attr]
    assert (moved.parameters or {})["hive.cluster.primary"] == "C2"
    assert client.show_locks(database=DATABASE, table="routed") == []


def test_hive_counts_the_rows_that_it_inserts_during_a_change_of_cluster_metadata(
    hive: HiveSql, client: MetastoreClient
) -> None:
    """The change writes statistics from before the INSERT, with which Hive would answer the query."""
    name = f"{DATABASE}.counted"
    hive.execute(f"CREATE TABLE {name} (id INT) PARTITIONED BY (p STRING) {ACID}")
    hive.execute(f"INSERT INTO {name} VALUES (1, 'a'), (2, 'b')")
    described = client.get_table(DATABASE, "counted")

    def insert(now: ClusterMetadata) -> ClusterMetadata:
        hive.execute(f"INSERT INTO {name} VALUES (3, 'a')")
        return replace(now, primary="C1")

    def note(now: ClusterMetadata) -> ClusterMetadata:
        return replace(now, primary="C1")

    alter_partition_metadata(client, described, {"p=a": insert, "p=b": note})
    ((count,),) = hive.execute(f"SELECT count(*) FROM {name}")
    assert int(count) == 3
    after = {key: part.parameters or {} for key, part in partitions_by_name(client, described).items()}
    assert "BASIC_STATS" not in after["p=a"].get("COLUMN_STATS_ACCURATE", "")
    assert "BASIC_STATS" in after["p=b"]["COLUMN_STATS_ACCURATE"]
