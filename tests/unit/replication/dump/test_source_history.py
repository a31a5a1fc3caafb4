from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from airflow_hive_federation.errors import SourceWentBackError
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.replication.dump.source_history import check_history, note_event


class History:
    """Events of a source, as its client gives them."""

    def __init__(self, *events: types.NotificationEvent) -> None:
        self.events = events

    def iter_notification_events(self, after: int, *, up_to: int, batch_size: int) -> Iterator[Any]:
        assert batch_size == 1
        return (event for event in self.events if after < (event.eventId or 0) <= up_to)


def event(number: int, time: int = 100, message: str = "m") -> types.NotificationEvent:
    return types.NotificationEvent(eventId=number, eventTime=time, eventType="COMMIT_TXN", message=message)


def client(*events: types.NotificationEvent) -> Any:
    return History(*events)


def test_the_same_source() -> None:
    noted = note_event(client(event(6), event(7), event(8)), 7)
    assert noted
    assert noted.id == 7
    check_history(client(event(7), event(8), event(9)), noted)


def test_a_source_that_was_restored_and_went_on() -> None:
    noted = note_event(client(event(7)), 7)
    for other in (event(7, time=101), event(7, message="another")):
        with pytest.raises(SourceWentBackError, match="event 7"):
            check_history(client(other, event(8)), noted)


def test_an_event_that_is_forgotten_has_no_effect() -> None:
    assert note_event(client(event(9)), 7) is None
    check_history(client(event(9)), note_event(client(event(7)), 7))
    check_history(client(event(9)), None)
