"""Two metastores behind one gateway for tests of the federation: calls that each got, answers of clients."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from typing import Any

from airflow_hive_federation.gateway.database_patterns import matches
from airflow_hive_federation.gateway.dispatch import Gateway, Metastore
from airflow_hive_federation.gateway.federation.metastores import Metastores, Remote
from airflow_hive_federation.gateway.federation.owners import RemoteNames
from airflow_hive_federation.gateway.federation.target import Federation
from airflow_hive_federation.gateway.handler import Call, Caller, Deadline
from airflow_hive_federation.gateway.messages import read_head
from airflow_hive_federation.gateway.upstream import Upstream
from airflow_hive_federation.metastore import MetastoreSettings
from airflow_hive_federation.metastore.idl import types
from tests.support.gateways import Peers, call_bytes, outcome
from tests.support.metastore_peers import Thrift


class Store:
    """A metastore with some databases, which remembers its calls."""

    def __init__(self, *databases: str) -> None:
        self.databases = databases
        self.asked: list[tuple[str, Any]] = []
        self.reads = ""
        self.hang = threading.Event()
        self.hang.set()

    def __call__(self, method: str, args: Any) -> Any:
        self.asked.append((method, args))
        self.hang.wait(30)
        if method in {"get_all_databases", "get_databases"}:
            return [
                database for database in self.databases if matches(getattr(args, "pattern", None), database)
            ]
        if method == "get_table_meta":
            databases = [database for database in self.databases if matches(args.db_patterns, database)]
            return [types.TableMeta(dbName=database, tableName="t", tableType="x") for database in databases]
        if method == "get_table_req":
            return types.GetTableResult(table=self.table(args.req))
        if method == "get_valid_write_ids":
            names = args.rqst.fullTableNames
            ids = [types.TableValidWriteIds(fullTableName=name, writeIdHighWaterMark=7) for name in names]
            return types.GetValidWriteIdsResponse(tblValidWriteIds=ids)
        if method == "get_all_tables":
            return ["t"]
        if method == "get_tables_by_type":
            return ["t"] if matches(args.pattern, "t") else []
        if method == "get_table_names_by_filter":
            return ["t", "u"][: args.max_tables if args.max_tables >= 0 else None]
        if method == "get_tables_ext":
            names = [name for name in ("t", "u") if matches(args.req.tableNamePattern, name)]
            return [types.ExtendedTableInfo(tblName=name, accessType=8) for name in names]
        return None

    def table(self, request: Any) -> types.Table:
        if request.tblName != "v":
            return types.Table(dbName=request.dbName, tableName=request.tblName)
        text = f"select a.`id` from {self.reads or request.dbName}.`t` a"
        return types.Table(
            dbName=request.dbName,
            tableName="v",
            tableType="VIRTUAL_VIEW",
            viewOriginalText=text,
            viewExpandedText=text,
        )


class Federated:
    """A gateway before a near metastore and a far one, whose databases begin with ``far_``."""

    store = Store

    def __init__(self, peer: Peers, stack: ExitStack, **options: Any) -> None:
        self.near, self.far = self.store("default", "sales"), self.store("default", "sales", "secret")
        made = [
            Metastore(Upstream(name, MetastoreSettings(uris=(peer(Thrift(store)).uri,))))
            for name, store in (("main", self.near), ("far", self.far))
        ]
        remote = Remote(
            target=made[1],
            names=options.pop("names", RemoteNames(prefix="far_", shown=("*", "!secret"))),
            writable=options.pop("writable", False),
            timeout_s=options.pop("timeout_s", 20.0),
        )
        self.federation = Federation(Metastores(made[0], {"far": remote}, **options))
        stack.callback(self.federation.close)
        stack.callback(self.near.hang.set)
        stack.callback(self.far.hang.set)
        self.gateway = Gateway(self.federation)

    def ask(self, method: str, **arguments: Any) -> dict[str, Any]:
        message = call_bytes(method, **arguments)
        answer = self.gateway.answer(Call(method, message, Caller(user="me"), Deadline(30)))
        return outcome(read_head(answer), answer)


def table_request(database: str, table: str = "t") -> types.GetTableRequest:
    return types.GetTableRequest(dbName=database, tblName=table)


def lock(*databases: str, txn: int | None = 5) -> types.LockRequest:
    parts = [types.LockComponent(dbname=database, tablename="t") for database in databases]
    return types.LockRequest(component=parts, txnid=txn, user="u", hostname="h")
