"""Streams of calls between our client and the gRPC front: each call is let in, timed and ended by itself."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf import message_factory
from google.protobuf.descriptor_pool import DescriptorPool
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_hive_federation.errors import (
    MetastoreAuthenticationError,
    MetastoreTimeoutError,
)
from airflow_hive_federation.gateway.grpc import raw as raw_service
from airflow_hive_federation.gateway.grpc.authentication import unauthenticated
from airflow_hive_federation.gateway.handler import Caller
from airflow_hive_federation.metastore import MetastoreSettings, grpc_channel, grpc_conversation
from airflow_hive_federation.metastore.channel import Deadline
from airflow_hive_federation.metastore.grpc_conversation import Conversation, NoConversation, Refusal
from airflow_hive_federation.metastore.grpc_settings import GrpcSettings
from airflow_hive_federation.metastore.grpc_wire import (
    CONVERSE,
    NO_MORE_CONVERSATIONS,
    PACKAGE,
    SERVICE,
    STATUS_KEY,
    Answer,
    Question,
)
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.metastore.message_bounds import MalformedMessage
from tests.support.gateways import Clients, Peers, call_bytes, until
from tests.support.grpc_fronts import Fronted, Fronts, ask, fronted
from tests.support.metastore_peers import Thrift

__all__ = ["fronted"]

Code = grpc.StatusCode


def databases(method: str, _args: Any) -> Any:
    return types.Database(name="d") if method.startswith("get_database") else None


def open_streams(run: Fronted) -> int:
    return len(run.front._calls.conversations._open)


def waiting(run: Fronted) -> Any:
    """The only open stream, as soon as it waits for a question."""
    (conversation,) = run.front._calls.conversations._open
    until(lambda: conversation._call is None and not conversation._sending)
    return conversation


class Doorkeeper:
    """Lets in whoever has a token that is accepted at that moment."""

    def __init__(self, *accepted: str) -> None:
        self.accepted = set(accepted)

    def authenticate(self, evidence: Any) -> Caller:
        if evidence.bearer_token not in self.accepted:
            raise unauthenticated("the token has expired")
        return Caller(user="u", authentication="token")


def test_all_short_calls_of_a_client_go_by_one_stream(peer: Peers, fronted: Fronts, client: Clients) -> None:
    run = fronted(peer(Thrift(databases)).uri)
    asker = client(run.uri)
    for _ in range(3):
        assert asker.get_database("d").name == "d"
        assert open_streams(run) == 1
    asker.close()
    until(lambda: open_streams(run) == 0)


def test_a_grpcio_without_such_calls_and_a_gateway_without_such_streams_are_asked_by_calls(
    peer: Peers, fronted: Fronts, client: Clients, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lacking(*_: Any) -> None:
        raise NoConversation("this grpcio has no segregated calls")

    with monkeypatch.context() as patch:
        patch.setattr(raw_service, "CONVERSE", "Other")
        older = fronted(peer(Thrift(databases)).uri)
    assert client(older.uri).get_database("d").name == "d"
    run = fronted(peer(Thrift(databases)).uri)
    monkeypatch.setattr(grpc_channel, "Conversation", lacking)
    assert client(run.uri).get_database("d").name == "d"
    assert open_streams(run) == 0


def test_clients_for_whom_there_is_no_room_are_served_by_calls(
    peer: Peers, fronted: Fronts, client: Clients
) -> None:
    run = fronted(peer(Thrift(databases)).uri, max_concurrent_calls=1)
    room = run.front.settings.max_conversations
    askers = [client(run.uri) for _ in range(room + 1)]
    for asker in askers:
        assert asker.get_database("d").name == "d"
    assert open_streams(run) == room
    with run.channel() as channel:
        stream = channel.stream_stream(f"/{SERVICE}/{CONVERSE}")(iter(()), timeout=20)
        with pytest.raises(grpc.RpcError) as refusal:
            next(stream)
    error: Any = refusal.value
    assert error.code() is Code.RESOURCE_EXHAUSTED
    assert dict(error.trailing_metadata())[STATUS_KEY] == NO_MORE_CONVERSATIONS


def test_who_asks_is_looked_at_for_each_call_and_a_newer_token_is_used(
    peer: Peers, fronted: Fronts, client: Clients, tmp_path: Path
) -> None:
    doorkeeper = Doorkeeper("old")
    served = Thrift(databases)
    run = fronted(peer(served).uri, authenticator=doorkeeper)
    file = tmp_path / "token"
    file.write_text("old")
    asker = client(run.uri, grpc=GrpcSettings(token_file=str(file)))
    assert asker.get_database("d").name == "d"
    doorkeeper.accepted = {"new"}
    with pytest.raises(MetastoreAuthenticationError, match="expired"):
        asker.get_database("d")
    file.write_text("new")
    asker.call("create_database", types.Database(name="d"))
    assert served.calls == ["get_database_req", "create_database"]


def test_a_gateway_that_does_not_answer_is_waited_for_until_the_deadline(
    peer: Peers, fronted: Fronts, client: Clients
) -> None:
    class Slow:
        def __init__(self) -> None:
            self.go, self.asked = threading.Event(), 0

        def authenticate(self, _evidence: Any) -> Caller:
            self.asked += 1
            if self.asked > 1:
                assert self.go.wait(60)
            return Caller()

    slow = Slow()
    run = fronted(peer(Thrift(databases)).uri, authenticator=slow)
    asker = client(run.uri, call_timeout_s=0.3)
    with pytest.raises(MetastoreTimeoutError):
        asker.get_database("d")
    slow.go.set()
    until(lambda: open_streams(run) == 0)
    assert client(run.uri).get_database("d").name == "d"


def test_an_interrupted_call_closes_the_metastores_connection(
    peer: Peers, fronted: Fronts, client: Clients
) -> None:
    asked, go = threading.Semaphore(0), threading.Event()

    def wait(_method: str, _args: Any) -> Any:
        asked.release()
        assert go.wait(60)
        return types.Database(name="d")

    run = fronted(peer(Thrift(wait)).uri)
    asker = client(run.uri)
    channel: Any = asker.connect().channel
    answers: list[types.Database] = []
    caller = threading.Thread(target=lambda: answers.append(asker.get_database("d")))
    caller.start()
    assert asked.acquire(timeout=20)
    channel.interrupt()
    # It is a reading call: it is made once more on a new connection.
    assert asked.acquire(timeout=20)
    until(lambda: run.upstream.open_connections == 1)
    go.set()
    caller.join(60)
    assert answers == [types.Database(name="d")]
    until(lambda: open_streams(run) == 1)


def test_silent_streams_end_and_clients_do_not_use_them(
    peer: Peers, fronted: Fronts, client: Clients, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = Thrift(databases)
    run = fronted(peer(served).uri)
    asker = client(run.uri)
    asker.get_database("d")
    for conversation in run.front._calls.conversations._open.copy():
        conversation.end_if_silent(3600)
    assert open_streams(run) == 1

    def end() -> bool:
        for conversation in run.front._calls.conversations._open.copy():
            conversation.end_if_silent(0)
        return open_streams(run) == 0

    until(end)
    monkeypatch.setattr(grpc_conversation, "CONVERSATION_IDLE_S", 0.0)
    # A write: met by the end of a stream, its outcome would be unknown.
    asker.call("create_database", types.Database(name="d"))
    assert served.calls == ["get_database_req", "create_database"]


def test_a_drain_does_not_wait_for_silent_clients(peer: Peers, fronted: Fronts, client: Clients) -> None:
    run = fronted(peer(Thrift(databases)).uri)
    client(run.uri).get_database("d")
    waiting(run)
    stopping = threading.Thread(target=run.front.stop, args=(3600,))
    stopping.start()
    stopping.join(60)
    assert not stopping.is_alive()


def test_a_question_that_meets_a_drain_is_refused_and_asked_elsewhere(
    peer: Peers, fronted: Fronts, client: Clients
) -> None:
    served = Thrift(databases)
    run, other = fronted(peer(Thrift(databases)).uri), fronted(peer(served).uri)
    asker = client(run.uri)
    asker.connect()
    asker._endpoints.append(MetastoreSettings(uris=(other.uri,)).endpoints()[0])
    waiting(run).drain()
    asker.call("create_database", types.Database(name="d"))
    assert served.calls == ["create_database"]


class EndFirst:
    """A call of grpcio that reports its end before its last answer, as grpcio does once in some 300 times."""

    def __init__(self, call: Any) -> None:
        self.operate = call.operate
        self._next_event = call.next_event
        self._events: list[Any] = []

    def next_event(self) -> Any:
        tags = {grpc_conversation._ENDED, grpc_conversation._ANSWERED}
        if not self._events:
            while not tags <= {event.tag for event in self._events}:
                self._events.append(self._next_event())
            self._events.sort(key=lambda event: event.tag is not grpc_conversation._ENDED)
        return self._events.pop(0)


def test_a_stream_that_ends_with_an_answer_is_not_used_again(stack: ExitStack) -> None:
    def answer_once(questions: Iterator[bytes], _context: Any) -> Iterator[bytes]:
        next(questions)
        yield Answer(b"answer").to_bytes()

    server = grpc.server(ThreadPoolExecutor(2))
    handler = grpc.stream_stream_rpc_method_handler(answer_once)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, {CONVERSE: handler}),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    stack.callback(server.stop, 0)
    channel = stack.enter_context(grpc.insecure_channel(f"127.0.0.1:{port}"))
    conversation = Conversation(channel, f"/{SERVICE}/{CONVERSE}", [])
    conversation._call = EndFirst(conversation._call)
    assert conversation.ask(b"first", Deadline(20)) == b"answer"
    assert not conversation.fits([])
    with pytest.raises(Refusal) as ended:
        conversation.ask(b"second", Deadline(20))
    assert ended.value.code() is Code.UNAVAILABLE


def test_foreign_clients_converse_and_a_bad_question_ends_nothing(peer: Peers, fronted: Fronts) -> None:
    run = fronted(peer(Thrift(databases)).uri)
    good = Question(call_bytes("get_database", name="d"), 20_000).to_bytes()

    def questions() -> Iterator[bytes]:
        yield b"\xff"
        yield Question(b"no Thrift").to_bytes()
        yield good

    with run.channel() as channel:
        stream = channel.stream_stream(f"/{SERVICE}/{CONVERSE}")(questions(), timeout=20)
        bad, worse, fine = (Answer.from_bytes(data) for data in stream)
        assert ask(channel, "get_database", name="d")["success"].name == "d"
    invalid = Code.INVALID_ARGUMENT.value[0]
    assert (bad.code, bad.status, worse.code) == (invalid, "invalid", invalid)
    assert b"get_database" in fine.message


def test_a_call_whose_time_is_over_is_refused_and_the_stream_goes_on(peer: Peers, fronted: Fronts) -> None:
    go = threading.Event()

    def wait(method: str, _args: Any) -> Any:
        if method == "get_database":
            assert go.wait(60)
        return [] if method == "get_all_databases" else None

    run = fronted(peer(Thrift(wait)).uri)
    first = Question(call_bytes("get_database", name="d"), 100).to_bytes()
    second = Question(call_bytes("get_all_databases")).to_bytes()
    with run.channel() as channel:
        stream = channel.stream_stream(f"/{SERVICE}/{CONVERSE}")(iter((first, second)), timeout=60)
        late, fine = (Answer.from_bytes(data) for data in stream)
    go.set()
    assert (late.code, late.status) == (Code.DEADLINE_EXCEEDED.value[0], "deadline")
    assert b"get_all_databases" in fine.message


def _kinds() -> tuple[Any, Any]:
    pool = DescriptorPool()
    raw_service.RawService().add_to(pool)
    types = (pool.FindMessageTypeByName(f"{PACKAGE}.{name}") for name in ("Question", "Answer"))
    question, answer = map(message_factory.GetMessageClass, types)
    return question, answer


@settings(max_examples=100, deadline=None)
@given(st.binary(min_size=1), st.integers(1, 2**40), st.integers(1, 16), st.text(min_size=1))
def test_messages_of_a_stream_are_protobufs(message: bytes, timeout_ms: int, code: int, text: str) -> None:
    question, answer = _kinds()
    parent, state = f"00-{timeout_ms:032x}-{code:016x}-01", "a=1"
    ours = Question(message, timeout_ms, (("traceparent", parent), ("tracestate", state)))
    theirs = question(message=message, timeout_ms=timeout_ms, traceparent=parent, tracestate=state)
    assert question.FromString(ours.to_bytes()) == theirs
    assert Question.from_bytes(theirs.SerializeToString()) == ours
    for made in (Answer(message), Answer(code=code, status="denied", text=text)):
        fields = {name: value for name in Answer.__slots__ if (value := getattr(made, name))}
        assert answer.FromString(made.to_bytes()) == answer(**fields)
        assert Answer.from_bytes(answer(**fields).SerializeToString()) == made


@pytest.mark.parametrize("data", [b"\x2a\x01a", b"\x0a\x05a", b"\x0b", b"\x10", b"\x80" * 12])
def test_what_is_no_question_or_answer_is_refused(data: bytes) -> None:
    for kind in (Question, Answer):
        with pytest.raises(MalformedMessage):
            kind.from_bytes(data)
