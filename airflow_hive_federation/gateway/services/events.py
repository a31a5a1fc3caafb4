"""Streams the metastore's notification events, up to the end of their log or as new events arrive."""

from __future__ import annotations

import threading
from typing import Any

from airflow_hive_federation.gateway.handler import Status, refused
from airflow_hive_federation.gateway.services.behind import Behind
from airflow_hive_federation.gateway.services.pieces import Pieces
from airflow_hive_federation.metastore.grpc_wire import length_delimited, number_field
from airflow_hive_federation.metastore.idl import types

EVENTS_PER_CALL = 1000
#: Seconds between two requests for new events while the log does not grow.
POLL_S = 0.5
_LAST_ID, _GAPS = 2, 3


class BrokenLog(Exception):  # noqa: N818 - internal signal, a status to callers
    """The log lacks events that the query asks for."""


def events(behind: Behind, query: Any, out: Pieces) -> None:
    """Emit all events after the query's ``after_event_id``, up to the end of the log.

    :raises BrokenLog: events are missing, and the query does not skip gaps.
    """
    _Reader(behind, query, out, query.after_event_id).catch_up()


def follow(behind: Behind, query: Any, out: Pieces) -> None:
    """Emit events as they arrive, until the client or the deadline ends the stream.

    Without ``after_event_id``, the stream begins at the end of the log.

    :raises BrokenLog: see :func:`events`.
    :raises GatewayError: the deadline has passed; the error names the event to continue after.
    """
    begins = query.HasField("after_event_id")
    reader = _Reader(
        behind, query, out, query.after_event_id if begins else behind.get_current_notification_event_id()
    )
    # The client learns its position in the log before the first event.
    reader.report()
    woken = threading.Event()
    cancellation, deadline = behind.under_way.cancellation, behind.under_way.deadline
    while not cancellation.cancelled:
        reader.catch_up()
        cancellation.on_cancel(woken.set)
        try:
            ended = woken.wait(min(POLL_S, deadline.remaining_s()))
        except TimeoutError as error:
            raise refused(
                Status.DEADLINE,
                f"The subscription's time is over after event {reader.last}.",
                remedy=f"Subscribe again with after_event_id = {reader.last}.",
            ) from error
        finally:
            cancellation.on_cancel(None)
        if ended:
            return


class _Reader:
    def __init__(self, behind: Behind, query: Any, out: Pieces, last: int) -> None:
        self.last = last
        self._behind, self._out, self._skip_gaps = behind, out, query.skip_gaps
        self._databases = {name.lower() for name in query.databases}
        self._kinds = set(query.event_types)

    def catch_up(self) -> None:
        """Emit all new events."""
        while (end := self._behind.get_current_notification_event_id()) != self.last:
            if end < self.last:
                raise BrokenLog(
                    f"The log ends at event {end}, before event {self.last}: it is not the log that the "
                    "query began with."
                )
            request = types.NotificationEventRequest(lastEvent=self.last, maxEvents=EVENTS_PER_CALL)
            new_events = self._behind.call("get_next_notification", request).events or []
            for event in new_events:
                self._take(event)
            if not new_events:
                # All events up to the end are removed or hidden: the handler ends no page before one that the
                # caller may see.
                self._miss(end)
            self.report()

    def report(self) -> None:
        """Emit the collected events, and the id of the stream's last event."""
        self._out.add_field(number_field(_LAST_ID, self.last))
        self._out.flush()

    def _take(self, event: types.NotificationEvent) -> None:
        number = event.eventId or 0
        if number <= self.last:
            return
        if number > self.last + 1:
            self._miss(number - 1)
        self.last = number
        if self._kinds and event.eventType not in self._kinds:
            return
        if not self._databases or (event.dbName or "").lower() in self._databases:
            self._out.add([event])

    def _miss(self, up_to: int) -> None:
        first = self.last + 1
        if not self._skip_gaps:
            self._out.flush()
            raise BrokenLog(
                f"Events {first} to {up_to} are missing from the log; its cleaner removes them after "
                "hive.metastore.event.db.listener.timetolive, and the gateway hides those that the caller "
                f"may not see. Compare what they concern, and go on after event {up_to}, or set skip_gaps."
            )
        self._out.add_field(length_delimited(_GAPS, number_field(1, first) + number_field(2, up_to)))
        self.last = up_to
