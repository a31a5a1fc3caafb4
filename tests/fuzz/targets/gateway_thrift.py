"""Messages of clients and of metastores, through the Thrift front: each call gets one whole answer, or none.

Behind the marker is what the metastore answers. Rules hide a database,
under every name that Hive takes for it.
"""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Iterator
from typing import Any, cast

from airflow_hive_federation.gateway.dispatch import Gateway, Relay
from airflow_hive_federation.gateway.handler import Call
from airflow_hive_federation.gateway.hangups import Hangups
from airflow_hive_federation.gateway.messages import (
    CALL,
    EXCEPTION,
    REPLY,
    Emit,
    MessageReader,
    head_bytes,
    read_head,
)
from airflow_hive_federation.gateway.rules import Exposure, Rule, Rules
from airflow_hive_federation.gateway.thrift_connection import Gone, ThriftConnection
from airflow_hive_federation.gateway.thrift_settings import ThriftSettings
from airflow_hive_federation.metastore.connection import message_types
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.metastore.protocol import decode, encode, encode_call

MARKER = b"\n--\n"
HIDDEN = "payroll"
_TRIMMED = "".join(map(chr, range(33)))
ALLOWED = (Gone, ConnectionError)
TRACED = (
    "airflow_hive_federation.gateway.messages",
    "airflow_hive_federation.gateway.names",
    "airflow_hive_federation.gateway.answers",
    "airflow_hive_federation.gateway.dispatch",
    "airflow_hive_federation.gateway.thrift_connection",
)
INPUTS = 1500


def _seed(method: str, success: Any = None, *, framed: bool = False, **arguments: Any) -> bytes:
    asked, result, _ = message_types(method)
    call = encode_call(method, asked(**arguments), 1, oneway=False)
    if framed:
        call = len(call).to_bytes(4, "big") + call
    answer = head_bytes(method, REPLY, 1) + encode(result() if success is None else result(success=success))
    return call + MARKER + answer


_TABLE = types.Table(dbName="sales", tableName="t", parameters={"a": "b"})
_EVENT = types.NotificationEvent(eventId=1, eventTime=2, eventType="INSERT", dbName=HIDDEN, message="{}")
SEEDS = [
    _seed("get_all_databases", ["sales", HIDDEN, "x"]),
    _seed("get_all_databases", ["sales"], framed=True),
    _seed("get_table", _TABLE, dbname=HIDDEN, tbl_name="t"),
    _seed("get_table", _TABLE, dbname="shop", tbl_name="t"),
    _seed("get_table_req", types.GetTableResult(table=_TABLE),
          req=types.GetTableRequest(dbName="@hive#payroll", tblName="t")),
    _seed("get_tables", ["a", "b"], db_name="shop", pattern="*"),
    _seed("get_table_meta", [types.TableMeta(dbName=HIDDEN, tableName="t")],
          db_patterns="*", tbl_patterns="*"),
    _seed("get_next_notification", types.NotificationEventResponse(events=[_EVENT]),
          rqst=types.NotificationEventRequest(lastEvent=0)),
    _seed("create_table", tbl=_TABLE),
    _seed("drop_database", name="shop", deleteData=True, cascade=True),
    _seed("set_ugi", ["g"], user_name="me", group_names=["g"]),
    _seed("getStatus", 2) + _seed("getStatus", 2),
]  # fmt: skip
TOKENS = [
    MARKER,
    b"payroll",
    b"PayRoll",
    b"@hive#payroll",
    b" payroll",
    b"payroll\x01",
    b"payroll ",
    b"sales",
    b"shop",
    b"\x80\x01\0\1",
    b"\x80\x01\0\4",
    *(struct.pack("!bh", kind, number) for kind in (2, 8, 11, 12, 13, 14, 15) for number in (0, 1, 2)),
    *(struct.pack("!bi", kind, size) for kind in (8, 11, 12, 15) for size in (-1, 1, 2**31 - 1)),
]


class _Client:
    """A socket whose client has sent all it will send, and takes whatever comes."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.sent = b""

    def recv(self, size: int) -> bytes:
        data, self._data = self._data[:size], self._data[size:]
        return data

    def sendall(self, data: bytes) -> None:
        self.sent += data

    def settimeout(self, _seconds: float) -> None: ...

    def setsockopt(self, *_option: int) -> None: ...


class _Metastore:
    """Answers each call with the same bytes, as far as they are a message."""

    wants_names = False

    def __init__(self, answer: bytes) -> None:
        self._answer = answer

    def serves_catalog(self, name: str) -> bool:
        return name == "hive"

    def relay(self, call: Call, emit: Emit) -> None:
        assert read_head(call.message).kind == CALL
        assert _database(call) != HIDDEN, call
        asked, (head, answer) = read_head(call.message), MessageReader(_source(self._answer)).message()
        if (head.method, head.sequence_id, head.kind) != (asked.method, asked.sequence_id, REPLY):
            # As the real one looks.
            raise ConnectionError("an answer to something else")
        emit(answer)

    def relay_of_transactions(self) -> Relay:
        return self.relay


class _Nobody(Hangups):
    def __init__(self) -> None: ...

    @contextlib.contextmanager
    def watching(self, *_: Any) -> Iterator[None]:
        yield


def run(data: bytes) -> None:
    """Serve one connection."""
    sent, _, answer = data.partition(MARKER)
    client = _Client(sent)
    rules = Rules((Rule(databases=("*", f"!{HIDDEN}")),), Exposure())
    gateway = Gateway(_Metastore(answer), rules, aliases={"shop": "sales"})
    connection = ThriftConnection(
        gateway,
        ThriftSettings(max_request_bytes=1 << 20),
        cast("socket.socket", client),
        "127.0.0.1",
        believed=True,
        hangups=_Nobody(),
    )
    try:
        connection.serve(None)
    finally:
        _check(client.sent)


def _check(sent: bytes) -> None:
    """Each answer is a whole message; it may have a frame around it."""
    assert b"The gateway failed" not in sent
    while sent:
        if sent[0] < 0x80:
            size, sent = int.from_bytes(sent[:4], "big"), sent[4:]
            assert size <= len(sent)
        head, message = MessageReader(_source(sent)).message()
        assert head.kind in {REPLY, EXCEPTION}, head
        sent = sent[len(message) :]


def _database(call: Call) -> str:
    """The database that a metastore would take a call's first argument for."""
    if call.method not in {
        "get_table",
        "get_database",
        "drop_database",
        "get_all_tables",
        "create_table",
        "get_table_req",
    }:
        return ""
    arguments = message_types(call.method)[0]()
    try:
        decode(_Bytes(call.message[read_head(call.message).body :]), arguments)
    except Exception:  # noqa: BLE001 - the metastore would refuse it
        return ""
    named = getattr(arguments, next(iter(arguments.thrift_spec.values()))[1])
    if isinstance(named, types.Table | types.GetTableRequest):
        named = named.dbName
    # As ``MetaStoreUtils.parseDbName`` and ``StringUtils.normalizeIdentifier`` have it; Java's trim() takes
    # away all up to the blank.
    if not isinstance(named, str):
        return ""
    bare = named.partition("#")[2] if named.startswith("@") else named
    return bare.strip(_TRIMMED).lower()


class _Bytes:
    def __init__(self, data: bytes) -> None:
        self._receive = _source(data, EOFError)

    def read(self, size: int) -> bytes:
        return self._receive(size)


def _source(data: bytes, at_the_end: type[Exception] = ConnectionError) -> Any:
    left = memoryview(data)

    def receive(size: int) -> bytes:
        nonlocal left
        if not left:
            raise at_the_end("there is no more")
        taken, left = bytes(left[:size]), left[size:]
        return taken

    return receive
