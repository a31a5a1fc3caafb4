"""Connections to a metastore: after an answer of doubtful ends, no further call uses the connection."""

from __future__ import annotations

import itertools
import pwd
import select
import socket
import threading
from collections.abc import Callable
from typing import Any

import pytest

from airflow_hive_federation.errors import (
    ConfigurationError,
    GatewayError,
    MetastoreError,
    MetastoreProtocolError,
    MetastoreTimeoutError,
    MetastoreUnreachableError,
    OutcomeUnknownError,
)
from airflow_hive_federation.gateway.handler import Caller, Cancellation, Deadline
from airflow_hive_federation.gateway.messages import CALL, ONEWAY, REPLY, Head, head_bytes, read_head
from airflow_hive_federation.gateway.upstream import ClientGone, Probe, Upstream
from airflow_hive_federation.metastore import MetastoreSettings
from airflow_hive_federation.metastore.channel import NotSent
from airflow_hive_federation.metastore.connection import message_types
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.metastore.protocol import encode
from tests.support.gateways import Peers, RawClient, call_bytes, outcome
from tests.support.metastore_peers import HangUp, Thrift

METHOD = "get_all_databases"
#: A field of a type that Thrift does not have.
BROKEN = b"\x63\0\0"
#: How an answer is taken: as a whole, or in pieces.
WAYS = pytest.mark.parametrize("in_pieces", [False, True], ids=["whole", "in pieces"])


class Scripted:
    """A metastore that sends prepared bytes; calls after the last ones are answered with their number."""

    def __init__(self, *scripts: Callable[[Head], bytes]) -> None:
        self.scripts = list(scripts)
        self.calls = 0
        self.connections: list[socket.socket] = []

    def __call__(self, connection: socket.socket) -> None:
        self.connections.append(connection)
        stream = RawClient(("", 0), connection)
        while True:
            head, _ = stream.message()
            if head.method == "set_ugi":
                connection.sendall(answer(head, []))
                continue
            self.calls += 1
            script = self.scripts.pop(0) if self.scripts else self._own
            connection.sendall(script(head))

    def _own(self, head: Head) -> bytes:
        return answer(head, [f"of call {self.calls}"] if head.method == METHOD else None)


def answer(head: Head, names: list[str] | None, *, kind: int = REPLY, **other: Any) -> bytes:
    method = other.get("method", head.method)
    result = message_types(head.method)[1](success=names) if names is not None else None
    begin = head_bytes(method, kind, other.get("sequence_id", head.sequence_id))
    return begin + (encode(result) if result is not None else b"\0")


def exchange(upstream: Upstream, in_pieces: bool, method: str = METHOD, **arguments: Any) -> dict[str, Any]:
    """Make a call whose number is that of all others, as different clients do."""
    message, parts = call_bytes(method, 1, **arguments), list[bytes]()
    emit = parts.append if in_pieces else None
    exchange = upstream.exchange(method, message, Caller(), Deadline(20), emit=emit)
    data = b"".join(parts) if in_pieces else exchange
    return outcome(read_head(data), data)


@pytest.fixture
def upstream(peer: Peers, stack: Any) -> Callable[[Scripted], Upstream]:
    """The way to a metastore, one connection wide."""

    def make(scripted: Scripted) -> Upstream:
        made = Upstream("main", MetastoreSettings(uris=(peer(scripted).uri,)), max_connections=1)
        stack.callback(made.close)
        return made

    return make


@WAYS
def test_what_follows_an_answer_is_no_answer_to_the_next_call(
    upstream: Callable[[Scripted], Upstream], in_pieces: bool
) -> None:
    scripted = Scripted(lambda head: answer(head, ["first"]) + answer(head, ["somebody else's"]))
    way = upstream(scripted)
    assert exchange(way, in_pieces) == {"success": ["first"]}
    assert exchange(way, in_pieces) == {"success": ["of call 2"]}
    assert (len(scripted.connections), way.open_connections) == (2, 1)


@WAYS
def test_what_comes_between_two_calls_is_no_answer_to_the_second(
    upstream: Callable[[Scripted], Upstream], in_pieces: bool
) -> None:
    scripted = Scripted(lambda head: answer(head, ["first"]))
    way = upstream(scripted)
    assert exchange(way, in_pieces) == {"success": ["first"]}
    scripted.connections[0].sendall(answer(Head(METHOD, CALL, 2, 0), ["somebody else's"]))
    (link,) = way._idle.values()
    assert select.select([link.connection.channel._sock], [], [], 20)[0]
    assert exchange(way, in_pieces) == {"success": ["of call 2"]}
    assert len(scripted.connections) == 2


@WAYS
def test_a_late_answer_to_a_call_before_is_recognized_by_its_number(
    upstream: Callable[[Scripted], Upstream], in_pieces: bool
) -> None:
    """The clients' own numbers are alike; those of the connection are not."""
    first: list[bytes] = []

    def once(head: Head) -> bytes:
        first.append(answer(head, ["somebody else's"]))
        return first[0]

    way = upstream(Scripted(once, lambda head: first[0] + answer(head, ["too late"])))
    assert exchange(way, in_pieces) == {"success": ["somebody else's"]}
    with pytest.raises(MetastoreProtocolError, match="gave no answer of a Hive metastore: an answer"):
        exchange(way, in_pieces)
    assert exchange(way, in_pieces) == {"success": ["of call 3"]}


@WAYS
@pytest.mark.parametrize("number", [0, 7, -1, (1 << 31) - 1])
def test_a_caller_gets_its_own_number_back(
    upstream: Callable[[Scripted], Upstream], in_pieces: bool, number: int
) -> None:
    way, parts = upstream(Scripted()), list[bytes]()
    for _ in range(3):
        message, emit = call_bytes(METHOD, number), (parts.append if in_pieces else None)
        data = way.exchange(METHOD, message, Caller(), Deadline(20), emit=emit) or parts.pop()
        assert read_head(data).sequence_id == number


def test_no_client_can_foresee_the_number_of_the_next_call(
    upstream: Callable[[Scripted], Upstream],
) -> None:
    """It could make the metastore send an answer that fits."""
    numbers: list[int] = []

    def noting(head: Head) -> bytes:
        numbers.append(head.sequence_id)
        return answer(head, [])

    way = upstream(Scripted(*[noting] * 8))
    for _ in range(8):
        exchange(way, False)
    steps = {second - first for first, second in itertools.pairwise(numbers)}
    assert 0 not in steps
    assert len(steps) > 3
    assert min(numbers) >= 0


WRONG: dict[str, dict[str, Any]] = {
    "another method": {"method": "get_all_tables"},
    "another number": {"sequence_id": -1},
    "a call": {"kind": CALL},
    "a one-way call": {"kind": ONEWAY},
}


@WAYS
@pytest.mark.parametrize("wrong", WRONG)
def test_an_answer_to_another_call_is_given_to_nobody(
    upstream: Callable[[Scripted], Upstream], in_pieces: bool, wrong: str
) -> None:
    scripted = Scripted(
        lambda head: answer(head, ["somebody else's"], **WRONG[wrong]) + answer(head, ["also late"]),
        lambda head: answer(head, None, **WRONG[wrong]),
    )
    way = upstream(scripted)
    with pytest.raises(
        MetastoreProtocolError, match=r"main .* gave no answer of a Hive metastore: an answer"
    ):
        exchange(way, in_pieces)
    assert way.open_connections == 0
    with pytest.raises(OutcomeUnknownError, match="gave no answer of a Hive metastore: an answer"):
        exchange(way, in_pieces, "create_database", database=types.Database(name="d"))
    assert way.open_connections == 0
    assert exchange(way, in_pieces) == {"success": ["of call 3"]}


@WAYS
def test_a_connection_that_brought_a_broken_answer_is_closed(
    upstream: Callable[[Scripted], Upstream], in_pieces: bool
) -> None:
    def broken(head: Head) -> bytes:
        return head_bytes(METHOD, REPLY, head.sequence_id) + BROKEN + answer(head, ["somebody else's"])

    scripted = Scripted(broken)
    way = upstream(scripted)
    with pytest.raises(MetastoreProtocolError, match="a value of the unknown type 99"):
        exchange(way, in_pieces)
    assert way.open_connections == 0
    assert exchange(way, in_pieces) == {"success": ["of call 2"]}
    assert len(scripted.connections) == 2


@pytest.mark.parametrize(
    "error", [BrokenPipeError("gone"), RuntimeError("a defect")], ids=["client", "defect"]
)
def test_a_connection_whose_answer_nobody_takes_is_closed(
    upstream: Callable[[Scripted], Upstream], error: Exception
) -> None:
    """The rest of the answer is still on its way."""
    scripted = Scripted(lambda head: answer(head, ["x" * 1000] * 1000))
    way = upstream(scripted)

    def refuse(_piece: bytes) -> None:
        raise error

    with pytest.raises(ClientGone if isinstance(error, OSError) else RuntimeError):
        way.exchange(METHOD, call_bytes(METHOD), Caller(), Deadline(20), emit=refuse)
    assert way.open_connections == 0
    assert exchange(way, in_pieces=True) == {"success": ["of call 2"]}


@WAYS
def test_a_connection_whose_answer_is_late_is_closed(
    upstream: Callable[[Scripted], Upstream], in_pieces: bool
) -> None:
    late = threading.Event()

    def wait(head: Head) -> bytes:
        assert late.wait(20)
        return answer(head, ["somebody else's"])

    scripted = Scripted(lambda head: answer(head, ["first"]), wait)
    way = upstream(scripted)
    # The time of a call includes that of a connection, which from now on is there.
    assert exchange(way, in_pieces) == {"success": ["first"]}
    message, emit = call_bytes(METHOD), (list[bytes]().append if in_pieces else None)
    with pytest.raises(MetastoreError, match="no complete answer within"):
        way.exchange(METHOD, message, Caller(), Deadline(0.3), emit=emit)
    assert way.open_connections == 0
    late.set()
    assert exchange(way, in_pieces) == {"success": ["of call 3"]}


def test_a_connection_that_is_lent_out_again_is_not_interrupted_by_a_former_caller() -> None:
    """Giving up and taking the connection back exclude each other."""
    cancellation, seen = Cancellation(), list[bool]()

    def interrupt() -> None:
        # Whoever takes the connection back, in another thread, waits for this to end.
        other = threading.Thread(target=lambda: seen.append(cancellation._lock.acquire(blocking=False)))
        other.start()
        other.join()

    cancellation.on_cancel(interrupt)
    cancellation.cancel()
    cancellation.on_cancel(interrupt)
    assert seen == [False, False]
    assert cancellation.cancelled


def test_a_connection_that_lay_unused_for_too_long_is_closed(peer: Peers, stack: Any) -> None:
    scripted = Scripted()
    way = Upstream("main", MetastoreSettings(uris=(peer(scripted).uri,)), idle_s=0.0, impersonate=True)
    stack.callback(way.close)
    for user in ("ann", "ann", "bob"):
        way.exchange(METHOD, call_bytes(METHOD), Caller(user=user), Deadline(20))
        # Those of other users are closed, too.
        assert way.open_connections == 1
    assert len(scripted.connections) == 3


def test_a_call_that_broke_is_made_at_the_next_server(peer: Peers, stack: Any) -> None:
    def hang_up(_method: str, _args: Any) -> Any:
        raise HangUp

    broken, well = Thrift(hang_up), Thrift(lambda *_: ["a"])
    uris = (peer(broken).uri, peer(well).uri)
    way = Upstream("main", MetastoreSettings(uris=uris))
    stack.callback(way.close)
    way._endpoints.sort(key=lambda endpoint: str(endpoint) != uris[0])
    assert exchange(way, in_pieces=False) == {"success": ["a"]}
    assert (broken.calls, well.calls) == ([METHOD], [METHOD])
    # The one that broke is the last one now.
    assert str(way._endpoints[-1]) == uris[0]


@pytest.mark.parametrize("writes", [False, True], ids=["read", "write"])
@pytest.mark.parametrize("silent_at", ["set_ugi", "setMetaConf", "getVersion"])
def test_a_call_whose_time_ends_before_it_is_sent_has_the_error_of_its_deadline(
    peer: Peers, stack: Any, silent_at: str, writes: bool
) -> None:
    """A write is unreachable instead: it was not carried out, which the error of a deadline leaves open."""
    served = Silent(silent_at)
    silent, well = peer(served).uri, peer(Thrift(lambda *_: ["a"])).uri
    way = Upstream("main", MetastoreSettings(uris=(silent, well)))
    stack.callback(way.close)
    stack.callback(served.go.set)
    way._endpoints.sort(key=lambda endpoint: str(endpoint) != silent)
    method = "create_database" if writes else METHOD
    message = call_bytes(method, database=types.Database(name="a")) if writes else call_bytes(method)
    further = {
        "set_ugi": {},
        "setMetaConf": {"expression_proxy": "Msck"},
        "getVersion": {"probe": Probe(call_bytes("getVersion"), bool)},
    }
    with pytest.raises(MetastoreError, match=r"no complete answer within 0\.3 s") as caught:
        way.exchange(method, message, Caller(), Deadline(0.3), **further[silent_at])
    assert type(caught.value) is (MetastoreUnreachableError if writes else MetastoreTimeoutError)
    assert caught.value.uri == silent
    assert (way.open_connections, method in served.calls) == (0, False)
    # The next call goes to the other server first.
    assert [str(endpoint) for endpoint in way._endpoints] == [well, silent]


class Silent(Thrift):
    """A metastore that does not answer one method before ``go``."""

    def __init__(self, method: str) -> None:
        super().__init__(lambda called, _: ["a"] if called.startswith("get_all") else None)
        self.go, self._method = threading.Event(), method

    def _result(self, method: str, args: Any) -> Any:
        if method == self._method:
            assert self.go.wait(60)
        return super()._result(method, args)


def test_a_write_that_was_not_sent_is_sent_again(peer: Peers, stack: Any) -> None:
    served = Thrift(lambda *_: None)
    way = Upstream("main", MetastoreSettings(uris=(peer(served).uri,)))
    stack.callback(way.close)
    assert exchange(way, in_pieces=False, method="create_database", database=types.Database(name="a")) == {}
    (link,) = way._idle.values()

    def fail(_request: bytes, _deadline: Deadline) -> None:
        raise NotSent("the connection broke")

    link.connection.channel.send = fail  # type: ignore[method-assign]
    assert exchange(way, in_pieces=False, method="create_database", database=types.Database(name="b")) == {}
    assert served.calls == ["create_database"] * 2


def test_a_write_whose_caller_gave_up_is_an_error(peer: Peers, stack: Any) -> None:
    asked, go = threading.Event(), threading.Event()

    def wait(_method: str, _args: Any) -> Any:
        asked.set()
        assert go.wait(60)

    way = Upstream("main", MetastoreSettings(uris=(peer(Thrift(wait)).uri,)))
    stack.callback(way.close)
    cancellation, errors = Cancellation(), list[Exception]()

    def ask() -> None:
        message = call_bytes("create_database", database=types.Database(name="a"))
        try:
            way.exchange("create_database", message, Caller(), Deadline(60), cancellation=cancellation)
        except GatewayError as error:
            errors.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    assert asked.wait(20)
    cancellation.cancel()
    thread.join(20)
    go.set()
    assert [str(error) for error in errors] == [
        "create_database: the client gave up. Remedy: A call that writes may have been done."
    ]


def test_a_connection_that_comes_back_after_the_end_is_closed(peer: Peers, stack: Any) -> None:
    asked, go = threading.Event(), threading.Event()

    def wait(_method: str, _args: Any) -> Any:
        asked.set()
        assert go.wait(60)
        return ["a"]

    way = Upstream("main", MetastoreSettings(uris=(peer(Thrift(wait)).uri,)))
    answers: list[Any] = []
    thread = threading.Thread(target=lambda: answers.append(exchange(way, in_pieces=False)))
    thread.start()
    assert asked.wait(20)
    way.close()
    go.set()
    thread.join(20)
    assert (answers, way.open_connections) == ([{"success": ["a"]}], 0)
    way.close()
    assert way.open_connections == 0


def test_a_gateway_whose_user_has_no_name_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Containers run as numbers that no one has named."""

    def unknown(_number: int) -> None:
        raise KeyError("uid not found")

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(
        ConfigurationError, match=r"has no name on this machine\. Remedy: Set user, or the env"
    ):
        Upstream("main", MetastoreSettings(uris=("thrift://x:1",)))
    monkeypatch.setenv("USER", "gate")
    way = Upstream("main", MetastoreSettings(uris=("thrift://x:1",)))
    assert way.identity_of(Caller()) == ("gate", ())
