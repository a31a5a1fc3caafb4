"""Cluster metadata on real tables: it outlives what Hive and Spark alter, and each of their writes shows."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_hive_federation.clusters.altering import (
    alter_partition_metadata,
    alter_table,
    alter_table_metadata,
    object_name,
    partitions_by_name,
)
from airflow_hive_federation.clusters.assignment import assign_tables
from airflow_hive_federation.clusters.catalog import MetastoreFacts, clusters_of
from airflow_hive_federation.clusters.copies.objects import copyable
from airflow_hive_federation.clusters.metadata import Secondary, read_metadata, source_mark
from airflow_hive_federation.clusters.placement import Session
from airflow_hive_federation.clusters.primary import change_primary
from airflow_hive_federation.clusters.registry import ClusterRegistry, read_registry, registry_of_metastore
from airflow_hive_federation.clusters.routing.route import decide
from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.embedded.sql import HiveSql
from airflow_hive_federation.errors import (
    CopyRefusedError,
    LockLostError,
    NoSuchObjectError,
    PrimaryRefusedError,
)
from airflow_hive_federation.ingest.position import ensure_position
from airflow_hive_federation.metastore import MetastoreClient, MetastoreSettings
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.progress.events import Event, TablesProcessed
from airflow_hive_federation.storage.filesystem import local_path
from airflow_hive_federation.storage.listing import list_files
from airflow_hive_federation.transactions import locks
from airflow_hive_federation.transactions.positions import fence, metadata_lock
from airflow_hive_federation.transactions.transaction import Transaction
from airflow_hive_federation.waiting import boot_time_s
from tests.support.gateway_front import gateway
from tests.support.gateway_spark import GatewaySpark

DATABASE = "clustered"
OF_SPARK_PARTED = (
    f"create table {DATABASE}.of_spark_parted (id int, p string) using parquet partitioned by (p) "
    "location '{}/of_spark_parted'"
)
TABLES = ("plain", "parted", "of_spark", "of_spark_parted", "acid", "kept_rows")


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> ClusterRegistry:
    root = tmp_path_factory.mktemp("roots")
    properties = {name: {"fileSystem": f"{root}/{name}", "jobTracker": name} for name in ("C1", "C2")}
    return read_registry(
        {"hive.cluster.properties": properties, "hive.default.cluster.name": "C1"}, origin="the test"
    )


@pytest.fixture(scope="module")
def home(
    source: EmbeddedMetastore,
    hive_sql_source: HiveSql,
    spark_of_gateways: GatewaySpark,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[str, Path]]:
    """Tables of Hive's and of Spark's, and the gateway by which Spark reaches the metastore."""
    for statement in (
        f"CREATE DATABASE {DATABASE}",
        f"CREATE EXTERNAL TABLE {DATABASE}.plain (id INT)",
        f"INSERT INTO {DATABASE}.plain VALUES (1)",
        f"CREATE EXTERNAL TABLE {DATABASE}.parted (id INT) PARTITIONED BY (p STRING) STORED AS ORC",
        f"INSERT INTO {DATABASE}.parted VALUES (1, 'a'), (2, 'b:c')",
        f"CREATE TABLE {DATABASE}.acid (id INT) STORED AS ORC TBLPROPERTIES ('transactional' = 'true')",
        f"INSERT INTO {DATABASE}.acid VALUES (1)",
        f"CREATE VIEW {DATABASE}.seen AS SELECT id FROM {DATABASE}.plain",
        f"CREATE MATERIALIZED VIEW {DATABASE}.kept_rows AS SELECT id FROM {DATABASE}.acid",
    ):
        hive_sql_source.execute(statement)
    place = tmp_path_factory.mktemp("spark")
    with gateway({"upstream": {"uris": [source.uri]}}) as serving:
        uri = serving.fronts[0].uri
        spark_of_gateways.rows(
            uri,
            place,
            [
                f"create table {DATABASE}.of_spark (id int) using parquet location '{place}/of_spark'",
                f"insert into {DATABASE}.of_spark values (1)",
                OF_SPARK_PARTED.format(place),
                f"insert into {DATABASE}.of_spark_parted values (1, 'a')",
            ],
        )
        yield uri, place


def copied(client: MetastoreClient, table: str) -> None:
    """Note a copy in C2 of each object of a table, made now."""
    described = client.get_table(DATABASE, table)
    if not described.partitionKeys:
        alter_table_metadata(client, described, lambda now: now.with_secondary("C2", copy_of(described)))
        return
    parts = partitions_by_name(client, described)
    alter_partition_metadata(
        client,
        described,
        {
            name: lambda now, part=part: now.with_secondary("C2", copy_of(part))
            for name, part in parts.items()
        },
    )


def copy_of(described: types.Table | types.Partition) -> Secondary:
    place = str(described.sd and described.sd.location)
    copy = f"{place}-copy"
    shutil.rmtree(str(local_path(copy)), ignore_errors=True)
    shutil.copytree(str(local_path(place)), str(local_path(copy)))
    return Secondary(location=copy, source=source_mark(described, list_files(place)))


def stale(client: MetastoreClient, registry: ClusterRegistry, table: str) -> tuple[list[str], list[str]]:
    """Objects whose copy in C2 is stale: by the metastore alone, and by their files."""
    facts = MetastoreFacts(client, registry)
    described = client.get_table(DATABASE, table)
    facts_of_table = facts.table(DATABASE, table)
    assert facts_of_table is not None
    by_name = {object_name(described): facts_of_table.placement}
    if facts_of_table.is_partitioned:
        by_name = {
            object_name(described, types.Partition(values=list(partition.values))): partition.placement
            for partition in facts.partitions(facts_of_table)
        }
    stale = [name for name, placement in by_name.items() if placement is not None and placement.stale]
    return sorted(stale), sorted(facts.check_files(DATABASE, table, "C2"))


def test_a_registry_in_the_configuration_of_a_metastore(tmp_path: Path, registry: ClusterRegistry) -> None:
    import json

    document = registry.to_json()
    settings = {
        "hive.cluster.properties": json.dumps(document["hive.cluster.properties"]),
        "hive.default.cluster.name": "C1",
    }
    with (
        EmbeddedMetastore.start("clusters", directory=tmp_path / "m", settings=settings) as metastore,
        MetastoreClient(MetastoreSettings(uris=(metastore.uri,))) as client,
    ):
        assert registry_of_metastore(client) == registry


def test_a_metastore_without_a_registry(client: MetastoreClient) -> None:
    assert not registry_of_metastore(client)


def test_tables_are_assigned_and_taken_out(
    home: tuple[str, Path], client: MetastoreClient, registry: ClusterRegistry
) -> None:
    names = sorted(f"{DATABASE}.{name}" for name in TABLES)
    before = {name: client.get_table(DATABASE, name) for name in TABLES}
    dry = assign_tables(client, registry, databases=[DATABASE], dry_run=True)
    assert sorted(dry.changed) == names
    assert {name: client.get_table(DATABASE, name) for name in TABLES} == before
    seen: list[Event] = []
    report = assign_tables(client, registry, databases=[DATABASE], observer=seen.append)
    assert sorted(report.changed) == names
    assert report.skipped == {f"{DATABASE}.seen": "it is a view"}
    assert seen[-1] == TablesProcessed(tables=7, all_tables=7)
    for name, old in before.items():
        now = client.get_table(DATABASE, name)
        assert now.parameters == {**(old.parameters or {}), "hive.cluster.primary": "C1"}
        assert now.sd == old.sd
    again = assign_tables(client, registry, databases=[DATABASE])
    assert (again.changed, again.unchanged) == ([], 6)
    other = assign_tables(client, registry, cluster="c2", databases=[DATABASE])
    assert other.changed == []
    assert other.elsewhere == dict.fromkeys(names, "C1")
    copied(client, "parted")
    undone = assign_tables(client, registry, databases=[DATABASE], undo=True)
    assert sorted(undone.changed) == [name for name in names if not name.endswith(".parted")]
    assert undone.skipped[f"{DATABASE}.parted"] == "it has copies in other clusters: C2"
    assign_tables(client, registry, databases=[DATABASE])
    with pytest.raises(NoSuchObjectError):
        assign_tables(client, registry, databases=["nowhere"])


def test_a_materialized_view_stays_in_its_primary_cluster(
    home: tuple[str, Path], client: MetastoreClient, registry: ClusterRegistry, hive_sql_source: HiveSql
) -> None:
    """It has rows of its own, and Hive rebuilds it; the remedy of the error makes a table that can leave."""
    name = f"{DATABASE}.kept_rows"
    assign_tables(client, registry, databases=[DATABASE])
    hive_sql_source.execute(f"INSERT INTO {DATABASE}.acid VALUES (2)")
    hive_sql_source.execute(f"ALTER MATERIALIZED VIEW {name} REBUILD")
    described = client.get_table(DATABASE, "kept_rows")
    assert described.tableType == "MATERIALIZED_VIEW"
    assert (described.parameters or {})["hive.cluster.primary"] == "C1"
    clusters = clusters_of(registry)
    route = decide(f"SELECT * FROM {name}", MetastoreFacts(client, registry), clusters, Session())
    assert route.cluster == "C1"
    with pytest.raises(CopyRefusedError, match="it is a materialized view, which Hive rebuilds") as caught:
        copyable(client, registry, name, registry.cluster("C2"))
    assert "CREATE EXTERNAL TABLE ... AS SELECT" in str(caught.value.remedy)
    with pytest.raises(PrimaryRefusedError, match="it is a materialized view, which Hive rebuilds"):
        change_primary(client, registry, name, "C2")
    hive_sql_source.execute(f"CREATE EXTERNAL TABLE {DATABASE}.movable AS SELECT * FROM {name}")
    ((rows,),) = hive_sql_source.execute(f"SELECT count(*) FROM {DATABASE}.movable")
    assert int(rows) == 2
    copyable(client, registry, f"{DATABASE}.movable", registry.cluster("C2"))
    hive_sql_source.execute(f"DROP TABLE {DATABASE}.movable")
    assert name in assign_tables(client, registry, databases=[DATABASE], undo=True).changed
    assign_tables(client, registry, databases=[DATABASE])


def test_a_stream_moves_its_position_before_or_after_a_change(
    home: tuple[str, Path], client: MetastoreClient, source: EmbeddedMetastore
) -> None:
    """Otherwise the change, which replaces all parameters of the table, would set the position back."""
    ensure_position(client, DATABASE, "acid", "_meta.stream")
    answers: list[types.LockResponse] = []
    settings = MetastoreSettings(uris=(source.uri,))
    with MetastoreClient(settings) as other, Transaction(other) as stream:

        def change(now: types.Table) -> types.Table:
            answers.append(other.lock([fence(DATABASE, "acid", "_meta.stream")], txn_id=stream.id))
            now.parameters = {**(now.parameters or {}), "changed": "true"}
            return now

        alter_table(client, f"{DATABASE}.acid", change)
        assert [answer.state for answer in answers] == [types.LockState.WAITING]
        now = other.check_lock(answers[0].lockid or 0, txn_id=stream.id)
        assert now.state == types.LockState.ACQUIRED
    after = client.get_table(DATABASE, "acid").parameters or {}
    assert (after["changed"], after["_meta.stream"]) == ("true", "")


def test_a_suspended_change_leaves_a_position_that_has_moved(
    home: tuple[str, Path],
    client: MetastoreClient,
    source: EmbeddedMetastore,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A commit of a position leaves the time of the last change as it is, which the metastore compares."""
    key = "_meta.suspended"
    ensure_position(client, DATABASE, "acid", key)
    now_s = [boot_time_s()]
    monkeypatch.setattr(locks, "boot_time_s", lambda: now_s[0])

    def change(now: types.Table) -> types.Table:
        now.parameters = {**(now.parameters or {}), "suspended": "true"}
        return now

    def change_after_suspension(now: types.Table) -> types.Table:
        with MetastoreClient(MetastoreSettings(uris=(source.uri,))) as other:
            ours = (fence(DATABASE, "acid", key), metadata_lock(DATABASE, "acid"))
            for lock in ours:
                for shown in other.show_locks(database=lock.dbname, table=lock.tablename):
                    other.unlock(shown.lockid)
            (stream,) = other.open_txns(1)
            assert other.lock([ours[0]], txn_id=stream).state == types.LockState.ACQUIRED
            position = types.CommitTxnKeyValue(tableId=now.id, key=key, value="7")
            other.commit_txn(stream, key_value=position)
        now_s[0] += 301.0
        return change(now)

    with pytest.raises(LockLostError, match=rf"Locks on {DATABASE}\.acid are lost: they are 301 s old"):
        alter_table(client, f"{DATABASE}.acid", change_after_suspension)
    after = client.get_table(DATABASE, "acid").parameters or {}
    assert (after.get("suspended"), after[key]) == (None, "7")
    alter_table(client, f"{DATABASE}.acid", change)
    after = client.get_table(DATABASE, "acid").parameters or {}
    assert (after["suspended"], after[key]) == ("true", "7")


def test_writes_of_hive_make_copies_stale(
    home: tuple[str, Path], client: MetastoreClient, registry: ClusterRegistry, hive_sql_source: HiveSql
) -> None:
    for name in ("plain", "parted"):
        copied(client, name)
        assert stale(client, registry, name) == ([], [])
    hive_sql_source.execute(f"INSERT INTO {DATABASE}.plain VALUES (2)")
    assert stale(client, registry, "plain") == ([f"{DATABASE}.plain"],) * 2
    hive_sql_source.execute(f"INSERT OVERWRITE TABLE {DATABASE}.parted PARTITION (p = 'a') SELECT 7")
    assert stale(client, registry, "parted") == ([f"{DATABASE}.parted/p=a"],) * 2
    copied(client, "parted")
    hive_sql_source.execute(
        f"ALTER TABLE {DATABASE}.parted PARTITION (p = 'a') RENAME TO PARTITION (p = 'z')"
    )
    # The partition keeps its directory, and its copy.
    assert stale(client, registry, "parted") == ([], [])
    assert "C2" in read_metadata(client_partition(client, "p=z").parameters, "p=z").secondaries


def test_writes_of_spark_make_copies_stale(
    home: tuple[str, Path],
    client: MetastoreClient,
    registry: ClusterRegistry,
    spark_of_gateways: GatewaySpark,
) -> None:
    uri, place = home
    for name in ("plain", "of_spark", "of_spark_parted"):
        copied(client, name)
        assert stale(client, registry, name) == ([], [])
    spark_of_gateways.rows(
        uri,
        place,
        [
            f"insert into {DATABASE}.plain values (3)",
            f"insert into {DATABASE}.of_spark values (2)",
            f"insert overwrite {DATABASE}.of_spark_parted partition (p = 'a') values (9)",
        ],
    )
    assert stale(client, registry, "plain")[1] == [f"{DATABASE}.plain"]
    assert stale(client, registry, "of_spark")[1] == [f"{DATABASE}.of_spark"]
    assert stale(client, registry, "of_spark_parted")[1] == [f"{DATABASE}.of_spark_parted/p=a"]


def test_files_changed_behind_the_metastore_make_copies_stale(
    home: tuple[str, Path], client: MetastoreClient, registry: ClusterRegistry
) -> None:
    copied(client, "plain")
    location = Path(str(local_path(str(client.get_table(DATABASE, "plain").sd.location))))  # type: ignore[union-attr]
    (location / "more").write_text("8\n")
    assert stale(client, registry, "plain") == ([], [f"{DATABASE}.plain"])
    copied(client, "plain")
    copy = Path(f"{location}-copy")
    (copy / "more").unlink()
    assert stale(client, registry, "plain") == ([], [f"{DATABASE}.plain"])
    shutil.rmtree(copy)
    assert stale(client, registry, "plain") == ([], [f"{DATABASE}.plain"])


def test_alterations_of_hive_and_spark_lose_nothing(
    home: tuple[str, Path],
    client: MetastoreClient,
    hive_sql_source: HiveSql,
    spark_of_gateways: GatewaySpark,
) -> None:
    uri, place = home
    for name in ("plain", "parted", "of_spark", "of_spark_parted"):
        copied(client, name)
    before = {name: written(client, name) for name in ("plain", "parted", "of_spark", "of_spark_parted")}
    for statement in (
        f"ALTER TABLE {DATABASE}.plain SET TBLPROPERTIES ('a' = 'b')",
        f"ALTER TABLE {DATABASE}.plain ADD COLUMNS (n STRING)",
        f"ALTER TABLE {DATABASE}.parted ADD COLUMNS (n STRING) CASCADE",
        f"ANALYZE TABLE {DATABASE}.parted COMPUTE STATISTICS FOR COLUMNS",
        f"ALTER TABLE {DATABASE}.parted PARTITION (p = 'z') SET FILEFORMAT ORC",
        f"INSERT INTO {DATABASE}.parted VALUES (5, 'm', 'z')",
    ):
        hive_sql_source.execute(statement)
    spark_of_gateways.rows(
        uri,
        place,
        [
            f"alter table {DATABASE}.plain set tblproperties ('c' = 'd')",
            f"alter table {DATABASE}.plain change column n n string comment 'noted'",
            f"analyze table {DATABASE}.plain compute statistics",
            f"insert into {DATABASE}.plain values (6, 'x')",
            f"alter table {DATABASE}.of_spark add columns (n string)",
            f"analyze table {DATABASE}.of_spark compute statistics for all columns",
            f"insert into {DATABASE}.of_spark values (6, 'x')",
            f"alter table {DATABASE}.of_spark_parted add columns (n string)",
            f"analyze table {DATABASE}.of_spark_parted partition (p) compute statistics",
            f"insert into {DATABASE}.of_spark_parted values (6, 'x', 'a')",
        ],
    )
    assert {name: written(client, name) for name in before} == before


def client_partition(client: MetastoreClient, name: str) -> types.Partition:
    return partitions_by_name(client, client.get_table(DATABASE, "parted"))[name]


def written(client: MetastoreClient, name: str) -> dict[str, object]:
    table = client.get_table(DATABASE, name)
    metadata: dict[str, object] = {"": read_metadata(table.parameters, name)}
    parts = partitions_by_name(client, table) if table.partitionKeys else {}
    return {
        **metadata,
        **{part: read_metadata(described.parameters, part) for part, described in parts.items()},
    }
