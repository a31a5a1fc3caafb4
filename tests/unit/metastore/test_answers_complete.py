"""An answer is one result or one error, whole, and nothing beside it: all else is a protocol error."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_hive_federation.errors import MetastoreProtocolError
from airflow_hive_federation.metastore import MetastoreClient, MetastoreSettings
from airflow_hive_federation.metastore.connection import _outcome
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.metastore.message_bounds import MalformedMessage
from airflow_hive_federation.metastore.protocol import encode
from tests.support.metastore_peers import Peer
from tests.support.thrift_bytes import LIST, STOP, STRING, STRUCT, field, listing, text

I32, I64 = 8, 10
NAMES = field(LIST, 0, listing(STRING, 1, text(b"sales")))
FAULT = field(STRUCT, 1, field(STRING, 1, text(b"no")) + STOP)


def answer(method: str, body: bytes, sequence: int) -> bytes:
    return struct.pack("!I", 0x80010002) + text(method.encode()) + struct.pack("!i", sequence) + body


@contextmanager
def thrift(body: bytes, method: str) -> Iterator[str]:
    """A server that greets, and answers one call with a body."""

    def behave(connection: socket.socket) -> None:
        connection.recv(4096)
        connection.sendall(answer("set_ugi", field(LIST, 0, listing(STRING, 0)) + STOP, 1))
        connection.recv(4096)
        connection.sendall(answer(method, body, 2))
        connection.recv(4096)

    peer = Peer(behave)
    try:
        yield peer.uri
    finally:
        peer.close()


@contextmanager
def http(reply: bytes) -> Iterator[str]:
    """A server that answers one request with these bytes."""

    def behave(connection: socket.socket) -> None:
        connection.recv(4096)
        connection.sendall(reply)
        connection.recv(4096)

    peer = Peer(behave, scheme="http")
    try:
        yield peer.uri
    finally:
        peer.close()


def refused(uri: str, ask: Callable[[MetastoreClient], Any], match: str, **settings: Any) -> str:
    with (
        MetastoreClient(MetastoreSettings(uris=(uri,), **settings)) as client,
        pytest.raises(MetastoreProtocolError, match=match) as caught,
    ):
        ask(client)
    return str(caught.value)


@pytest.mark.parametrize(
    ("body", "match"),
    [
        (STOP, "neither a result nor an error"),
        (NAMES + FAULT + STOP, "more than one answer"),
        (NAMES + NAMES + STOP, "more than one answer"),
        (NAMES + STOP + STOP, "something follows"),
        (field(STRUCT, 77, STOP) + STOP, "field 77"),
        (field(I32, 0, b"\0\0\0\1") + STOP, "field 0, of type 8"),
    ],
    ids=[
        "nothing",
        "a result and an error",
        "two results",
        "bytes behind it",
        "an unknown error",
        "a number",
    ],
)
def test_names(body: bytes, match: str) -> None:
    with thrift(body, "get_all_databases") as uri:
        refused(uri, lambda client: client.get_all_databases(), match)


def test_an_unknown_error_of_a_call_without_result_is_no_success() -> None:
    # Passed over, the transaction would be taken for aborted.
    with thrift(field(STRUCT, 9, STOP) + STOP, "abort_txn") as uri:
        message = refused(
            uri, lambda client: client.call("abort_txn", types.AbortTxnRequest(txnid=1)), "field 9"
        )
    assert "may have been carried out" in message


def test_a_call_without_result_has_none() -> None:
    with thrift(STOP, "abort_txn") as uri, MetastoreClient(MetastoreSettings(uris=(uri,))) as client:
        assert client.call("abort_txn", types.AbortTxnRequest(txnid=1)) is None


def test_a_result_has_what_the_definition_requires() -> None:
    lock = types.LockResponse(lockid=5, state=1)
    ask = types.CheckLockRequest(lockid=5)
    with thrift(field(STRUCT, 0, encode(lock)) + STOP, "check_lock") as uri:
        settings = MetastoreSettings(uris=(uri,))
        with MetastoreClient(settings) as client:
            assert client.call("check_lock", ask) == lock
    for part in (types.LockResponse(lockid=5), types.LockResponse()):
        with thrift(field(STRUCT, 0, encode(part)) + STOP, "check_lock") as uri:
            refused(uri, lambda client: client.call("check_lock", ask), "LockResponse lacks.*state")


def test_a_setting_without_a_value_is_null() -> None:
    with thrift(STOP, "get_config_value") as uri, MetastoreClient(MetastoreSettings(uris=(uri,))) as client:
        assert client.call("get_config_value", "x", None) is None


WHOLE = answer("get_all_databases", NAMES + STOP, 1)


def ok(body: bytes, *headers: str) -> bytes:
    head = "\r\n".join(["HTTP/1.1 200 OK", *headers, "", ""])
    return head.encode() + body


LENGTH = f"Content-Length: {len(WHOLE)}"


@pytest.mark.parametrize(
    ("reply", "match"),
    [
        (ok(WHOLE + b"x", f"Content-Length: {len(WHOLE) + 1}"), "something follows"),
        (ok(WHOLE, LENGTH) + ok(WHOLE, LENGTH), "something follows"),
        (ok(b"", "Content-Length: 0"), "HTTP 200"),
        (b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 1\r\n\r\nx", "HTTP 302"),
        (ok(WHOLE, LENGTH, *["X: y"] * 200), "headers"),
        (ok(WHOLE, LENGTH, "X: " + "y" * 100_000), "LineTooLong"),
        (ok(b"1" * 70_000, "Transfer-Encoding: chunked"), "chunk"),
        (ok(b"5\r\nabcde\r\n" * 3000 + b"0\r\n\r\n", "Transfer-Encoding: chunked"), "longer than 5000"),
        (ok(b"a" * 6000, "Content-Length: 1000000000000"), "longer than 5000"),
        (ok(b"a" * 6000), "longer than 5000"),
    ],
    ids=[
        "bytes behind it",
        "two answers",
        "nothing",
        "a redirect",
        "headers without end",
        "a header without end",
        "a chunk's length without end",
        "chunks without end",
        "a body without end",
        "a body without length",
    ],
)
def test_http(reply: bytes, match: str) -> None:
    with http(reply) as uri:
        refused(uri, lambda client: client.get_all_databases(), match, max_answer_bytes=5000)


def test_what_a_channel_still_holds_follows_the_answer() -> None:
    channel: Any = SimpleNamespace(has_more=lambda: True)
    with pytest.raises(MalformedMessage, match="something follows the answer"):
        _outcome("get_all_databases", types.Database(), channel)


def test_http_answers_one_after_the_other() -> None:
    def behave(connection: socket.socket) -> None:
        for sequence in (1, 2):
            connection.recv(4096)
            connection.sendall(ok(answer("get_all_databases", NAMES + STOP, sequence), LENGTH))
        connection.recv(4096)

    peer = Peer(behave, scheme="http")
    try:
        with MetastoreClient(MetastoreSettings(uris=(peer.uri,))) as client:
            assert client.get_all_databases() == ["sales"]
            assert client.get_all_databases() == ["sales"]
        assert len(peer.connections) == 1
    finally:
        peer.close()
