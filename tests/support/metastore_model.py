"""A model of a metastore, for tests of what cycles and failovers may do: parameters and locks."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Mapping
from typing import Any

from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.replication.replica import markers


class Server:
    """As much of a metastore as cycles and failovers call: one database, and locks.

    :param uri: also the identity of the metastore.
    :param database: the database's name.
    :param parameters: its parameters; empty ones are left out.
    """

    def __init__(self, uri: str, database: str, parameters: Mapping[str, str]) -> None:
        self.uri, self.database = uri, database
        self.parameters = {name: value for name, value in parameters.items() if value}
        self.locks: dict[int, Any] = {}
        self.ids = itertools.count(1)
        self.is_up = True

    @property
    def is_writable(self) -> bool:
        return self.is_up and markers.READ_ONLY not in self.parameters

    def exchange(self, method: str, args: tuple[Any, ...], _deadline: Any) -> Any:
        return getattr(self, method)(*args)

    def get_metastore_db_uuid(self) -> str:
        return self.uri

    def get_database_req(self, _request: Any) -> Any:
        return types.Database(name=self.database, parameters=dict(self.parameters))

    def alter_database(self, _name: str, database: Any) -> None:
        self.parameters = dict(database.parameters)

    def get_all_tables(self, _name: str) -> list[str]:
        return []

    def get_config_value(self, _name: str, default: str) -> str:
        return default

    def get_max_allocated_table_write_id(self, _request: Any) -> Any:
        return types.MaxAllocatedTableWriteIdResponse(maxWriteId=0)

    def lock(self, request: Any) -> Any:
        number = next(self.ids)
        state = types.LockState.WAITING if self.locks else types.LockState.ACQUIRED
        self.locks[number] = types.ShowLocksResponseElement(
            lockid=number,
            tablename=request.component[0].tablename,
            state=state,
            lastheartbeat=0,
            agentInfo=request.agentInfo,
            user=request.user,
            hostname="elsewhere",
        )
        return types.LockResponse(lockid=number, state=state)

    def unlock(self, request: Any) -> None:
        if self.locks.pop(request.lockid, None) is None:
            raise types.NoSuchLockException(message="no such lock")

    def show_locks(self, _request: Any) -> Any:
        return types.ShowLocksResponse(locks=[copy.copy(lock) for lock in self.locks.values()])

    def heartbeat(self, request: Any) -> None:
        if request.lockid not in self.locks:
            raise types.NoSuchLockException(message="no such lock")
        self.locks[request.lockid].lastheartbeat += 1
