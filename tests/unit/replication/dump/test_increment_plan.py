"""The events of a cycle become a plan per table."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from airflow_hive_federation.errors import (
    EventCorruptError,
    EventsLostError,
    SourceWentBackError,
    UnknownEventError,
)
from airflow_hive_federation.model import events as ev
from airflow_hive_federation.model.write_ids import ValidTxns, ValidWriteIds
from airflow_hive_federation.replication.dump.event_fold import EventFold, EventReading, check_source, fold
from airflow_hive_federation.replication.dump.increment_plan import allocation_runs, lost_ends, plan_table
from airflow_hive_federation.replication.format.kinds import TableWork
from airflow_hive_federation.replication.format.manifest import OpenWrites
from airflow_hive_federation.replication.replica.position import TableState

DATABASE = "db"


class History:
    """Events in order, ids from 11 on."""

    def __init__(self) -> None:
        self.events: list[ev.Event] = []

    def add(self, kind: type[ev.Event], *, database: str = DATABASE, **fields: Any) -> History:
        event = kind(event_id=11 + len(self.events), event_type="?", database=database, **fields)
        self.events.append(event)
        return self

    def allocate(self, table: str, *pairs: tuple[int, int], database: str = DATABASE) -> History:
        return self.add(ev.WriteIdsAllocated, table=table, write_ids=pairs, database=database)

    def end(self, *txns: int, committed: bool = True) -> History:
        for txn in txns:
            self.add(ev.TxnEnded, database="", txn_id=txn, committed=committed)
        return self

    def rename(self, old: str, new: str) -> History:
        return self.add(ev.TableAltered, table=new, old_table=old, old_database=DATABASE)


def folded(
    history: History,
    *,
    open_writes: OpenWrites | None = None,
    lost: bool = False,
    open_txns: Iterable[int] = (),
) -> EventFold:
    transactions = ValidTxns(high_watermark=1000, open_ids=tuple(open_txns))
    # Events up to 9 are here, or up to 10.
    return fold(
        EventReading(history.events, 10 - lost, transactions),
        DATABASE,
        source_id=10 + len(history.events),
        open_writes=open_writes or {},
        transactions=transactions,
    )


def write_ids(high: int, *, open_ids: tuple[int, ...] = (), aborted: tuple[int, ...] = ()) -> ValidWriteIds:
    lowest = open_ids[0] if open_ids else None
    return ValidWriteIds(
        table="db.t", high_watermark=high, open_ids=open_ids, aborted_ids=aborted, min_open_id=lowest
    )


def test_transactions_end_in_the_sources_order_and_others_are_left_out() -> None:
    history = (
        History().allocate("a", (1, 5), (2, 6)).allocate("b", (2, 1)).allocate("c", (9, 1), database="x")
    )
    changes = folded(history.end(2, 7, 9).end(1, committed=False))
    assert changes.ends == ((2, True), (1, False))
    assert changes.writes == {"a": [(1, 5), (2, 6)], "b": [(2, 1)]}
    assert changes.open_writes == {}


def test_what_stays_open_is_carried_to_the_cycle_that_ends_it() -> None:
    first = folded(History().allocate("a", (1, 5), (2, 6)).end(2), open_txns=[1])
    assert first.open_writes == {1: {"a": 5}}
    second = folded(History().end(1), open_writes=first.open_writes)
    assert second.ends == ((1, True),)
    assert second.open_writes == {}


def test_a_name_that_stands_for_another_table_forgets_the_writes_of_the_first() -> None:
    history = History().allocate("t", (1, 1)).add(ev.TableDropped, table="t").end(1)
    changes = folded(history.add(ev.TableCreated, table="t").allocate("t", (2, 1)).end(2))
    assert changes.writes == {"t": [(2, 1)]}
    assert changes.created == {"t": 14}
    assert {txn for txn, _ in changes.ends} == {1, 2}


def test_partitions_that_are_gone_belong_to_the_table_that_bears_the_name() -> None:
    history = History()
    history.add(ev.PartitionsChanged, table="t", gone=("p=1",))
    history.add(ev.PartitionsChanged, table="t", gone=("p=2",))
    assert folded(history).partitions_gone == {"t": {"p=1", "p=2"}}
    history.add(ev.TableDropped, table="t")
    assert folded(history).partitions_gone == {}


def test_the_plan_of_a_table_names_the_partitions_that_events_name() -> None:
    history = History().allocate("t", (1, 5)).add(ev.PartitionsChanged, table="t", named=("p=1",)).end(1)
    source, target = write_ids(5), TableState(loaded_id=5, high_watermark=4)
    assert plan_table("t", source, target, folded(history)).partitions == {"p=1"}
    assert plan_table("t", source, target, folded(History().allocate("t", (1, 5)))).partitions == set()


def test_a_table_or_partition_that_was_rebalanced_is_made_anew() -> None:
    """Its rows have other numbers, which the deletes that follow name."""
    history = History().add(ev.Compacted, table="t", rebalanced=True).add(ev.Compacted, table="u")
    history.add(ev.Compacted, table="p", partition="p=1", rebalanced=True)
    changes, target = folded(history), TableState(loaded_id=5, high_watermark=5)
    work = {name: plan_table(name, write_ids(5), target, changes).work for name in ("t", "u", "p")}
    assert work == {"t": TableWork.REPLACE, "u": TableWork.NOTHING, "p": TableWork.CONTINUE}
    assert changes.partitions_gone == {"p": {"p=1"}}
    assert plan_table("p", write_ids(5), target, changes).partitions == {"p=1"}
    # The load that has made the table has read the result.
    assert plan_table("t", write_ids(5), replace(target, loaded_id=11), changes).work is TableWork.CONTINUE
    # The same partition of a table that is altered as a whole.
    history.add(ev.Reloaded, table="p").add(ev.Compacted, table="p", partition="p=1", rebalanced=True)
    assert plan_table("p", write_ids(5), target, folded(history)).partitions is None


@pytest.mark.parametrize("case", ["always", "lost", "doubtful", "unnamed", "another table"])
def test_all_partitions_are_compared_where_events_do_not_name_all(case: str) -> None:
    history = History().allocate("t", (1, 5)).add(ev.PartitionsChanged, table="t", named=("p=1",)).end(1)
    if case == "unnamed":
        history.add(ev.PartitionsChanged, table="t")
    if case == "another table":
        history.rename("t", "u").rename("u", "t")
    found = folded(history, lost=case == "lost")
    if case == "doubtful":
        found = replace(found, doubtful=frozenset({"t"}))
    target = TableState(loaded_id=5, high_watermark=4)
    plan = plan_table("t", write_ids(5), target, found, always=case == "always")
    assert plan.partitions is None


def test_writers_of_earlier_cycles_are_known() -> None:
    history = (
        History().allocate("t", (2, 6), (3, 7)).allocate("u", (4, 1)).end(1, 2, 4).end(3, committed=False)
    )
    found = folded(history, open_writes={1: {"t": 5}})
    assert found.committed_writers("t") == [1, 2]


def test_a_transaction_whose_only_table_is_gone_ends() -> None:
    changes = folded(History().allocate("t", (1, 1)).add(ev.TableDropped, table="t"))
    assert changes.open_writes == {}
    assert changes.ends == ((1, True),)


def test_a_rename_concerns_both_names() -> None:
    changes = folded(History().allocate("old", (1, 1)).end(1).rename("old", "new"))
    assert changes.looked_at == {"old", "new"}
    assert set(changes.created) == {"old", "new"}
    assert changes.writes == {}


def test_an_unknown_type_stops_the_cycle_unless_it_is_anothers() -> None:
    assert folded(History().add(ev.UnknownEvent, database="other")).ends == ()
    with pytest.raises(UnknownEventError, match=r"\?"):
        folded(History().add(ev.UnknownEvent))


def unreadable(kind: str, *, table: str = "", database: str = DATABASE) -> ev.UnreadableEvent:
    return ev.UnreadableEvent(event_id=11, event_type=kind, database=database, table=table, reason="?")


def fold_event(event: ev.Event) -> EventFold:
    history = History()
    history.events.append(event)
    return folded(history)


def test_an_event_that_cannot_be_read_concerns_what_its_heading_names() -> None:
    for kind in ("ALTER_TABLE", "CREATE_TABLE", "DROP_PARTITION", "INSERT", "ALLOC_WRITE_ID_EVENT"):
        changes = fold_event(unreadable(kind, table="t"))
        assert (changes.doubtful, changes.lost, changes.functions_changed) == ({"t"}, False, False)
        assert [event.event_type for event in changes.unreadable] == [kind]
        assert fold_event(unreadable(kind, table="t", database="other")) == fold_event(
            ev.OtherEvent(event_id=11, event_type=kind)
        )
    # Of tables that are not known, all are looked at.
    for event in (unreadable("ALTER_TABLE"), unreadable("ADD_FOREIGNKEY", table="t")):
        assert (fold_event(event).lost, fold_event(event).doubtful) == (True, frozenset())
    functions = fold_event(unreadable("DROP_FUNCTION"))
    assert (functions.functions_changed, functions.lost) == (True, False)
    opened = fold_event(unreadable("OPEN_TXN", database=""))
    assert (opened.lost, opened.unreadable) == (False, [])
    with pytest.raises(EventCorruptError, match=r"event 11 \(ALTER_TABLE\)"):
        fold_event(unreadable("ALTER_TABLE", table="t", database=""))


@pytest.mark.parametrize("kind", ["COMMIT_TXN", "ABORT_TXN"])
def test_transactions_end_whose_end_cannot_be_read(kind: str) -> None:
    """The source's list of transactions names the transaction; where it comes too late, the next cycle's."""
    history = History().allocate("t", (1, 1), (2, 2))
    history.events.append(replace(unreadable(kind, database=""), event_id=12))
    changes = folded(history, open_txns=[2])
    assert (changes.lost, changes.ends, changes.open_writes) == (True, ((1, 1),), {2: {"t": 2}})
    assert folded(History(), open_writes=changes.open_writes, open_txns=[2]).ends == ()
    assert folded(History(), open_writes=changes.open_writes).ends == ((2, 1),)


def test_a_table_whose_event_cannot_be_read_is_compared_anew_and_no_other() -> None:
    changes = fold_event(unreadable("ALLOC_WRITE_ID_EVENT", table="t"))
    target = TableState(loaded_id=10, high_watermark=1)
    plan = plan_table("t", write_ids(3), target, changes)
    assert plan.work is TableWork.CONTINUE
    assert [write for _, write in plan.writes] == [2, 3]
    assert plan_table("u", write_ids(1), target, changes).work is TableWork.NOTHING
    # Of a table without events, write ids without an event are those of another table.
    assert plan_table("u", write_ids(3), target, changes).work is TableWork.REPLACE


def test_the_events_are_cut_where_the_transactions_know_no_more() -> None:
    history = History().allocate("a", (1, 1)).end(1).allocate("a", (2, 2)).end(2).end(3)
    seen = ValidTxns(high_watermark=5, open_ids=(2,), min_open_id=2)
    assert list(EventReading(history.events, 10, seen)) == history.events[:3]
    assert list(EventReading(history.events, 10, ValidTxns(high_watermark=1))) == history.events[:2]
    assert list(EventReading(history.events, 10, ValidTxns(high_watermark=5))) == history.events


@pytest.mark.parametrize(
    ("ids", "source_id", "gap"),
    [
        ((11, 12), 12, False),
        ((), 10, False),
        ((12,), 12, True),
        ((11, 13), 13, True),
        ((11,), 12, True),
        ((12, 11), 12, True),
        ((), 12, True),
    ],
)
def test_gaps(ids: tuple[int, ...], source_id: int, gap: bool) -> None:
    events = [ev.OtherEvent(event_id=event_id, event_type="?") for event_id in ids]
    observed: list[ev.Event] = []
    reading = EventReading(events, 10, ValidTxns(high_watermark=1), observed.append)
    assert list(reading) == events == observed
    assert reading.has_gap(source_id) is gap
    assert (reading.count, reading.to_id(source_id)) == (len(ids), source_id)


@pytest.mark.parametrize("before", [0, 2])
def test_a_cycle_ends_before_the_event_that_is_cut_off(before: int) -> None:
    events = [ev.OtherEvent(event_id=11 + number, event_type="?") for number in range(before)]
    ended = ev.TxnEnded(event_id=11 + before, event_type="?", txn_id=7, committed=True)
    reading = EventReading([*events, ended], 10, ValidTxns(high_watermark=6))
    assert list(reading) == events
    assert reading.to_id(99) == 10 + before
    assert not reading.has_gap(99)


def test_a_source_that_went_back_is_named() -> None:
    check_source(10, 10)
    with pytest.raises(SourceWentBackError, match="9"):
        check_source(10, 9)


def test_a_table_goes_on_after_what_the_target_has() -> None:
    changes = folded(History().allocate("t", (1, 5), (2, 6), (3, 7)).end(2), open_txns=[1, 3])
    plan = plan_table("t", write_ids(7, open_ids=(5, 7)), TableState(loaded_id=4, high_watermark=5), changes)
    assert plan.work is TableWork.CONTINUE
    assert plan.writes == [(2, 6), (3, 7)]
    assert plan.write_ids == write_ids(7, open_ids=(5, 7))


def test_open_write_ids_above_the_high_watermark_are_replayed_too() -> None:
    changes = folded(History().allocate("t", (1, 2), (2, 3)), open_txns=[1, 2])
    plan = plan_table("t", write_ids(2, open_ids=(2,)), TableState(loaded_id=4, high_watermark=1), changes)
    assert (plan.work, plan.writes) == (TableWork.CONTINUE, [(1, 2), (2, 3)])
    assert plan.write_ids == write_ids(2, open_ids=(2,))


def test_write_ids_that_the_source_has_forgotten_count_on_the_target() -> None:
    # Aborted by a transaction without components: the metastore's high watermark falls back.
    opened = {2: {"t": 4}, 3: {"t": 5}, 4: {"t": 6}}
    changes = folded(History().end(2, committed=False), open_writes=opened, open_txns=[3, 4])
    state = TableState(loaded_id=4, high_watermark=5, open_ids=(4, 5))
    plan = plan_table("t", write_ids(3), state, changes)
    assert plan.work is TableWork.CONTINUE
    assert plan.write_ids == write_ids(4, aborted=(4,))
    later = folded(History().end(3), open_writes={3: {"t": 5}})
    assert plan_table("t", write_ids(3), state, later).write_ids == write_ids(5, aborted=(4,))


def test_a_table_without_events_is_left_alone() -> None:
    state = TableState(loaded_id=4, high_watermark=5)
    assert plan_table("t", write_ids(5), state, folded(History())).work is TableWork.NOTHING
    assert plan_table("t", None, state, folded(History())).work is TableWork.NOTHING
    assert plan_table("t", None, state, folded(History()), always=True).work is TableWork.CONTINUE


def test_an_end_alone_concerns_the_table() -> None:
    changes = folded(History().end(1), open_writes={1: {"t": 5}})
    state = TableState(loaded_id=4, high_watermark=5, open_ids=(5,))
    assert plan_table("t", write_ids(5), state, changes).work is TableWork.CONTINUE
    assert plan_table("t", write_ids(5, open_ids=(5,)), state, folded(History())).work is TableWork.NOTHING


def test_write_ids_whose_events_are_lost_get_stand_ins() -> None:
    changes = folded(History(), lost=True)
    state = TableState(loaded_id=4, high_watermark=5)
    assert plan_table("t", write_ids(5), state, changes).work is TableWork.CONTINUE
    for source in (write_ids(8), write_ids(8, aborted=(7,))):
        mended = plan_table("t", source, state, changes)
        assert (mended.work, [write for _, write in mended.writes]) == (TableWork.CONTINUE, [6, 7, 8])
        assert lost_ends([mended]) == [(txn, True) for txn, _ in mended.writes]
    # Nobody knows whose the open one is, and when it ends.
    with pytest.raises(EventsLostError):
        plan_table("t", write_ids(8, open_ids=(6,)), state, changes)
    last = plan_table("t", write_ids(8, open_ids=(8,)), state, changes)
    assert [write for _, write in last.writes] == [6, 7]


def test_lost_ends_end_all_the_same() -> None:
    changes = folded(History(), open_writes={1: {"t": 5}, 2: {"t": 6}}, lost=True, open_txns=(2,))
    assert changes.ends == ((1, True),)
    assert changes.open_writes == {2: {"t": 6}}


def test_a_transaction_ends_without_an_event_as_the_list_has_it() -> None:
    # Readers see nothing of transactions above the list's high watermark.
    transactions = ValidTxns(high_watermark=4, open_ids=(3,), aborted_ids=(2,))
    changes = fold(
        EventReading([], 10, transactions),
        DATABASE,
        source_id=10,
        open_writes={txn: {"t": txn} for txn in (1, 2, 3, 5)},
        transactions=transactions,
    )
    assert changes.ends == ((1, 1), (2, 0))
    assert changes.open_writes == {3: {"t": 3}, 5: {"t": 5}}


def test_a_new_table_starts_below_its_lowest_open_write_id() -> None:
    changes = folded(
        History().add(ev.TableCreated, table="t").allocate("t", (1, 1), (2, 2), (3, 3)).end(1, 3)
    )
    plan = plan_table("t", write_ids(3, open_ids=(2,)), None, changes)
    assert (plan.work, plan.seed, plan.writes) == (TableWork.CREATE, 1, [(2, 2), (3, 3)])
    replaced = plan_table("t", write_ids(3), TableState(loaded_id=10, high_watermark=9), changes)
    assert (replaced.work, replaced.seed, replaced.writes) == (TableWork.REPLACE, 3, [])
    again = plan_table("t", write_ids(3), TableState(loaded_id=12, high_watermark=3), changes)
    assert again.work is TableWork.CONTINUE


def test_a_new_table_with_writes_without_events_is_an_error() -> None:
    with pytest.raises(EventsLostError, match="t"):
        plan_table("t", write_ids(3, open_ids=(2,)), None, folded(History()))


def test_runs_ascend_in_all_three_ids() -> None:
    writes = [(5, 1), (6, 2), (4, 3), (7, 4)]
    assert list(allocation_runs(writes, {4: 4, 5: 5, 6: 6, 7: 7})) == [[(5, 1), (6, 2)], [(4, 3), (7, 4)]]
    assert list(allocation_runs(writes[:2], {5: 9, 6: 8})) == [[(5, 1)], [(6, 2)]]
    assert list(allocation_runs([], {})) == []
