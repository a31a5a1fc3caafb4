"""The view of one cluster through both fronts and every encoding, and parts that it lacks."""

from __future__ import annotations

import json
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import grpc
import pytest

from airflow_hive_federation.clusters.metadata import (
    ClusterMetadata,
    Secondary,
    SourceMark,
    metadata_mark,
    write_metadata,
)
from airflow_hive_federation.errors import MetastoreServerError
from airflow_hive_federation.gateway.config import config_of
from airflow_hive_federation.gateway.services import layout
from airflow_hive_federation.gateway.serving import Serving, start
from airflow_hive_federation.metastore import MetastoreSettings
from airflow_hive_federation.metastore.idl import types
from tests.support.foreign_clients import HIVES, Client
from tests.support.gateways import Clients, Peers
from tests.support.grpc_fronts import refused
from tests.support.metastore_peers import Thrift

PRIMARY, COPY = "file:/c1/d.db/t", "file:/c2/d.db/t"


def described(made: Any, location: str, copy: str) -> Any:
    """A table or partition of C1 with a copy in C2."""
    made.sd = types.StorageDescriptor(location=location)
    mark = SourceMark(metadata=metadata_mark(made), files=1, size_bytes=1, content="c", listing="l")
    secondary = Secondary(location=copy, source=mark)
    made.parameters = write_metadata(
        made.parameters, ClusterMetadata(primary="C1", secondaries={"C2": secondary})
    )
    return made


def table() -> types.Table:
    keys = [types.FieldSchema(name="p", type="string")]
    return described(types.Table(dbName="d", tableName="t", partitionKeys=keys), PRIMARY, COPY)  # type: ignore[no-any-return]


def partition() -> types.Partition:
    made = types.Partition(dbName="d", tableName="t", values=["a"])
    return described(made, f"{PRIMARY}/p=a", f"{COPY}/p=a")  # type: ignore[no-any-return]


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


def nobody(connection: str) -> MetastoreSettings:
    raise AssertionError(connection)


@pytest.fixture
def serving(peer: Peers, stack: ExitStack, tmp_path: Path) -> Serving:
    """A gateway for C2, with another metastore that is down."""
    registry = tmp_path / "clusters.json"
    clusters = {name: {"fileSystem": f"/{name}".lower(), "jobTracker": name} for name in ("C1", "C2")}
    registry.write_text(
        json.dumps({"hive.cluster.properties": clusters, "hive.default.cluster.name": "C1"}), encoding="utf-8"
    )
    gone = peer(Thrift(metastore))
    down = gone.uri
    gone.close()
    config = {
        "upstream": {"uris": [peer(Thrift(metastore)).uri]},
        "federated": [{"name": "far", "uris": [down]}],
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
