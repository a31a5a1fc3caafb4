"""Runs of histories: cycles between the operations, the replica judged after each by real Hive.

``make torture`` runs many; see :mod:`tests.torture`.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.embedded.sql import HiveSql
from airflow_hive_federation.errors import DumpIncompleteError, FileVanishedError, HiveFederationError
from airflow_hive_federation.replication.cycle import load_dump, load_idle
from airflow_hive_federation.replication.dump.increment_summary import IncrementSummary
from airflow_hive_federation.replication.replica.table_index import changed_tables
from airflow_hive_federation.replication.verify.verify import verify_replica
from airflow_hive_federation.spark.job import run_job
from tests.support.cutting import Cut, cut_at
from tests.support.histories import History
from tests.support.history_judge import Seen, differences, evidence, look, wrong_counts
from tests.support.history_operations import OPERATIONS
from tests.support.incrementing import Cycles, cycles, run_copy
from tests.support.small_source import connected

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class HistoryError(AssertionError):
    """A replica differs from its source; the message has the seed and the last operations."""


@dataclass(frozen=True)
class Servers:
    """The metastores and engines of histories."""

    source: EmbeddedMetastore
    target: EmbeddedMetastore
    source_sql: HiveSql
    target_sql: HiveSql
    spark: SparkSession


@dataclass(frozen=True)
class Outcome:
    """The result of a run."""

    seed: int
    operations: int
    cycles: int
    refused: list[str]


def run_history(
    servers: Servers,
    seed: int,
    operations: int,
    root: Path,
    *,
    a_cycle: int = 12,
    cuts: float = 0.0,
    progress: Callable[[int, int], None] = lambda operations, cycles: None,
) -> Outcome:
    """Run a history of so many operations over two databases; afterwards nothing of it is left.

    :param a_cycle: operations between two cycles, on average.
    :param cuts: share of the cycles that are cut off at some step before they are run to their end.
    :param progress: called between cycles, with the operations and the cycles so far.
    :raises HistoryError: source and replica differ, or a cycle failed.
    """
    databases = (f"h{seed}_a", f"h{seed}_b")
    history = History(servers.source, servers.source_sql, databases, seed, OPERATIONS)
    try:
        with ExitStack() as stack:
            policies = [
                stack.enter_context(
                    cycles(
                        servers.source,
                        servers.target,
                        (servers.source_sql, servers.target_sql),
                        root,
                        source_database=database,
                        external_base=f"file:{servers.target.external_warehouse}/{database}",
                    )
                )
                for database in databases
            ]
            count = _Run(servers, history, policies, seed, cuts).run(operations, a_cycle, progress)
    except (AssertionError, HiveFederationError) as error:
        text = "\n".join(history.log)
        raise HistoryError(f"seed {seed}, {operations} operations:\n{text}\n{error}") from error
    finally:
        history.close()
        _clean(servers, databases)
    return Outcome(seed, operations, count, history.refused)


class _Run:
    def __init__(
        self, servers: Servers, history: History, policies: list[Cycles], seed: int, cuts: float
    ) -> None:
        self._servers = servers
        self._history = history
        self._policies = policies
        self._cuts = cuts
        # Of its own, so that the operations do not depend on a cycle's draws.
        self._chance = random.Random(-seed)
        self._count = 0

    def run(self, operations: int, a_cycle: int, progress: Callable[[int, int], None]) -> int:
        self._history.start()
        self._history.run(a_cycle // 2)
        self._history.end()  # a bootstrap would wait for them
        for site in self._policies:
            site.bootstrap()
            self._compare(site, self._look(site, None), None)
        done = 0
        while done < operations:
            count = min(self._chance.randrange(1, 2 * a_cycle), operations - done)
            self._history.run(count)
            done += count
            for site in self._policies:
                if self._chance.random() < 0.8:
                    self._cycle(site, during=self._chance.choice((0, 0, 0, 2)))
            progress(done, self._count)
        self._history.end()
        for site in self._policies:
            self._cycle(site, during=0)
            self._compare(site, self._look(site, None), None)
            self._verify(site)
        return self._count

    def _cycle(self, site: Cycles, *, during: int) -> None:
        """A cycle; some operations come between its dump and its load."""
        self._history.log.append(f"cycle of {site.policy.name}")
        self._count += 1
        dumped = (self._chance.random() < self._cuts and self._cut(site)) or site.dump()
        names = self._names(site, dumped)
        expected = self._look(site, names)
        if dumped.idle:
            load_idle(site.target, site.policy, dumped.event_id)
        else:
            self._history.run(during)
            try:
                load_dump(site.source, site.target, site.policy, dumped.dump, run_copy=run_copy)
            except (DumpIncompleteError, FileVanishedError):
                if not during:
                    raise
                # A file that it lists was rewritten meanwhile.
                self._cycle(site, during=0)
                return
        self._compare(site, expected, names)

    def _cut(self, site: Cycles) -> IncrementSummary | None:
        """Cut a cycle off at some step; return its dump if that is to be loaded again."""
        last = self._chance.randrange(1, 150)
        dumped = None
        try:
            with cut_at(last):
                dumped = site.dump()
                if not dumped.idle:
                    site.load(dumped.dump)
        except Cut as cut:
            self._history.log.append(f"  cut off at step {last}, {cut}")
        return dumped if self._chance.random() < 0.5 else None

    def _names(self, site: Cycles, dumped: IncrementSummary) -> set[str]:
        """The tables that a cycle is concerned with, and two others."""
        tables, _ = site.tables()
        concerned = set() if dumped.idle else changed_tables(dumped.dump)
        return concerned | set(self._chance.sample(tables, min(2, len(tables))))

    def _look(self, site: Cycles, names: set[str] | None) -> dict[str, Seen | None]:
        return look(site.source, self._servers.source_sql, site.policy.source_database, names)

    def _compare(self, site: Cycles, expected: dict[str, Seen | None], names: set[str] | None) -> None:
        """Compare a replica with what its source was at the dump."""
        database, sql = site.policy.target_database, self._servers.target_sql
        wrong = differences(expected, look(site.target, sql, database, names))
        if names is None:
            wrong += wrong_counts(site.target, sql, database)
        if wrong:
            wrong += self._evidence(site, {text.partition(":")[0] for text in wrong})
        assert not wrong, f"{site.policy.name}:\n  " + "\n  ".join(wrong)

    def _evidence(self, site: Cycles, tables: Collection[str]) -> Iterator[str]:
        """Yield the state of the tables that differ on both sides, and the result of a second comparison."""
        for pool, database in (
            (site.source, site.policy.source_database),
            (site.target, site.policy.target_database),
        ):
            with pool.client() as client:
                yield from evidence(client, database, tables)
        again = differences(
            self._look(site, set(tables)),
            look(site.target, self._servers.target_sql, site.policy.target_database, tables),
        )
        yield f"a moment later: {again or 'equal'}"

    def _verify(self, site: Cycles) -> None:
        with site.target.client() as client:
            dump = (client.get_database(site.policy.target_database).parameters or {})["hive.repl.ckpt.key"]
        report = verify_replica(site.target, site.policy, dump, run_verify=self._read)
        report.raise_if_different()

    def _read(self, plan: str, results: str) -> None:
        run_job(self._servers.spark, "verify-replica", ["--plan", plan, "--results", results])


def _clean(servers: Servers, databases: tuple[str, ...]) -> None:
    for metastore, names in (
        (servers.source, databases),
        (servers.target, [f"{database}_copy" for database in databases]),
    ):
        with connected(metastore) as client:
            for name in names:
                client.drop_database(name, delete_data=True, cascade=True, if_exists=True)
        for name in databases:
            for place in metastore.external_warehouse.glob(f"{name}*"):
                shutil.rmtree(place)
