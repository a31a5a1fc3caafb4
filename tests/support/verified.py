"""Differences between a replica and its source."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_hive_federation.replication.replica.position import loaded_dump
from airflow_hive_federation.replication.verify.verify import verify_replica
from tests.support.both_readers import Reading, read_as_a_task
from tests.support.incrementing import Cycles

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def differences(site: Cycles, spark: SparkSession, reading: Reading = read_as_a_task) -> list[str]:
    def read(plan: str, results: str) -> None:
        reading(spark, plan, results)

    with site.target.client() as client:
        dump = loaded_dump(client, site.policy)
    report = verify_replica(site.target, site.policy, dump, run_verify=read, source=site.source)
    assert report.tables
    return list(map(str, report.differences))
