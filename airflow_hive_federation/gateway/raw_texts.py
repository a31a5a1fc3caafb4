"""Refuses texts that Hive would put into SQL for the metastore's own database, and that are more than names.

An expression in such a text could read all of that database, such as names of hidden databases, and tokens.
Hive 4 sends other texts as parameters of its statements, or parses them before.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from airflow_hive_federation.gateway.answers import elements, only_field
from airflow_hive_federation.gateway.handler import Status, refused
from airflow_hive_federation.gateway.messages import LIST, STRUCT, Field, read_head

#: As ``ShowCompactionsAnalyzer`` writes them: columns, whose names all begin with ``CC_``, with directions.
_COLUMN = re.compile(r'("?)CC_[A-Z_]+\1(\s+(ASC|DESC))?', re.ASCII | re.IGNORECASE)


def check_texts(method: str, message: bytes) -> None:
    """Refuse a call with a text that Hive would put into its SQL, and that is more than a name.

    :raises GatewayError: the call has such a text.
    :raises MalformedMessage: the call is malformed.
    """
    if method in _CHECKS:
        _CHECKS[method](method, message)


def _check_order(method: str, message: bytes) -> None:
    """Permit a list of columns only: ``ShowCompactHandler`` appends the order to its statement."""
    order = _field(message, read_head(message).body, 1, 9)
    text = "" if order is None else _text(message, order)
    if text.strip() and not all(_COLUMN.fullmatch(column.strip()) for column in text.split(",")):
        raise refused(
            Status.INVALID,
            f"{method}: the order of the compactions is no list of their columns.",
            remedy='Order by columns, as SHOW COMPACTIONS … ORDER BY does: "CC_DATABASE" ASC, "CC_ID" DESC.',
        )


def _check_partitions(method: str, message: bytes) -> None:
    """Permit no apostrophe in the partitions of statistics: ``DirectSqlUpdatePart`` only puts them in quotes.

    Names of partitions have none: Hive escapes it (``FileUtils.escapePathName``).
    """
    for start in _statistics(method, message):
        name = _field(message, start, 1, 4)
        if name is not None and not {"'", "\\"}.isdisjoint(_text(message, name)):
            raise refused(
                Status.INVALID,
                f"{method}: statistics are of a partition whose name has an apostrophe or a backslash.",
                remedy="Escape them as Hive does in names of partitions: %27 and %5C.",
            )


def _statistics(method: str, message: bytes) -> Iterator[int]:
    """Yield the positions of a call's ``ColumnStatistics``."""
    body = read_head(message).body
    if method == "update_partition_column_statistics":
        field = _field(message, body, 1)
        yield from () if field is None else (field.start,)
        return
    field = _field(message, body, 1, 1)
    if field is not None and field.ttype == LIST and message[field.start] == STRUCT:
        yield from (start for start, _ in elements(message, field.start))


_CHECKS: dict[str, Callable[[str, bytes], None]] = {
    "show_compact": _check_order,
    "set_aggr_stats_for": _check_partitions,
    "update_partition_column_statistics": _check_partitions,
    "update_partition_column_statistics_req": _check_partitions,
}


def _field(message: bytes, position: int, *path: int) -> Field | None:
    """Return the field to which ids lead from the struct at a position."""
    *outer, last = path
    for number in outer:
        field = only_field(message, position, number)
        if field is None or field.ttype != STRUCT:
            return None
        position = field.start
    return only_field(message, position, last)


def _text(message: bytes, field: Field) -> str:
    """Return the value of a field as text; a string has four bytes of length before it."""
    return message[field.start + 4 : field.end].decode(errors="replace")
