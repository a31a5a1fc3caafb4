"""Reads the log of events on until a page has an event that the caller may see, or the log ends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from airflow_hive_federation.gateway.answers import bounds_of, only_field
from airflow_hive_federation.gateway.handler import Call
from airflow_hive_federation.gateway.messages import I32, I64, STRUCT, Field, read_head
from airflow_hive_federation.metastore.message_bounds import MalformedMessage

METHOD = "get_next_notification"
#: Number of events in each page after the first, however few the client requests per call.
EVENTS_PER_PAGE = 1000
#: Ids of ``NotificationEventRequest`` among the arguments, of its ``lastEvent`` and ``maxEvents``, and of
#: ``NotificationEvent.eventId``.
_REQUEST, _AFTER, _MOST, _ID = 1, 1, 2, 1

#: Takes an answer and the greatest number of events to keep (0 for any), and leaves out hidden events.
Cut = Callable[[bytes, int], bytes]


def first_visible(call: Call, ask: Callable[[Call], bytes], cut: Cut) -> bytes:
    """Return the first page of the log with an event that the caller may see; an empty one at the log's end.

    The metastore limits the number of events before the gateway leaves out the hidden ones, and clients take
    an empty page as the end of the log: they would never see what comes after a page of hidden events.

    :param call: a call of :data:`METHOD`; its deadline limits the work.
    :param ask: sends a call to the metastore.
    :raises MalformedMessage: the call has no request of the log, or the log does not advance.
    :raises HiveFederationError: as ``ask``, also if the deadline passes before a visible event.
    """
    request = _field(call.message, read_head(call.message).body, _REQUEST, STRUCT)
    after = _field(call.message, request.start, _AFTER, I64)
    most = only_field(call.message, request.start, _MOST)
    limit = 0 if most is None or most.ttype != I32 else max(0, number_of(call.message, most))
    last = number_of(call.message, after)
    while True:
        answer = ask(call)
        shown = cut(answer, limit)
        events = bounds_of(METHOD, answer)
        if not events or bounds_of(METHOD, shown):
            return shown
        start, _ = events[-1]
        if (newest := number_of(answer, _field(answer, start, _ID, I64))) <= last:
            raise MalformedMessage(f"event {newest} in a page of the events after {last}")
        last = newest
        message = with_number(call.message, after, last)
        if limit and most is not None:
            message = with_number(message, most, max(limit, EVENTS_PER_PAGE))
        # The message keeps its length, so that the places of the names in it stay right.
        call = replace(call, message=message)


def _field(data: bytes, position: int, number: int, ttype: int) -> Field:
    field = only_field(data, position, number)
    if field is None or field.ttype != ttype:
        raise MalformedMessage(f"a request or an event without the field {number}")
    return field


def number_of(data: bytes, field: Field) -> int:
    """Return the whole number in a field."""
    return int.from_bytes(data[field.start : field.end], "big", signed=True)


def with_number(data: bytes, field: Field, number: int) -> bytes:
    """Return a message, of the same length, with another whole number in a field."""
    value = number.to_bytes(field.end - field.start, "big", signed=True)
    return data[: field.start] + value + data[field.end :]
