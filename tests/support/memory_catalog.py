"""Holds a catalog in memory, for tests and for tools that make up tables."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType

from airflow_hive_federation.errors import NoSuchObjectError
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.model.partitions import partition_name


class MemoryCatalog:
    """A catalog of databases, tables and partitions in dictionaries; each change becomes an event.

    The catalog stores and returns copies.
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
        self._add_event("CREATE_DATABASE", name)

    def put_table(self, table: types.Table, partitions: Iterable[types.Partition] = ()) -> None:
        """Create or replace a table and its partitions."""
        key = _key(table.dbName or "", table.tableName or "")
        names = [field.name or "" for field in table.partitionKeys or []]
        known = key in self._tables
        self._tables[key] = copy.deepcopy(table)
        self._partitions[key] = {
            partition_name(names, partition.values or []): copy.deepcopy(partition)
            for partition in partitions
        }
        # Events of a recreated table make a refresh compare the whole table, whatever was altered.
        if known:
            self._add_event("DROP_TABLE", *key)
        self._add_event("CREATE_TABLE", *key)

    def add_partition(self, partition: types.Partition) -> None:
        """Add a partition to a table, or replace it, with an event that names this partition only."""
        key = _key(partition.dbName or "", partition.tableName or "")
        names = [field.name or "" for field in self._tables[key].partitionKeys or []]
        values = dict(zip(names, partition.values or [], strict=True))
        self._partitions[key][partition_name(names, partition.values or [])] = copy.deepcopy(partition)
        self._add_event("ADD_PARTITION", *key, message={"partitions": [values]})

    def drop_table(self, database: str, table: str) -> None:
        """Drop a table."""
        del self._tables[_key(database, table)]
        self._partitions.pop(_key(database, table), None)
        self._add_event("DROP_TABLE", *_key(database, table))

    def forget_events(self) -> None:
        """Forget all events, as a metastore does after their time to live."""
        self._forgotten = self.last_event_id()
        self._events.clear()

    # -- roles ---------------------------------------------------------------------------------------------

    def identity(self) -> str | None:
        """Return the catalog's own id; see :meth:`.roles.Reader.identity`."""
        return self._identity

    def get_database(self, name: str) -> types.Database:
        """Read a database; see :meth:`.roles.Reader.get_database`."""
        if name.lower() not in self._databases:
            raise NoSuchObjectError(f"There is no database {name}.")
        return copy.deepcopy(self._databases[name.lower()])

    def list_tables(self, database: str) -> list[str]:
        """List the tables and views of a database; see :meth:`.roles.Reader.list_tables`."""
        return sorted(table for owner, table in self._tables if owner == database.lower())

    def get_table(self, database: str, table: str) -> types.Table:
        """Read a table; see :meth:`.roles.Reader.get_table`."""
        if _key(database, table) not in self._tables:
            raise NoSuchObjectError(f"There is no table {database}.{table}.")
        return copy.deepcopy(self._tables[_key(database, table)])

    def get_tables(self, database: str, names: Sequence[str]) -> list[types.Table]:
        """Read many tables; see :meth:`.roles.Reader.get_tables`."""
        return [self.get_table(database, name) for name in names if _key(database, name) in self._tables]

    def list_partition_names(self, database: str, table: str) -> list[str]:
        """List the names of all partitions; see :meth:`.roles.Reader.list_partition_names`."""
        return sorted(self._partitions.get(_key(database, table), {}))

    def get_partitions(
        self, database: str, table: str, names: Sequence[str] | None = None
    ) -> list[types.Partition]:
        """Read partitions; see :meth:`.roles.Reader.get_partitions`."""
        partitions = self._partitions.get(_key(database, table), {})
        wanted = sorted(partitions) if names is None else [name for name in names if name in partitions]
        return [copy.deepcopy(partitions[name]) for name in wanted]

    def last_event_id(self) -> int:
        """Return the id of the newest event; see :meth:`.roles.EventSource.last_event_id`."""
        return self._forgotten + len(self._events)

    def events(self, after: int, up_to: int) -> Iterator[types.NotificationEvent]:
        """Yield events in order; see :meth:`.roles.EventSource.events`."""
        for event in self._events:
            if after < (event.eventId or 0) <= up_to:
                yield copy.deepcopy(event)

    def has_events_after(self, event_id: int) -> bool:
        """Return true if all later events still exist; see :meth:`.roles.EventSource.has_events_after`."""
        return self._forgotten <= event_id <= self.last_event_id()

    def close(self) -> None:
        """Close the catalog; see :meth:`.roles.Reader.close`."""

    def _add_event(
        self,
        event_type: str,
        database: str,
        table: str | None = None,
        message: Mapping[str, object] = MappingProxyType({}),
    ) -> None:
        self._events.append(
            types.NotificationEvent(
                eventId=self.last_event_id() + 1,
                eventType=event_type,
                dbName=database,
                tableName=table,
                message=json.dumps(dict(message)),
                messageFormat="json-0.2",
            )
        )


def _key(database: str, table: str) -> tuple[str, str]:
    return database.lower(), table.lower()
