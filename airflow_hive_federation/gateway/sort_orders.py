"""Permits lists of compactions to be ordered by columns only: Hive puts the order into its SQL as it is.

``ShowCompactHandler`` appends ``ShowCompactRequest.order`` to a statement for the metastore's own database.
An expression there could read all of that database, such as names of hidden databases, and tokens.
"""

from __future__ import annotations

import re

from airflow_hive_federation.gateway.answers import only_field
from airflow_hive_federation.gateway.handler import Status, refused
from airflow_hive_federation.gateway.messages import STRUCT, read_head

METHOD = "show_compact"
#: Ids of ``ShowCompactRequest`` among the arguments, and of its ``order``.
_REQUEST, _ORDER = 1, 9
#: As ``ShowCompactionsAnalyzer`` writes them: columns, whose names all begin with ``CC_``, with directions.
_COLUMN = re.compile(r'("?)CC_[A-Z_]+\1(\s+(ASC|DESC))?', re.ASCII | re.IGNORECASE)


def check_order(message: bytes) -> None:
    """Refuse an order that is more than a list of columns.

    :param message: a call of :data:`METHOD`.
    :raises GatewayError: the order has anything else than columns of compactions, and directions.
    :raises MalformedMessage: the call is malformed.
    """
    request = only_field(message, read_head(message).body, _REQUEST)
    if request is None or request.ttype != STRUCT:
        return
    order = only_field(message, request.start, _ORDER)
    if order is None:
        return
    # A string has four bytes of length before its text. Other types are no orders to Hive.
    text = message[order.start + 4 : order.end].decode(errors="replace")
    if text.strip() and not all(_COLUMN.fullmatch(column.strip()) for column in text.split(",")):
        raise refused(
            Status.INVALID,
            f"{METHOD}: the order of the compactions is no list of their columns.",
            remedy='Order by columns, as SHOW COMPACTIONS … ORDER BY does: "CC_DATABASE" ASC, "CC_ID" DESC.',
        )
