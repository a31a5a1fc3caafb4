"""A metastore with one table, for tests of what is removed below the roots of clusters."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import Any, cast

from airflow_hive_federation.errors import NoSuchLockError
from airflow_hive_federation.metastore import MetastoreClient
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.model.partitions import partition_name


def described(primary: str) -> types.Table:
    """Return the table ``d.t`` with this primary cluster; with none if it is empty."""
    storage = types.StorageDescriptor(location="file:/elsewhere")
    parameters = {"hive.cluster.primary": primary} if primary else {}
    return types.Table(dbName="d", tableName="t", sd=storage, parameters=parameters, createTime=1, id=7)


class OneTable:
    """As much of a client as changes of cluster metadata and sweeps call; its locks are free, or not.

    :param table: the table; its partitions are in ``partitions``.
    :param checks: the number of times that a lock is found before it has expired.
    :param writers: the waiting locks of writers, per time that they are asked for; the last ones stay.
    """

    def __init__(self, table: types.Table, *, checks: int = 9, writers: Sequence[int] = (0,)) -> None:
        self.table = table
        self.checks = checks
        self.writers = list(writers)
        #: False if other processes hold the locks that are asked for.
        self.free = True
        self.partitions: list[types.Partition] = []
        #: Other tables of the database.
        self.others: list[types.Table] = []
        self.events: list[types.NotificationEvent] = []
        #: The times that the events were asked for.
        self.reads = 0

    @property
    def client(self) -> MetastoreClient:
        return cast("MetastoreClient", self)

    def get_table(self, database: str, name: str) -> types.Table:
        assert (database, name) == (self.table.dbName, self.table.tableName)
        return copy.deepcopy(self.table)

    def iter_partitions(self, database: str, name: str) -> Iterator[types.Partition]:
        assert (database, name) == (self.table.dbName, self.table.tableName)
        yield from copy.deepcopy(self.partitions)

    def list_databases(self) -> list[str]:
        return ["other", str(self.table.dbName)]

    def iter_tables(self, database: str) -> Iterator[types.Table]:
        assert database in self.list_databases()
        yield from copy.deepcopy([item for item in self.others if item.dbName == database])

    def iter_table_events(
        self, database: str, table: str, event_type: str
    ) -> Iterator[types.NotificationEvent]:
        """Yield all events, as metastores do that do not filter."""
        self.reads += 1
        yield from self.events

    def get_partitions_of(self, database: str, name: str, names: Sequence[str]) -> list[types.Partition]:
        assert (database, name) == (self.table.dbName, self.table.tableName)
        return [item for item in copy.deepcopy(self.partitions) if self._name_of(item) in names]

    def alter_partitions(
        self, database: str, name: str, partitions: Sequence[types.Partition], **_: Any
    ) -> None:
        assert (database, name) == (self.table.dbName, self.table.tableName)
        altered = {self._name_of(item): item for item in partitions}
        self.partitions = [altered.get(self._name_of(item), item) for item in self.partitions]

    def _name_of(self, partition: types.Partition) -> str:
        keys = [key.name or "" for key in self.table.partitionKeys or ()]
        return partition_name(keys, partition.values or [])

    def alter_table(self, database: str, name: str, table: types.Table, **_: Any) -> None:
        assert (database, name) == (self.table.dbName, self.table.tableName)
        self.table = table

    def get_config_value(self, _name: str, default: str) -> str:
        return default

    def lock(self, components: list[types.LockComponent]) -> types.LockResponse:
        assert components
        state = types.LockState.ACQUIRED if self.free else types.LockState.WAITING
        return types.LockResponse(lockid=1, state=state)

    def show_locks(self, *, database: str, table: str) -> list[types.ShowLocksResponseElement]:
        """Return our lock, that of a waiting reader, and those of waiting writers."""
        assert (database, table) == (self.table.dbName, self.table.tableName)
        number = self.writers.pop(0) if self.writers[1:] else self.writers[0]
        states, kinds = types.LockState, types.LockType
        locks = [(states.ACQUIRED, kinds.EXCLUSIVE), (states.WAITING, kinds.SHARED_READ)]
        locks += [(states.WAITING, kinds.EXCL_WRITE)] * number
        return [
            types.ShowLocksResponseElement(lockid=lock, state=state, type=kind, user="u", hostname="h")
            for lock, (state, kind) in enumerate(locks)
        ]

    def check_lock(self, lock_id: int) -> types.LockResponse:
        self.checks -= 1
        if self.checks < 0:
            raise NoSuchLockError("The lock has expired.")
        return types.LockResponse(lockid=lock_id, state=types.LockState.ACQUIRED)

    def unlock(self, lock_id: int) -> None:
        assert lock_id == 1
