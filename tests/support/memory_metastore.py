"""A metastore in memory behind a real socket: names, partitions, transactions and locks, and no file.

It serves tests of the rules that a caller keeps, which need answers that a real metastore gives rarely.
"""

from __future__ import annotations

import copy
import itertools
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from airflow_hive_federation.metastore import MetastoreSettings
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.model.partitions import partition_name
from tests.support.metastore_peers import HangUp, Peer, Thrift

WRITES = frozenset(
    {
        "create_database",
        "alter_database",
        "drop_database_req",
        "create_table_req",
        "alter_table_req",
        "drop_table_req",
        "add_partitions_req",
        "alter_partitions_req",
        "drop_partitions_req",
        "set_aggr_stats_for",
    }
)
Rule = Callable[[Any], None]


class MemoryMetastore:
    """The state of the metastore, and the calls that it has answered.

    :param warehouse: URI below which tables without a location lie.
    """

    def __init__(self, warehouse: str = "file:/warehouse") -> None:
        self.warehouse = warehouse
        self.databases: dict[str, Any] = {"default": types.Database(name="default", parameters={})}
        self.tables: dict[tuple[str, str], Any] = {}
        self.partitions: dict[tuple[str, str], dict[str, Any]] = {}
        #: Constraints of tables that have some.
        self.constraints: dict[tuple[str, str], types.SQLAllTableConstraints] = {}
        self.config = {"hive.txn.timeout": "300s", "metastore.txn.timeout": "300s"}
        self.txns: dict[int, str] = {}
        self.locks: dict[int, Any] = {}
        self.beats: dict[int, int] = {}
        self.waiting: set[str] = set()
        self.open_connections = 0
        #: Receive the arguments of a call, before and after it is carried out.
        self.before: dict[str, Rule] = {}
        self.after: dict[str, Rule] = {}
        self._ids = itertools.count(1)
        self._state = threading.RLock()
        self.thrift = Thrift(self._handle)

    @property
    def calls(self) -> list[str]:
        return self.thrift.calls

    @property
    def writes(self) -> list[str]:
        return [method for method in self.calls if method in WRITES]

    @contextmanager
    def served(self, **settings: Any) -> Iterator[MetastoreSettings]:
        """Serve the metastore on a port; yield the settings of its clients."""
        peer = Peer(self._serve)
        try:
            yield MetastoreSettings(uris=(peer.uri,), call_timeout_s=60.0, **settings)
        finally:
            peer.close()

    def locks_of(self, table: str) -> list[int]:
        """Return the ids of the locks on a table, by its name without its database."""
        return [
            lock_id
            for lock_id, request in self.locks.items()
            if any(component.tablename == table for component in request.component)
        ]

    def put_table(self, table: Any, *partitions: Any) -> None:
        """Create a table with its partitions."""
        key = table.dbName, table.tableName
        self.databases.setdefault(table.dbName, types.Database(name=table.dbName, parameters={}))
        self.tables[key] = table
        keys = [field.name for field in table.partitionKeys or []]
        self.partitions[key] = {partition_name(keys, part.values): part for part in partitions}

    def _serve(self, connection: socket.socket) -> None:
        # A mistake of this class ends the connection, and the test, instead of leaving the client waiting.
        with connection:
            self.open_connections += 1
            try:
                self.thrift(connection)
            finally:
                self.open_connections -= 1

    def _handle(self, method: str, args: Any) -> Any:
        with self._state:
            if method in self.before:
                self.before[method](args)
            answer = getattr(self, f"_{method}")(args)
            if method in self.after:
                self.after[method](args)
            return copy.deepcopy(answer)

    # -- names ---------------------------------------------------------------------------------------------

    def _get_metastore_db_uuid(self, _args: Any) -> str:
        return "in-memory"

    def _get_config_value(self, args: Any) -> str:
        return self.config.get(args.name, args.defaultValue or "")

    def _get_databases(self, _args: Any) -> list[str]:
        return sorted(self.databases)

    def _get_database_req(self, args: Any) -> Any:
        if args.request.name not in self.databases:
            raise types.NoSuchObjectException(message=args.request.name)
        return self.databases[args.request.name]

    def _create_database(self, args: Any) -> None:
        if args.database.name in self.databases:
            raise types.AlreadyExistsException(message=args.database.name)
        self.databases[args.database.name] = args.database

    def _alter_database(self, args: Any) -> None:
        self.databases[args.dbname] = args.db

    def _drop_database_req(self, args: Any) -> None:
        self.databases.pop(args.req.name, None)

    def _get_all_table_constraints(self, args: Any) -> Any:
        name = args.request.dbName, args.request.tblName
        none = types.SQLAllTableConstraints()
        return types.AllTableConstraintsResponse(allTableConstraints=self.constraints.get(name, none))

    def _get_all_tables(self, args: Any) -> list[str]:
        return sorted(table for database, table in self.tables if database == args.db_name)

    def _get_table_req(self, args: Any) -> Any:
        key = args.req.dbName, args.req.tblName
        if key not in self.tables:
            raise types.NoSuchObjectException(message=".".join(key))
        return types.GetTableResult(table=self.tables[key])

    def _get_table_objects_by_name_req(self, args: Any) -> Any:
        keys = [(args.req.dbName, name) for name in args.req.tblNames]
        return types.GetTablesResult(tables=[self.tables[key] for key in keys if key in self.tables])

    def _create_table_req(self, args: Any) -> None:
        table = args.request.table
        if (table.dbName, table.tableName) in self.tables:
            raise types.AlreadyExistsException(message=table.tableName)
        if table.sd.location is None:
            table.sd.location = f"{self.warehouse}/{table.dbName}.db/{table.tableName}"
        self.put_table(table)

    def _alter_table_req(self, args: Any) -> Any:
        request = args.req
        key = request.dbName, request.tableName
        expected, value = request.expectedParameterKey, request.expectedParameterValue
        if expected and (self.tables[key].parameters or {}).get(expected) != value:
            raise types.MetaException(message=f"The table has been modified. {expected} is not {value}")
        self.tables[key] = request.table
        return types.AlterTableResponse()

    def _drop_table_req(self, args: Any) -> None:
        self.tables.pop((args.dropTableReq.dbName, args.dropTableReq.tableName), None)

    # -- partitions ----------------------------------------------------------------------------------------

    def _of(self, database: str, table: str) -> dict[str, Any]:
        if (database, table) not in self.tables:
            raise types.NoSuchObjectException(message=f"{database}.{table}")
        return self.partitions.setdefault((database, table), {})

    def _get_partition_names(self, args: Any) -> list[str]:
        return sorted(self._of(args.db_name, args.tbl_name))

    def _get_partitions(self, args: Any) -> list[Any]:
        return list(self._of(args.db_name, args.tbl_name).values())

    def _get_partitions_by_names_req(self, args: Any) -> Any:
        present = self._of(args.req.db_name, args.req.tbl_name)
        return types.GetPartitionsByNamesResult(
            partitions=[present[name] for name in args.req.names if name in present]
        )

    def _add_partitions_req(self, args: Any) -> Any:
        request = args.request
        self._put(request.dbName, request.tblName, request.parts, replace=False)
        return types.AddPartitionsResult()

    def _alter_partitions_req(self, args: Any) -> Any:
        request = args.req
        self._put(request.dbName, request.tableName, request.partitions, replace=True)
        return types.AlterPartitionsResponse()

    def _put(self, database: str, table: str, parts: list[Any], *, replace: bool) -> None:
        keys = [field.name for field in self.tables[database, table].partitionKeys]
        present = self._of(database, table)
        for part in parts:
            name = partition_name(keys, part.values)
            present[name] = part if replace else present.get(name, part)

    def _drop_partitions_req(self, args: Any) -> Any:
        present = self._of(args.req.dbName, args.req.tblName)
        for name in args.req.parts.names:
            present.pop(name, None)
        return types.DropPartitionsResult()

    def _set_aggr_stats_for(self, _args: Any) -> bool:
        return True

    # -- transactions and locks ----------------------------------------------------------------------------

    def _open_txns(self, args: Any) -> Any:
        opened = [next(self._ids) for _ in range(args.rqst.num_txns)]
        self.txns |= dict.fromkeys(opened, "open")
        return types.OpenTxnsResponse(txn_ids=opened)

    def _allocate_table_write_ids(self, args: Any) -> Any:
        pairs = [types.TxnToWriteId(txnId=txn_id, writeId=txn_id) for txn_id in args.rqst.txnIds]
        return types.AllocateTableWriteIdsResponse(txnToWriteIds=pairs)

    def _get_open_txns_req(self, _args: Any) -> Any:
        return types.GetOpenTxnsResponse(
            txn_high_water_mark=max(self.txns, default=0), open_txns=[], abortedBits=b""
        )

    def _get_valid_write_ids(self, args: Any) -> Any:
        write_ids = [
            types.TableValidWriteIds(
                fullTableName=name,
                writeIdHighWaterMark=max(self.txns, default=0),
                invalidWriteIds=[],
                abortedBits=b"",
            )
            for name in args.rqst.fullTableNames
        ]
        return types.GetValidWriteIdsResponse(tblValidWriteIds=write_ids)

    def _get_max_allocated_table_write_id(self, _args: Any) -> Any:
        return types.MaxAllocatedTableWriteIdResponse(maxWriteId=max(self.txns, default=0))

    def _heartbeat_txn_range(self, args: Any) -> Any:
        wanted = range(args.txns.min, args.txns.max + 1)
        return types.HeartbeatTxnRangeResponse(
            aborted=[txn_id for txn_id in wanted if self.txns.get(txn_id) == "aborted"],
            nosuch=[txn_id for txn_id in wanted if txn_id not in self.txns],
        )

    def _commit_txn(self, args: Any) -> None:
        request = args.rqst
        if self.txns.get(request.txnid) == "aborted":
            raise types.TxnAbortedException(message=f"txn {request.txnid} was aborted")
        if request.txnid not in self.txns:
            raise types.NoSuchTxnException(message=f"no txn {request.txnid}")
        self.txns[request.txnid] = "committed"
        if request.keyValue is not None:
            for table in self.tables.values():
                if request.keyValue.key in (table.parameters or {}):
                    table.parameters[request.keyValue.key] = request.keyValue.value

    def _abort_txns(self, args: Any) -> None:
        self.txns |= {txn_id: "aborted" for txn_id in args.rqst.txn_ids if self.txns[txn_id] == "open"}

    def _lock(self, args: Any) -> Any:
        lock_id = next(self._ids)
        self.locks[lock_id] = args.rqst
        return types.LockResponse(lockid=lock_id, state=self._lock_state(lock_id))

    def _check_lock(self, args: Any) -> Any:
        return types.LockResponse(lockid=args.rqst.lockid, state=self._lock_state(args.rqst.lockid))

    def _lock_state(self, lock_id: int) -> types.LockState:
        """Return the state of a lock: one waits whose table is in ``waiting``, or whose link is locked."""
        if lock_id not in self.locks:
            raise types.NoSuchLockException(message="no such lock")
        held = {component.tablename for component in self.locks[lock_id].component}
        of_links = {name for name in held if str(name).startswith("remote ")}
        earlier = {
            component.tablename
            for other, request in self.locks.items()
            for component in request.component
            if other < lock_id
        }
        waits = held & self.waiting or of_links & earlier
        return types.LockState.WAITING if waits else types.LockState.ACQUIRED

    def _heartbeat(self, args: Any) -> None:
        if args.ids.lockid not in self.locks:
            raise types.NoSuchLockException(message="no such lock")
        self.beats[args.ids.lockid] = self.beats.get(args.ids.lockid, 0) + 1

    def _unlock(self, args: Any) -> None:
        # Hive does not report that it has dropped the lock before.
        self.locks.pop(args.rqst.lockid, None)

    def _show_locks(self, args: Any) -> Any:
        return types.ShowLocksResponse(
            locks=[
                types.ShowLocksResponseElement(
                    lockid=lock_id,
                    txnid=request.txnid,
                    tablename=component.tablename,
                    state=self._lock_state(lock_id),
                    lastheartbeat=self.beats.get(lock_id, 0),
                )
                for lock_id, request in self.locks.items()
                for component in request.component
                if args.rqst.tablename in {component.tablename, None}
                and self.txns.get(request.txnid, "open") == "open"
            ]
        )

    def _add_dynamic_partitions(self, _args: Any) -> None:
        pass

    def _add_write_notification_log_in_batch(self, _args: Any) -> Any:
        return types.WriteNotificationLogBatchResponse()

    def _add_write_notification_log(self, _args: Any) -> Any:
        return types.WriteNotificationLogResponse()

    def _compact2(self, _args: Any) -> Any:
        return types.CompactionResponse(id=next(self._ids), state="initiated", accepted=True)


def hang_up(_args: Any) -> None:
    """Close the connection instead of answering."""
    raise HangUp
