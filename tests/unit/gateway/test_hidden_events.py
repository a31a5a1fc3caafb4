"""The log of events for callers who may see some databases only: no page of hidden events ends it."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from airflow_hive_federation.errors import MetastoreTimeoutError
from airflow_hive_federation.gateway.dispatch import Gateway, Metastore
from airflow_hive_federation.gateway.handler import Call, Caller, Deadline
from airflow_hive_federation.gateway.rules import Rule, Rules
from airflow_hive_federation.gateway.upstream import Upstream
from airflow_hive_federation.metastore import MetastoreSettings
from airflow_hive_federation.metastore.idl import types
from tests.support.foreign_clients import Serve, serve
from tests.support.gateways import Clients, Gateways, Peers, Raws, call_bytes
from tests.support.grpc_fronts import refused
from tests.support.metastore_peers import HangUp, Thrift

__all__ = ["serve"]

ONLY_SALES = Rules((Rule(databases=("sales",)),))
LAST = 3600


class Log:
    """A log of 3,600 events, of which 1, 2,500 and 2,501 are of a visible database."""

    def __init__(self) -> None:
        self.requests: list[tuple[int, int | None]] = []

    def __call__(self, method: str, args: Any) -> Any:
        if method == "get_current_notificationEventId":
            return types.CurrentNotificationEventId(eventId=LAST)
        after, most = args.rqst.lastEvent, args.rqst.maxEvents
        self.requests.append((after, most))
        ids = range(after + 1, LAST + 1)[: most or None]
        return types.NotificationEventResponse(events=[self.event(number) for number in ids])

    @staticmethod
    def event(number: int) -> types.NotificationEvent:
        database = "sales" if number in {1, 2500, 2501} else "hidden" if number % 2 else None
        return types.NotificationEvent(
            eventId=number, eventTime=0, eventType="X", dbName=database, message="{}"
        )


@pytest.mark.parametrize("batch_size", [1, 2, 1000])
def test_a_page_of_hidden_events_does_not_end_the_log(
    peer: Peers, gateway: Gateways, client: Clients, batch_size: int
) -> None:
    run = gateway(peer(Thrift(Log())).uri, rules=ONLY_SALES)
    ours = client(run.front.uri)
    events = ours.iter_notification_events(0, batch_size=batch_size)
    assert [event.eventId for event in events] == [1, 2500, 2501]


def test_no_page_has_more_events_than_requested(peer: Peers, gateway: Gateways, raw: Raws) -> None:
    log = Log()
    connection = raw(gateway(peer(Thrift(log)).uri, rules=ONLY_SALES))

    def page(after: int, most: int | None) -> list[int]:
        request = types.NotificationEventRequest(lastEvent=after, maxEvents=most)
        return [
            event.eventId for event in connection.ask("get_next_notification", rqst=request)["success"].events
        ]

    assert [page(1, 1), page(2500, 1), page(2501, 1)] == [[2500], [2501], []]
    # Pages after the first are longer, and a client without a limit gets the log at once.
    assert log.requests[:4] == [(1, 1), (2, 1000), (1002, 1000), (2002, 1000)]
    assert page(1, None) == [2500, 2501]
    assert log.requests[-1] == (1, None)


def test_hidden_events_are_read_until_the_deadline_only(peer: Peers) -> None:
    released = threading.Event()

    def answer(_method: str, args: Any) -> Any:
        if args.rqst.lastEvent > 1000:
            released.wait(60)
            raise HangUp
        return Log()("get_next_notification", args)

    target = Metastore(Upstream("main", MetastoreSettings(uris=(peer(Thrift(answer)).uri,))))
    request = types.NotificationEventRequest(lastEvent=1, maxEvents=1000)
    message = call_bytes("get_next_notification", rqst=request)
    call = Call("get_next_notification", message, Caller(), Deadline(1))
    # An empty page would end the log for the client.
    with pytest.raises(MetastoreTimeoutError):
        Gateway(target, ONLY_SALES).ask(call)
    released.set()
    target.close()


def test_a_log_that_does_not_advance_is_refused(peer: Peers, gateway: Gateways, raw: Raws) -> None:
    again = types.NotificationEventResponse(events=[Log.event(2)])
    connection = raw(gateway(peer(Thrift(lambda *_: again)).uri, rules=ONLY_SALES))
    request = types.NotificationEventRequest(lastEvent=0, maxEvents=1)
    answer = connection.ask("get_next_notification", rqst=request)
    assert "event 2 in a page of the events after 2" in str(answer)


def test_a_stream_skips_hidden_events_and_no_other(serve: Serve) -> None:
    client = serve(Log(), rules=ONLY_SALES)
    pieces = list(client.stream("stream_events", after_event_id=1, skip_gaps=True))
    assert [event.eventId for piece in pieces for event in piece.events] == [2500, 2501]
    gaps = [(gap.first_missing, gap.last_missing) for piece in pieces for gap in piece.gaps]
    assert gaps == [(2, 2499), (2502, LAST)]
    assert pieces[-1].last_event_id == LAST
    error = refused(lambda: list(client.stream("stream_events", after_event_id=1)))
    assert "Events 2 to 2499 are missing" in error.details()
