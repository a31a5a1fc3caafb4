"""Parameters of one side, planted at a source, reach the other side in no cycle."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.metastore import MetastoreClient, MetastoreSettings
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.metastore.wire import to_json
from airflow_hive_federation.remotes.session import Remotes
from airflow_hive_federation.replication.failover import start_failover, switch_roles
from airflow_hive_federation.replication.repair import repair_replica
from airflow_hive_federation.storage.filesystem import local_path
from tests.support.incrementing import run_copy
from tests.support.removals_site import DATABASE, Site
from tests.support.small_source import add_partition, connected, make_small_source

PLANTED = {
    "hive.federation.remote.properties": "planted",
    "HIVE.Federation.Policy": "planted",
    "hive.federation.x": "planted",
    "Repl.Last.Id": "planted",
    "repl.x": "planted",
    "Hive.Repl.Ckpt.Key": "planted",
    "hive.repl.x": "planted",
    "hive.cluster.primary": "planted",
    "Hive.Cluster.Secondary.C2.location": "planted",
    "hive.cluster.secondary.C2.source": "planted",
}


@pytest.fixture
def site(source: EmbeddedMetastore, target: EmbeddedMetastore, tmp_path: Path) -> Iterator[Site]:
    make_small_source(source, DATABASE)
    site = Site(source, target, tmp_path)
    yield site
    for metastore in (source, target):
        with connected(metastore) as client:
            for name in (DATABASE, "far_side"):
                client.drop_database(name, delete_data=True, cascade=True, if_exists=True)
    shutil.rmtree(site.external, ignore_errors=True)


def plant(client: MetastoreClient, *, text: str = "planted") -> None:
    """Plant them wherever a metastore keeps parameters."""
    planted = dict.fromkeys(PLANTED, text)
    database: Any = client.get_database(DATABASE)
    database.parameters = {**(database.parameters or {}), **planted}
    client.alter_database(DATABASE, database)
    for name in client.list_tables(DATABASE):
        table: Any = client.get_table(DATABASE, name)
        table.parameters = {**table.parameters, **planted}
        for holder in (table.sd, table.sd.serdeInfo):
            holder.parameters = {**(holder.parameters or {}), **planted}
        client.alter_table(DATABASE, name, table)
    partitions: list[Any] = list(client.iter_partitions(DATABASE, "acid"))
    for partition in partitions:
        partition.parameters = {**(partition.parameters or {}), **planted}
        partition.sd.parameters = {**(partition.sd.parameters or {}), **planted}
    client.alter_partitions(DATABASE, "acid", partitions)


def everything(client: MetastoreClient, database: str) -> list[Any]:
    names = client.list_tables(database)
    return [
        client.get_database(database),
        *client.get_tables(database, names),
        *(partition for name in names for partition in client.iter_partitions(database, name)),
        *client.get_functions(database),
    ]


def planted_at(metastore: EmbeddedMetastore, database: str = DATABASE) -> list[str]:
    def walk(value: Any) -> Iterator[str]:
        if isinstance(value, dict):
            yield from (key for key, element in value.items() if element == "planted")
            value = list(value.values())
        if isinstance(value, list):
            for element in value:
                yield from walk(element)

    with connected(metastore) as client:
        return [name for described in everything(client, database) for name in walk(to_json(described))]


def without_rows(_plan: str, results: str) -> None:
    """Stand in for Spark: the files of the source are none that can be read."""
    (Path(local_path(results) or "") / "rows.jsonl").write_text("", encoding="utf-8")


def test_of_a_replica(site: Site) -> None:
    with connected(site.source) as client:
        plant(client)
        client.create_function(
            types.Function(
                functionName="up",
                dbName=DATABASE,
                className="org.apache.hadoop.hive.ql.udf.UDFLength",
                ownerName="root",
                ownerType=types.PrincipalType.USER,
                functionType=types.FunctionType.JAVA,
                resourceUris=[],
            )
        )
    assert len(planted_at(site.source)) > 7 * len(PLANTED)
    site.bootstrap()
    assert planted_at(site.target) == []
    assert site.tables() == ["acid", "ext", "seen"]

    # The target has a registry of its own, whose clusters its tables keep.
    with connected(site.target) as client:
        assigned: Any = client.get_table(DATABASE, "ext")
        assigned.parameters = {**assigned.parameters, "hive.cluster.primary": "T1"}
        client.alter_table(DATABASE, "ext", assigned)
    with connected(site.source) as client:
        plant(client, text="other")
        plant(client)
        changed: Any = client.get_table(DATABASE, "ext")
        changed.parameters = {**changed.parameters, "changed": "yes"}
        client.alter_table(DATABASE, "ext", changed)
        add_partition(client, DATABASE, "three")
    site.cycle()
    assert planted_at(site.target) == []
    with connected(site.target) as client:
        assigned = client.get_table(DATABASE, "ext")
    assert (assigned.parameters["changed"], assigned.parameters["hive.cluster.primary"]) == ("yes", "T1")

    with connected(site.target) as client:
        view: Any = client.get_table(DATABASE, "seen")
        view.parameters = {**view.parameters, "damaged": "yes"}
        client.alter_table(DATABASE, "seen", view)
    with site.sides() as (source_pool, target_pool):
        repair_replica(source_pool, target_pool, site.policy, run_copy=run_copy, run_verify=without_rows)
    assert planted_at(site.target) == []

    with site.sides() as (source_pool, target_pool):
        start_failover(source_pool, target_pool, site.policy)
    site.cycle()
    with site.sides() as (source_pool, target_pool):
        report = switch_roles(source_pool, target_pool, site.policy)
        assert report.policy.source_database == DATABASE
    assert planted_at(site.target) == []


def test_of_links(site: Site) -> None:
    with connected(site.source) as client:
        plant(client)
    with Remotes(MetastoreSettings(uris=(site.target.uri,))) as remotes:
        remotes.run(
            f"CREATE REMOTE DATABASE far_side CONNECTED TO {DATABASE} "
            f"VIA 'thrift' 'hive.metastore.uris' = '{site.source.uri}'"
        )
        assert planted_at(site.target, "far_side") == []
        with connected(site.source) as client:
            plant(client, text="other")
            plant(client)
            add_partition(client, DATABASE, "three")
        remotes.run("REFRESH REMOTE DATABASE far_side")
    assert planted_at(site.target, "far_side") == []
