"""The gRPC front and its client: calls, statuses, deadlines, cancellations, limits and the end."""

from __future__ import annotations

import socket
import threading
import time
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_hive_federation.errors import (
    GatewayError,
    MetastoreAuthenticationError,
    MetastoreProtocolError,
    MetastoreServerError,
    MetastoreTimeoutError,
    MetastoreUnreachableError,
    NoSuchObjectError,
    OutcomeUnknownError,
    UnsupportedMethodError,
    divided,
)
from airflow_hive_federation.gateway.grpc.authentication import is_local, unauthenticated
from airflow_hive_federation.gateway.handler import Call, Caller, Deadline
from airflow_hive_federation.gateway.messages import read_head
from airflow_hive_federation.metastore import MetastoreClient, MetastorePool, MetastoreSettings
from airflow_hive_federation.metastore.grpc_wire import (
    CALL,
    CALL_IN_PIECES,
    SERVICE,
    STATUS_KEY,
    TOO_MANY_CALLS,
    USER_KEY,
    unwrap,
    wrap,
)
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.metastore.message_bounds import MalformedMessage
from tests.support.gateways import Clients, Peers, call_bytes, outcome, until
from tests.support.grpc_fronts import Fronts, ask, fronted, raw, refused
from tests.support.metastore_peers import DEAD_URI, HangUp, Thrift

__all__ = ["fronted"]

Code = grpc.StatusCode
BIG = types.Table(dbName="d", tableName="t", parameters={"x": "y" * 200_000})


def names(method: str, _args: Any) -> Any:
    return ["a", "b"] if method == "get_all_databases" else None


class Held:
    """A handler whose calls wait until they are let go."""

    def __init__(self) -> None:
        self.asked = threading.Semaphore(0)
        self.go = threading.Event()

    def __call__(self, method: str, _args: Any) -> Any:
        self.asked.release()
        assert self.go.wait(60)
        return ["a"] if method == "get_all_databases" else None


def test_calls_pass_as_themselves(peer: Peers, fronted: Fronts, client: Clients) -> None:
    served = Thrift(names)
    run = fronted(peer(served).uri, upstream={"impersonate": True})
    hms = client(run.uri, user="alice")
    assert hms.call("get_all_databases") == ["a", "b"]
    hms.call("create_database", types.Database(name="new"))
    assert served.calls == ["get_all_databases", "create_database"]
    assert served.users == ["alice"]


@pytest.mark.parametrize("method", [CALL, CALL_IN_PIECES])
def test_no_caller_gives_a_connection_another_user(peer: Peers, fronted: Fronts, method: str) -> None:
    served = Thrift(names)
    run = fronted(peer(served).uri, upstream={"impersonate": True})
    greeting = wrap(call_bytes("set_ugi", user_name="root", group_names=["wheel"]))
    alice = ((USER_KEY, "alice"),)
    with run.channel() as channel:
        assert ask(channel, "get_all_databases", metadata=alice) == {"success": ["a", "b"]}
        path = f"/{SERVICE}/{method}"
        if method == CALL:
            answers = [channel.unary_unary(path)(greeting, metadata=alice, timeout=20)]
        else:
            answers = list(channel.unary_stream(path)(greeting, metadata=alice, timeout=20))
        answer = b"".join(map(unwrap, answers))
        assert outcome(read_head(answer), answer) == {"success": ["alice"]}
        assert ask(channel, "get_all_databases", metadata=alice) == {"success": ["a", "b"]}
    assert served.users == ["alice"]
    assert run.upstream.open_connections == 1


def test_no_front_can_pass_a_user_on(peer: Peers, fronted: Fronts) -> None:
    served = Thrift(names)
    run = fronted(peer(served).uri)
    call = Call("set_ugi", call_bytes("set_ugi", user_name="root"), Caller(), Deadline(20))
    with pytest.raises(GatewayError, match="know their callers"):
        run.handler.ask(call)
    assert served.users == []


def test_faults_and_unknown_methods_are_the_metastores(peer: Peers, fronted: Fronts, client: Clients) -> None:
    def none(_method: str, _args: Any) -> Any:
        raise types.NoSuchObjectException(message="no such thing")

    run = fronted(peer(Thrift(none, {"get_runtime_stats"})).uri)
    hms = client(run.uri)
    with pytest.raises(NoSuchObjectError, match="no such thing"):
        hms.get_database("d")
    with pytest.raises(UnsupportedMethodError):
        hms.call("get_runtime_stats", types.GetRuntimeStatsRequest(maxWeight=1, maxCreateTime=1))


def test_long_answers_come_in_pieces(peer: Peers, fronted: Fronts, client: Clients) -> None:
    def tables(method: str, _args: Any) -> Any:
        return types.GetTablesResult(tables=[BIG] * 20) if method.startswith("get_table_objects") else None

    run = fronted(peer(Thrift(tables)).uri, max_answer_bytes=200_000)
    hms = client(run.uri)
    assert hms.get_tables("d", ["t"]) == [BIG] * 20
    with run.channel() as channel:
        call = channel.unary_stream(f"/{SERVICE}/{CALL_IN_PIECES}")
        request = types.GetTablesRequest(dbName="d", tblNames=["t"])
        pieces = list(call(wrap(call_bytes("get_table_objects_by_name_req", req=request)), timeout=20))
    assert len(pieces) > 10


def test_a_metastore_that_is_down_is_unavailable_and_another_gateway_is_asked(
    peer: Peers, fronted: Fronts
) -> None:
    lame, well = fronted(DEAD_URI), fronted(peer(Thrift(names)).uri)
    with lame.channel() as channel:
        error = refused(lambda: ask(channel, "create_database", database=types.Database(name="d")))
    assert (error.code(), dict(error.trailing_metadata())[STATUS_KEY]) == (Code.UNAVAILABLE, "unavailable")
    for _ in range(4):  # The order is random.
        with MetastoreClient(MetastoreSettings(uris=(lame.uri, well.uri))) as client:
            # Also a write: the gateway answers that it was not sent.
            client.call("create_database", types.Database(name="d"))
    with (
        MetastoreClient(MetastoreSettings(uris=(lame.uri,))) as client,
        pytest.raises(MetastoreUnreachableError, match=r"main does not answer") as caught,
    ):
        client.call("get_all_databases")
    # The gateway knows more about the failure than its client does.
    assert caught.value.remedy.startswith("Start the metastore, or correct the upstream's URIs")
    assert str(caught.value).count("Remedy: ") == 1


def test_a_gateway_before_another_one_passes_its_remedy_on(fronted: Fronts) -> None:
    near = fronted(fronted(DEAD_URI).uri)
    with near.channel() as channel:
        error = refused(lambda: ask(channel, "create_database", database=types.Database(name="d")))
    assert error.code() is Code.UNAVAILABLE
    message, remedy = divided(error.details())
    assert "main does not answer" in message
    assert remedy.startswith("Start the metastore, or correct the upstream's URIs")
    assert "Remedy: " not in remedy


@pytest.mark.parametrize("method", ["get_all_databases", "create_database"])
def test_a_metastore_that_dies_inside_a_call(
    method: str, peer: Peers, fronted: Fronts, client: Clients
) -> None:
    def die(_method: str, _args: Any) -> Any:
        raise HangUp

    run = fronted(peer(Thrift(die)).uri)
    hms = client(run.uri)
    wanted = MetastoreUnreachableError if method == "get_all_databases" else OutcomeUnknownError
    with pytest.raises(wanted):
        hms.call(method, *([types.Database(name="d")] if method == "create_database" else []))
    assert run.upstream.open_connections == 0


def test_the_deadline_reaches_the_metastores_connection(
    peer: Peers, fronted: Fronts, client: Clients
) -> None:
    held = Held()
    run = fronted(peer(Thrift(held)).uri)
    hms = client(run.uri, call_timeout_s=0.5)
    with pytest.raises(MetastoreTimeoutError):
        hms.call("get_all_databases")
    with pytest.raises(OutcomeUnknownError):
        hms.call("create_database", types.Database(name="d"))
    until(lambda: run.upstream.open_connections == 0)
    held.go.set()
    assert client(run.uri).call("get_all_databases") == ["a"]


@pytest.mark.parametrize("pieces", [False, True], ids=["whole", "in_pieces"])
def test_a_cancelled_call_closes_the_metastores_connection(
    pieces: bool, peer: Peers, fronted: Fronts, client: Clients
) -> None:
    held = Held()
    run = fronted(peer(Thrift(held)).uri)
    with run.channel() as channel:
        request = wrap(call_bytes("get_all_databases"))
        if pieces:
            call: Any = channel.unary_stream(f"/{SERVICE}/{CALL_IN_PIECES}")(request, timeout=60)
        else:
            call = raw(channel).future(request, timeout=60)
        assert held.asked.acquire(timeout=20)
        call.cancel()
    until(lambda: run.upstream.open_connections == 0)
    held.go.set()
    assert client(run.uri).call("get_all_databases") == ["a"]


def test_a_client_that_never_reads_holds_up_nobody_and_nothing_is_left(peer: Peers, fronted: Fronts) -> None:
    def tables(method: str, _args: Any) -> Any:
        return types.GetTablesResult(tables=[BIG] * 100) if method.startswith("get_table_objects") else ["a"]

    run = fronted(peer(Thrift(tables)).uri)
    request = types.GetTablesRequest(dbName="d", tblNames=["t"])
    with run.channel() as lazy, run.channel() as other:
        stub = lazy.unary_stream(f"/{SERVICE}/{CALL_IN_PIECES}")
        call = stub(wrap(call_bytes("get_table_objects_by_name_req", req=request)), timeout=60)
        assert next(call)
        assert ask(other, "get_all_databases") == {"success": ["a"]}
        assert run.upstream.open_connections == 2
        call.cancel()
    until(lambda: run.upstream.open_connections == 1)


def test_calls_that_are_one_too_many_wait_and_are_made_once(
    peer: Peers, fronted: Fronts, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused_once, sleep = threading.Event(), time.sleep

    def pause(seconds: float) -> None:
        refused_once.set()
        sleep(seconds)

    monkeypatch.setattr(time, "sleep", pause)
    held = Held()
    served = Thrift(held)
    run = fronted(peer(served).uri, max_concurrent_calls=1)
    with run.channel() as channel, MetastorePool(MetastoreSettings(uris=(run.uri,)), 1) as pool:
        first = raw(channel).future(wrap(call_bytes("get_all_databases")), timeout=60)
        assert held.asked.acquire(timeout=20)
        with run.channel() as second:
            error = refused(lambda: ask(second, "create_database", database=types.Database(name="x")))
            assert error.code() is Code.RESOURCE_EXHAUSTED
            assert "its limit of concurrent calls" in error.details()
            # Health checks are answered under load.
            assert _health(second) == health_pb2.HealthCheckResponse.SERVING
        writer = threading.Thread(target=lambda: _create(pool))
        writer.start()
        assert refused_once.wait(20)
        held.go.set()
        first.result()
        writer.join(60)
    assert served.calls == ["get_all_databases", "create_database"]


def test_grpcios_own_refusal_is_known_by_its_text() -> None:
    """A change of grpcio's text would turn a safe repetition into an error: this test would find it."""
    from concurrent.futures import ThreadPoolExecutor

    begun, go = threading.Event(), threading.Event()

    def wait(request: bytes, _context: Any) -> bytes:
        begun.set()
        assert go.wait(60)
        return request

    handler = grpc.method_handlers_generic_handler("s", {"m": grpc.unary_unary_rpc_method_handler(wait)})
    server = grpc.server(ThreadPoolExecutor(2), handlers=[handler], maximum_concurrent_rpcs=1)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        first = channel.unary_unary("/s/m").future(b"", timeout=60)
        assert begun.wait(20)
        error = refused(lambda: channel.unary_unary("/s/m")(b"", timeout=20))
        assert (error.code(), error.details()) == (Code.RESOURCE_EXHAUSTED, TOO_MANY_CALLS)
        go.set()
        first.result()
    server.stop(0).wait()


def test_connections_are_limited(peer: Peers, fronted: Fronts) -> None:
    run = fronted(peer(Thrift(names)).uri, max_connections=2)
    with run.channel() as first, run.channel() as two, run.channel() as three:
        assert ask(first, "get_all_databases") == ask(two, "get_all_databases")
        assert refused(lambda: ask(three, "get_all_databases")).code() is Code.UNAVAILABLE
        # A refused channel goes on connecting by itself and would take the free place.
        three.close()
        first.close()
        with run.channel() as four:
            until(lambda: _answers(four))


def test_requests_and_answers_have_a_longest_length(peer: Peers, fronted: Fronts, client: Clients) -> None:
    def tables(method: str, _args: Any) -> Any:
        return types.GetTableResult(table=BIG) if method == "get_table_req" else None

    served = Thrift(tables)
    run = fronted(peer(served).uri, max_request_bytes=100_000)
    hms = client(run.uri)
    with pytest.raises(MetastoreServerError, match=r"so long a call.*200\d{3} vs\. 100000"):
        hms.create_table(BIG)
    assert served.calls == []
    assert hms.get_table("d", "t") == BIG
    small = client(run.uri, max_answer_bytes=50_000)
    with pytest.raises(MetastoreProtocolError, match="larger than max"):
        small.get_table("d", "t")


BAD = {
    "nothing": b"",
    "no_protobuf": b"\xff\xff\xff",
    "another_field": b"\x12\x01a",
    "wrong_length": wrap(call_bytes("get_all_databases"))[:-1],
    "endless_length": b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff",
    "no_thrift": wrap(b"GET / HTTP/1.1\r\n\r\n"),
    "half": wrap(call_bytes("get_database", name="d")[:-3]),
    "more": wrap(call_bytes("get_all_databases") + b"x"),
    "an_answer": wrap(b"\x80\x01\x00\x02" + call_bytes("get_all_databases")[4:]),
}


@pytest.mark.parametrize("name", BAD)
def test_malformed_calls_are_refused_and_the_next_one_works(name: str, peer: Peers, fronted: Fronts) -> None:
    run = fronted(peer(Thrift(names)).uri)
    with run.channel() as channel:
        for method in ("Call", CALL_IN_PIECES):
            stub = channel.unary_stream(f"/{SERVICE}/{method}")
            error = refused(lambda stub=stub: list(stub(BAD[name], timeout=20)))
            assert error.code() is Code.INVALID_ARGUMENT
            assert "Traceback" not in error.details()
        assert ask(channel, "get_all_databases") == {"success": ["a", "b"]}


def test_a_call_that_the_gateway_refuses_has_its_reason(
    peer: Peers, fronted: Fronts, client: Clients, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = fronted(peer(Thrift(names)).uri)
    for asking, method in ((client(run.uri), "get_all_databases"), (client(run.uri), "get_database")):
        monkeypatch.setattr("airflow_hive_federation.gateway.upstream.HIVES_REQUEST_BYTES", 1)
        with pytest.raises(
            MetastoreServerError, match=r"does not accept the call: .* Hive reads no more"
        ) as met:
            asking.call(method, *(["d"] if method == "get_database" else []))
        assert met.value.remedy.startswith("Divide the call")
        assert "is not a Hive metastore" not in str(met.value)


def test_unknown_paths_and_methods(peer: Peers, fronted: Fronts) -> None:
    run = fronted(peer(Thrift(names)).uri)
    with run.channel() as channel:
        for path in ("/no.such.Service/Call", f"/{SERVICE}/Other"):
            assert (
                refused(lambda path=path: channel.unary_unary(path)(b"", timeout=20)).code()
                is Code.UNIMPLEMENTED
            )
        message = call_bytes("get_all_databases").replace(b"get_all_databases", b"get_all_databasez")
        answer = unwrap(raw(channel)(wrap(message), timeout=20))
        assert b"get_all_databasez" in answer
        assert ask(channel, "get_all_databases") == {"success": ["a", "b"]}


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=100_000))
def test_the_wrapper_is_protobufs(value: bytes) -> None:
    from google.protobuf.wrappers_pb2 import BytesValue

    assert BytesValue.FromString(wrap(value)).value == value
    assert unwrap(wrap(value)) == value
    with pytest.raises(MalformedMessage):
        unwrap(wrap(value) + b"\x00")


def test_a_plug_in_that_fails_is_an_error_without_its_text(peer: Peers, fronted: Fronts) -> None:
    class Broken:
        def authenticate(self, _evidence: Any) -> Any:
            raise RuntimeError("s3cret")

    run = fronted(peer(Thrift(names)).uri, authenticator=Broken())
    with run.channel() as channel:
        error = refused(lambda: ask(channel, "get_all_databases"))
    assert (error.code(), error.details()) == (Code.INTERNAL, "The gateway failed; its log has the reason.")


def test_a_refused_client_gets_an_error(peer: Peers, fronted: Fronts, client: Clients) -> None:
    class Nobody:
        def authenticate(self, _evidence: Any) -> Any:
            raise unauthenticated("it is closed")

    run = fronted(peer(Thrift(names)).uri, authenticator=Nobody())
    with pytest.raises(MetastoreAuthenticationError, match="it is closed"):
        client(run.uri).call("get_all_databases")


@pytest.mark.parametrize(
    ("peer", "local"),
    [
        ("ipv4:127.0.0.1:5", True),
        ("ipv4:127.8.0.1:5", True),
        ("ipv6:%5B::1%5D:5", True),
        ("unix:", True),
        ("ipv4:10.0.0.1:5", False),
        ("ipv6:%5B2001:db8::1%5D:5", False),
        ("", False),
    ],
)
def test_peers_of_this_machine(peer: str, local: bool) -> None:
    assert is_local(peer) is local


def test_health_and_reflection(peer: Peers, fronted: Fronts) -> None:
    run = fronted(peer(Thrift(names)).uri)
    with run.channel() as channel:
        for service in ("", SERVICE):
            assert _health(channel, service) == health_pb2.HealthCheckResponse.SERVING
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        kind = reflection_pb2.ServerReflectionRequest
        asked = [kind(list_services=""), kind(file_containing_symbol=SERVICE)]
        listed, described = list(stub.ServerReflectionInfo(iter(asked), timeout=20))
    services = {service.name for service in listed.list_services_response.service}
    assert services == {SERVICE, "grpc.health.v1.Health", "grpc.reflection.v1alpha.ServerReflection"}
    files = described.file_descriptor_response.file_descriptor_proto
    assert any(b"BytesValue" in file for file in files)


def test_it_drains(peer: Peers, fronted: Fronts) -> None:
    held = Held()
    run, other = fronted(peer(Thrift(held)).uri), fronted(peer(Thrift(names)).uri)
    with (
        run.channel() as channel,
        MetastoreClient(MetastoreSettings(uris=(run.uri,))) as client,
    ):
        client.connect()
        # The next server that it knows.
        client._endpoints.append(MetastoreSettings(uris=(other.uri,)).endpoints()[0])
        first = raw(channel).future(wrap(call_bytes("get_all_databases")), timeout=60)
        assert held.asked.acquire(timeout=20)
        stopping = threading.Thread(target=run.front.stop, args=(60,))
        stopping.start()
        # A client that is connected goes on at another gateway, writes included.
        until(lambda: client._connection is not None and client._connection.is_stale())
        client.call("create_database", types.Database(name="d"))
        assert client.uri == other.uri
        held.go.set()
        assert first.result()
        stopping.join(60)
        assert not stopping.is_alive()


def test_no_thread_is_left(peer: Peers, fronted: Fronts, client: Clients) -> None:
    run = fronted(peer(Thrift(names)).uri)
    client(run.uri).call("get_all_databases")
    run.front.stop(0)
    left = [
        thread.name
        for thread in threading.enumerate()
        if thread.name.startswith(("grpc-front", "grpc-pieces"))
    ]
    assert left == []


def test_what_speaks_no_grpc_is_no_gateway(peer: Peers, fronted: Fronts, client: Clients) -> None:
    def say_goodbye(connection: socket.socket) -> None:
        connection.recv(100)
        connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    for uri in (
        peer(say_goodbye, scheme="grpc").uri,
        fronted(peer(Thrift(names)).uri).uri.replace("grpc://", "thrift://"),
    ):
        hms = client(uri, connect_timeout_s=3, call_timeout_s=3)
        with pytest.raises((MetastoreProtocolError, MetastoreUnreachableError)):
            hms.call("get_all_databases")


def test_slow_handshakes_end(peer: Peers, fronted: Fronts) -> None:
    run = fronted(peer(Thrift(names)).uri, handshake_timeout_s=1)
    with (
        socket.create_connection(("127.0.0.1", run.front.port), timeout=30) as slow,
        run.channel() as channel,
    ):
        slow.sendall(b"PRI * HTTP/2.0\r\n")
        assert ask(channel, "get_all_databases") == {"success": ["a", "b"]}
        while slow.recv(4096):
            pass


def _health(channel: grpc.Channel, service: str = "") -> int:
    stub = health_pb2_grpc.HealthStub(channel)
    return stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=20).status


def _create(pool: MetastorePool) -> None:
    with pool.client() as client:
        client.call("create_database", types.Database(name="d"))


def _answers(channel: grpc.Channel) -> bool:
    try:
        return bool(ask(channel, "get_all_databases"))
    except grpc.RpcError:
        return False
