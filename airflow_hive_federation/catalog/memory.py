"""A catalog in this process's memory: for tests, and for tools that make up tables."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Sequence

from airflow_hive_federation.errors import NoSuchObjectError
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.model.partitions import partition_name


class MemoryCatalog:
    """Databases, tables and partitions in dictionaries; each change is an event.

    What is put in and given out are copies.
    """

    def __init__(self, identity: str | None = None) -> None:
        self._identity = identity
        self._databases: dict[str, types.Database] = {}
        self._tables: dict[tuple[str, str], types.Table] = {}
        self._partitions: dict[tuple[str, str], dict[str, types.Partition]] = {}
        self._events: list[types.NotificationEvent] = []
        self._forgotten = 0

    # -- changing ------------------------------------------------------------------------------------------

    def put_database(self, database: types.Database) -> None:
        """Create or replace a database."""
        name = (database.name or "").lower()
        self._databases[name] = copy.deepcopy(database)
        self._tell("CREATE_DATABASE", name)

    def put_table(self, table: types.Table, partitions: Iterable[types.Partition] = ()) -> None:
        """Create or replace a table and its partitions."""
        key = _key(table.dbName or "", table.tableName or "")
        names = [field.name or "" for field in table.partitionKeys or []]
        known = key in self._tables
        self._tables[key] = copy.deepcopy(table)
        self._partitions[key] = {
            partition_name(names, one.values or []): copy.deepcopy(one) for one in partitions
        }
        # As a sync has to take it that knows nothing of what was altered: made anew.
        if known:
            self._tell("DROP_TABLE", *key)
        self._tell("CREATE_TABLE", *key)

    def drop_table(self, database: str, table: str) -> None:
        """Drop a table."""
        del self._tables[_key(database, table)]
        self._partitions.pop(_key(database, table), None)
        self._tell("DROP_TABLE", *_key(database, table))

    def forget_events(self) -> None:
        """Lose all events there are, as a metastore does after their time to live."""
        self._forgotten = self.last_event_id()
        self._events.clear()

    # -- roles ---------------------------------------------------------------------------------------------

    def identity(self) -> str | None:
        """See :meth:`.roles.Reader.identity`."""
        return self._identity

    def get_database(self, name: str) -> types.Database:
        """See :meth:`.roles.Reader.get_database`."""
        if name.lower() not in self._databases:
            raise NoSuchObjectError(f"There is no database {name}.")
        return copy.deepcopy(self._databases[name.lower()])

    def list_tables(self, database: str) -> list[str]:
        """See :meth:`.roles.Reader.list_tables`."""
        return sorted(table for owner, table in self._tables if owner == database.lower())

    def get_table(self, database: str, table: str) -> types.Table:
        """See :meth:`.roles.Reader.get_table`."""
        if _key(database, table) not in self._tables:
            raise NoSuchObjectError(f"There is no table {database}.{table}.")
        return copy.deepcopy(self._tables[_key(database, table)])

    def get_tables(self, database: str, names: Sequence[str]) -> list[types.Table]:
        """See :meth:`.roles.Reader.get_tables`."""
        return [self.get_table(database, name) for name in names if _key(database, name) in self._tables]

    def list_partition_names(self, database: str, table: str) -> list[str]:
        """See :meth:`.roles.Reader.list_partition_names`."""
        return sorted(self._partitions.get(_key(database, table), {}))

    def get_partitions(
        self, database: str, table: str, names: Sequence[str] | None = None
    ) -> list[types.Partition]:
        """See :meth:`.roles.Reader.get_partitions`."""
        found = self._partitions.get(_key(database, table), {})
        wanted = sorted(found) if names is None else [name for name in names if name in found]
        return [copy.deepcopy(found[name]) for name in wanted]

    def last_event_id(self) -> int:
        """See :meth:`.roles.EventSource.last_event_id`."""
        return self._forgotten + len(self._events)

    def events(self, after: int, up_to: int) -> Iterator[types.NotificationEvent]:
        """See :meth:`.roles.EventSource.events`."""
        for event in self._events:
            if after < (event.eventId or 0) <= up_to:
                yield copy.deepcopy(event)

    def has_events_after(self, event_id: int) -> bool:
        """See :meth:`.roles.EventSource.has_events_after`."""
        return self._forgotten <= event_id <= self.last_event_id()

    def close(self) -> None:
        """See :meth:`.roles.Reader.close`."""

    def _tell(self, event_type: str, database: str, table: str | None = None) -> None:
        self._events.append(
            types.NotificationEvent(
                eventId=self.last_event_id() + 1,
                eventType=event_type,
                dbName=database,
                tableName=table,
                message="{}",
                messageFormat="json-0.2",
            )
        )


def _key(database: str, table: str) -> tuple[str, str]:
    return database.lower(), table.lower()
