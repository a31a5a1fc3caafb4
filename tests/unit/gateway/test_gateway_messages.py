"""Messages are followed byte by byte, whole or cut anywhere, and never decoded."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from airflow_hive_federation.gateway.answers import filtered
from airflow_hive_federation.gateway.messages import (
    CALL,
    CHUNK_BYTES,
    REPLY,
    Head,
    MessageReader,
    head_bytes,
    read_fields,
    read_head,
)
from airflow_hive_federation.gateway.names import Reference, Text
from airflow_hive_federation.gateway.refusals import Status, refusal, refused
from airflow_hive_federation.metastore.connection import message_types
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.metastore.message_bounds import MalformedMessage
from airflow_hive_federation.metastore.protocol import ApplicationFault, decode_reply, encode, encode_call
from tests.support.gateways import outcome
from tests.support.structs import random_struct


def pieces(data: bytes, rng: random.Random, longest: int = 40) -> Callable[[int], bytes]:
    rest = memoryview(data)

    def receive(size: int) -> bytes:
        nonlocal rest
        if not rest:
            raise EOFError("no more")
        count = rng.randint(1, min(size, longest))
        piece, rest = bytes(rest[:count]), rest[count:]
        return piece

    return receive


@pytest.mark.parametrize("seed", range(40))
def test_messages_end_where_they_end(seed: int) -> None:
    rng = random.Random(seed)
    calls = []
    for number in range(5):
        arguments = message_types("alter_table_req")[0](req=random_struct(types.AlterTableRequest, rng))
        calls.append(encode_call("alter_table_req", arguments, number, oneway=False))
    reader = MessageReader(pieces(b"".join(calls), rng, longest=rng.choice([1, 7, 40, 5000])))
    for number, call in enumerate(calls):
        head, data = reader.message()
        assert (head.method, head.kind, head.sequence_id) == ("alter_table_req", CALL, number), seed
        assert data == call, seed
    assert not reader.pending


def test_a_long_message_is_relayed_without_being_kept() -> None:
    rng = random.Random(3)
    partitions = [random_struct(types.Partition, rng) for _ in range(400)]
    message = head_bytes("get_partitions", REPLY, 7) + encode(
        message_types("get_partitions")[1](success=partitions)
    )
    passed: list[bytes] = []
    heads: list[Head] = []
    reader = MessageReader(pieces(message + b"next", rng, longest=CHUNK_BYTES))
    reader.relay(passed.append, heads.append, 9)
    # Only the number is another one.
    assert (
        b"".join(passed)
        == head_bytes("get_partitions", REPLY, 9) + message[len(head_bytes("get_partitions", REPLY, 7)) :]
    )
    assert len(passed) > 3
    assert max(map(len, passed)) <= 3 * CHUNK_BYTES
    assert heads[0].method == "get_partitions"
    assert reader.pending <= 4


def test_what_is_too_long_is_refused_before_it_is_read() -> None:
    call = encode_call("get_database", message_types("get_database")[0](name="x" * 1000), 1, oneway=False)
    with pytest.raises(MalformedMessage, match="longer than 100 bytes"):
        MessageReader(pieces(call, random.Random(0)), max_bytes=100).message()


NESTED = b"\x0c\x00\x01" * 60
CASES = {
    "http": b"GET / HTTP/1.1\r\n\r\n",
    "framed": b"\0\0\0\x10" + head_bytes("getName", CALL, 1),
    "unknown type": head_bytes("getName", CALL, 1) + b"\x3f\0\1",
    "negative text": head_bytes("getName", CALL, 1) + b"\x0b\0\1\xff\xff\xff\xff",
    "negative list": head_bytes("getName", CALL, 1) + b"\x0f\0\1\x0b\xff\xff\xff\xff",
    "long name": b"\x80\1\0\1\0\1\0\0" + b"x" * 70000,
    "deep": head_bytes("getName", CALL, 1) + NESTED,
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_no_message_is_refused(case: str) -> None:
    reader = MessageReader(pieces(CASES[case] + b"\0" * 200, random.Random(0)))
    with pytest.raises(MalformedMessage):
        reader.message()


@pytest.mark.parametrize("seed", range(20))
def test_damaged_messages_end_or_are_refused(seed: int) -> None:
    rng = random.Random(seed)
    arguments = message_types("alter_table_req")[0](req=random_struct(types.AlterTableRequest, rng))
    call = bytearray(encode_call("alter_table_req", arguments, 1, oneway=False))
    for _ in range(300):
        damaged = bytearray(call)
        for _ in range(rng.randint(1, 4)):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        reader = MessageReader(pieces(bytes(damaged), rng, longest=9000))
        with pytest.raises((MalformedMessage, EOFError)):
            _drain(reader)


def _drain(reader: MessageReader) -> None:
    while True:
        reader.message()


def test_fields_are_found_without_being_decoded() -> None:
    table = types.Table(dbName="d", tableName="t", parameters={"a": "b"}, retention=3)
    data = encode(types.GetTableResult(table=table))
    (outer,) = read_fields(data, 0)
    assert (outer.number, data[outer.start : outer.end]) == (1, encode(table))
    inner = {field.number: data[field.start : field.end] for field in read_fields(data, outer.start)}
    assert inner[2] == b"\0\0\0\1d"
    with pytest.raises(MalformedMessage):
        list(read_fields(data[:-3], 0))


def test_refusals_are_what_clients_know() -> None:
    def outcome(method: str, answer: bytes) -> object:
        result = message_types(method)[1]()
        rest = [answer]

        class Source:
            def read(self, _size: int) -> bytes:
                return rest.pop()

        decode_reply(Source(), method, 9, result)
        return result.set_fields()

    denied = refused(Status.DENIED, "No.", remedy="Ask.")
    assert outcome("get_table", refusal("get_table", 9, denied)) == {
        "o1": types.MetaException(message="No. Remedy: Ask.")
    }
    with pytest.raises(ApplicationFault, match="No"):
        outcome("getVersion", refusal("getVersion", 9, denied))
    assert read_head(refusal("drop_index_by_name", 9, denied)).sequence_id == 9


def test_an_answer_with_another_value_in_place_of_its_list_is_refused() -> None:
    method = "get_next_notification"
    result = message_types(method)[1]
    message = head_bytes(method, REPLY, 1) + encode(
        result(success=types.NotificationEventResponse(events=[]))
    )
    assert filtered(method, message, [], lambda *_: True) == message
    number = message.replace(b"\x0f\0\1\x0c\0\0\0\0", b"\x0a\0\1" + bytes(8))
    assert len(number) > len(message)
    with pytest.raises(MalformedMessage, match="type 10, not 15"):
        filtered(method, number, [], lambda *_: True)
    with pytest.raises(MalformedMessage, match="type 8, not 12"):
        filtered(method, head_bytes(method, REPLY, 1) + b"\x08\0\0" + bytes(5), [], lambda *_: True)


@pytest.mark.parametrize("twice", ["list", "result"])
def test_an_answer_with_two_lists_is_refused(twice: str) -> None:
    method = "get_next_notification"
    result = message_types(method)[1]

    def answer(*names: str) -> bytes:
        events = [
            types.NotificationEvent(eventId=1, eventTime=1, eventType="T", dbName=name, message="")
            for name in names
        ]
        return encode(result(success=types.NotificationEventResponse(events=events)))

    first, second = answer("open"), answer("secret")
    # The last two bytes end the response and the result, the first three begin the result's field.
    body = first[:-2] + second[3:] if twice == "list" else first[:-1] + second
    message = head_bytes(method, REPLY, 1) + body
    # Clients read the last of the two.
    assert [event.dbName for event in outcome(read_head(message), message)["success"].events] == ["secret"]
    with pytest.raises(MalformedMessage, match="comes 2 times"):
        filtered(method, message, [], lambda database, _: database == "open")


def test_an_element_with_two_names_is_refused() -> None:
    method = "get_tables_ext"
    named = [Reference("d", None, Text("d", 0, 5))]
    names = [encode(types.ExtendedTableInfo(tblName=name)) for name in ("open", "secret")]
    element = names[0][:-1] + names[1]
    body = b"\x0f\0\0\x0c\0\0\0\1" + element + b"\0"
    with pytest.raises(MalformedMessage, match="comes 2 times"):
        filtered(method, head_bytes(method, REPLY, 1) + body, named, lambda _, table: table == "open")
