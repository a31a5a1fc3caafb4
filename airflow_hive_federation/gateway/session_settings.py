"""Accepts the one setting by which a client may configure its metastore connection (``setMetaConf``).

Hive's ``setMetaConf`` configures one connection of the metastore (``HMSHandler.setMetaConf``), and callers of
a gateway share connections. ``MSCK REPAIR TABLE`` of Hive 4 needs it: it names stale partitions by a text,
which the metastore reads by another class than the expressions of queries (``Msck.updateExpressionProxy``).
The gateway remembers the class for the client, and makes those calls on connections with this setting.
"""

from __future__ import annotations

from typing import Any

from airflow_hive_federation.gateway.handler import Caller, Status, refused
from airflow_hive_federation.gateway.messages import CALL, REPLY, head_bytes, read_head
from airflow_hive_federation.metastore.connection import message_types
from airflow_hive_federation.metastore.protocol import encode
from airflow_hive_federation.metastore.wire import from_bytes

SET_META_CONF = "setMetaConf"
_EXPRESSION_PROXY = "metastore.expression.proxy"
_KEYS = frozenset({_EXPRESSION_PROXY, f"hive.{_EXPRESSION_PROXY}"})
#: Hive's own classes. The metastore loads whatever class it gets, so callers may choose no others.
_PROXIES = frozenset(
    {
        "org.apache.hadoop.hive.metastore.MsckPartitionExpressionProxy",
        "org.apache.hadoop.hive.ql.optimizer.ppr.PartitionExpressionForMetastore",
    }
)


def remembered(message: bytes, caller: Caller) -> bytes:
    """Keep the setting of a client in the memory of its connection; return the answer to the client.

    :param message: a call of ``setMetaConf``.
    :raises GatewayError: the setting is another one, or the front's connections have no memory.
    :raises WireFormatError: the call's arguments cannot be read.
    """
    arguments, result, _ = message_types(SET_META_CONF)
    head = read_head(message)
    asked: Any = from_bytes(arguments, message[head.body :])
    if asked.key not in _KEYS or asked.value not in _PROXIES:
        raise refused(
            Status.DENIED,
            f"{SET_META_CONF} of {asked.key!r} is never passed on: it would configure a connection that "
            "callers share.",
            remedy="Set it in the metastore's own configuration.",
        )
    if not caller.session.lasting:
        raise refused(
            Status.DENIED,
            f"{SET_META_CONF} of {asked.key!r} has no effect here: each call of this front stands alone.",
            remedy="Use the Thrift front.",
        )
    caller.session.expression_proxy = asked.value
    return head_bytes(SET_META_CONF, REPLY, head.sequence_id) + encode(result())


def call_that_sets(expression_proxy: str) -> bytes:
    """Return the call that gives a connection of the metastore the setting."""
    arguments = message_types(SET_META_CONF)[0](key=_EXPRESSION_PROXY, value=expression_proxy)
    return head_bytes(SET_META_CONF, CALL, 0) + encode(arguments)


def fault_of(answer: bytes) -> str:
    """Return the reason for which a metastore has refused the setting; empty if it has taken it."""
    head = read_head(answer)
    if head.kind != REPLY:
        return "it has no such method"
    faults: dict[str, object] = from_bytes(message_types(SET_META_CONF)[1], answer[head.body :]).set_fields()
    return ", ".join(str(getattr(fault, "message", fault)) for fault in faults.values())
