"""Messages that break the protocol, or a bound, are refused before anything is made of them."""

from __future__ import annotations

import io
import random
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from airflow_hive_federation.errors import MetastoreProtocolError
from airflow_hive_federation.metastore import MetastoreClient, MetastoreSettings
from airflow_hive_federation.metastore.connection import message_types
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.metastore.message_bounds import FREE_VALUES, MAX_DEPTH, MalformedMessage
from airflow_hive_federation.metastore.protocol import ApplicationFault, decode, decode_reply, encode
from airflow_hive_federation.metastore.struct import Fault, Struct
from tests.support.examples import seeds
from tests.support.metastore_peers import Peer
from tests.support.thrift_bytes import I32, I64, LIST, MAP, STOP, STRING, STRUCT, field, listing, text

METHOD = "get_table_req"


class Bytes:
    """A source of the bytes given, in pieces of at most ``piece``."""

    def __init__(self, data: bytes, piece: int = 1 << 16) -> None:
        self._stream = io.BytesIO(data)
        self._piece = piece

    def read(self, size: int) -> bytes:
        if not (data := self._stream.read(min(size, self._piece))):
            raise EOFError
        return data


def mapping(key: int, value: int, size: int, body: bytes = b"") -> bytes:
    return struct.pack("!bbi", key, value, size) + body


#: StorageDescriptor: 1 cols, 2 location, 8 bucketCols, 10 parameters.
BROKEN = {
    "a text of negative length": field(STRING, 2, text(b"", -1)),
    "a list of negative length": field(LIST, 1, listing(STRUCT, -1)),
    "a map of negative length": field(MAP, 10, mapping(STRING, STRING, -5)),
    "a list of another type than the definition has": field(LIST, 8, listing(I32, 1, b"\0\0\0\1")),
    "a map of other keys than the definition has": field(MAP, 10, mapping(I32, STRING, 1, b"\0" * 8)),
    "a list of values that take no bytes": field(LIST, 99, listing(1, 2**31 - 1)),
    "a map of values that take no bytes": field(MAP, 99, mapping(1, 1, 2**31 - 1)),
    "a list of a type that there is not": field(LIST, 99, listing(7, 3)),
    "a field of a type that there is not": field(7, 99),
    "a field of type void": field(1, 2),
    "structs without end": field(STRUCT, 99) * 100_000,
    "lists without end": field(LIST, 99) + listing(LIST, 1) * 100_000,
    "maps without end": field(MAP, 99) + mapping(MAP, MAP, 1) * 100_000,
    "a text longer than is accepted": field(STRING, 2, text(b"", 2**31 - 1)),
    "more texts than are accepted": field(LIST, 8, listing(STRING, 2**31 - 1)),
    "more numbers than are accepted": field(LIST, 99, listing(I64, 2**31 - 1)),
}


@pytest.mark.parametrize("case", BROKEN)
def test_refused(case: str) -> None:
    with pytest.raises(MalformedMessage):
        decode(Bytes(BROKEN[case] + STOP), types.StorageDescriptor())


def test_more_values_than_their_bytes_allow() -> None:
    # Each of these structs is a byte here and some hundred in memory.
    size = 2 * FREE_VALUES
    with pytest.raises(MalformedMessage, match=f"{size} values"):
        decode(Bytes(field(LIST, 1, listing(STRUCT, size, STOP * size)) + STOP), types.StorageDescriptor())
    descriptor = types.StorageDescriptor()
    decode(Bytes(field(LIST, 1, listing(STRUCT, 1000, STOP * 1000)) + STOP), descriptor)
    assert descriptor.cols == [types.FieldSchema()] * 1000


def test_nesting_up_to_the_bound_is_skipped() -> None:
    inside = MAX_DEPTH - 1
    decode(Bytes(field(STRUCT, 99) * inside + STOP * inside + STOP), types.StorageDescriptor())
    with pytest.raises(MalformedMessage, match="levels deep"):
        decode(Bytes(field(STRUCT, 99) * MAX_DEPTH + STOP * (MAX_DEPTH + 1)), types.StorageDescriptor())


def test_empty_containers_of_any_type_are_empty() -> None:
    descriptor = types.StorageDescriptor()
    decode(Bytes(field(LIST, 8, listing(0, 0)) + field(MAP, 10, mapping(0, 0, 0)) + STOP), descriptor)
    assert (descriptor.bucketCols, descriptor.parameters) == ([], {})


def test_a_known_field_of_another_type_is_unset() -> None:
    # As in every implementation of Thrift: a newer server may have changed it.
    descriptor = types.StorageDescriptor()
    decode(Bytes(field(I32, 2, b"\0\0\0\1") + field(STRING, 4, text(b"f")) + STOP), descriptor)
    assert descriptor == types.StorageDescriptor(outputFormat="f")


REPEATED = field(STRING, 2, text(b"first")) + field(STRING, 2, text(b"last")) + field(I32, 2, b"\0\0\0\1")
#: The compiled decoder cannot read this map, so the decoder in Python reads the whole message.
BY_LISTS = field(STRUCT, 11, field(MAP, 3, mapping(LIST, STRING, 1, listing(STRING, 0) + text(b"x"))) + STOP)


@pytest.mark.parametrize("others", [b"", BY_LISTS], ids=["compiled", "python"])
def test_the_last_of_repeated_fields_counts(others: bytes) -> None:
    """Both decoders agree, so that no check reads another value than its caller."""
    descriptor = types.StorageDescriptor()
    decode(Bytes(REPEATED + others + STOP), descriptor)
    assert descriptor.location == "last"
    assert (descriptor.skewedInfo is not None) == bool(others)


@pytest.mark.parametrize("last", [False, True])
def test_each_of_repeated_fields_is_bounded(last: bool) -> None:
    good, bad = field(LIST, 8, listing(STRING, 0)), field(LIST, 8, listing(I32, 1, b"\0\0\0\1"))
    with pytest.raises(MalformedMessage, match="container of values of type 8"):
        decode(Bytes((good + bad if last else bad + good) + STOP), types.StorageDescriptor())


def reply(value: Struct, kind: int = 2, method: str = METHOD) -> bytes:
    head = struct.pack("!I", 0x80010000 | kind) + text(method.encode()) + struct.pack("!i", 7)
    return head + encode(value)


def answer(value: types.Table) -> Struct:
    _, result, _ = message_types(METHOD)
    return result(success=types.GetTableResult(table=value))


def table() -> types.Table:
    columns = [types.FieldSchema(name=f"c{n}", type="bigint") for n in range(20)]
    skewed = types.SkewedInfo(skewedColValueLocationMaps={("1", "a"): "file:/x"})
    storage = types.StorageDescriptor(
        cols=columns, location="file:/t", parameters={"a": "b"}, skewedInfo=skewed
    )
    return types.Table(tableName="t", sd=storage, parameters={"é": "x"}, writeId=5, rewriteEnabled=True)


@pytest.mark.parametrize("piece", [1, 7, 1 << 16])
def test_a_message_may_come_in_pieces(piece: int) -> None:
    value = answer(table())
    decoded = type(value)()
    decode_reply(Bytes(reply(value), piece), METHOD, 7, decoded)
    assert decoded == value


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        struct.pack("!II", 0x80010002, 0xFFFFFFFF),
        struct.pack("!II", 0x80010002, 1 << 30),
        struct.pack("!II", 0x00010002, 4) + b"name",
        struct.pack("!I", 0x80010005) + text(METHOD.encode()) + struct.pack("!i", 7) + STOP,
    ],
)
def test_what_does_not_begin_as_an_answer(head: bytes) -> None:
    with pytest.raises(MalformedMessage):
        decode_reply(Bytes(head + STOP * 20), METHOD, 7, answer(types.Table()))


def test_a_fault_is_bounded_too() -> None:
    with pytest.raises(ApplicationFault, match="no"):
        decode_reply(Bytes(reply(ApplicationFault(message="no", type=1), 3)), METHOD, 7, Struct())
    broken = reply(ApplicationFault(), 3)[:-1] + field(LIST, 9, listing(1, 2**31 - 1))
    with pytest.raises(MalformedMessage):
        decode_reply(Bytes(broken), METHOD, 7, Struct())


@pytest.mark.parametrize("seed", seeds(40))
def test_damaged_answers_are_refused_or_read(seed: int) -> None:
    """Whatever is changed in an answer: a value comes out, or the error for a message that is none."""
    chance = random.Random(seed)
    message = reply(answer(table()))
    outcomes = set()
    for _ in range(100):
        damaged = bytearray(message)
        for _ in range(chance.randrange(1, 4)):
            at = chance.randrange(12 + len(METHOD), len(damaged))
            damaged[at : at + chance.randrange(2)] = chance.choice(
                [b"\xff", b"\x7f\xff\xff\xff", b"\0", b"\x0f", b"\x0d", chance.randbytes(3)]
            )
        decoded = type(answer(types.Table()))()
        try:
            decode_reply(Bytes(bytes(damaged), chance.choice([1, 16, 1 << 16])), METHOD, 7, decoded)
            outcomes.add("read")
        except (MalformedMessage, EOFError, Fault) as error:
            outcomes.add(type(error).__name__)
    print(f"seed {seed}: {outcomes}")
    assert "MalformedMessage" in outcomes


@contextmanager
def serving(body: bytes) -> Iterator[Peer]:
    def behave(connection: socket.socket) -> None:
        greeting, method = connection.recv(4096), b"set_ugi"
        assert method in greeting
        connection.sendall(struct.pack("!I", 0x80010002) + text(method) + struct.pack("!i", 1) + STOP)
        connection.recv(4096)
        connection.sendall(body)
        connection.recv(4096)

    peer = Peer(behave)
    try:
        yield peer
    finally:
        peer.close()


def head(method: str) -> bytes:
    return struct.pack("!I", 0x80010002) + text(method.encode()) + struct.pack("!i", 2)


@pytest.mark.parametrize(
    ("ask", "body"),
    [
        (
            lambda client: client.get_all_databases(),
            head("get_all_databases") + field(LIST, 0, listing(I32, 2, b"\0" * 8)) + STOP,
        ),
        (
            lambda client: client.get_all_databases(),
            head("get_all_databases") + field(LIST, 0, listing(STRING, -1)) + STOP,
        ),
        (
            lambda client: client.get_all_databases(),
            head("get_all_databases") + field(LIST, 0, listing(STRING, 3, text(b"a" * 3000) * 3)) + STOP,
        ),
    ],
    ids=["numbers for names", "a negative length", "more than is accepted"],
)
def test_a_client_answers_with_a_protocol_error(ask: Callable[[MetastoreClient], Any], body: bytes) -> None:
    with serving(body) as peer:
        settings = MetastoreSettings(uris=(peer.uri,), max_answer_bytes=5000)
        with MetastoreClient(settings) as client, pytest.raises(MetastoreProtocolError, match=peer.uri):
            ask(client)
