"""Changes by a metastore's events: unknown wherever one may be missing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import cast

import pytest

from airflow_hive_federation.clusters.catalog_events import Changes, EventLog
from airflow_hive_federation.errors import MetastoreServerError, MetastoreUnreachableError
from airflow_hive_federation.metastore import MetastoreClient
from airflow_hive_federation.metastore.idl import types

LISTENER = "org.apache.hive.hcatalog.listener.DbNotificationListener"


@dataclass
class Events:
    """The events of a metastore, by their ids."""

    listeners: str = LISTENER
    last: int = 7
    rows: dict[int, tuple[str | None, str | None]] = field(default_factory=dict)
    error: Exception | None = None
    error_of_rows: Exception | None = None
    error_of_settings: Exception | None = None

    def call(self, method: str, *arguments: str) -> str:
        assert (method, *arguments) == (
            "get_config_value",
            "hive.metastore.transactional.event.listeners",
            "",
        )
        if self.error_of_settings is not None:
            raise self.error_of_settings
        return self.listeners

    def get_current_notification_event_id(self) -> int:
        if self.error is not None:
            raise self.error
        return self.last

    def iter_notification_events(self, after: int, *, up_to: int) -> Iterator[types.NotificationEvent]:
        if self.error_of_rows is not None:
            raise self.error_of_rows
        for number, (database, table) in sorted(self.rows.items()):
            if after < number <= up_to:
                yield types.NotificationEvent(eventId=number, dbName=database, tableName=table)

    def add(self, database: str | None, table: str | None) -> None:
        self.last += 1
        self.rows[self.last] = database, table


def log_of(events: Events) -> EventLog:
    return EventLog(cast("MetastoreClient", events))


def test_changes_name_tables_and_databases() -> None:
    events = Events()
    log = log_of(events)
    assert log.changes() is None
    assert log.changes() == Changes(tables={}, databases=frozenset())
    for database, table in (("D", "T"), ("d", "u"), ("d", "t"), ("e", None), (None, None)):
        events.add(database, table)
    assert log.changes() == Changes(tables={("d", "t"): 10, ("d", "u"): 9}, databases=frozenset({"e"}))
    assert not log.changes()
    assert log.is_followed


@pytest.mark.parametrize("missing", [8, 9, 10])
def test_an_event_that_is_gone_makes_all_unknown(missing: int) -> None:
    events = Events()
    log = log_of(events)
    log.changes()
    for _ in range(3):
        events.add("d", "t")
    del events.rows[missing]
    assert log.changes() is None
    assert log.changes() == Changes(tables={}, databases=frozenset())


def test_a_log_that_went_back_or_far_ahead_makes_all_unknown() -> None:
    events = Events()
    log = log_of(events)
    log.changes()
    events.last = 6
    assert log.changes() is None
    for _ in range(10_001):
        events.add("d", "t")
    assert log.changes() is None
    assert log.changes() is not None


@pytest.mark.parametrize("listeners", ["", "some.other.Listener"])
def test_without_a_listener_nothing_is_known(listeners: str) -> None:
    log = log_of(Events(listeners))
    assert [log.changes(), log.changes()] == [None, None]
    assert not log.is_followed


def test_events_that_nobody_lets_us_see(caplog: pytest.LogCaptureFixture) -> None:
    events = Events()
    log = log_of(events)
    log.changes()
    events.error = MetastoreServerError("not allowed to perform this API call")
    assert log.changes() is None
    assert not log.is_followed
    events.error = None
    assert log.changes() is None
    events.error = MetastoreUnreachableError("gone")
    with pytest.raises(MetastoreUnreachableError):
        log.changes()


def test_changes_are_not_lost_with_a_connection() -> None:
    events = Events()
    log = log_of(events)
    log.changes()
    events.add("d", "t")
    events.error_of_rows = MetastoreUnreachableError("gone")
    with pytest.raises(MetastoreUnreachableError):
        log.changes()
    events.error_of_rows = None
    assert log.changes() == Changes(tables={("d", "t"): 8}, databases=frozenset())


def test_without_a_right_to_see_settings_nothing_is_known() -> None:
    log = log_of(Events(error_of_settings=MetastoreServerError("not allowed to perform this API call")))
    assert [log.changes(), log.changes()] == [None, None]
    assert not log.is_followed
