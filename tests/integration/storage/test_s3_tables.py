"""Tables on S3 behind a metastore, judged by Hive: cycles, streaming ingest, compaction, groups and clusters.

The store is S3Proxy, or the one that HIVE_FEDERATION_TESTS_S3 names; Hive and its metastore reach it by
hadoop-aws.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from airflow_hive_federation.clusters.assignment import assign_tables
from airflow_hive_federation.clusters.copies.copying import copy_to_cluster, drop_copies
from airflow_hive_federation.clusters.keep_rules import read_rule
from airflow_hive_federation.clusters.keeping import keep_current
from airflow_hive_federation.clusters.placement import Session
from airflow_hive_federation.clusters.primary import change_primary
from airflow_hive_federation.clusters.running import LiveRouter
from airflow_hive_federation.clusters.sweeping import sweep_cluster
from airflow_hive_federation.errors import RoutingError
from airflow_hive_federation.metastore import MetastoreClient, MetastorePool, MetastoreSettings
from airflow_hive_federation.replication.cycle import dump_next_increment
from airflow_hive_federation.replication.group_policy import ReplicationGroup
from airflow_hive_federation.replication.groups.cycle import run_group_cycle
from airflow_hive_federation.replication.groups.dump import dump_group
from airflow_hive_federation.replication.groups.load import load_group
from airflow_hive_federation.replication.groups.take_over import take_over_group
from airflow_hive_federation.replication.load.load import load_into_target
from airflow_hive_federation.replication.load.summary import CopyRunner
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.replication.take_over import take_over
from airflow_hive_federation.storage.listing import list_files
from airflow_hive_federation.storage.publishing import write_atomically
from airflow_hive_federation.tables.write.statements import append
from tests.support.cycling import rows
from tests.support.observing import at_steps
from tests.support.s3_site import s3_store
from tests.support.store_tables_site import QUERIES, KilledError, Site, check_cycles, open_site, stream
from tests.support.two_clusters import two_clusters

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

INSERT_ONLY = "tblproperties ('transactional'='true', 'transactional_properties'='insert_only')"
NOWHERE = MetastoreSettings(uris=("thrift://127.0.0.1:1",))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with s3_store(tmp_path_factory.mktemp("s3")) as store, open_site(store) as made:
        yield made


def test_tables_on_s3(site: Site, spark: SparkSession) -> None:
    check_cycles(site)
    check_that_spark_appends(site, spark)
    check_that_a_take_over_ends_a_load(site)


def check_that_spark_appends(site: Site, spark: SparkSession) -> None:
    """Rows of both buckets, which a task hands to others in one object; Spark has no driver of S3."""
    some = spark.sql("select cast(id as int) id, concat('spark', id) name from range(8, 12, 1, 1)")
    with site.pool.client() as client:
        append(spark, client, "shop.orders", some, storage_options=site.store.options)
    site.increment()
    orders = [rows(site.sql, QUERIES[0].format(database)) for database in ("shop", "shop_copy")]
    assert orders[0] == orders[1]
    assert {row[:2] for row in orders[0]} >= {(str(n), f"spark{n}") for n in range(8, 12)}


def check_that_a_take_over_ends_a_load(site: Site) -> None:
    """All files of the load were copied, so it needs no source any more."""
    stream(site, b"7,g")
    dump = dump_next_increment(site.pool, site.pool, site.policy).dump

    def react(step: str) -> None:
        if step.startswith("end "):
            raise KilledError

    with pytest.raises(KilledError):
        load_into_target(
            site.pool, site.pool, site.policy, dump, run_copy=site.copy, observer=at_steps(react)
        )
    with MetastorePool(NOWHERE, 1) as nowhere:
        assert take_over(nowhere, site.pool, site.policy).removed == 0
    assert rows(site.sql, QUERIES[0].format("shop_copy")) == rows(site.sql, QUERIES[0].format("shop"))


def test_a_group_and_clusters_on_s3(site: Site) -> None:
    databases = ("cash", "goods")
    policies = [
        replace(site.policy, name=name, source_database=name, target_database=f"{name}_copy")
        for name in databases
    ]
    group = ReplicationGroup(name="both", policies=policies)
    for name in databases:
        site.sql.execute(f"create database {name}")
        site.sql.execute(f"create table {name}.t (a string) {INSERT_ONLY}")
    with site.pool.client() as client:
        for number in (1, 2):
            write_to_both(client, site, number)
            run_group_cycle(site.pool, site.pool, group, run_copy=lambda _: site.copy)
        assert [rows(site.sql, f"select a from {name}_copy.t") for name in databases] == [
            [("1",), ("2",)]
        ] * 2
        write_to_both(client, site, 3)
        dump = dump_group(site.pool, site.pool, group)

        def copy_half(policy: ReplicationPolicy) -> CopyRunner:
            return kill if policy.name == "goods" else site.copy

        with pytest.raises(KilledError):
            load_group(site.pool, site.pool, group, dump, run_copy=copy_half)
        assert site.files("warehouse/cash_copy.db/t") == site.files("warehouse/cash.db/t")
        with MetastorePool(NOWHERE, 1) as nowhere:
            reports = take_over_group(nowhere, site.pool, group)
        assert [report.removed for report in reports] == [1, 0]
        for name in databases:
            assert len(site.files(f"warehouse/{name}_copy.db/t")) == 2
            assert rows(site.sql, f"select a from {name}_copy.t") == [("1",), ("2",)]
        check_clusters(client, site)


def kill(_plan: str, _outcomes: str) -> None:
    raise KilledError


def write_to_both(client: MetastoreClient, site: Site, number: int) -> None:
    """Write a row to both databases of the group in one transaction."""
    (txn,) = client.open_txns(1)
    for database in ("cash", "goods"):
        write_id = client.allocate_table_write_ids(database, "t", [txn])[txn]
        delta = f"{site.base}/warehouse/{database}.db/t/delta_{write_id:07d}_{write_id:07d}_0000"
        write_atomically(f"{delta}/000000_0", [b"%d\n" % number], site.store.options)
    client.commit_txn(txn)


def check_clusters(client: MetastoreClient, site: Site) -> None:
    """Copies between two buckets are kept current, read, and made the primary."""
    options = site.store.options
    site.store.make_bucket("far")
    registry = two_clusters(site.base, "s3a://far/c2")
    site.sql.execute("create external table cash.e (a string) partitioned by (p string)")
    for key in ("2026-11-27", "x:y"):
        site.sql.execute(f"alter table cash.e add partition (p='{key}')")
    first, second = (f"{site.base}/external/cash.db/e/{name}/f" for name in ("p=2026-11-27", "p=x%3Ay"))
    for uri, text in ((first, b"1\n"), (second, b"2\n")):
        write_atomically(uri, [text], options)
    assign_tables(client, registry, databases=["cash"])

    def cluster_of_e() -> str | None:
        router = LiveRouter(client=client, registry=registry, options=options)
        return router.route("select a from cash.e", Session(cluster="C2")).cluster

    assert copy_to_cluster(client, registry, "cash.e", "C2", site.copy, options=options).files == 2
    report = copy_to_cluster(client, registry, "cash.t", "C2", site.copy, options=options)
    # The copy has the snapshot's deltas: of every transaction that has ended.
    assert (report.copied, report.files) == (["cash.t"], 3)
    assert cluster_of_e() == "C2"
    # Of the same length, and perhaps within the same second.
    write_atomically(first, [b"3\n"], options)
    with pytest.raises(RoutingError, match=r"cash\.e.*stale"):
        cluster_of_e()
    kept = keep_current(client, registry, read_rule("all of cash.e in C2"), site.copy, options=options)
    assert kept.copied == ["p=2026-11-27"]
    assert cluster_of_e() == "C2"
    change_primary(
        client, registry, "cash.e", "C2", keep_former=False, former_older_than_s=-60.0, options=options
    )
    assert site.files("external/cash.db") == []
    assert rows(site.sql, "select a, p from cash.e") == [("2", "x:y"), ("3", "2026-11-27")]
    drop_copies(client, registry, "cash.t", "C2", options=options)
    swept = sweep_cluster(client, registry, "C2", former_older_than_s=-60.0, options=options)
    assert (len(swept.removed), swept.left) == (2, {})
    assert len(list_files("s3a://far/c2", options=options)) == 2
