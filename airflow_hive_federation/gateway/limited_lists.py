"""Fills lists whose length the client limits, although the caller may not see all of their elements."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from airflow_hive_federation.gateway.answers import bounds_of, only_field
from airflow_hive_federation.gateway.event_pages import Cut, number_of, with_number
from airflow_hive_federation.gateway.handler import Call
from airflow_hive_federation.gateway.messages import I32, I64, STRUCT, Field, read_head

#: By method, the ids of the fields that lead to the limit in its arguments.
LIMITS = {"get_table_names_by_filter": (3,), "get_tables_ext": (1, 5), "show_compact": (1, 8)}
#: Thrift's codes of whole numbers of two, four and eight bytes. A metastore passes over other types.
_INTEGERS = frozenset({6, I32, I64})
#: Hive takes a negative limit for none.
_ALL = -1
#: Each further question is for this many times as many elements.
_FACTOR = 8


def filled(call: Call, ask: Callable[[Call], bytes], cut: Cut) -> bytes:
    """Return a list with as many visible elements as the client requests, if there are as many.

    The metastore limits the number of elements before the gateway leaves out the hidden ones. A client takes
    a list that is shorter than its limit for the whole list. These methods have no position from which to go
    on, so each further question is for a longer list from its beginning.

    :param call: a call of :data:`LIMITS`; its deadline limits the work.
    :param ask: sends a call to the metastore.
    :raises MalformedMessage: the call or its answer is malformed.
    :raises HiveFederationError: as ``ask``.
    """
    field = _limit(call)
    limit = 0 if field is None else number_of(call.message, field)
    if field is None or limit <= 0:
        return cut(ask(call), 0)
    greatest = (1 << (8 * (field.end - field.start) - 1)) - 1
    asked = limit
    while True:
        answer = ask(call)
        shown = cut(answer, limit)
        is_whole = asked == _ALL or len(bounds_of(call.method, answer)) < asked
        if is_whole or len(bounds_of(call.method, shown)) == limit:
            return shown
        asked = asked * _FACTOR if asked * _FACTOR <= greatest else _ALL
        # The message keeps its length, so that the places of the names in it stay right.
        call = replace(call, message=with_number(call.message, field, asked))


def _limit(call: Call) -> Field | None:
    """Return the limit among the arguments of a call; ``None`` if the client has set none."""
    *path, last = LIMITS[call.method]
    position = read_head(call.message).body
    for number in path:
        request = only_field(call.message, position, number)
        if request is None or request.ttype != STRUCT:
            return None
        position = request.start
    field = only_field(call.message, position, last)
    return field if field is not None and field.ttype in _INTEGERS else None
