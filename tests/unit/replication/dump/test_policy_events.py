"""A follower begins a cycle for the events that bring its policy something, and for no others."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from airflow_hive_federation.errors import EventCorruptError
from airflow_hive_federation.model import events as ev
from airflow_hive_federation.replication.dump.policy_events import PolicyEvents
from airflow_hive_federation.replication.policy import ReplicationPolicy

POLICY = ReplicationPolicy(
    name="p",
    source_database="shop",
    dump_root="file:/d",
    exclude_tables="tmp_.*",
    table_names={"orders": "orders_copy"},
)


def table(kind: type[ev.TableEvent], name: str = "orders", database: str = "shop") -> ev.TableEvent:
    return kind(event_id=1, event_type="T", database=database, table=name)


def rebalanced(name: str) -> ev.Compacted:
    return ev.Compacted(event_id=1, event_type="T", database="shop", table=name, rebalanced=True)


def altered(old: tuple[str, str], new: tuple[str, str]) -> ev.TableAltered:
    return ev.TableAltered(
        event_id=1,
        event_type="ALTER_TABLE",
        database=new[0],
        table=new[1],
        old_database=old[0],
        old_table=old[1],
    )


def allocated(txn: int, name: str = "orders", database: str = "shop") -> ev.WriteIdsAllocated:
    return ev.WriteIdsAllocated(
        event_id=1, event_type="ALLOC_WRITE_ID", database=database, table=name, write_ids=((txn, 1),)
    )


def ended(txn: int, *, committed: bool = True) -> ev.TxnEnded:
    return ev.TxnEnded(event_id=1, event_type="COMMIT_TXN", txn_id=txn, committed=committed)


def unreadable(event_type: str, database: str = "", name: str = "") -> ev.UnreadableEvent:
    return ev.UnreadableEvent(
        event_id=1, event_type=event_type, database=database, table=name, reason="damaged"
    )


CASES: list[tuple[ev.Event, bool]] = [
    (table(ev.TableCreated), True),
    (table(ev.TableDropped), True),
    (table(ev.StatisticsChanged), True),
    (table(ev.TableCreated, database="other"), False),
    (table(ev.TableCreated, "tmp_1"), False),
    (table(ev.Compacted), False),
    (rebalanced("orders"), True),
    (rebalanced("tmp_1"), False),
    (altered(("shop", "a"), ("shop", "a")), True),
    (altered(("shop", "a"), ("other", "a")), True),
    (altered(("other", "a"), ("shop", "a")), True),
    (altered(("shop", "tmp_1"), ("shop", "a")), True),
    (altered(("shop", "tmp_1"), ("shop", "tmp_2")), False),
    (altered(("other", "a"), ("other", "b")), False),
    (ev.DatabaseEvent(event_id=1, event_type="ALTER_DATABASE", database="shop"), True),
    (ev.DatabaseEvent(event_id=1, event_type="ALTER_DATABASE", database="other"), False),
    (ev.FunctionEvent(event_id=1, event_type="CREATE_FUNCTION", database="shop", function="f"), True),
    (ev.FunctionEvent(event_id=1, event_type="CREATE_FUNCTION", database="other", function="f"), False),
    (ev.TxnsOpened(event_id=1, event_type="OPEN_TXN", first=1, last=2), False),
    (ev.OtherEvent(event_id=1, event_type="CREATE_CATALOG"), False),
    (ev.UnknownEvent(event_id=1, event_type="NEW", database="shop"), True),
    (ev.UnknownEvent(event_id=1, event_type="NEW"), True),
    (ev.UnknownEvent(event_id=1, event_type="NEW", database="other"), False),
    (unreadable("COMMIT_TXN"), True),
    (unreadable("OPEN_TXN"), False),
    (unreadable("ALTER_TABLE", "shop", "orders"), True),
    (unreadable("ALTER_TABLE", "other", "orders"), False),
]


@pytest.mark.parametrize(("event", "concerns"), CASES)
def test_an_event_alone(event: ev.Event, concerns: bool) -> None:
    assert PolicyEvents(POLICY).add(event) is concerns


@pytest.mark.parametrize(
    ("events", "answers"),
    [
        ([allocated(7), ended(7), ended(7)], [False, True, False]),
        ([allocated(7), ended(7, committed=False)], [False, True]),
        ([allocated(7), allocated(8), ended(8), ended(7)], [False, False, True, True]),
        ([allocated(7, database="other"), ended(7)], [False, False]),
        ([allocated(7, "tmp_1"), ended(7)], [False, False]),
        ([ended(5), ended(6)], [True, False]),
    ],
)
def test_the_end_of_a_transaction_counts_if_it_wrote_to_a_table_of_the_policy(
    events: Sequence[ev.Event], answers: list[bool]
) -> None:
    policy_events = PolicyEvents(POLICY, open_txns=[5])
    assert [policy_events.add(event) for event in events] == answers


def test_a_write_waits_for_its_commit() -> None:
    write = ev.AcidWritten(
        event_id=1, event_type="ACID_WRITE", database="shop", table="orders", txn_id=7, write_id=1
    )
    assert PolicyEvents(POLICY).add(write) is False


def test_an_event_of_an_unknown_database_ends_the_follower() -> None:
    with pytest.raises(EventCorruptError):
        PolicyEvents(POLICY).add(unreadable("ALTER_TABLE"))
