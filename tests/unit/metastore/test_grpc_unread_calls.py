"""Calls that a gRPC server refused before it read them: they may be repeated, whatever they write."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import closing

import grpc
import pytest

from airflow_hive_federation.metastore import MetastoreSettings
from airflow_hive_federation.metastore.channel import Deadline, NotSent
from airflow_hive_federation.metastore.grpc_channel import GrpcChannel, _translated
from airflow_hive_federation.metastore.grpc_wire import Answer
from tests.support.gateways import call_bytes
from tests.support.metastore_peers import Peer

_PREFACE, _FRAME_HEAD = 24, 9
_DATA, _HEADERS, _RESET, _SETTINGS, _GOAWAY = 0, 1, 3, 4, 7
_ACK, _WHOLE = 1, 4
#: The head of a successful answer of gRPC (RFC 7541): an indexed ``:status``, and one literal field.
_ANSWERING = b"\x88\x00\x0ccontent-type\x10application/grpc"
_CANCEL, _REFUSED = 8, 7


def frame(kind: int, payload: bytes, *, stream: int = 0, flags: int = 0) -> bytes:
    """A frame of HTTP/2 (RFC 9113, 4.1)."""
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def numbers(*values: int) -> bytes:
    return b"".join(value.to_bytes(4, "big") for value in values)


class Refusing:
    """A server of HTTP/2 that answers each new stream with prepared frames.

    :param frames: takes a stream's number.
    :param hangs_up: close the connection after the frames.
    """

    def __init__(self, frames: Callable[[int], bytes], *, hangs_up: bool = False) -> None:
        self._frames, self._hangs_up = frames, hangs_up

    def __call__(self, connection: socket.socket) -> None:
        with connection.makefile("rb") as incoming:
            incoming.read(_PREFACE)
            connection.sendall(frame(_SETTINGS, b""))
            while True:
                head = incoming.read(_FRAME_HEAD)
                if len(head) < _FRAME_HEAD:
                    return
                incoming.read(int.from_bytes(head[:3], "big"))
                if head[3] == _SETTINGS and not head[4] & _ACK:
                    connection.sendall(frame(_SETTINGS, b"", flags=_ACK))
                if head[3] == _HEADERS:
                    connection.sendall(self._frames(int.from_bytes(head[5:], "big")))
                    if self._hangs_up:
                        return


def reset(code: int) -> Callable[[int], bytes]:
    return lambda stream: frame(_RESET, numbers(code), stream=stream)


def going_away(last: int) -> bytes:
    return frame(_GOAWAY, numbers(last, 0))


def failure(server: Refusing) -> ConnectionError:
    peer = Peer(server, scheme="grpc")
    settings = MetastoreSettings(uris=(peer.uri,))
    (endpoint,) = settings.endpoints()
    with (
        closing(peer),
        closing(GrpcChannel(endpoint, settings)) as channel,
        pytest.raises(ConnectionError) as caught,
    ):
        channel.send(call_bytes("create_database"), Deadline(60))
    return caught.value


@pytest.mark.parametrize(
    "frames",
    [
        pytest.param(reset(_REFUSED), id="at the limit of streams"),
        pytest.param(lambda _: going_away(0), id="by a server that drains"),
    ],
)
def test_a_refused_stream_was_not_sent(frames: Callable[[int], bytes]) -> None:
    assert type(failure(Refusing(frames))) is NotSent


@pytest.mark.parametrize(
    "server",
    [
        pytest.param(Refusing(reset(_CANCEL)), id="reset"),
        pytest.param(Refusing(lambda _: b"", hangs_up=True), id="closed"),
        pytest.param(Refusing(going_away, hangs_up=True), id="drained and closed"),
    ],
)
def test_a_stream_that_the_server_may_have_read_has_an_unknown_outcome(server: Refusing) -> None:
    assert type(failure(server)) is ConnectionResetError


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Received RST_STREAM with error code 7", NotSent),
        ("Received RST_STREAM with error code 71", ConnectionResetError),
        # The server may have read the stream: the connection broke by a fault after the GOAWAY.
        ("GOAWAY received; Error code: 0; Debug Text: ", ConnectionResetError),
    ],
)
def test_the_texts_of_grpcio_before_1_81(text: str, kind: type[Exception]) -> None:
    error = _translated("grpc://gateway:9083", grpc.StatusCode.UNAVAILABLE, text, None)
    assert type(error) is kind


class Answering:
    """A server that answers the first question of a stream, and resets the stream at the second."""

    def __call__(self, connection: socket.socket) -> None:
        questions = 0
        with connection.makefile("rb") as incoming:
            incoming.read(_PREFACE)
            connection.sendall(frame(_SETTINGS, b""))
            while len(head := incoming.read(_FRAME_HEAD)) == _FRAME_HEAD:
                incoming.read(int.from_bytes(head[:3], "big"))
                if head[3] != _DATA:
                    continue
                stream = int.from_bytes(head[5:], "big")
                questions += 1
                if questions > 1:
                    connection.sendall(frame(_RESET, numbers(_REFUSED), stream=stream))
                    return
                answer = Answer(message=call_bytes("create_database")).to_bytes()
                connection.sendall(
                    frame(_HEADERS, _ANSWERING, stream=stream, flags=_WHOLE)
                    + frame(_DATA, b"\0" + numbers(len(answer)) + answer, stream=stream)
                )


def test_a_stream_with_answers_was_read() -> None:
    """No server can refuse it unread any more, whatever the code of its reset."""
    peer = Peer(Answering(), scheme="grpc")
    settings = MetastoreSettings(uris=(peer.uri,))
    (endpoint,) = settings.endpoints()
    with closing(peer), closing(GrpcChannel(endpoint, settings)) as channel:
        channel.send(call_bytes("create_database"), Deadline(60))
        assert channel.receive(1 << 20, Deadline(60)) == call_bytes("create_database")
        with pytest.raises(ConnectionError) as caught:
            channel.send(call_bytes("create_database"), Deadline(60))
    assert type(caught.value) is ConnectionResetError
    assert "the stream ended after 1 answers: " in str(caught.value)
