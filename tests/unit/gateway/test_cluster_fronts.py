"""The view of one cluster through both fronts and every encoding, and parts that it lacks."""

from __future__ import annotations

import json
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import grpc
import pytest

from airflow_hive_federation.errors import HiveFederationError, MetastoreServerError
from airflow_hive_federation.gateway.config import config_of
from airflow_hive_federation.gateway.services import layout
from airflow_hive_federation.gateway.serving import Serving, start
from airflow_hive_federation.metastore import MetastoreSettings
from airflow_hive_federation.metastore.grpc_settings import GrpcSettings
from airflow_hive_federation.metastore.idl import types
from tests.support.copied_table import COPY, partition, table
from tests.support.foreign_clients import HIVES, Client
from tests.support.gateways import Clients, Peers
from tests.support.grpc_fronts import refused
from tests.support.metastore_peers import DEAD_URI, Thrift


def metastore(method: str, args: Any) -> Any:
    return {
        "get_all_databases": lambda: ["d"],
        "get_all_tables": lambda: ["t"],
        "get_partition_names": lambda: ["p=a"],
        "get_partitions": lambda: [partition()],
        "get_partitions_by_names_req": lambda: types.GetPartitionsByNamesResult(partitions=[partition()]),
        "get_table_req": lambda: types.GetTableResult(table=table()),
        "get_table_objects_by_name_req": lambda: types.GetTablesResult(tables=[table()]),
    }.get(method, lambda: None)()


def with_catalogs(method: str, args: Any) -> Any:
    if method == "get_catalogs":
        return types.GetCatalogsResponse(names=["hive"])
    return metastore(method, args)


def nobody(connection: str) -> MetastoreSettings:
    raise AssertionError(connection)


@pytest.fixture
def registry(tmp_path: Path) -> Path:
    """The file of a registry with the clusters C1 and C2."""
    path = tmp_path / "clusters.json"
    clusters = {name: {"fileSystem": f"/{name}".lower(), "jobTracker": name} for name in ("C1", "C2")}
    path.write_text(
        json.dumps({"hive.cluster.properties": clusters, "hive.default.cluster.name": "C1"}), encoding="utf-8"
    )
    return path


@pytest.fixture
def serving(peer: Peers, stack: ExitStack, registry: Path) -> Serving:
    """A gateway for C2, with another metastore that is down."""
    config = {
        "upstream": {"uris": [peer(Thrift(metastore)).uri]},
        "federated": [{"name": "far", "uris": [DEAD_URI]}],
        "federation": {"on_missing": "partial"},
        "cluster": {"name": "C2", "registry": str(registry), "check_files": False},
        "thrift": {"port": 0},
        "grpc": {"port": 0},
        "metrics": {"port": 0},
        "health": {"interval_s": 0},
    }
    made = start(config_of(config), nobody)
    stack.callback(made.stop)
    return made


def location(described: Any) -> str:
    return str(described.sd.location)


@pytest.mark.parametrize("scheme", ["thrift", "grpc"])
def test_copies_are_shown_and_foreign_tables_are_not_written(
    serving: Serving, client: Clients, scheme: str
) -> None:
    uri = next(front.uri for front in serving.fronts if front.uri.startswith(scheme))
    hms = client(uri)
    assert location(hms.get_table("d", "t")) == COPY
    assert [location(table) for table in hms.iter_tables("d")] == [COPY]
    assert [location(partition) for partition in hms.iter_partitions("d", "t")] == [f"{COPY}/p=a"]
    for write in (
        lambda: hms.alter_table("d", "t", table()),
        lambda: hms.drop_table("d", "t", delete_data=True),
    ):
        with pytest.raises(MetastoreServerError, match="is written in its primary cluster, C1"):
            write()


def test_copies_are_shown_to_foreign_clients(serving: Serving) -> None:
    uri = serving.fronts[1].uri
    with grpc.insecure_channel(uri.removeprefix("grpc://")) as channel:
        foreign = Client(channel, uri)
        asked = {"dbName": "d", "tblName": "t"}
        ours = foreign.call(layout.SERVICE, "get_table_req", req=asked)
        assert ours.success.table.sd.location == COPY
        hives = foreign.call(HIVES, "GetTableReq", db_name="d", tbl_name="t")
        assert hives.table.sd.location == COPY
        (piece,) = foreign.stream("stream_partitions", database="d", table="t")
        assert [partition.sd.location for partition in piece.partitions] == [f"{COPY}/p=a"]
        error = refused(lambda: foreign.call(layout.SERVICE, "truncate_table", dbName="d", tableName="t"))
        assert error.code() is grpc.StatusCode.PERMISSION_DENIED
        assert "is written in its primary cluster, C1" in error.details()


def test_parts_that_the_view_lacks_are_counted(serving: Serving, client: Clients) -> None:
    assert serving.metrics is not None
    where = f"http://127.0.0.1:{serving.metrics.port}/metrics"

    def read() -> str:
        return urllib.request.urlopen(where, timeout=20).read().decode()  # type: ignore[no-any-return]

    assert "hive_gateway_missing_parts_total{" not in read()
    for count, front in enumerate(serving.fronts, 1):
        assert client(front.uri).call("get_all_databases") == ["d"]
        assert f'hive_gateway_missing_parts_total{{worker="0",upstream="far"}} {count}' in read()


def test_the_access_log_names_the_cluster_of_a_catalog(
    peer: Peers, stack: ExitStack, client: Clients, registry: Path, tmp_path: Path
) -> None:
    log = tmp_path / "access"
    config = {
        "upstream": {"uris": [peer(Thrift(with_catalogs)).uri]},
        "cluster": {"registry": str(registry), "check_files": False},
        "thrift": {"port": 0},
        "grpc": {"port": 0},
        "health": {"interval_s": 0},
        "log": {"access": str(log)},
    }
    serving = start(config_of(config), nobody)
    stack.callback(serving.stop)
    thrift, over_grpc = (front.uri for front in serving.fronts)
    by_catalog, unnamed = client(thrift, catalog="c2"), client(thrift)
    by_metadata = client(over_grpc, grpc=GrpcSettings(cluster="C1"))
    for reader in (by_catalog, unnamed, by_metadata):
        reader.get_table("d", "t")
    with pytest.raises(HiveFederationError, match="no cluster 'C9'"):
        client(over_grpc, grpc=GrpcSettings(cluster="C9")).get_table("d", "t")
    # A line is written after the answer, and before the next call of a connection is read; a stop waits.
    serving.stop()
    lines = [json.loads(line[line.index("{") :]) for line in log.read_text().splitlines()]
    named = [line.get("cluster") for line in lines if line["method"] == "get_table_req"]
    assert sorted(map(str, named)) == ["C1", "C2", "C9", "None"]
