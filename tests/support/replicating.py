"""Replicating in tests: what the DAG does, with the Spark session of the tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_hive_federation.metastore import MetastorePool, MetastoreSettings
from airflow_hive_federation.progress.observers import Observer, unobserved
from airflow_hive_federation.replication.dump.bootstrap import DumpSummary, dump_bootstrap
from airflow_hive_federation.replication.dump.drain import begin_drain, drain
from airflow_hive_federation.replication.load.load import load_into_target
from airflow_hive_federation.replication.load.summary import LoadSummary
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.replication.verify.report import VerificationReport
from airflow_hive_federation.replication.verify.verify import verify_replica
from airflow_hive_federation.spark.job import run_job
from tests.support.both_readers import read_both_ways

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from airflow_hive_federation.embedded.metastore import EmbeddedMetastore


@dataclass(frozen=True)
class Replication:
    """One policy between the two metastores of the tests."""

    source: MetastorePool
    target: MetastorePool
    policy: ReplicationPolicy
    spark: SparkSession

    def dump(self, timeout_s: float = 5.0) -> DumpSummary:
        with self.source.client() as client:
            start = begin_drain(client, self.policy.source_database)
            drain(client, start, timeout_s=timeout_s)
        return dump_bootstrap(self.source, self.policy, start)

    def load(self, dump: str, observer: Observer = unobserved) -> LoadSummary:
        return load_into_target(
            self.source, self.target, self.policy, dump, run_copy=self.copy, observer=observer
        )

    def verify(self, dump: str) -> VerificationReport:
        return verify_replica(self.target, self.policy, dump, run_verify=self.read)

    def copy(self, plan: str, outcomes: str) -> None:
        run_job(self.spark, "copy-files", ["--plan", plan, "--outcomes", outcomes])

    def read(self, plan: str, results: str) -> None:
        read_both_ways(self.spark, plan, results)


@contextmanager
def replication(
    source: EmbeddedMetastore, target: EmbeddedMetastore, spark: SparkSession, root: Path, **policy: Any
) -> Iterator[Replication]:
    """A policy named after its source database."""
    fields = {
        "name": policy["source_database"],
        "dump_root": f"file:{root}/dumps",
        # Two policies of one target share no directory.
        "external_base": f"file:{target.external_warehouse}/replica/"
        + policy.get("target_database", policy["source_database"]),
        **policy,
    }
    with (
        MetastorePool(MetastoreSettings(uris=(source.uri,)), 4) as source_pool,
        MetastorePool(MetastoreSettings(uris=(target.uri,)), 4) as target_pool,
    ):
        yield Replication(source_pool, target_pool, ReplicationPolicy(**fields), spark)
