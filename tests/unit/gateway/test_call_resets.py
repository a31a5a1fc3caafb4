"""Clients that reset their calls without a pause lose their connection, and nobody else does."""

from __future__ import annotations

import contextlib
import select
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import pytest

from airflow_hive_federation.gateway.grpc.resets import CallThreads, Resets, close_connections, reset_early
from airflow_hive_federation.metastore.grpc_wire import CALL, SERVICE, wrap
from tests.support.gateways import Peers, call_bytes
from tests.support.grpc_fronts import Fronts, ask, fronted, raw, until
from tests.support.metastore_peers import Thrift

__all__ = ["fronted"]

HEADERS, RESET, SETTINGS = 1, 3, 4
PATH = f"/{SERVICE}/{CALL}".encode()
#: HPACK: POST, http, the path, an authority and the content type.
FIELDS = (
    b"\x83\x86\x04"
    + bytes([len(PATH)])
    + PATH
    + b"\x01\x01a\x0f\x10\x10application/grpc\x00\x02te\x08trailers"
)


def frame(kind: int, flags: int, stream: int, body: bytes = b"") -> bytes:
    return len(body).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + body


def begun_and_reset(stream: int) -> bytes:
    return frame(HEADERS, 4, stream, FIELDS) + frame(RESET, 0, stream, (8).to_bytes(4, "big"))


def reset_until_closed(sock: socket.socket) -> None:
    sock.setblocking(False)
    stream, unsent = 1, b""
    while stream < 1_000_000:
        readable, writable, _ = select.select([sock], [sock], [], 60)
        if readable and not sock.recv(1 << 16):
            return
        if writable:
            unsent = unsent or b"".join(begun_and_reset(stream + 2 * number) for number in range(20))
            unsent = unsent[sock.send(unsent) :]
            stream += 0 if unsent else 40
    raise AssertionError("the connection is still open")


def answers(channel: grpc.Channel) -> bool:
    """Return whether a call is answered; grpcio refuses calls until it has looked at those of the flood."""
    with contextlib.suppress(grpc.RpcError):
        return ask(channel, "get_all_databases") == {"success": ["a", "b"]}
    return False


def names(method: str, _args: Any) -> Any:
    return ["a", "b"] if method == "get_all_databases" else None


def test_a_connection_that_resets_its_calls_is_closed_and_no_other(
    peer: Peers, fronted: Fronts, caplog: pytest.LogCaptureFixture
) -> None:
    run = fronted(peer(Thrift(names)).uri)
    with run.channel() as channel, socket.create_connection(("127.0.0.1", run.front.port), 60) as flood:
        assert ask(channel, "get_all_databases") == {"success": ["a", "b"]}
        flood.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(SETTINGS, 0, 0) + frame(SETTINGS, 1, 0))
        reset_until_closed(flood)
        until(lambda: "was closed: its client has reset 500 calls" in caplog.text)
        until(lambda: answers(channel))
        # The other client has the connection that it had before the flood.
        assert channel._channel.check_connectivity_state(False) == grpc.ChannelConnectivity.READY.value[0]


def test_a_client_that_gives_up_calls_keeps_its_connection(
    peer: Peers, fronted: Fronts, caplog: pytest.LogCaptureFixture
) -> None:
    run = fronted(peer(Thrift(names)).uri)
    message = wrap(call_bytes("get_all_databases"))
    with run.channel() as channel:
        for _ in range(200):
            raw(channel).future(message, timeout=60).cancel()
        assert ask(channel, "get_all_databases") == {"success": ["a", "b"]}
    assert "was closed" not in caplog.text


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_resets_are_counted_per_connection_and_forgotten() -> None:
    clock, closed = Clock(), list[str]()

    def close(peer: str) -> int:
        closed.append(peer)
        return 1

    resets = Resets(close, clock)
    for _ in range(499):
        resets.note("ipv4:a:1")
        resets.note("ipv4:a:2")
    clock.now = 10.5
    resets.note("ipv4:a:1")
    clock.now = 11.0
    for _ in range(499):
        resets.note("ipv4:a:1")
    assert closed == ["ipv4:a:1"]
    for number in range(10_001):
        resets.note(f"ipv4:b:{number}")
    assert len(resets._counts) == 10_000


def state_and_event(client: str, deadline: float) -> tuple[Any, Any]:
    call = SimpleNamespace(peer=lambda: b"ipv4:a:1")
    event = SimpleNamespace(call=call, call_details=SimpleNamespace(deadline=deadline))
    return SimpleNamespace(client=client), event


@pytest.mark.parametrize(
    ("client", "left_s", "seconds", "peer"),
    [
        ("cancelled", 60, 0.0, "ipv4:a:1"),
        ("cancelled", 60, 5.0, "ipv4:a:1"),
        ("cancelled", -1, 0.0, "ipv4:a:1"),
        # The client's deadline ended the call.
        ("cancelled", -1, 5.0, ""),
        ("closed", 60, 0.0, ""),
    ],
)
def test_a_reset_is_early_or_at_the_deadline(client: str, left_s: float, seconds: float, peer: str) -> None:
    assert reset_early((print, *state_and_event(client, time.time() + left_s)), seconds) == peer


def test_a_grpcio_that_hides_its_calls_counts_no_resets() -> None:
    assert reset_early((print, "an argument"), 0.0) == ""
    state, _ = state_and_event("cancelled", 0.0)
    assert reset_early((state,), 0.0) == ""


def test_work_that_fails_is_counted_as_well() -> None:
    closed = list[str]()

    def fail(*_: Any) -> None:
        raise LookupError

    threads = CallThreads(1, Resets(lambda peer: closed.append(peer) or 0))  # type: ignore[func-returns-value]
    assert isinstance(threads, ThreadPoolExecutor)
    with threads:
        call = state_and_event("cancelled", 0.0)
        for _ in range(500):
            assert isinstance(threads.submit(fail, *call).exception(60), LookupError)
    assert closed == ["ipv4:a:1"]


@pytest.mark.parametrize(("family", "host"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
def test_the_connection_of_a_peer_is_closed(family: socket.AddressFamily, host: str) -> None:
    with socket.create_server((host, 0), family=family) as listener:
        address = listener.getsockname()[:2]
        with socket.create_connection(address, 60) as client, socket.create_connection(address, 60) as other:
            served, _ = listener.accept()
            served_other, _ = listener.accept()
            with served, served_other:
                port = client.getsockname()[1]
                assert (
                    close_connections(
                        f"ipv4:{host}:{port}" if family is socket.AF_INET else f"ipv6:%5B{host}%5D:{port}"
                    )
                    == 1
                )
                assert client.recv(1) == b""
                served_other.sendall(b"x")
                assert other.recv(1) == b"x"


@pytest.mark.parametrize("peer", ["unix:/tmp/socket", "ipv4:127.0.0.1:1", "ipv4:", ""])
def test_a_peer_that_is_not_connected_closes_nothing(peer: str) -> None:
    # The names of their peers have no port.
    left, right = socket.socketpair()
    with left, right:
        assert close_connections(peer) == 0


def test_the_search_for_a_connection_leaves_no_file_open(tmp_path: Path) -> None:
    # Other threads of this process may open and close files meanwhile, so it is done often enough to see.
    with (tmp_path / "no_socket").open("wb"):
        before = len(list(Path("/proc/self/fd").iterdir()))
        for _ in range(100):
            close_connections("ipv4:127.0.0.1:1")
        assert len(list(Path("/proc/self/fd").iterdir())) < before + 100
