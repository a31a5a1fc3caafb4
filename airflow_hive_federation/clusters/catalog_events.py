"""Follows the tables named in a metastore's notification events, so that callers may cache all others."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import cached_property

from airflow_hive_federation.errors import MetastoreServerError, UnsupportedMethodError
from airflow_hive_federation.metastore import MetastoreClient

log = logging.getLogger(__name__)

#: Other listeners write an event after its change, or lose it; these write both in one transaction.
_LISTENERS = "hive.metastore.transactional.event.listeners"
_LISTENER = "DbNotificationListener"
#: The number of events beyond which reading all tables again costs less.
_MANY = 10_000


@dataclass(frozen=True, kw_only=True)
class Changes:
    """The changes since the last call.

    :param tables: the databases and tables that events name, in lower case, with the last event of each.
        Events name a renamed table by its new name only.
    :param databases: the databases of events that name no table.
    """

    tables: dict[tuple[str, str], int]
    databases: frozenset[str]

    def __bool__(self) -> bool:
        return bool(self.tables or self.databases)


class EventLog:
    """The notification events of a metastore, from the first call on."""

    def __init__(self, client: MetastoreClient) -> None:
        self._client = client
        self._last: int | None = None

    @property
    def is_followed(self) -> bool:
        """True if the next call of :meth:`changes` can return the changes since the last call."""
        return self._last is not None

    def changes(self) -> Changes | None:
        """Return the changes since the last call, except those by transactions, whose events name no table.

        :return: ``None`` if they are unknown: at the first call, if the metastore does not record an event
            with each change or denies access to the events, and if events are gone.
        :raises MetastoreError: the metastore does not answer.
        """
        try:
            if not self._is_kept:
                return None
            now = self._client.get_current_notification_event_id()
            changes = None if self._last is None else self._between(self._last, now)
        except (MetastoreServerError, UnsupportedMethodError) as error:
            log.info("Nothing is kept between statements: the metastore shows us no events: %s", error)
            self._last = None
            return None
        # If the connection breaks before, the next call returns these changes.
        self._last = now
        return changes

    def _between(self, before: int, now: int) -> Changes | None:
        if not 0 <= now - before <= _MANY:
            return None
        tables: dict[tuple[str, str], int] = {}
        databases: set[str] = set()
        expected = before
        if now > before:
            for event in self._client.iter_notification_events(before, up_to=now):
                expected += 1
                if event.eventId != expected:
                    return None
                # Hive 3.1 has a space for the table of a write id: then the whole database counts as changed.
                database, table = (event.dbName or "").lower(), (event.tableName or "").strip().lower()
                if database and table:
                    tables[database, table] = expected
                elif database:
                    databases.add(database)
        if expected != now:
            return None
        return Changes(tables=tables, databases=frozenset(databases))

    @cached_property
    def _is_kept(self) -> bool:
        return _LISTENER in (self._client.call("get_config_value", _LISTENERS, "") or "")
