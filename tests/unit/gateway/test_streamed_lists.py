"""Our client's lists of tables and events, as a gateway's streams and by calls: the same, each once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from airflow_hive_federation.metastore.grpc_streams import EVENTS, FOLLOW, TABLES
from airflow_hive_federation.metastore.idl import types
from tests.support.foreign_clients import Serve, ours, serve

__all__ = ["serve"]


@pytest.mark.parametrize("streams", [True, False], ids=["as a stream", "by calls"])
def test_our_client_reads_tables(serve: Serve, streams: bool) -> None:
    asked: list[str] = []
    names = [f"t{number}" for number in range(250)]

    def answer(method: str, args: Any) -> Any:
        asked.append(method)
        if method == "get_all_tables":
            return names
        table = [types.Table(dbName="d", tableName=name) for name in args.req.tblNames if name != "gone"]
        return types.GetTablesResult(tables=table)

    with ours(serve(answer, streams=streams)) as client:
        assert [table.tableName for table in client.iter_tables("d")] == names
        assert [table.tableName for table in client.get_tables("d", [*names, "gone"])] == names
        assert asked == ["get_all_tables", *["get_table_objects_by_name_req"] * 6]
        assert client._unsupported == (set() if streams else {TABLES})


def test_our_client_reads_each_table_once_where_a_stream_breaks(serve: Serve) -> None:
    asked: list[int] = []
    names = [f"t{number}" for number in range(250)]

    def answer(method: str, args: Any) -> Any:
        if method == "get_all_tables":
            return names
        asked.append(len(args.req.tblNames))
        if len(asked) == 2:
            raise types.MetaException(message="not now")
        return types.GetTablesResult(
            tables=[types.Table(dbName="d", tableName=name) for name in args.req.tblNames]
        )

    with ours(serve(answer)) as client:
        assert [table.tableName for table in client.iter_tables("d")] == names
    # A hundred had come by the stream.
    assert asked == [100, 100, 100, 50]


@dataclass
class Growing:
    """A log of so many events, but for one."""

    length: int
    asked: list[str]

    def __call__(self, method: str, args: Any) -> Any:
        self.asked.append(method)
        if method == "get_current_notificationEventId":
            return types.CurrentNotificationEventId(eventId=self.length)
        first = args.rqst.lastEvent + 1
        events = [
            types.NotificationEvent(eventId=number, eventTime=0, eventType="X")
            for number in range(first, min(self.length, first + args.rqst.maxEvents - 1) + 1)
            # Its cleaner took this one.
            if number != 7
        ]
        return types.NotificationEventResponse(events=events)


@pytest.mark.parametrize("streams", [True, False], ids=["as a stream", "by calls"])
def test_our_client_reads_events(serve: Serve, streams: bool) -> None:
    wanted = [number for number in range(3, 2501) if number != 7]
    asked: list[str] = []
    with ours(serve(Growing(2500, asked), streams=streams)) as client:
        # What fits into one answer needs no stream.
        assert [event.eventId for event in client.iter_notification_events(9, up_to=10)] == [10]
        assert asked == ["get_next_notification"]
        assert [event.eventId for event in client.iter_notification_events(2)] == wanted
        # The log's end is a question of streams alone.
        assert ("get_current_notificationEventId" in asked) == streams
        bounded = client.iter_notification_events(2, up_to=2000)
        assert [event.eventId for event in bounded] == [number for number in wanted if number <= 2000]
        assert client._unsupported == (set() if streams else {EVENTS})


@pytest.mark.parametrize("streams", [True, False], ids=["as a stream", "by calls"])
def test_our_client_follows_the_log(serve: Serve, streams: bool) -> None:
    log = Growing(5, [])
    with ours(serve(log, streams=streams)) as client:
        following = client.follow_notification_events(4, timeout_s=60, poll_s=0.01)
        assert next(following).eventId == 5
        log.length = 9
        # Other calls go on beside it.
        assert client.get_current_notification_event_id() == 9
        assert [next(following).eventId for _ in range(3)] == [6, 8, 9]
        following.close()
        assert FOLLOW not in client._unsupported or not streams
        assert list(client.follow_notification_events(timeout_s=0.2, poll_s=0.01)) == []
