"""Two clusters for real: two roots, and a Spark for each, which reads from its own."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hmsclient import HMSClient
from hmsclient.genthrift.hive_metastore import ttypes as old

from airflow_hive_federation.cli.main import main
from airflow_hive_federation.clusters.copies.copying import copy_to_cluster
from airflow_hive_federation.clusters.metadata import read_metadata
from airflow_hive_federation.clusters.registry import ClusterRegistry, read_registry
from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.embedded.sql import HiveSql, HiveSqlError
from airflow_hive_federation.errors import InvalidOperationError, MetastoreError, UnknownClusterError
from airflow_hive_federation.gateway.config import config_of
from airflow_hive_federation.hooks.compat import AirflowFailException
from airflow_hive_federation.metastore import MetastoreClient, MetastoreSettings
from airflow_hive_federation.metastore.grpc_settings import GrpcSettings
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.model.files import CopyItem
from airflow_hive_federation.operators.routed_sql import RoutedSqlOperator
from airflow_hive_federation.published.clusters import CLUSTERS, PLACED, ROUTED, ROUTES
from airflow_hive_federation.published.directory import StateDirectory, key_of
from airflow_hive_federation.storage.copying import copy_file
from airflow_hive_federation.storage.filesystem import local_path
from airflow_hive_federation.storage.plan_files import read_plan
from tests.support.gateway_front import Behind, gateway
from tests.support.gateway_spark import GatewaySpark
from tests.support.standalone_spark import standalone_cluster

DATABASE = "two_sites"


@pytest.fixture(scope="module")
def registry_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("roots")
    properties = {name: {"fileSystem": f"{root}/{name}", "jobTracker": name} for name in ("C1", "C2")}
    path = root / "clusters.json"
    path.write_text(
        json.dumps({"hive.cluster.properties": properties, "hive.default.cluster.name": "C1"}),
        encoding="utf-8",
    )
    return path


@pytest.fixture(scope="module")
def registry(registry_file: Path) -> ClusterRegistry:
    return read_registry(registry_file.read_text(encoding="utf-8"), origin="the test")


@pytest.fixture(scope="module")
def views(source: EmbeddedMetastore, registry_file: Path) -> Iterator[dict[str, str]]:
    """URIs of the views of both clusters, in which C2 has copies whose rows differ from those of C1."""
    config: dict[str, Any] = {"upstream": {"uris": [source.uri]}}
    section = {name: {"name": name, "registry": str(registry_file)} for name in ("C1", "C2")}
    with (
        gateway({**config, "cluster": section["C1"]}) as first,
        gateway({**config, "cluster": section["C2"]}) as two,
    ):
        yield {"C1": first.fronts[0].uri, "C2": two.fronts[0].uri}


@pytest.fixture(scope="module", autouse=True)
def tables(
    views: dict[str, str],
    client: MetastoreClient,
    registry: ClusterRegistry,
    spark_of_gateways: GatewaySpark,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    home = tmp_path_factory.mktemp("spark")
    spark_of_gateways.rows(
        views["C1"],
        home,
        [
            f"create database {DATABASE}",
            f"create table {DATABASE}.plain (id int) row format delimited stored as textfile",
            f"insert into {DATABASE}.plain values (1)",
            f"create table {DATABASE}.parted (id int) partitioned by (p string) row format delimited",
            f"insert into {DATABASE}.parted values (1, 'a'), (2, 'b')",
            f"create table {DATABASE}.own (id int) using csv",
            f"insert into {DATABASE}.own values (1)",
        ],
    )
    for name in ("plain", "parted", "own"):
        copy_to_cluster(client, registry, f"{DATABASE}.{name}", "C2", run_copy)
    # Whoever reads there sees it.
    for path in (Path(str(local_path(registry.cluster("C2").root))) / f"{DATABASE}.db").rglob("*"):
        if path.is_file() and not path.name.startswith((".", "_")):
            path.write_text(path.read_text().replace("1", "7").replace("2", "8"))


def run_copy(plan: str, outcomes: str) -> None:
    items: list[CopyItem] = list(read_plan(plan))
    for item in items:
        copy_file(item)


def location(client: MetastoreClient, name: str) -> str:
    return str(client.get_table(DATABASE, name).sd.location)  # type: ignore[union-attr]


@pytest.mark.slow
def test_each_spark_reads_from_the_root_of_its_cluster(
    views: dict[str, str], spark_of_gateways: GatewaySpark, tmp_path: Path
) -> None:
    statements = [
        f"select id from {DATABASE}.plain",
        f"select id, p from {DATABASE}.parted order by id",
        f"select id from {DATABASE}.parted where p = 'b'",
        f"select id from {DATABASE}.own",
    ]
    rows = {name: spark_of_gateways.rows(uri, tmp_path / name, statements) for name, uri in views.items()}
    assert rows == {
        "C1": ["[(1,)]", "[(1, 'a'), (2, 'b')]", "[(2,)]", "[(1,)]"],
        "C2": ["[(7,)]", "[(7, 'a'), (8, 'b')]", "[(8,)]", "[(7,)]"],
    }


@pytest.mark.slow
def test_spark_creates_tables_in_its_cluster(
    views: dict[str, str],
    client: MetastoreClient,
    registry: ClusterRegistry,
    spark_of_gateways: GatewaySpark,
    tmp_path: Path,
) -> None:
    rows = spark_of_gateways.rows(
        views["C2"],
        tmp_path,
        [
            f"create table {DATABASE}.made using parquet as select id from {DATABASE}.plain",
            f"insert into {DATABASE}.made values (9)",
            # Views belong to no cluster.
            f"create view {DATABASE}.seen as select id from {DATABASE}.made",
            f"alter view {DATABASE}.seen as select id + 1 as id from {DATABASE}.made",
            f"drop view {DATABASE}.seen",
            f"select id from {DATABASE}.made order by id",
        ],
    )
    assert rows[-1] == "[(7,), (9,)]"
    made = client.get_table(DATABASE, "made")
    assert read_metadata(made.parameters, "made").primary == "C2"
    assert registry.cluster_at(location(client, "made")) == registry.cluster("C2")


def test_tables_are_written_in_their_primary_cluster_only(
    views: dict[str, str], client: MetastoreClient
) -> None:
    before = client.get_table(DATABASE, "plain")
    with MetastoreClient(MetastoreSettings(uris=(views["C2"],))) as there:
        table = there.get_table(DATABASE, "plain")
        assert table.sd != before.sd
        (partition, _) = there.get_partitions(DATABASE, "parted")
        writes = {
            "alter_table": lambda: there.alter_table(DATABASE, "plain", table),
            "alter_partitions": lambda: there.alter_partitions(DATABASE, "parted", [partition]),
            "add_partitions": lambda: there.add_partitions([partition]),
            "drop_partitions": lambda: there.drop_partitions(DATABASE, "parted", ["p=a"], delete_data=True),
            "drop_table": lambda: there.drop_table(DATABASE, "plain", delete_data=True),
        }
        for name, write in writes.items():
            with pytest.raises(MetastoreError, match="is written in its primary cluster, C1"):
                write()
            assert client.get_table(DATABASE, "plain") == before, name
        with pytest.raises(MetastoreError, match="databases span clusters"):
            there.drop_database(DATABASE, delete_data=True, cascade=True)
    with MetastoreClient(MetastoreSettings(uris=(views["C1"],))) as here:
        assert here.get_table(DATABASE, "plain") == before
        here.alter_table(DATABASE, "plain", before)


def test_hmsclient_sees_the_locations_of_the_cluster(
    views: dict[str, str], client: MetastoreClient, registry: ClusterRegistry
) -> None:
    before = client.get_table(DATABASE, "plain")
    for name, uri in views.items():
        host, port = uri.removeprefix("thrift://").split(":")
        with HMSClient(host=host, port=int(port)) as hms:
            table = hms.get_table(DATABASE, "plain")
            objects = [table, *hms.get_partitions(DATABASE, "parted", -1)]
            assert len(objects) == 3
            clusters = {
                str(cluster and cluster.name) for cluster in map(registry.cluster_at, map(place_of, objects))
            }
            assert clusters == {name}
            if name == "C1":
                # Its structs know neither clusters nor the fields of Hive 4.
                hms.alter_table(DATABASE, "plain", table)
    assert client.get_table(DATABASE, "plain").parameters == before.parameters


def place_of(described: Any) -> str:
    return str(described.sd.location)


@pytest.mark.slow
def test_requests_to_one_gateway_name_their_cluster(
    source: EmbeddedMetastore, registry_file: Path, client: MetastoreClient, tmp_path: Path
) -> None:
    before = {name: client.get_table(DATABASE, name) for name in ("plain", "parted")}
    inserted = [
        f"create table {DATABASE}.acid (id int) stored as orc tblproperties ('transactional' = 'true')",
        f"insert into {DATABASE}.acid values (1)",
    ]
    config = {
        "upstream": {"uris": [source.uri]},
        "cluster": {"registry": str(registry_file)},
        "grpc": {"port": 0},
    }
    statements = [
        f"select id from {DATABASE}.plain",
        f"select id, p from {DATABASE}.parted order by id",
        f"select id from {DATABASE}.parted where p = 'b'",
    ]
    with gateway(config) as serving:
        thrift, grpc = (front.uri for front in serving.fronts)
        rows: dict[str, list[list[Any]]] = {}
        for name in ("C1", "C2"):
            (tmp_path / name).mkdir()
            behind = Behind(source, thrift, tmp_path / name)
            with HiveSql(behind, settings={"metastore.catalog.default": name}) as sql:
                rows[name] = [sql.execute(statement) for statement in statements]
                if name == "C1":
                    for statement in inserted:
                        sql.execute(statement)
                else:
                    for statement in (
                        f"alter table {DATABASE}.plain set tblproperties ('x' = 'y')",
                        f"insert into {DATABASE}.acid values (2)",
                    ):
                        with pytest.raises(HiveSqlError, match="is written in its primary cluster, C1"):
                            sql.execute(statement)
                    assert sql.execute(f"select id from {DATABASE}.acid") == [("1",)]
            settings = MetastoreSettings(uris=(grpc,), grpc=GrpcSettings(cluster=name))
            with MetastoreClient(settings) as named:
                assert f"/{name}/" in location(named, "plain")
        assert rows == {
            "C1": [[("1",)], [("1", "a"), ("2", "b")], [("2",)]],
            "C2": [[("7",)], [("7", "a"), ("8", "b")], [("8",)]],
        }
        host, port = thrift.removeprefix("thrift://").split(":")
        with HMSClient(host=host, port=int(port)) as hms:
            table = hms.get_table(f"@C2#{DATABASE}", "plain")
            assert "/C2/" in table.sd.location
            with pytest.raises(old.MetaException, match="would become the primary location"):
                hms.alter_table(DATABASE, "plain", table)
        with (
            MetastoreClient(MetastoreSettings(uris=(thrift,), catalog="C9")) as unknown,
            pytest.raises(MetastoreError, match=r"There is no cluster 'c9'\. .*Use C1 or C2"),
        ):
            unknown.get_table(DATABASE, "plain")
    assert {name: client.get_table(DATABASE, name) for name in before} == before


def test_a_stale_copy_is_not_shown(views: dict[str, str], client: MetastoreClient) -> None:
    table = client.get_table(DATABASE, "plain")
    assert table.parameters is not None
    changed = types.Table(**table.set_fields())
    changed.parameters = {**table.parameters, "transient_lastDdlTime": "17"}
    client.alter_table(DATABASE, "plain", changed)
    with MetastoreClient(MetastoreSettings(uris=(views["C2"],))) as there:
        assert there.get_table(DATABASE, "plain").sd == table.sd
        (partition, _) = there.get_partitions(DATABASE, "parted")
        assert "/C2/" in str(partition.sd.location)  # type: ignore[union-attr]
    client.alter_table(DATABASE, "plain", table)


@contextmanager
def written_behind_the_metastore(client: MetastoreClient) -> Iterator[None]:
    """Another file in the primary of a partition, for a while."""
    (partition,) = client.find_partitions(DATABASE, "parted", "p = 'b'")
    place = Path(str(local_path(str(partition.sd and partition.sd.location))))
    more = place / "more"
    more.write_text("2\n")
    yield
    more.unlink()


def test_a_copy_of_other_files_is_not_shown(
    views: dict[str, str], source: EmbeddedMetastore, registry_file: Path, client: MetastoreClient
) -> None:
    def shown(uri: str) -> list[bool]:
        with MetastoreClient(MetastoreSettings(uris=(uri,))) as there:
            return [
                "/C2/" in str(partition.sd and partition.sd.location)
                for partition in there.get_partitions(DATABASE, "parted")
            ]

    section = {"name": "C2", "registry": str(registry_file), "check_files": False}
    with written_behind_the_metastore(client):
        assert shown(views["C2"]) == [True, False]
        with gateway({"upstream": {"uris": [source.uri]}, "cluster": section}) as serving:
            assert shown(serving.fronts[0].uri) == [True, True]
    assert shown(views["C2"]) == [True, True]


def test_new_tables_name_their_cluster(views: dict[str, str], client: MetastoreClient) -> None:
    with MetastoreClient(MetastoreSettings(uris=(views["C2"],))) as there:
        table = client.get_table(DATABASE, "plain")
        table.tableName = "from_client"
        table.parameters = {"EXTERNAL": "TRUE", "hive.cluster.primary": "C1"}
        table.tableType = "EXTERNAL_TABLE"
        table.sd.location = None  # type: ignore[union-attr]
        with pytest.raises((MetastoreError, InvalidOperationError), match="names cluster C1 as its primary"):
            there.create_table(table)
        table.parameters = {"EXTERNAL": "TRUE"}
        there.create_table(table)
        assert f"/C2/{DATABASE}.db/from_client" in location(client, "from_client")
        there.drop_table(DATABASE, "from_client", delete_data=False)


def test_a_cluster_that_is_not_configured_is_refused(source: EmbeddedMetastore, registry_file: Path) -> None:
    section = {"name": "C9", "registry": str(registry_file)}
    config = config_of({"upstream": {"uris": [source.uri]}, "cluster": section})
    with pytest.raises(UnknownClusterError):
        config.target(lambda _: MetastoreSettings(uris=(source.uri,)))


def connect(monkeypatch: pytest.MonkeyPatch, source: EmbeddedMetastore, masters: Mapping[str, str]) -> None:
    """Define the connections of the metastore, and of the Sparks of clusters."""
    host, port = source.uri.removeprefix("thrift://").split(":")
    connection = {"conn_type": "hive_federation", "host": host, "port": int(port)}
    monkeypatch.setenv("AIRFLOW_CONN_HERE", json.dumps(connection))
    for name, master in masters.items():
        monkeypatch.setenv(f"AIRFLOW_CONN_{name}", json.dumps({"conn_type": "spark", "host": master}))


@pytest.mark.slow
def test_statements_run_in_the_cluster_that_has_what_they_need(
    source: EmbeddedMetastore,
    client: MetastoreClient,
    registry_file: Path,
    registry: ClusterRegistry,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    place = StateDirectory(f"file:{tmp_path / 'state'}")
    monkeypatch.setenv("AIRFLOW__HIVE_FEDERATION__STATE_URI", place.uri)
    common = ["--metastore", source.uri, "--clusters", str(registry_file)]
    in_c2 = f"use cluster c2; select id from {DATABASE}.parted"
    assert main(["route", in_c2, "--explain", *common]) == 0
    assert "parted" in capsys.readouterr().out
    with written_behind_the_metastore(client):
        assert main(["route", in_c2, *common]) == 1
        assert "p=b is stale there" in capsys.readouterr().out
        assert main(["route", in_c2, "--no-file-check", *common]) == 0
        assert capsys.readouterr().out == "C2\nC2\n"
    assert main(["route", f"select id from {DATABASE}.parted", *common]) == 0
    assert capsys.readouterr().out == "C1\n"
    assert main(["route", "use cluster c9", *common]) == 1
    context: Any = {}
    given: dict[str, Any] = {"metastore_conn_id": "here", "clusters": str(registry_file)}
    script = """
        use cluster c2;
        create table routed_new using parquet as select id from parted;
        select max(id) from routed_new;
        use cluster;
        select id from parted where p = 'a'
    """
    task = RoutedSqlOperator(task_id="routed", sql=script, database=DATABASE, **given)
    (tmp_path / "C2").mkdir()
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    with standalone_cluster(tmp_path / "C2", workers=1) as master:
        connect(monkeypatch, source, {"C1": "local[1]", "C2": master})
        routes = task.execute(context)["statements"]
    # Whoever reads from the other root gets other rows.
    assert [(route["cluster"], route.get("rows")) for route in routes if route.get("rows")] == [
        ("C2", [["8"]]),
        ("C1", [["1"]]),
    ]
    # The executors of the statements in C2, and of no other, were those of the cluster's own worker.
    assert len(list((tmp_path / "C2" / "work1").glob("app-*/0/stderr"))) == 2
    made = client.get_table(DATABASE, "routed_new")
    assert read_metadata(made.parameters, "made").primary == "C2"
    left = Path(str(local_path(registry.cluster("C2").root))) / "_hive_federation"
    assert not list(left.glob("sql-*"))
    task = RoutedSqlOperator(task_id="refused", sql=f"select * from {DATABASE}.parted", cluster="C2", **given)
    with written_behind_the_metastore(client), pytest.raises(AirflowFailException, match="stale there"):
        task.execute(context)
    routed = place.read(ROUTES, key_of("here"), ROUTED)
    assert routed is not None
    assert [route.cluster for route in routed.routes if route.tables] == ["C2", "C2", "C1", ""]
    assert "stale there" in routed.routes[-1].refused
    placed = place.read(CLUSTERS, key_of(DATABASE, "here"), PLACED)
    assert placed is not None
    (parted,) = (table for table in placed.tables if table.name == f"{DATABASE}.parted")
    # The router has compared files: the metastore knows of no change.
    assert [(copy.cluster, copy.stale) for copy in parted.copies] == [("C2", 1)]
