"""Without clusters in use, metastores hold and answer the same bytes with and without the clusters' code."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest

from airflow_hive_federation.clusters.assignment import assign_tables
from airflow_hive_federation.clusters.placement import Session
from airflow_hive_federation.clusters.registry import registry_of_metastore
from airflow_hive_federation.clusters.running import LiveRouter
from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.errors import UnknownClusterError
from airflow_hive_federation.metastore import MetastoreClient, MetastoreSettings
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.metastore.wire import to_bytes
from airflow_hive_federation.remotes.session import Remotes
from tests.support.gateway_front import gateway
from tests.support.gateways import RawClient, call_bytes
from tests.support.removals_site import DATABASE, Site
from tests.support.small_source import add_partition, connected, make_small_source, make_table
from tests.support.two_clusters import two_clusters

LINKED = "unclustered_link"
#: Parameters with times, numbers of events and identities of dumps, which differ in each run; in lower case.
PASSING = ("transient_lastddltime", "last_modified_time", "repl.", "hive.repl.", "hive.federation.")


@dataclass(frozen=True)
class Through:
    """An embedded metastore that is reached at another URI."""

    metastore: EmbeddedMetastore
    uri: str

    def __getattr__(self, name: str) -> Any:
        return getattr(self.metastore, name)


@pytest.fixture
def registry_file(tmp_path: Path) -> Path:
    path = tmp_path / "clusters.json"
    path.write_text(json.dumps(two_clusters(tmp_path / "C1", tmp_path / "C2").to_json()), encoding="utf-8")
    return path


@pytest.fixture(autouse=True)
def left_empty(source: EmbeddedMetastore, target: EmbeddedMetastore) -> Iterator[None]:
    yield
    clear(source, target)


def clear(source: EmbeddedMetastore, target: EmbeddedMetastore) -> None:
    for metastore, names in ((source, (DATABASE,)), (target, (DATABASE, LINKED))):
        with connected(metastore) as client:
            for name in names:
                client.drop_database(name, delete_data=True, cascade=True, if_exists=True)
    for place in ("ext", "own"):
        shutil.rmtree(source.external_warehouse / f"{DATABASE}_{place}", ignore_errors=True)


def work(source: EmbeddedMetastore, target: EmbeddedMetastore, root: Path) -> None:
    """Create and alter tables and a view at the source, replicate them, and link them as remotes."""
    make_small_source(source, DATABASE)
    with connected(source) as client:
        own = source.external_warehouse / f"{DATABASE}_own"
        make_table(client, DATABASE, "own_place", location=f"file:{own}")
    site = Site(source, target, root)
    site.bootstrap()
    with connected(source) as client:
        for name in ("acid", "ext", "seen"):
            table: Any = client.get_table(DATABASE, name)
            table.parameters = {**table.parameters, "altered": "yes"}
            client.alter_table(DATABASE, name, table)
        add_partition(client, DATABASE, "three")
        client.drop_partitions(DATABASE, "acid", ["p=one"], delete_data=True)
        client.drop_table(DATABASE, "own_place", delete_data=True)
    site.cycle()
    with Remotes(MetastoreSettings(uris=(target.uri,))) as remotes:
        remotes.run(
            f"CREATE REMOTE DATABASE {LINKED} CONNECTED TO {DATABASE} "
            f"VIA 'thrift' 'hive.metastore.uris' = '{source.uri}'"
        )
        remotes.run(f"REFRESH REMOTE DATABASE {LINKED}")


def objects(metastore: EmbeddedMetastore, *databases: str) -> dict[str, bytes]:
    """Return the bytes of all objects of databases, without the values that differ in each run."""
    made: dict[str, bytes] = {}
    with connected(metastore) as client:
        for database in databases:
            made[database] = bytes_of(client.get_database(database))
            for name in client.list_tables(database):
                made[f"{database}.{name}"] = bytes_of(client.get_table(database, name))
                for partition in client.iter_partitions(database, name):
                    made[f"{database}.{name}/{partition.values}"] = bytes_of(partition)
    return made


def bytes_of(described: Any) -> bytes:
    lasting = {
        key: value
        for key, value in sorted((described.parameters or {}).items())
        if not key.lower().startswith(PASSING)
    }
    described.parameters = lasting
    for name in ("id", "createTime", "lastAccessTime", "writeId"):
        if hasattr(described, name):
            setattr(described, name, 0)
    return to_bytes(described)


def answers(uri: str) -> list[bytes]:
    """Return the bytes of a metastore's answers about the database."""
    host, port = uri.removeprefix("thrift://").split(":")
    client = RawClient((host, int(port)))
    calls: list[tuple[str, dict[str, Any]]] = [
        ("get_database", {"name": DATABASE}),
        ("get_all_tables", {"db_name": DATABASE}),
        *(("get_table_req", {"req": types.GetTableRequest(dbName=DATABASE, tblName=name)}) for name in NAMES),
        ("get_table_objects_by_name", {"dbname": DATABASE, "tbl_names": list(NAMES)}),
        ("get_partitions", {"db_name": DATABASE, "tbl_name": "acid", "max_parts": -1}),
        ("get_partition_names", {"db_name": DATABASE, "tbl_name": "acid", "max_parts": -1}),
        ("get_partition_by_name", {"db_name": DATABASE, "tbl_name": "acid", "part_name": "p=three"}),
        ("get_fields", {"db_name": DATABASE, "table_name": "seen"}),
        ("get_table", {"dbname": DATABASE, "tbl_name": "missing"}),
    ]
    try:
        received = []
        for method, arguments in calls:
            client.sock.sendall(call_bytes(method, **arguments))
            received.append(client.message()[1])
        return received
    finally:
        client.close()


NAMES = ("acid", "ext", "seen")


def test_the_same_work_leaves_the_same_bytes_without_clusters_and_beside_them(
    source: EmbeddedMetastore, target: EmbeddedMetastore, tmp_path: Path, registry_file: Path
) -> None:
    """A gateway with clusters, whose clients name none, changes no metastore, no answer, and no replica."""
    upstream = {"upstream": {"uris": [source.uri]}}
    beside = {**upstream, "cluster": {"registry": str(registry_file)}}
    left: list[dict[str, bytes]] = []
    with gateway(upstream) as plain, gateway(beside) as ours:
        for uri in (source.uri, ours.fronts[0].uri):
            shutil.rmtree(tmp_path / "root", ignore_errors=True)
            clear(source, target)
            work(cast("EmbeddedMetastore", Through(source, uri)), target, tmp_path / "root")
            at_source, at_target = objects(source, DATABASE), objects(target, DATABASE, LINKED)
            assert {f"{DATABASE}.{name}" for name in NAMES} <= at_source.keys() & at_target.keys()
            left.append({**at_source, **{f"target {name}": item for name, item in at_target.items()}})
        received = [answers(serving.fronts[0].uri) for serving in (plain, ours)]
    assert left[1] == left[0]
    assert received[1] == received[0]
    assert b"hive.cluster" not in b"".join([*left[1].values(), *received[1]])


def test_a_metastore_without_clusters_is_not_changed_by_their_commands(
    source: EmbeddedMetastore, client: MetastoreClient
) -> None:
    make_small_source(source, DATABASE)
    before = objects(source, DATABASE), answers(source.uri)
    registry = registry_of_metastore(client)
    with pytest.raises(UnknownClusterError):
        assign_tables(client, registry, databases=[DATABASE])
    with pytest.raises(UnknownClusterError):
        LiveRouter(client=client, registry=registry).decide(f"SELECT * FROM {DATABASE}.ext", Session())
    assert (objects(source, DATABASE), answers(source.uri)) == before
