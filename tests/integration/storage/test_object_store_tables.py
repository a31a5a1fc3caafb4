"""Tables on Google's store, and on Azure's by request, behind a metastore: written, compacted and replicated.

Google's store is fake-gcs-server. Azure's is Azurite, and its tests run only beside one that runs already,
see ``tests/support/object_stores.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as fn

from airflow_hive_federation.compaction.plan import CompactionKind
from airflow_hive_federation.compaction.requests import compact_table
from airflow_hive_federation.compaction.runners import in_threads
from airflow_hive_federation.replication.replica.position import loaded_dump
from airflow_hive_federation.replication.verify.verify import verify_replica
from airflow_hive_federation.spark.job import run_job
from airflow_hive_federation.tables.read.reader import read_table
from airflow_hive_federation.tables.write.statements import append, merge
from tests.support.cycling import rows
from tests.support.object_stores import STORES, object_store
from tests.support.store_tables_site import Site, check_cycles, open_site

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.slow,
    # The drivers send blocks of megabytes in one piece.
    pytest.mark.filterwarnings("ignore:Sending a large body directly"),
]

ACID = "stored as orc tblproperties ('transactional'='true')"
INSERT_ONLY = "tblproperties ('transactional'='true', 'transactional_properties'='insert_only')"
QUERIES = [
    "select id, name, p, ROW__ID.writeId, ROW__ID.rowId from {}.parts",
    "select a from {}.lines",
    "select a, p from {}.outside",
]


@pytest.fixture(scope="module", params=STORES)
def site(request: pytest.FixtureRequest, spark: SparkSession) -> Iterator[Site]:
    with object_store(request.param) as store, open_site(store) as made:
        store.let_spark_reach(spark)
        yield made


def test_tables_in_an_object_store(site: Site) -> None:
    check_cycles(site)


def test_hive_and_spark_write_tables_in_an_object_store(site: Site, spark: SparkSession) -> None:
    policy = replace(site.policy, name="mixed", source_database="mixed", target_database="mixed_copy")
    mixed, options = replace(site, policy=policy), site.store.options
    for statement in (
        "create database mixed",
        f"create table mixed.parts (id int, name string) partitioned by (p string) {ACID}",
        f"create table mixed.lines (a string) {INSERT_ONLY}",
        "create external table mixed.outside (a string) partitioned by (p string)",
        "insert into mixed.parts partition (p='a:b') values (1,'a'),(2,'b')",
        "insert into mixed.lines values ('x')",
        "insert into mixed.outside partition (p='x y') values ('1')",
    ):
        site.sql.execute(statement)
    some = spark.range(3, 6).selectExpr("cast(id as int) id", "concat('n', id) name").coalesce(1)
    with site.pool.client() as client:
        append(spark, client, "mixed.parts", some, partition={"p": "c"}, storage_options=options)
        append(spark, client, "mixed.lines", some.selectExpr("name a"), storage_options=options)
    mixed.load(mixed.bootstrap())

    site.sql.execute("update mixed.parts set name = 'hive' where id = 1")
    site.sql.execute("insert into mixed.outside partition (p='x y') values ('2')")
    with site.pool.client() as client:
        seen = read_table(spark, client, "mixed.parts", row_ids=True, storage_options=options)
        merge(
            spark,
            client,
            "mixed.parts",
            updates=seen.where("id = 4").withColumn("name", fn.lit("spark")),
            deletes=seen.where("id = 2").select("ROW__ID", "p"),
            storage_options=options,
        )
    reports = compact_table(
        site.settings,
        "mixed.parts",
        CompactionKind.MAJOR,
        in_threads(1, options=options),
        storage_options=options,
    )
    assert [report.state for report in reports] == ["compacted"] * 2
    mixed.increment()
    answers = check_sides(mixed, spark)
    assert [row[:3] for row in answers[0]] == [
        ("1", "hive", "a:b"),
        ("3", "n3", "c"),
        ("4", "spark", "c"),
        ("5", "n5", "c"),
    ]
    assert answers[1:] == [[("n3",), ("n4",), ("n5",), ("x",)], [("1", "x y"), ("2", "x y")]]


def check_sides(site: Site, spark: SparkSession) -> list[list[tuple[str, ...]]]:
    """Verify the replica, and return Hive's rows of it, which Hive's of the source and Spark's equal."""
    options, policy = site.store.options, site.policy

    def read(plan: str, results: str) -> None:
        run_job(spark, "verify-replica", ["--plan", plan, "--results", results], options=options)

    with site.pool.client() as client:
        ours = read_table(spark, client, f"{policy.target_database}.parts", storage_options=options).collect()
        dump = loaded_dump(client, policy)
    report = verify_replica(site.pool, policy, dump, run_verify=read, source=site.pool, row_digests=True)
    assert (len(report.tables), list(map(str, report.differences))) == (3, [])
    answers = [rows(site.sql, query.format(policy.target_database)) for query in QUERIES]
    assert answers == [rows(site.sql, query.format(policy.source_database)) for query in QUERIES]
    assert [row[:3] for row in answers[0]] == sorted((str(row.id), row.name, row.p) for row in ours)
    return answers
