"""The translated services and the streams on a real port, before a peer that answers as a metastore does."""

from __future__ import annotations

import itertools
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf import message_factory
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from airflow_hive_federation.errors import NoSuchObjectError
from airflow_hive_federation.gateway.services import layout
from airflow_hive_federation.gateway.services.bounds import MAX_REQUEST_BYTES
from airflow_hive_federation.metastore import MetastoreClient
from airflow_hive_federation.metastore.grpc_streams import PARTITIONS
from airflow_hive_federation.metastore.idl import types
from tests.support.foreign_clients import HIVES, Serve, ours, serve
from tests.support.grpc_fronts import refused

__all__ = ["serve"]

TABLE = types.Table(
    dbName="d",
    tableName="t",
    owner="alice",
    partitionKeys=[types.FieldSchema(name="n", type="int")],
    parameters={},
)


def tables(method: str, args: Any) -> Any:
    if method == "get_table_req":
        if args.req.tblName == "t":
            return types.GetTableResult(table=TABLE)
        raise types.NoSuchObjectException(message=f"no Straße {args.req.tblName}")
    if method == "get_all_databases":
        return ["a", ""]
    if method == "get_function":
        return types.Function(functionName=b"\xff")
    return None


def trailers(error: Any) -> dict[str, Any]:
    return {item.key: item.value for item in error.trailing_metadata() or ()}


def test_a_table_comes_with_all_that_it_has(serve: Serve) -> None:
    client = serve(tables)
    table = client.call(layout.SERVICE, "get_table_req", req={"dbName": "d", "tblName": "t"}).success.table
    assert (table.owner, list(table.empty_), table.HasField("retention")) == ("alice", [9], False)
    hives = client.call(HIVES, "GetTableReq", db_name="d", tbl_name="t").table
    assert (hives.table_name, hives.partition_keys[0].name) == ("t", "n")


@pytest.mark.parametrize("letter", ["x", "ü", "語", "%"])
@pytest.mark.parametrize("length", [500, 1500, 20_000])
def test_an_exception_with_a_long_message_arrives(letter: str, length: int, serve: Serve) -> None:
    message = letter * length

    def fail(*_: Any) -> Any:
        raise types.NoSuchObjectException(message=message)

    client = serve(fail)
    error = refused(lambda: client.call(layout.SERVICE, "get_table_req", req={"dbName": "d", "tblName": "t"}))
    assert error.code() is grpc.StatusCode.NOT_FOUND, error.details()
    assert error.details().startswith(letter * 100)
    begun = trailers(error)["hive-message-bin"].decode()
    assert begun.startswith(letter * 100)
    assert message.startswith(begun)


def test_an_exception_whose_message_is_not_utf_8_arrives(serve: Serve) -> None:
    def fail(*_: Any) -> Any:
        raise types.NoSuchObjectException(message=b"no Stra\xdfe")

    client = serve(fail)
    error = refused(lambda: client.call(layout.SERVICE, "get_table_req", req={"dbName": "d", "tblName": "t"}))
    assert (error.code(), error.details()) == (grpc.StatusCode.NOT_FOUND, "no Stra\ufffde")
    assert trailers(error)["hive-message-bin"].decode() == "no Stra\ufffde"


@pytest.mark.parametrize(
    ("service", "name", "fields"),
    [
        (layout.SERVICE, "get_table_req", {"req": {"dbName": "d", "tblName": "x"}}),
        (HIVES, "GetTableReq", {"db_name": "d", "tbl_name": "x"}),
    ],
    ids=["ours", "hives"],
)
def test_an_exception_is_a_status_with_its_name_and_message(
    serve: Serve, service: str, name: str, fields: Any
) -> None:
    client = serve(tables)
    error = refused(lambda: client.call(service, name, **fields))
    assert (error.code(), error.details()) == (grpc.StatusCode.NOT_FOUND, "no Straße x")
    metadata = trailers(error)
    assert metadata["hive-exception"] == "NoSuchObjectException"
    assert metadata["hive-message-bin"].decode() == "no Straße x"
    detail = metadata["grpc-status-details-bin"]
    kind = message_factory.GetMessageClass(
        client.pool.FindMessageTypeByName(f"{layout.PACKAGE}.NoSuchObjectException")
    )
    assert kind(message="no Straße x").SerializeToString() in detail


@pytest.mark.parametrize("service", [layout.SERVICE, HIVES], ids=["ours", "hives"])
@pytest.mark.parametrize(
    "request_bytes",
    [b"\xff\xff\xff", b"\x0a\x7f", b"\x0b" * 200, b"\xa2\x06\x01x"],
    ids=["garbage", "cut-short", "deep-groups", "unknown-field"],
)
def test_what_is_no_request_is_refused_and_the_next_call_works(
    serve: Serve, service: str, request_bytes: bytes
) -> None:
    client = serve(tables)
    name = "get_table_req" if service == layout.SERVICE else "GetTableReq"
    error = refused(lambda: client.send(service, name, request_bytes))
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "Traceback" not in error.details()
    every = "get_all_databases" if service == layout.SERVICE else "GetAllDatabases"
    assert client.call(service, every) is not None


@pytest.mark.parametrize("service", [layout.SERVICE, HIVES], ids=["ours", "hives"])
def test_a_request_that_is_too_long_is_refused_and_the_next_call_works(serve: Serve, service: str) -> None:
    client = serve(tables)
    name = "get_table_req" if service == layout.SERVICE else "GetTableReq"
    error = refused(lambda: client.send(service, name, bytes(MAX_REQUEST_BYTES + 1)))
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    every = "get_all_databases" if service == layout.SERVICE else "GetAllDatabases"
    assert client.call(service, every) is not None


def test_a_wrong_enum_and_a_field_without_counterpart_are_refused(serve: Serve) -> None:
    client = serve(tables)
    wrong = refused(lambda: client.call(layout.SERVICE, "create_function", func={"functionType": 99}))
    assert (wrong.code(), wrong.details()) == (grpc.StatusCode.INVALID_ARGUMENT, "99 is no FunctionType.")
    hives = refused(lambda: client.call(HIVES, "CreateFunction", function_type=99))
    assert hives.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_a_text_that_hives_proto_cannot_hold_is_an_error(serve: Serve) -> None:
    client = serve(tables)
    error = refused(lambda: client.call(HIVES, "GetFunction", db_name="d", func_name="f"))
    assert error.code() is grpc.StatusCode.DATA_LOSS
    assert "Function.function_name" in error.details()
    assert client.call(layout.SERVICE, "get_function", dbName="d", funcName="f").success.raw_[1]


def test_what_there_is_not_is_unimplemented(serve: Serve) -> None:
    client = serve(tables)
    for path in ("none", "x" * 300, "ReplTblWriteidState", "UpdateCompactorState"):
        error = refused(lambda path=path: client.send(HIVES, path, b""))
        assert error.code() is grpc.StatusCode.UNIMPLEMENTED
    assert refused(lambda: client.send(layout.SERVICE, "none", b"")).code() is grpc.StatusCode.UNIMPLEMENTED


@pytest.mark.parametrize(
    ("service", "name"), [(layout.SERVICE, "get_database"), (HIVES, "GetDatabaseReq")], ids=["ours", "hives"]
)
def test_an_answer_without_a_result_is_no_empty_message(serve: Serve, service: str, name: str) -> None:
    error = refused(lambda: serve(tables).call(service, name))
    assert error.code() is grpc.StatusCode.INTERNAL
    assert "neither a result nor an error" in error.details()


def test_a_caller_cannot_take_another_name(serve: Serve) -> None:
    client = serve(tables)
    answer = client.call(layout.SERVICE, "set_ugi", user_name="root", group_names=["wheel"])
    assert "root" not in answer.success


def test_reflection_shows_the_services(serve: Serve) -> None:
    client = serve(tables)
    database = ProtoReflectionDescriptorDatabase(client.channel)
    names = set(database.get_services())
    assert {layout.SERVICE, layout.STREAMS, HIVES} <= names
    pool = DescriptorPool(database)
    assert len(pool.FindServiceByName(HIVES).methods) == 235
    table = pool.FindMessageTypeByName(f"{layout.PACKAGE}.Table")
    assert table.fields_by_name["parameters"].message_type.GetOptions().map_entry


def test_the_documentations_client_reads_a_table(serve: Serve, capsys: pytest.CaptureFixture[str]) -> None:
    text = (Path(__file__).parents[3] / "docs" / "grpc-services.md").read_text(encoding="utf-8")
    examples = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    (code,) = (code_block for code_block in examples if "import grpc\n" in code_block)
    client = serve(tables)
    exec(code.replace("127.0.0.1:9084", client.uri.removeprefix("grpc://")), {})
    assert json.loads(capsys.readouterr().out)["owner"] == "alice"


def test_a_client_alone_finds_what_it_needs_of_grpcio() -> None:
    """The front's modules import more of grpcio than a client does."""
    code = "from airflow_hive_federation.metastore.grpc_channel import grpc; grpc.experimental.ChannelOptions"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# Streams


def partition(number: int) -> types.Partition:
    return types.Partition(values=[str(number)], dbName="d", tableName="t", parameters={"p": "x" * 100})


def partitions(count: int, asked: list[str]) -> Callable[[str, Any], Any]:
    def answer(method: str, args: Any) -> Any:
        asked.append(method)
        if method == "get_partition_names":
            return [f"n={number}" for number in range(count)]
        if method == "get_table_req":
            return types.GetTableResult(table=TABLE)
        if method == "get_partitions":
            return [partition(number) for number in range(count)]
        if method == "get_partitions_by_filter":
            low, high = (int(part.rpartition(" ")[2]) for part in args.filter.split(" and "))
            return [partition(number) for number in range(low, high + 1)]
        if method == "get_partitions_by_names_req":
            return types.GetPartitionsByNamesResult(
                partitions=[partition(int(name[2:])) for name in args.req.names]
            )
        return None

    return answer


@pytest.mark.parametrize("count", [0, 5, 2500])
def test_partitions_come_in_pieces_each_once(serve: Serve, count: int) -> None:
    client = serve(partitions(count, []))
    pieces = list(client.stream("stream_partitions", database="d", table="t", chunk_bytes=20_000))
    assert all(piece.ByteSize() <= 20_000 for piece in pieces)
    values = [int(partition.values[0]) for piece in pieces for partition in piece.partitions]
    assert sorted(values) == list(range(count))


def test_partitions_are_asked_for_as_they_are_taken(serve: Serve) -> None:
    asked: list[str] = []
    client = serve(partitions(60_000, asked))
    stream = client.stream("stream_partitions", database="d", table="t", timeout=60)
    next(stream)
    stream.cancel()
    # Of the sixty questions, only those that the windows of gRPC have room for.
    assert asked.count("get_partitions_by_filter") < 40


def test_partitions_of_names_and_of_a_filter(serve: Serve) -> None:
    client = serve(partitions(50, []))
    (named,) = client.stream("stream_partitions", database="d", table="t", names=["n=3", "n=4"])
    assert [partition.values[0] for partition in named.partitions] == ["3", "4"]
    (answer,) = client.stream("stream_partitions", database="d", table="t", filter="n >= 3 and n <= 5")
    assert len(answer.partitions) == 3
    both = refused(
        lambda: list(client.stream("stream_partitions", database="d", table="t", names=["n=3"], filter="x"))
    )
    assert both.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_a_stream_ends_with_the_metastores_exception(serve: Serve) -> None:
    def answer(method: str, args: Any) -> Any:
        raise types.NoSuchObjectException(message="no t")

    error = refused(lambda: list(serve(answer).stream("stream_partitions", database="d", table="t")))
    assert (error.code(), error.details()) == (grpc.StatusCode.NOT_FOUND, "no t")
    assert trailers(error)["hive-exception"] == "NoSuchObjectException"


def read(client: MetastoreClient) -> list[int]:
    return sorted(int((partition.values or [""])[0]) for partition in client.iter_partitions("d", "t"))


def test_our_client_reads_partitions_as_a_stream(serve: Serve) -> None:
    asked: list[str] = []
    with ours(serve(partitions(2500, asked))) as client:
        assert read(client) == list(range(2500))
        # Its own pages are larger: these questions are the gateway's.
        assert asked.count("get_partitions_by_filter") == 4
        assert client.uri is not None


def test_our_client_reads_by_calls_where_there_are_no_streams(serve: Serve) -> None:
    asked: list[str] = []
    with ours(serve(partitions(2500, asked), streams=False)) as client:
        for _ in range(2):
            assert read(client) == list(range(2500))
        assert client._unsupported == {PARTITIONS}
    assert "get_partitions" in asked


def test_our_client_goes_on_by_calls_where_a_stream_breaks(serve: Serve) -> None:
    asked: list[str] = []
    answers = partitions(2500, asked)

    def breaking(method: str, args: Any) -> Any:
        if asked.count("get_partitions_by_filter") == 2 and method != "get_partition_names":
            asked.append("broken")
        if asked.count("broken") in {1, 2} and method.startswith("get_partitions"):
            raise types.MetaException(message="the database is gone")
        return answers(method, args)

    with ours(serve(breaking)) as client:
        assert read(client) == list(range(2500))
    assert "broken" in asked


def test_our_client_gets_the_metastores_error(serve: Serve) -> None:
    def answer(method: str, args: Any) -> Any:
        raise types.NoSuchObjectException(message="no t")

    with ours(serve(answer)) as client, pytest.raises(NoSuchObjectError, match="no t"):
        read(client)


def test_tables_and_their_names(serve: Serve) -> None:
    def answer(method: str, args: Any) -> Any:
        if method == "get_all_tables":
            return [f"t{number}" for number in range(250)]
        return types.GetTablesResult(
            tables=[types.Table(dbName="d", tableName=name) for name in args.req.tblNames]
        )

    client = serve(answer)
    tables = [
        table.tableName for piece in client.stream("stream_tables", database="d") for table in piece.tables
    ]
    names = [
        name
        for piece in client.stream("stream_tables", database="d", names_only=True)
        for name in piece.names
    ]
    assert tables == names == [f"t{number}" for number in range(250)]


class Log:
    """A log of events, some of which were removed; ``ends`` are its last ids, look by look."""

    def __init__(self, *ids: int, ends: tuple[int, ...] = ()) -> None:
        self.ids = ids
        self.ends = itertools.chain(ends, itertools.repeat(max(ids, default=0)))
        self.end = 0

    def __call__(self, method: str, args: Any) -> Any:
        if method == "get_current_notificationEventId":
            self.end = next(self.ends)
            return types.CurrentNotificationEventId(eventId=self.end)
        wanted = [number for number in self.ids if args.rqst.lastEvent < number <= self.end]
        events = [
            types.NotificationEvent(
                eventId=number, eventTime=0, eventType="X", dbName="d" if number % 2 else "e"
            )
            for number in wanted[: args.rqst.maxEvents]
        ]
        return types.NotificationEventResponse(events=events)


def test_events_up_to_the_logs_end(serve: Serve) -> None:
    client = serve(Log(*range(1, 6)))
    (piece,) = client.stream("stream_events", after_event_id=2, databases=["D"])
    assert ([event.eventId for event in piece.events], piece.last_event_id) == ([3, 5], 5)


def test_a_gap_is_named(serve: Serve) -> None:
    client = serve(Log(1, 2, 6))
    stream = client.stream("stream_events", after_event_id=0)
    assert [event.eventId for event in next(stream).events] == [1, 2]
    error = refused(lambda: next(stream))
    assert error.code() is grpc.StatusCode.DATA_LOSS
    assert "Events 3 to 5 are missing" in error.details()
    (piece,) = client.stream("stream_events", after_event_id=0, skip_gaps=True)
    assert [(gap.first_missing, gap.last_missing) for gap in piece.gaps] == [(3, 5)]
    assert [event.eventId for event in piece.events] == [1, 2, 6]


def test_a_log_that_was_emptied_is_a_gap_and_another_log_is_refused(serve: Serve) -> None:
    emptied = refused(lambda: list(serve(Log(ends=(7, 7))).stream("stream_events", after_event_id=4)))
    assert "Events 5 to 7 are missing" in emptied.details()
    other = refused(lambda: list(serve(Log(1, 2)).stream("stream_events", after_event_id=9)))
    assert "it is not the log" in other.details()


def test_a_subscription_follows_the_log_until_it_is_cancelled(serve: Serve) -> None:
    client = serve(Log(1, 2, 3, ends=(1, 1, 2, 2, 3)))
    stream = client.stream("follow_events", timeout=60)
    assert next(stream).last_event_id == 1
    assert [event.eventId for _ in range(2) for event in next(stream).events] == [2, 3]
    stream.cancel()
    assert refused(lambda: next(stream)).code() is grpc.StatusCode.CANCELLED
    assert client.call(layout.SERVICE, "get_current_notificationEventId").success.eventId == 3


def test_a_subscription_ends_at_its_deadline(serve: Serve) -> None:
    client = serve(Log(1))
    stream = client.stream("follow_events", timeout=1, after_event_id=1)
    assert next(stream).last_event_id == 1
    assert refused(lambda: next(stream)).code() is grpc.StatusCode.DEADLINE_EXCEEDED
