"""A metastore with one table, for tests of what is removed below the roots of clusters."""

from __future__ import annotations

import copy
from typing import Any, cast

from airflow_hive_federation.errors import NoSuchLockError
from airflow_hive_federation.metastore import MetastoreClient
from airflow_hive_federation.metastore.idl import types


class OneTable:
    """As much of a client as changes of cluster metadata and sweeps call; its locks are always free.

    :param table: the table, without partitions.
    :param checks: the number of times that a lock is found before it has expired.
    """

    def __init__(self, table: types.Table, *, checks: int = 9) -> None:
        self.table = table
        self.checks = checks

    @property
    def client(self) -> MetastoreClient:
        return cast("MetastoreClient", self)

    def get_table(self, database: str, name: str) -> types.Table:
        assert (database, name) == (self.table.dbName, self.table.tableName)
        return copy.deepcopy(self.table)

    def alter_table(self, database: str, name: str, table: types.Table, **_: Any) -> None:
        assert (database, name) == (self.table.dbName, self.table.tableName)
        self.table = table

    def lock(self, components: list[types.LockComponent]) -> types.LockResponse:
        assert components
        return types.LockResponse(lockid=1, state=types.LockState.ACQUIRED)

    def check_lock(self, lock_id: int) -> types.LockResponse:
        self.checks -= 1
        if self.checks < 0:
            raise NoSuchLockError("The lock has expired.")
        return types.LockResponse(lockid=lock_id, state=types.LockState.ACQUIRED)

    def unlock(self, lock_id: int) -> None:
        assert lock_id == 1
