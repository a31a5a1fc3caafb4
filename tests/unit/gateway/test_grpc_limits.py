"""Bounds of the gRPC front: metadata, streams, texts, times, and streams that end before their calls."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_health.v1 import health_pb2, health_pb2_grpc

from airflow_hive_federation.errors import GatewayError
from airflow_hive_federation.gateway.dispatch import Gateway, Metastore
from airflow_hive_federation.gateway.grpc.authentication import unauthenticated
from airflow_hive_federation.gateway.grpc.calls import Call, Calls
from airflow_hive_federation.gateway.grpc.server import GrpcFront
from airflow_hive_federation.gateway.grpc.settings import GrpcFrontSettings
from airflow_hive_federation.gateway.handler import Status
from airflow_hive_federation.gateway.handler import refused as refused_because
from airflow_hive_federation.gateway.upstream import Upstream
from airflow_hive_federation.metastore import MetastoreSettings
from airflow_hive_federation.metastore.grpc_wire import CALL_IN_PIECES, SERVICE, STATUS_KEY, unwrap, wrap
from tests.support.gateways import Peers, call_bytes
from tests.support.grpc_fronts import Fronts, ask, fronted, raw, refused, until
from tests.support.metastore_peers import Thrift

__all__ = ["fronted"]

Code = grpc.StatusCode


def names(method: str, _args: Any) -> Any:
    return ["a", "b"] if method == "get_all_databases" else None


class Held:
    """A metastore whose calls wait until they are let go."""

    def __init__(self) -> None:
        self.asked = threading.Semaphore(0)
        self.go = threading.Event()

    def __call__(self, _method: str, _args: Any) -> Any:
        self.asked.release()
        assert self.go.wait(60)
        return ["a"]


def health(channel: grpc.Channel) -> int:
    stub = health_pb2_grpc.HealthStub(channel)
    return stub.Check(health_pb2.HealthCheckRequest(service=""), timeout=20).status


def test_metadata_may_be_as_long_as_a_token_and_no_longer(peer: Peers, fronted: Fronts) -> None:
    """Groups and roles make tokens long: grpcio's own bound of 8 kB refuses some of them, by chance."""
    run = fronted(peer(Thrift(names)).uri)
    with run.channel() as channel:
        call, message = raw(channel), wrap(call_bytes("get_all_databases"))
        for _ in range(20):
            call(message, metadata=[("authorization", "x" * 15_000)], timeout=20)
        error = refused(lambda: call(message, metadata=[("authorization", "x" * 30_000)], timeout=20))
        assert error.code() is Code.RESOURCE_EXHAUSTED
        assert ask(channel, "get_all_databases") == {"success": ["a", "b"]}


def test_a_connection_has_as_many_streams_as_there_may_be_calls(peer: Peers, fronted: Fronts) -> None:
    """Further calls of one connection wait at the client, and are not refused."""
    held = Held()
    # One stream would be too few for health checks in a row: the server may not have cleared the last.
    run = fronted(peer(Thrift(held)).uri, max_concurrent_calls=2)
    with run.channel() as channel, run.channel() as other:
        message = wrap(call_bytes("get_all_databases"))
        under_way = [raw(channel).future(message, timeout=60) for _ in range(2)]
        for _ in under_way:
            assert held.asked.acquire(timeout=20)
        further = raw(channel).future(message, timeout=60)
        for _ in range(50):
            # A call that was sent would be refused while the server answers these.
            assert health(other) == health_pb2.HealthCheckResponse.SERVING
            assert not further.done()
        held.go.set()
        for call in under_way:
            assert b"a" in unwrap(call.result())
        if (error := further.exception()) is None:
            assert b"a" in unwrap(further.result())
        else:
            # It came to a place that the server had not cleared yet, and nobody has seen it.
            assert (error.code(), "error code 7" in error.details()) == (Code.UNAVAILABLE, True)
            assert not held.asked.acquire(blocking=False)


def test_a_busy_connection_is_refused_no_call(peer: Peers, fronted: Fronts) -> None:
    """A call that begins as soon as another one ends finds its stream free."""
    run = fronted(peer(Thrift(names)).uri, max_concurrent_calls=8)
    message = wrap(call_bytes("get_all_databases"))
    with run.channel() as channel, ThreadPoolExecutor(16) as threads:
        answers = list(threads.map(lambda _: raw(channel)(message, timeout=60), range(400)))
    assert {b"a" in unwrap(answer) for answer in answers} == {True}


def test_health_reports_a_drain_while_calls_go_on(peer: Peers, fronted: Fronts) -> None:
    held = Held()
    run = fronted(peer(Thrift(held)).uri)
    with run.channel() as channel:
        request = health_pb2.HealthCheckRequest(service=SERVICE)
        seen = health_pb2_grpc.HealthStub(channel).Watch(request, timeout=60)
        assert next(seen).status == health_pb2.HealthCheckResponse.SERVING
        under_way = raw(channel).future(wrap(call_bytes("get_all_databases")), timeout=60)
        assert held.asked.acquire(timeout=20)
        stopping = threading.Thread(target=run.front.stop, args=(60,))
        stopping.start()
        assert next(seen).status == health_pb2.HealthCheckResponse.NOT_SERVING
        seen.cancel()
        assert not under_way.done()
        held.go.set()
        assert under_way.result()
        stopping.join(60)
        assert not stopping.is_alive()


def test_a_drain_does_not_wait_for_clients_that_watch(peer: Peers, fronted: Fronts) -> None:
    run = fronted(peer(Thrift(names)).uri)
    states = health_pb2.HealthCheckResponse
    with run.channel() as channel:
        watched = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(), timeout=60)
        assert next(watched).status == states.SERVING
        stopping = threading.Thread(target=run.front.stop, args=(3600,))
        stopping.start()
        assert [answer.status for answer in watched] == [states.NOT_SERVING]
        stopping.join(60)
        assert not stopping.is_alive()


def test_clients_that_begin_and_end_to_watch_do_not_stop_the_server(peer: Peers, fronted: Fronts) -> None:
    run = fronted(peer(Thrift(names)).uri, max_concurrent_calls=8)

    def watch(_: int) -> None:
        with run.channel() as channel:
            for _ in range(50):
                watched = health_pb2_grpc.HealthStub(channel).Watch(
                    health_pb2.HealthCheckRequest(), timeout=60
                )
                assert next(watched).status == health_pb2.HealthCheckResponse.SERVING
                watched.cancel()

    with ThreadPoolExecutor(8) as clients:
        list(clients.map(watch, range(8)))
    until(lambda: not run.front._health._watches)


def test_no_more_clients_watch_than_there_are_threads_for(peer: Peers, fronted: Fronts) -> None:
    run = fronted(peer(Thrift(names)).uri, max_concurrent_calls=1)
    request = health_pb2.HealthCheckRequest()
    watches = []
    with ExitStack() as channels:
        for _ in range(run.front.settings.max_watches):
            stub = health_pb2_grpc.HealthStub(channels.enter_context(run.channel()))
            watches.append(stub.Watch(request, timeout=60))
            next(watches[-1])
        with run.channel() as channel:
            error = refused(lambda: next(health_pb2_grpc.HealthStub(channel).Watch(request, timeout=60)))
            assert error.code() is Code.RESOURCE_EXHAUSTED
            assert ask(channel, "get_all_databases")["success"] == names("get_all_databases", None)


@pytest.mark.parametrize("asked_s", [None, 600.0], ids=["no deadline", "a longer one"])
@pytest.mark.parametrize("pieces", [False, True], ids=["whole", "in pieces"])
def test_no_call_takes_longer_than_the_front_allows(
    peer: Peers, fronted: Fronts, pieces: bool, asked_s: float | None
) -> None:
    held = Held()
    run = fronted(peer(Thrift(held)).uri, call_timeout_s=1)
    message = wrap(call_bytes("get_all_databases"))
    with run.channel() as channel:
        if pieces:
            stream = channel.unary_stream(f"/{SERVICE}/{CALL_IN_PIECES}")
            error = refused(lambda: list(stream(message, timeout=asked_s)))
        else:
            error = refused(lambda: raw(channel)(message, timeout=asked_s))
        assert (error.code(), dict(error.trailing_metadata())[STATUS_KEY]) == (
            Code.DEADLINE_EXCEEDED,
            "deadline",
        )
        assert run.upstream.open_connections == 0
        held.go.set()


@pytest.mark.parametrize("letter", ["x", "ü", "語", "%"])
def test_a_long_text_is_cut_and_the_status_arrives(letter: str, peer: Peers, fronted: Fronts) -> None:
    """Clients refuse a call whose trailing metadata are too long, and then nobody learns the status."""

    class Verbose:
        def authenticate(self, _evidence: Any) -> Any:
            raise unauthenticated(letter * 20_000)

    run = fronted(peer(Thrift(names)).uri, authenticator=Verbose())
    with run.channel() as channel:
        for _ in range(10):
            error = refused(lambda: ask(channel, "get_all_databases"))
            assert error.code() is Code.UNAUTHENTICATED, error.details()
            assert error.details().startswith(f"The gateway does not accept the caller: {letter}")
            assert error.details().endswith(f"{letter}…")


def test_a_short_text_is_whole(peer: Peers, fronted: Fronts) -> None:
    class Brief:
        def authenticate(self, _evidence: Any) -> Any:
            raise unauthenticated("ü" * 300)

    run = fronted(peer(Thrift(names)).uri, authenticator=Brief())
    with run.channel() as channel:
        error = refused(lambda: ask(channel, "get_all_databases"))
    assert "ü" * 300 in error.details()


@dataclass
class Breaks:
    """A handler that refuses a call, before or after the first piece of an answer."""

    error: GatewayError
    begins: bool

    def relay(self, call: Any, emit: Any) -> None:
        if self.begins:
            emit(call.message)
        raise self.error


@pytest.mark.parametrize("begins", [True, False])
def test_a_refusal_is_no_piece_of_an_answer_that_has_begun(begins: bool, stack: ExitStack) -> None:
    handler: Any = Breaks(refused_because(Status.DENIED, "not this one"), begins)
    front = GrpcFront(handler, GrpcFrontSettings(port=0)).start()
    stack.callback(front.stop, 0)
    with grpc.insecure_channel(f"127.0.0.1:{front.port}") as channel:
        stream = channel.unary_stream(f"/{SERVICE}/{CALL_IN_PIECES}")
        call = stream(wrap(call_bytes("get_all_databases")), timeout=20)
        first = unwrap(next(call))
        if begins:
            assert b"not this one" not in first
            error = refused(lambda: next(call))
            assert (error.code(), error.details()) == (Code.PERMISSION_DENIED, "not this one")
        else:
            assert b"not this one" in first
            assert list(call) == []


class LeavesEarly:
    """A service that takes one piece of a stream, and goes on without it."""

    names = ("test.LeavesEarly",)

    def __init__(self) -> None:
        self.ended = threading.Event()

    def handler(self, calls: Calls) -> grpc.GenericRpcHandler:
        def leave(_request: bytes, context: grpc.ServicerContext) -> bytes:
            pieces: Iterator[bytes] = calls.stream(context, self._produce)
            piece = next(pieces)
            pieces.close()  # type: ignore[attr-defined]
            return piece if self.ended.wait(20) else b"the producer goes on"

        return grpc.method_handlers_generic_handler(
            self.names[0], {"Leave": grpc.unary_unary_rpc_method_handler(leave)}
        )

    def add_to(self, pool: DescriptorPool) -> None:
        """Nothing is described."""

    def _produce(self, _call: Call, emit: Any) -> None:
        try:
            while True:
                emit(b"piece")
        except ConnectionAbortedError:
            self.ended.set()


def test_a_stream_that_is_left_ends_its_producer_while_the_call_goes_on(stack: ExitStack) -> None:
    target = Metastore(Upstream("main", MetastoreSettings(uris=("thrift://127.0.0.1:1",))))
    stack.callback(target.close)
    service = LeavesEarly()
    front = GrpcFront(Gateway(target), GrpcFrontSettings(port=0), [service]).start()
    stack.callback(front.stop, 0)
    with grpc.insecure_channel(f"127.0.0.1:{front.port}") as channel:
        assert channel.unary_unary("/test.LeavesEarly/Leave")(b"", timeout=60) == b"piece"
