"""Runs of histories: cycles between the operations, the replica judged after each by real Hive.

``make torture`` runs many; see :mod:`tests.torture`.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from airflow_hive_federation.compaction.plan import CompactionKind
from airflow_hive_federation.compaction.requests import compact_table
from airflow_hive_federation.compaction.runners import in_threads
from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.errors import DumpIncompleteError, FileVanishedError, HiveFederationError
from airflow_hive_federation.metastore import MetastoreClient, MetastoreSettings
from airflow_hive_federation.replication.cycle import load_dump, load_idle
from airflow_hive_federation.replication.dump.drain import open_transactions
from airflow_hive_federation.replication.dump.increment_summary import IncrementSummary
from airflow_hive_federation.replication.metadata.definitions import table_kind
from airflow_hive_federation.replication.replica.table_index import changed_tables
from airflow_hive_federation.replication.verify.verify import verify_replica
from tests.support.both_readers import read_both_ways
from tests.support.cutting import Cut, acting_at, cut_at
from tests.support.histories import History, Metastore, Operation, Sql
from tests.support.history_judge import (
    Created,
    Seen,
    differences,
    evidence,
    look,
    of_no_moment,
    shown,
    wrong_counts,
)
from tests.support.history_operations import EXCHANGES, OPERATIONS, begin_transaction, stream
from tests.support.incrementing import Cycles, cycles, run_copy

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


T = TypeVar("T")


class HistoryError(AssertionError):
    """A replica differs from its source; the message has the seed and the last operations."""


@dataclass(frozen=True)
class SourceKind:
    """The ways of a version of Hive as the source of histories.

    :param operations: the operations, and how often each is chosen.
    :param between_dump_and_load: those that may come between a dump and its load.
    :param amid: those that may come while a dump is written.
    :param after_cut: those that may come after a cycle was cut off, before another one; none by default.
    :param created: the comparison of definitions.
    :param dumps_hold_locks: as long as a dump has not been loaded, it keeps exclusive statements waiting.
    :param writes_across_bootstrap: transactions are open when a bootstrap takes its snapshot.
    """

    history: type[History] = History
    operations: Mapping[Operation, int] = field(default_factory=lambda: OPERATIONS)
    between_dump_and_load: Mapping[Operation, int] = field(default_factory=lambda: OPERATIONS)
    amid: Mapping[Operation, int] = field(default_factory=lambda: EXCHANGES)
    after_cut: Mapping[Operation, int] = field(default_factory=dict)
    created: Created = shown
    dumps_hold_locks: bool = False
    writes_across_bootstrap: bool = False


HIVE_4 = SourceKind()


@dataclass(frozen=True)
class Servers:
    """The metastores and engines of histories."""

    source: Metastore
    target: EmbeddedMetastore
    source_sql: Sql
    target_sql: Sql
    spark: SparkSession
    kind: SourceKind = HIVE_4


@dataclass(frozen=True)
class Outcome:
    """The result of a run."""

    seed: int
    operations: int
    cycles: int
    cuts: int
    refused: list[str]


def run_history(
    servers: Servers,
    seed: int,
    operations: int,
    root: Path,
    *,
    a_cycle: int = 12,
    cuts: float = 0.0,
    amid: float = 0.0,
    compactions: float = 0.0,
    progress: Callable[[int, int], None] = lambda operations, cycles: None,
) -> Outcome:
    """Run a history of so many operations over two databases; afterwards nothing of it is left.

    :param a_cycle: operations between two cycles, on average.
    :param cuts: share of the cycles that are cut off at some step before they are run to their end.
    :param amid: share of the cycles while whose dump is written an operation happens on the source.
    :param compactions: probability that a table of a target is compacted before a cycle.
    :param progress: called between cycles, with the operations and the cycles so far.
    :raises HistoryError: source and replica differ, or a cycle failed.
    """
    databases = (f"h{seed}_a", f"h{seed}_b")
    kind = servers.kind
    history = kind.history(servers.source, servers.source_sql, databases, seed, kind.operations)
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
            run = _Run(servers, history, policies, seed, _Shares(cuts, amid, compactions))
            run.run(operations, a_cycle, progress)
    except (AssertionError, HiveFederationError, OSError) as error:
        text = "\n".join(history.log)
        raise HistoryError(f"seed {seed}, {operations} operations:\n{text}\n{error}") from error
    finally:
        history.close()
        _clean(servers, databases)
    return Outcome(seed, operations, run.cycles, run.cuts, history.refused)


@dataclass(frozen=True)
class _Shares:
    cuts: float
    amid: float
    compactions: float


class _Run:
    def __init__(
        self, servers: Servers, history: History, policies: list[Cycles], seed: int, shares: _Shares
    ) -> None:
        self._servers = servers
        self._history = history
        self._policies = policies
        self._shares = shares
        # Of its own, so that the operations do not depend on a cycle's draws.
        self._chance = random.Random(-seed)
        self.cycles = self.cuts = 0
        #: Steps of the last dump.
        self._steps = 30
        #: Read transactions that cycles have opened.
        self._leases: set[int] = set()

    def run(self, operations: int, a_cycle: int, progress: Callable[[int, int], None]) -> None:
        self._history.start()
        self._history.run(a_cycle // 2)
        for site in self._policies:
            self._history.end()  # a bootstrap would wait for them
            site.bootstrap(self._open_writes)
            self._compare(site, self._look(site, None), None)
        done = 0
        while done < operations:
            count = min(self._chance.randrange(1, 2 * a_cycle), operations - done)
            self._history.run(count)
            done += count
            for site in self._policies:
                if self._chance.random() < 0.8:
                    self._compact(site)
                    self._some_cycle(site)
                    self._end_leases()
            progress(done, self.cycles)
        self._history.end()
        for site in self._policies:
            self._cycle(site, during=0)
            self._end_leases()
            self._compare(site, self._look(site, None), None)
            self._verify(site)

    def _some_cycle(self, site: Cycles) -> None:
        if self._shares.amid and self._chance.random() < self._shares.amid:
            self._cycle_amid(site)
            self._cycle(site, during=0, whole=True)
        else:
            self._cycle(site, during=self._chance.choice((0, 0, 0, 2)))

    def _cycle_amid(self, site: Cycles) -> None:
        """A cycle with an operation while its dump is written: each table is as it was at some moment."""
        self._history.log.append(f"cycle of {site.policy.name}, and while it is dumped:")
        self.cycles += 1
        states = [self._look_at_target(site, None)]
        of_history: set[int] = set()

        def act() -> None:
            states.append(self._look(site, None))
            before = self._open_on_source()
            self._history.run(1, self._servers.kind.amid)
            of_history.update(self._open_on_source() - before)
            states.append(self._look(site, None))

        step = self._chance.randrange(1, self._steps + 1)
        with self._noting_leases(), acting_at(step, act) as taken:
            dumped = self._vanishing(site.dump)
        self._history.log.append(f"  at step {step} of {len(taken.taken)}, {taken.taken[step - 1 : step]}")
        self._leases -= of_history
        if not taken.happened:
            states.append(self._look(site, None))
        if dumped is None:
            return
        self._steps = len(taken.taken)
        if dumped.idle:
            load_idle(site.target, site.policy, dumped.event_id)
        elif self._vanishing(lambda: self._load(site, dumped.dump)) is None:
            return
        strange = of_no_moment(states, self._look_at_target(site, None))
        if strange:
            strange += self._evidence(site, {text.partition(" ")[0] for text in strange})
        assert not strange, f"{site.policy.name}:\n  " + "\n  ".join(strange)

    def _load(self, site: Cycles, dump: str) -> object:
        return load_dump(site.source, site.target, site.policy, dump, run_copy=run_copy)

    def _vanishing(self, work: Callable[[], T]) -> T | None:
        """Do work whose files operations may have removed; ``None`` if another cycle has to do it."""
        try:
            return work()
        except (DumpIncompleteError, FileVanishedError) as error:
            self._history.log.append(f"  {type(error).__name__}: {error}")
            return None

    def _compact(self, site: Cycles) -> None:
        """Compact a table of a target by our worker, as requests of loads have it done."""
        if not self._shares.compactions or self._chance.random() >= self._shares.compactions:
            return
        with site.target.client() as client:
            database = site.policy.target_database
            tables = [
                table.tableName
                for table in client.get_tables(database, client.list_tables(database))
                if table_kind(table).transactional
            ]
        if not tables:
            return
        name = f"{database}.{self._chance.choice(sorted(tables))}"
        kind = self._chance.choice((CompactionKind.MAJOR, CompactionKind.MINOR))
        settings = MetastoreSettings(uris=(self._servers.target.uri,))
        reports = compact_table(settings, name, kind, in_threads(1))
        self._history.log.append(f"compact {name} {kind}: {', '.join(report.state for report in reports)}")

    def _cycle(self, site: Cycles, *, during: int, whole: bool = False) -> None:
        """A cycle; some operations come between its dump and its load.

        :param whole: compare all tables.
        """
        self._history.log.append(f"cycle of {site.policy.name}")
        self.cycles += 1
        with self._noting_leases():
            dumped = (self._chance.random() < self._shares.cuts and self._cut(site)) or site.dump()
        names = None if whole else self._names(site, dumped)
        expected = self._look(site, names)
        if dumped.idle:
            load_idle(site.target, site.policy, dumped.event_id)
        else:
            self._history.run(during, self._servers.kind.between_dump_and_load)
            try:
                load_dump(site.source, site.target, site.policy, dumped.dump, run_copy=run_copy)
            except (DumpIncompleteError, FileVanishedError):
                if not during:
                    raise
                # A file that it lists was rewritten meanwhile.
                self._cycle(site, during=0, whole=whole)
                return
        self._compare(site, expected, names)

    def _open_writes(self) -> None:
        """Open transactions that a bootstrap need not wait for, because its drain is done."""
        if self._servers.kind.writes_across_bootstrap:
            self._history.run(2, {begin_transaction: 2, stream: 1})

    @contextmanager
    def _noting_leases(self) -> Iterator[None]:
        before = self._open_on_source()
        yield
        self._leases |= self._open_on_source() - before

    def _open_on_source(self) -> set[int]:
        if not self._servers.kind.dumps_hold_locks:
            return set()
        with connected(self._servers.source) as client:
            return set(open_transactions(client.get_open_txns()))

    def _end_leases(self) -> None:
        """Abort the read transactions that cycles which were cut off have left, as their timeout would."""
        if left := sorted(self._leases & self._open_on_source()):
            with connected(self._servers.source) as client:
                client.abort_txns(left)
        self._leases.clear()

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
            self.cuts += 1
            self._history.log.append(f"  cut off at step {last}, {cut}")
        if self._chance.random() < 0.5:
            return dumped
        if self._servers.kind.after_cut:
            # The load may have copied files for names that stand for other tables and partitions by then.
            self._history.run(self._chance.choice((0, 1, 3)), self._servers.kind.after_cut)
        return None

    def _names(self, site: Cycles, dumped: IncrementSummary) -> set[str]:
        """The tables that a cycle is concerned with, and two others."""
        tables, _ = site.tables()
        concerned = set() if dumped.idle else changed_tables(dumped.dump)
        return concerned | set(self._chance.sample(tables, min(2, len(tables))))

    def _look(self, site: Cycles, names: set[str] | None) -> dict[str, Seen | None]:
        created = self._servers.kind.created
        return look(
            site.source, self._servers.source_sql, site.policy.source_database, names, created=created
        )

    def _look_at_target(self, site: Cycles, names: Collection[str] | None) -> dict[str, Seen | None]:
        created = self._servers.kind.created
        database, sql = site.policy.target_database, self._servers.target_sql
        return look(site.target, sql, database, names, created=created)

    def _compare(self, site: Cycles, expected: dict[str, Seen | None], names: set[str] | None) -> None:
        """Compare a replica with what its source was at the dump."""
        wrong = differences(expected, self._look_at_target(site, names))
        if names is None:
            wrong += self._wrong_counts(site)
        if wrong:
            wrong += self._evidence(site, {text.partition(":")[0] for text in wrong})
        assert not wrong, f"{site.policy.name}:\n  " + "\n  ".join(wrong)

    def _wrong_counts(self, site: Cycles) -> list[str]:
        """Return the counts that Hive believes on the target, and that are right on the source."""
        servers, policy = self._servers, site.policy
        wrong = wrong_counts(site.target, servers.target_sql, policy.target_database)
        if wrong:
            # Hive leaves wrong ones itself: it counts rows that it writes beside a partition's directory.
            of_source = wrong_counts(site.source, servers.source_sql, policy.source_database)
            wrong = [text for text in wrong if text not in of_source]
        return wrong

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
            self._look_at_target(site, tables),
        )
        yield f"a moment later: {again or 'equal'}"

    def _verify(self, site: Cycles) -> None:
        with site.target.client() as client:
            dump = (client.get_database(site.policy.target_database).parameters or {})["hive.repl.ckpt.key"]
        report = verify_replica(site.target, site.policy, dump, run_verify=self._read)
        report.raise_if_different()

    def _read(self, plan: str, results: str) -> None:
        read_both_ways(self._servers.spark, plan, results)


def connected(metastore: Metastore) -> MetastoreClient:
    return MetastoreClient(MetastoreSettings(uris=(metastore.uri,)))


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
