"""Cycles in tests: what the scheduled DAG does, decided by the target's state, judged by what Hive reads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.embedded.sql import HiveSql
from airflow_hive_federation.metastore import MetastorePool
from airflow_hive_federation.replication.cycle import dump_next_increment, is_published, load_dump, load_idle
from airflow_hive_federation.replication.dump.bootstrap import dump_bootstrap
from airflow_hive_federation.replication.dump.drain import begin_drain
from airflow_hive_federation.replication.load.summary import LoadSummary
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.replication.verify.report import VerificationReport
from airflow_hive_federation.replication.verify.unverified import tables_to_compare
from airflow_hive_federation.replication.verify.verify import verify_replica
from tests.support.both_readers import Reading, read_as_a_task
from tests.support.incrementing import run_copy

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass
class Scheduled:
    """One policy between two metastores; ``jobs`` are the jobs that the last cycle started."""

    source: MetastorePool
    target: MetastorePool
    policy: ReplicationPolicy
    spark: SparkSession
    jobs: list[str] = field(default_factory=list)
    reading: Reading = read_as_a_task

    def change(self, **fields: Any) -> None:
        """Change the policy."""
        self.policy = replace(self.policy, **fields)

    def cycle(self) -> LoadSummary:
        """Run a bootstrap or an increment, and verify the changed tables."""
        self.jobs.clear()
        with self.target.client() as client:
            published = is_published(client, self.policy)
        loaded = self._increment() if published else self._bootstrap()
        tables = tables_to_compare(loaded.dump, self.policy.storage_options, idle=loaded.idle)
        report = verify_replica(
            self.target,
            self.policy,
            loaded.dump,
            run_verify=self._read,
            source=self.source,
            tables=tables,
        )
        report.raise_if_different()
        return loaded

    def verify(self) -> VerificationReport:
        """Compare everything with the dump that was loaded last."""
        with self.target.client() as client:
            parameters = client.get_database(self.policy.target_database).parameters or {}
        dump = parameters["hive.repl.ckpt.key"]
        return verify_replica(
            self.target, self.policy, dump, run_verify=self._read, source=self.source, row_digests=True
        )

    def _increment(self) -> LoadSummary:
        dumped = dump_next_increment(self.source, self.target, self.policy)
        if dumped.idle:
            return load_idle(self.target, self.policy, dumped.event_id)
        return self._load(dumped.dump)

    def _bootstrap(self) -> LoadSummary:
        with self.source.client() as client:
            start = begin_drain(client, self.policy.source_database)
        return self._load(dump_bootstrap(self.source, self.policy, start).dump)

    def _load(self, dump: str) -> LoadSummary:
        return load_dump(self.source, self.target, self.policy, dump, run_copy=self._copy)

    def _copy(self, plan: str, outcomes: str) -> None:
        self.jobs.append("copy")
        run_copy(plan, outcomes)

    def _read(self, plan: str, results: str) -> None:
        self.jobs.append("verify")
        self.reading(self.spark, plan, results)


@contextmanager
def scheduled(
    source: EmbeddedMetastore,
    target: EmbeddedMetastore,
    spark: SparkSession,
    root: Path,
    database: str,
    *,
    reading: Reading = read_as_a_task,
) -> Iterator[Scheduled]:
    """A policy named after its source database."""
    from airflow_hive_federation.metastore import MetastoreSettings

    policy = ReplicationPolicy(
        name=database,
        source_database=database,
        target_database=f"{database}_copy",
        dump_root=f"file:{root}/dumps",
        external_base=f"file:{target.external_warehouse}/{database}_base",
    )
    with (
        MetastorePool(MetastoreSettings(uris=(source.uri,)), 4) as source_pool,
        MetastorePool(MetastoreSettings(uris=(target.uri,)), 4) as target_pool,
    ):
        yield Scheduled(source_pool, target_pool, policy, spark, reading=reading)


def rows(sql: HiveSql, query: str) -> list[Any]:
    """Return the rows that Hive reads without the use of statistics."""
    sql.set("hive.compute.query.using.stats", "false")
    return sorted(sql.execute(query), key=repr)
