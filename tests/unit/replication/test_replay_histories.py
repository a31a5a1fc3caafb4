"""Random histories replayed with kills between any two calls: the target always shows a past of the source.

The metastore is a model of what Hive's does with replayed transactions (``OpenTxnsFunction``,
``AllocateTableWriteIdsFunction``, ``CommitTxnFunction``): hundreds of seeds take seconds. Real ones are
judged by ``test_increment_kills`` and ``test_histories``.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_hive_federation.errors import NoSuchTransactionError
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.model import events as ev
from airflow_hive_federation.model.write_ids import ValidTxns, ValidWriteIds
from airflow_hive_federation.replication.dump.event_fold import EventReading, fold
from airflow_hive_federation.replication.dump.increment_plan import plan_table
from airflow_hive_federation.replication.dump.merging import Merging, leaders
from airflow_hive_federation.replication.dump.pairs import Pairs
from airflow_hive_federation.replication.format.manifest import OpenWrites
from airflow_hive_federation.replication.load.replay import Replay
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.replication.replica.position import TableState

DATABASE = "db"
TABLES = ("a", "b", "c", "d")
#: A table that is dropped some day.
DROPPED = "d"
#: Table → its write ids that readers see.
Visible = dict[str, frozenset[int]]


class KilledError(Exception):
    """The process was killed before this call."""


class Metastore:
    """The target: transactions of a policy, and write ids.

    :param late: share of the openings that take the metastore too long.
    """

    def __init__(self, seed: int, late: float) -> None:
        # Of its own, so that the history does not depend on it.
        self._chance, self._late = random.Random(-seed), late
        self.calls_left: int | None = None
        self.shown: list[Visible] = []
        self.write_ids: dict[str, dict[int, int]] = {table: {} for table in TABLES}  # write id → transaction
        self.open: dict[int, str] = {}
        self._map: dict[int, int] = {}
        self._last = 0

    def visible(self) -> Visible:
        return {
            table: frozenset(write for write, txn in given.items() if txn not in self.open)
            for table, given in self.write_ids.items()
            if table != DROPPED
        }

    def state(self, table: str) -> TableState:
        given = self.write_ids[table]
        open_ids = tuple(sorted(write for write, txn in given.items() if txn in self.open))
        return TableState(loaded_id=0, high_watermark=max(given, default=0), open_ids=open_ids)

    def get_open_txns(self) -> Any:
        self._count()
        return SimpleNamespace(txn_high_water_mark=self._last)

    def call(self, method: str) -> Any:
        self._count()
        assert method == "get_open_txns_info"
        state = types.TxnState.OPEN
        return SimpleNamespace(
            open_txns=[SimpleNamespace(id=txn, hostname=host, state=state) for txn, host in self.open.items()]
        )

    def heartbeat_txn_range(self, first: int, last: int) -> Any:
        self._count()
        return SimpleNamespace(nosuch=set(range(first, last + 1)) - set(self.open), aborted=set())

    def open_txns(self, count: int, *, host: str, source_txn_ids: Sequence[int], **_: Any) -> list[int]:
        self._count()
        there = [self._map[txn] for txn in source_txn_ids if txn in self._map]
        if there:
            return there
        late = self._chance.random() < self._late
        for txn in source_txn_ids:
            self._last += 1
            self._map[txn] = self._last
            if not late:
                self.open[self._last] = host
        return [self._map[txn] for txn in source_txn_ids]

    def allocate_table_write_ids(
        self, _: str, table: str, *, source_write_ids: Mapping[int, int], **__: Any
    ) -> dict[int, int]:
        self._count()
        given = dict(
            zip(
                sorted(self._map[txn] for txn in source_write_ids),
                range(min(source_write_ids.values()), 1 << 62),
                strict=False,
            )
        )
        for txn, write in given.items():
            assert txn in self.open
            assert self.write_ids[table].get(write, txn) == txn, "two transactions with one write id"
            assert txn not in set(self.write_ids[table].values()), "two write ids of one table"
            self.write_ids[table][write] = txn
        return given

    def commit_txn(self, txn_id: int, **_: Any) -> None:
        self._count()
        if txn_id in self._map:
            if self._map[txn_id] not in self.open:
                raise NoSuchTransactionError(f"No such transaction txnid:{self._map[txn_id]}")
            del self.open[self._map.pop(txn_id)]
            self.shown.append(self.visible())

    def abort_txns(self, txn_ids: Sequence[int]) -> None:
        self._count()
        for txn in txn_ids:
            assert all(txn not in given.values() for given in self.write_ids.values()), "rows are lost"
            del self.open[txn]
            self._map = {source: target for source, target in self._map.items() if target != txn}

    def drop(self, table: str) -> None:
        self.write_ids[table] = {}

    def _count(self) -> None:
        if self.calls_left is not None:
            self.calls_left -= 1
            if self.calls_left < 0:
                raise KilledError


class Source:
    """Transactions that write to one table or to several, and end in another order.

    :param silent: share of the transactions that end without an event.
    """

    def __init__(self, rng: random.Random, silent: float = 0.0) -> None:
        self._rng, self._silent = rng, silent
        self.events: list[ev.Event] = []
        self.tables = list(TABLES)
        self.pasts: list[Visible] = [{table: frozenset() for table in TABLES if table != DROPPED}]
        self._open: dict[int, dict[str, int]] = {}
        self._last_txn = 0
        self._last_write = dict.fromkeys(TABLES, 0)

    def go_on(self, steps: int) -> None:
        for _ in range(steps):
            if self._open and self._rng.random() < 0.5:
                self._end(self._rng.choice(list(self._open)))
            else:
                self._begin()

    def drop(self, table: str) -> None:
        if table in self.tables:
            self.tables.remove(table)
            for writes in self._open.values():
                writes.pop(table, None)
            self._add(ev.TableDropped, database=DATABASE, table=table)

    def _add(self, kind: type[ev.Event], **fields: Any) -> None:
        self.events.append(kind(event_id=len(self.events) + 1, event_type="?", **fields))

    def _begin(self) -> None:
        self._last_txn += 1
        self._open[self._last_txn] = {}
        for table in self._rng.sample(self.tables, self._rng.choice([1, 1, 1, 2, 3])):
            self._last_write[table] += 1
            self._open[self._last_txn][table] = self._last_write[table]
            write_ids = ((self._last_txn, self._last_write[table]),)
            self._add(ev.WriteIdsAllocated, database=DATABASE, table=table, write_ids=write_ids)

    def _end(self, txn: int) -> None:
        past = dict(self.pasts[-1])
        for table, write in self._open.pop(txn).items():
            if table != DROPPED:
                past[table] |= {write}
        self.pasts.append(past)
        if not (self._silent and self._rng.random() < self._silent):
            self._add(ev.TxnEnded, txn_id=txn, committed=self._rng.random() < 0.9)

    @property
    def transactions(self) -> ValidTxns:
        return ValidTxns(high_watermark=self._last_txn, open_ids=tuple(sorted(self._open)))

    def write_ids(self, table: str) -> ValidWriteIds:
        open_ids = tuple(sorted(writes[table] for writes in self._open.values() if table in writes))
        return ValidWriteIds(
            table=f"{DATABASE}.{table}",
            high_watermark=self._last_write[table],
            open_ids=open_ids,
            aborted_ids=(),
            min_open_id=open_ids[0] if open_ids else None,
        )


class Dump:
    """A cycle's dump, as far as transactions go."""

    def __init__(
        self,
        source: Source,
        target: Metastore,
        from_id: int,
        open_before: OpenWrites,
        unfinished: Sequence[Dump] = (),
    ) -> None:
        to_id = len(source.events)
        reading = EventReading(source.events[from_id:], from_id, source.transactions)
        self.folded = fold(
            reading, DATABASE, source_id=to_id, open_writes=open_before, transactions=source.transactions
        )
        plans = {
            table: plan_table(table, source.write_ids(table), target.state(table), self.folded)
            for table in source.tables
        }
        self._dropped = [table for table in TABLES if table not in source.tables]
        self.writes = {table: Pairs(plan.writes) for table, plan in plans.items()}
        alone = {*open_before, *(txn for cycle in unfinished for txn in cycle.folded.open_writes)}
        ends = [txn for txn, _ in self.folded.ends]
        led = leaders(ends, self.folded.writes, alone, [cycle.merging for cycle in unfinished])
        self.merging = Merging(zip(ends, led, strict=True))

    def load(self, target: Metastore, kill_before: int | None) -> None:
        """As :mod:`.load.load` does it."""
        target.calls_left = None
        states = {table: target.state(table).high_watermark for table in self.writes}
        target.calls_left = kill_before
        writes = self.merging.merged(
            {
                table: Pairs((txn, write) for txn, write in pairs if write > states[table])
                for table, pairs in self.writes.items()
            }
        )
        policy = ReplicationPolicy(name="p", source_database=DATABASE, dump_root="file:/nowhere")
        replay = Replay(target, policy)  # type: ignore[arg-type]
        replay.open(writes)
        replay.allocate(writes)
        for txn in replay.to_end(self.merging, (txn for txn, _ in self.folded.ends)):
            replay.end(txn)
        for table in self._dropped:
            target.drop(table)
        replay.sweep(list(self.folded.open_writes))


# In the last ones, a load is killed while it allocates, and a table is gone before the next dump.
@pytest.mark.parametrize("late", [0.0, 0.2])
@pytest.mark.parametrize("seed", [*range(300), 1493, 1764, 1791])
def test_what_the_target_shows_is_a_past_of_the_source(seed: int, late: float) -> None:
    rng = random.Random(seed)
    source, target = Source(rng), Metastore(seed, late)
    replicate(source, target, rng)
    pasts = iter(source.pasts)
    assert all(any(shown == past for past in pasts) for shown in distinct(target.shown))


# In the last ones, a load is killed, and another transaction has written to the silent one's table by then.
@pytest.mark.parametrize("seed", [*range(30), 103, 132, 167, 174])
def test_transactions_that_end_without_an_event_end_on_the_target(seed: int) -> None:
    rng = random.Random(seed)
    replicate(Source(rng, silent=0.2), Metastore(seed, 0.0), rng)


def replicate(source: Source, target: Metastore, rng: random.Random) -> None:
    """Run some cycles, whose loads are killed and repeated; the target shows the source after each."""
    from_id = 0
    open_before: OpenWrites = {}
    for _ in range(4):
        source.go_on(rng.randrange(1, 30))
        dump = Dump(source, target, from_id, open_before)
        unfinished = [dump]
        while not loaded(dump, target, rng.choice([None, rng.randrange(40)])):
            if rng.random() < 0.5:
                # The next run dumps anew, and there is more by now.
                source.go_on(rng.randrange(10))
                if rng.random() < 0.3:
                    source.drop(DROPPED)
                dump = Dump(source, target, from_id, open_before, unfinished)
                unfinished.append(dump)
        from_id, open_before = dump.folded.to_id, dump.folded.open_writes
        target.calls_left = None
        assert target.visible() == source.pasts[-1]
        assert len(target.open) == len(open_before)


def loaded(dump: Dump, target: Metastore, kill_before: int | None) -> bool:
    """Return whether a load came to its end."""
    try:
        dump.load(target, kill_before)
    except KilledError:
        return False
    return True


def distinct(shown: list[Visible]) -> Iterator[Visible]:
    """Without what a commit of nothing shows again."""
    return (state for place, state in enumerate(shown) if not place or state != shown[place - 1])


def test_a_sweep_spares_policies_of_the_same_name_with_other_databases() -> None:
    target = Metastore(0, 0.0)
    long = "d" * 120
    policies = [
        ReplicationPolicy(name="p", source_database=DATABASE, target_database=name, dump_root="file:/nowhere")
        for name in ("one", "two", f"{long}1", f"{long}2")
    ]
    replays = [Replay(target, policy) for policy in policies]  # type: ignore[arg-type]
    for txn, replay in enumerate(replays):
        replay.open({"a": [(txn, 1)]})
    assert max(map(len, target.open.values())) == 128
    for left, replay in enumerate(replays, start=1):
        assert replay.sweep(()) == [left]
    assert not target.open
