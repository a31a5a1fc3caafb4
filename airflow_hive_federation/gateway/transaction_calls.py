"""Calls of a federation that concern transactions or patterns: what they become at one of its members.

A transaction is opened before anybody knows which tables it will concern, so it belongs to the primary
metastore. A member knows nothing of it: reading its transactional tables needs the member's own snapshot, and
writing them in that transaction is refused rather than done outside of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from airflow_hive_federation.gateway.dispatch import Call
from airflow_hive_federation.gateway.handler import Status, refused
from airflow_hive_federation.gateway.messages import CALL, head_bytes, read_head
from airflow_hive_federation.metastore.connection import message_types
from airflow_hive_federation.metastore.protocol import encode
from airflow_hive_federation.metastore.wire import from_bytes

#: What is said of calls that name several owners.
NOT_ACROSS = {
    "commit_txn": "A transaction cannot be committed in two metastores at once",
    "get_valid_write_ids": "No snapshot spans two metastores",
    "lock": "No transaction, and no set of locks, spans two metastores",
}


def refuse_foreign_transaction(call: Call, member: str) -> None:
    """Refuse a call that would put a table of a member under a transaction of the primary metastore.

    :raises GatewayError: it is such a call.
    """
    find = _TRANSACTIONS.get(call.method)
    if find is None:
        return
    head = read_head(call.message)
    arguments = from_bytes(message_types(call.method)[0], call.message[head.body :])
    if find(arguments):
        named = ", ".join(sorted({f"{one.database}.{one.table}" for one in call.named}))
        raise refused(
            Status.DENIED,
            f"{call.method}: {named} belong to the metastore {member}, the transaction to the primary one. "
            "No transaction spans two metastores.",
            remedy=f"Write them in a session at {member} itself, or at a gateway whose upstream it is.",
        )


def without_snapshot(method: str, message: bytes) -> bytes:
    """Leave out of a call the list of transactions of the primary metastore: the member has its own."""
    if method != "get_valid_write_ids":
        return message
    head = read_head(message)
    arguments: Any = from_bytes(message_types(method)[0], message[head.body :])
    request = arguments.rqst
    request.__dict__.pop("validTxnList", None)
    request.__dict__.pop("writeId", None)
    return head_bytes(method, CALL, head.sequence_id) + encode(arguments)


def widened(method: str, message: bytes) -> bytes:
    """Ask for all names, since the pattern is one of the names that clients know."""
    if method not in {"get_databases", "get_table_meta"}:
        return message
    head = read_head(message)
    arguments: Any = from_bytes(message_types(method)[0], message[head.body :])
    setattr(arguments, "pattern" if method == "get_databases" else "db_patterns", "*")
    return head_bytes(method, CALL, head.sequence_id) + encode(arguments)


def pattern_matches(call: Call, database: str) -> bool:
    """Whether the pattern of a call means a database, as ``HMSHandler`` reads patterns: ``a*|b``."""
    if call.method not in {"get_databases", "get_table_meta"}:
        return True
    head = read_head(call.message)
    arguments: Any = from_bytes(message_types(call.method)[0], call.message[head.body :])
    pattern = arguments.pattern if call.method == "get_databases" else arguments.db_patterns
    text = str(pattern or "*")
    if text.startswith("@"):
        text = text.partition("#")[2] or "*"
    text = "*" if text == "!" else text
    parts = (
        re.escape(one.strip().lower()).replace(r"\*", ".*").replace(r"\.", ".") for one in text.split("|")
    )
    return any(re.fullmatch(one, database) for one in parts)


_TRANSACTIONS: dict[str, Callable[[Any], bool]] = {
    "add_dynamic_partitions": lambda _: True,
    "allocate_table_write_ids": lambda args: bool(args.rqst.txnIds),
    "commit_txn": lambda args: bool(args.rqst.txnid),
    "lock": lambda args: bool(args.rqst.txnid),
}
