"""Names that passed to other tables after a dump's moment."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_hive_federation.model import events as ev
from airflow_hive_federation.replication.dump.later_events import LaterEvents, is_exchanged
from airflow_hive_federation.replication.format.kinds import TableKind

TABLE = TableKind.FULL_ACID


def event(kind: type[ev.Event], *, of: str = "?", database: str = "db", **fields: Any) -> ev.Event:
    return kind(event_id=9, event_type=of, database=database, **fields)


def renamed(old: str, new: str, *, old_database: str = "db", database: str = "db") -> ev.Event:
    return event(ev.TableAltered, table=new, old_table=old, old_database=old_database, database=database)


DROPPED = event(ev.TableDropped, table="t")
CREATED = event(ev.TableCreated, table="t")
ALTERED = event(ev.TableAltered, table="t", old_table="t", old_database="db")
UNREADABLE = event(ev.UnreadableEvent, of="ALTER_TABLE", table="t", reason="?")


@pytest.mark.parametrize(
    "events",
    [
        [DROPPED],
        [DROPPED, CREATED],
        [renamed("t", "old")],
        [renamed("t", "old"), renamed("new", "t")],
        [renamed("t", "t", database="other")],
        [event(ev.DatabaseEvent, of="DROP_DATABASE")],
        [UNREADABLE],
        [event(ev.UnreadableEvent, of="ALTER_DATABASE", table="", reason="?")],
    ],
)
def test_the_files_that_were_found_may_be_of_another_table(events: list[ev.Event]) -> None:
    later = LaterEvents(events, "db")
    assert is_exchanged("t", later, at_moment=True, found=TABLE)
    assert not is_exchanged("t", later, at_moment=False, found=TableKind.MANAGED)


@pytest.mark.parametrize(
    "events",
    [
        [],
        [ALTERED],
        [event(ev.TableDropped, table="u"), renamed("a", "b")],
        [event(ev.TableDropped, table="t", database="other")],
        [renamed("t", "old", old_database="other")],
        [event(ev.UnreadableEvent, of="COMMIT_TXN", database="", table="", reason="?")],
        [event(ev.UnreadableEvent, of="ALTER_TABLE", table="u", reason="?")],
        [event(ev.UnreadableEvent, of="ALTER_TABLE", database="other", table="t", reason="?")],
        [event(ev.UnreadableEvent, of="CREATE_FUNCTION", table="", reason="?")],
    ],
)
def test_the_files_that_were_found_are_of_the_same_table(events: list[ev.Event]) -> None:
    assert not is_exchanged("t", LaterEvents(events, "db"), at_moment=True, found=TABLE)


def test_a_table_that_has_become_transactional_or_is_no_more() -> None:
    later = LaterEvents([ALTERED], "db")
    assert is_exchanged("t", later, at_moment=False, found=TABLE)
    assert is_exchanged("t", later, at_moment=True, found=TableKind.EXTERNAL)
    assert not is_exchanged("t", later, at_moment=False, found=TableKind.EXTERNAL)


def test_a_name_without_a_table() -> None:
    """If it got another table later, the drop does not explain that the target loses the table."""
    assert not is_exchanged("t", LaterEvents([], "db"), at_moment=True, found=None)
    assert not is_exchanged("t", LaterEvents([DROPPED], "db"), at_moment=True, found=None)
    assert is_exchanged("t", LaterEvents([DROPPED, CREATED], "db"), at_moment=True, found=None)
    assert is_exchanged("t", LaterEvents([renamed("t", "u"), CREATED], "db"), at_moment=False, found=None)
