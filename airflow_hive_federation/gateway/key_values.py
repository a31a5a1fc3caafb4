"""Finds the table whose parameter a commit sets: ``commit_txn`` names it by its id in the metastore only.

Hive sets the parameter of any table (``TxnHandler`` updates ``TABLE_PARAMS`` by ``TBL_ID``). Streaming ingest
keeps its positions so: whoever moves a position lets rows be written twice, or never.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import cast

from airflow_hive_federation.gateway.answers import only_field
from airflow_hive_federation.gateway.handler import Call
from airflow_hive_federation.gateway.messages import CALL, REPLY, STRUCT, head_bytes, read_head
from airflow_hive_federation.metastore.connection import message_types
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.metastore.protocol import encode
from airflow_hive_federation.metastore.wire import from_bytes

METHOD = "commit_txn"
#: Ids of ``CommitTxnRequest`` among the arguments, and of its ``keyValue``.
_REQUEST, _KEY_VALUE = 1, 5

#: Sends a call to the metastore of the transaction, and returns the answer.
Ask = Callable[[Call], bytes]


def sets_parameter(message: bytes) -> bool:
    """Return whether a call of :data:`METHOD` sets a parameter of a table.

    :raises MalformedMessage: the call is malformed.
    """
    request = only_field(message, read_head(message).body, _REQUEST)
    if request is None or request.ttype != STRUCT:
        return False
    return only_field(message, request.start, _KEY_VALUE) is not None


def may_set(call: Call, ask: Ask, writable: Callable[[str, str], bool]) -> bool:
    """Return whether the call sets a parameter of a writable table that its transaction has locked.

    :param call: a call of :data:`METHOD` that sets a parameter.
    :param writable: decides by a database and a table, under this metastore's names.
    :raises HiveFederationError: as ``ask``.
    :raises WireFormatError: the call, or an answer, is malformed.
    """
    arguments = from_bytes(message_types(METHOD)[0], call.message[read_head(call.message).body :])
    request = cast("types.CommitTxnRequest", arguments.set_fields()["rqst"])
    if request.keyValue is None or request.keyValue.tableId is None:
        return False
    for database, table in dict.fromkeys(_locked(call, ask, request.txnid)):
        if writable(database, table):
            wanted = types.GetTableRequest(dbName=database, tblName=table)
            found = cast("types.GetTableResult | None", _asked(call, ask, "get_table_req", req=wanted))
            if found is not None and found.table is not None and found.table.id == request.keyValue.tableId:
                return True
    return False


def _locked(call: Call, ask: Ask, txn_id: int | None) -> Iterator[tuple[str, str]]:
    # Hive's writers, and those of this package, hold a lock on each table that they write until they commit.
    request = types.ShowLocksRequest(txnid=txn_id, isExtended=True)
    shown = cast("types.ShowLocksResponse | None", _asked(call, ask, "show_locks", rqst=request))
    for lock in (shown.locks if shown is not None else None) or ():
        # Older metastores show the locks of all transactions.
        if lock.txnid == txn_id and lock.dbname and lock.tablename:
            yield lock.dbname.lower(), lock.tablename.lower()


def _asked(call: Call, ask: Ask, method: str, **values: object) -> object:
    """Return the result of another call in the caller's name; ``None`` if the answer is a fault."""
    arguments, result, _ = message_types(method)
    message = head_bytes(method, CALL, 1) + encode(arguments(**values))
    answer = ask(replace(call, method=method, message=message, named=()))
    head = read_head(answer)
    return from_bytes(result, answer[head.body :]).set_fields().get("success") if head.kind == REPLY else None
