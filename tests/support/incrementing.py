"""Increments in tests: cycles between two metastores, judged by what real Hive reads on both sides."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airflow_hive_federation.acid.rewrite import rewrite_file
from airflow_hive_federation.metastore import MetastorePool, MetastoreSettings
from airflow_hive_federation.progress.observers import Observer, unobserved
from airflow_hive_federation.replication.dump.bootstrap import dump_bootstrap
from airflow_hive_federation.replication.dump.drain import begin_drain, drain
from airflow_hive_federation.replication.dump.increment import dump_increment
from airflow_hive_federation.replication.dump.increment_summary import IncrementSummary
from airflow_hive_federation.replication.load.load import load_into_target
from airflow_hive_federation.replication.load.summary import LoadSummary
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.replication.replica.position import read_position
from airflow_hive_federation.storage.copying import CopySettings, copy_file, survey_targets
from airflow_hive_federation.storage.fence import fence_of
from airflow_hive_federation.storage.plan_files import read_plan, write_records
from tests.support.histories import Metastore, Sql


def run_copy(plan: str, outcomes: str, *, threads: int = 1) -> None:
    """The copy job without Spark, which has tests of its own."""
    assert "#sha256=" in plan, "the load hands over its plan with the digest"
    settings = CopySettings(rewrite=rewrite_file, fence=fence_of(plan))
    items = list(read_plan(plan))
    # As the job does with what a killed run has left.
    survey_targets(sorted({item.target.rpartition("/")[0] for item in items}), sweep_runs_before="0~")
    if threads == 1:
        copied = [copy_file(item, settings) for item in items]
    else:
        with ThreadPoolExecutor(threads) as pool:
            copied = list(pool.map(lambda item: copy_file(item, settings), items))
    write_records(f"{outcomes}/run.jsonl", copied)


@dataclass(frozen=True)
class Cycles:
    """One policy between the two metastores, and Hive on both."""

    source: MetastorePool
    target: MetastorePool
    policy: ReplicationPolicy
    source_sql: Sql
    target_sql: Sql

    def write(self, *statements: str) -> None:
        for statement in statements:
            self.source_sql.execute(statement)

    def bootstrap(self, before_dump: Callable[[], None] = lambda: None) -> LoadSummary:
        """Replicate the database for the first time.

        :param before_dump: is called after the drain.
        """
        with self.source.client() as client:
            start = begin_drain(client, self.policy.source_database)
            drain(client, start, timeout_s=1.0)
        before_dump()
        dump = dump_bootstrap(self.source, self.policy, start)
        return load_into_target(self.source, self.target, self.policy, dump.dump, run_copy=run_copy)

    def dump(self) -> IncrementSummary:
        with self.target.client() as client:
            position = read_position(client, self.policy)
        return dump_increment(self.source, self.policy, position)

    def load(self, dump: str, observer: Observer = unobserved) -> LoadSummary:
        return load_into_target(
            self.source, self.target, self.policy, dump, run_copy=run_copy, observer=observer
        )

    def cycle(self) -> IncrementSummary:
        dump = self.dump()
        self.load(dump.dump)
        return dump

    def rows(self, query: str) -> tuple[list[Any], list[Any]]:
        """A query's rows on both sides; ``{db}`` stands for the database."""
        answers = []
        for sql, database in (
            (self.source_sql, self.policy.source_database),
            (self.target_sql, self.policy.target_database),
        ):
            sql.set("hive.compute.query.using.stats", "false")
            answers.append(sorted(sql.execute(query.format(db=database)), key=repr))
        return answers[0], answers[1]

    def assert_equal(self, *queries: str) -> None:
        for query in queries:
            source, target = self.rows(query)
            assert target == source, query

    def tables(self) -> tuple[list[str], list[str]]:
        with self.source.client() as source, self.target.client() as target:
            return (
                sorted(source.list_tables(self.policy.source_database)),
                sorted(target.list_tables(self.policy.target_database)),
            )


@contextmanager
def cycles(
    source: Metastore,
    target: Metastore,
    sql: tuple[Sql, Sql],
    root: Path,
    **policy: Any,
) -> Iterator[Cycles]:
    """A policy named after its source database."""
    fields = {
        "name": policy["source_database"],
        "target_database": f"{policy['source_database']}_copy",
        "dump_root": f"file:{root}/dumps",
        "external_base": f"file:{target.external_warehouse}/increments",
        **policy,
    }
    with (
        MetastorePool(MetastoreSettings(uris=(source.uri,)), 4) as source_pool,
        MetastorePool(MetastoreSettings(uris=(target.uri,)), 4) as target_pool,
    ):
        yield Cycles(source_pool, target_pool, ReplicationPolicy(**fields), *sql)
