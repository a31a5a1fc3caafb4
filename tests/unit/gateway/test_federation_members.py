"""A metastore of a federation that fails is spared; calls that do not concern it are not counted."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import pytest

from airflow_hive_federation.errors import (
    GatewayError,
    MetastoreTimeoutError,
    MetastoreUnreachableError,
    OutcomeUnknownError,
    RemoteUnavailableError,
)
from airflow_hive_federation.gateway.dispatch import Metastore
from airflow_hive_federation.gateway.federation.members import Member
from airflow_hive_federation.gateway.handler import Call, Caller, Cancellation, Deadline, Status, status_of
from airflow_hive_federation.gateway.upstream import Upstream
from airflow_hive_federation.metastore import MetastoreSettings
from tests.support.gateways import Peers, call_bytes
from tests.support.metastore_peers import HangUp, Thrift


class Failing:
    """A metastore that breaks the connection of most calls, answers some, and holds others."""

    def __init__(self) -> None:
        self.held = threading.Event()
        self.go = threading.Event()

    def __call__(self, method: str, _args: Any) -> Any:
        if method in {"get_all_databases", "create_role"}:
            raise HangUp
        if method in {"get_catalogs", "drop_role"}:
            self.held.set()
            assert self.go.wait(60)
        return None


Ask = Callable[..., bytes]


@pytest.fixture
def failing() -> Failing:
    return Failing()


@pytest.fixture
def member(peer: Peers, stack: ExitStack, failing: Failing) -> Member:
    upstream = Upstream("far", MetastoreSettings(uris=(peer(Thrift(failing)).uri,)), max_connections=1)
    target = Metastore(upstream)
    stack.callback(target.close)
    return Member("far", target, timeout_s=1.5)


def call(method: str, *, seconds: float = 20, cancellation: Cancellation | None = None) -> Call:
    return Call(method, call_bytes(method), Caller(), Deadline(seconds), cancellation)


def fail(member: Member, match: str = "does not answer") -> None:
    with pytest.raises(RemoteUnavailableError, match=match):
        member.ask(call("get_all_databases"))


def test_an_answer_begins_the_count_anew(member: Member) -> None:
    for _ in range(2):
        fail(member)
    member.ask(call("get_role_names"))
    for _ in range(3):
        fail(member)
    fail(member, "3 times in a row")


def test_a_caller_that_gave_up_is_no_answer(member: Member) -> None:
    gone = Cancellation()
    gone.cancel()
    for _ in range(2):
        fail(member)
    with pytest.raises(GatewayError, match="the client gave up") as caught:
        member.ask(call("get_role_names", cancellation=gone))
    assert status_of(caught.value) is Status.CANCELLED
    fail(member)
    fail(member, "3 times in a row")


def test_a_write_without_an_answer_is_a_failure(member: Member) -> None:
    for _ in range(2):
        fail(member)
    with pytest.raises(OutcomeUnknownError):
        member.ask(call("create_role"))
    fail(member, "3 times in a row")


def test_a_refusal_of_the_gateways_own_is_no_answer(peer: Peers, stack: ExitStack, failing: Failing) -> None:
    settings = MetastoreSettings(uris=(peer(Thrift(failing)).uri,))
    target = Metastore(Upstream("far", settings, impersonate=True))
    stack.callback(target.close)
    member = Member("far", target, timeout_s=20)
    for _ in range(2):
        fail(member)
    nobody = replace(call("get_role_names"), caller=Caller(remote=True))
    with pytest.raises(GatewayError, match="wants the user's name"):
        member.ask(nobody)
    fail(member)
    fail(member, "3 times in a row")


def test_a_caller_in_a_hurry_is_neither_an_answer_nor_a_failure(member: Member, failing: Failing) -> None:
    for _ in range(2):
        fail(member)
    for _ in range(3):
        # Each connects anew, which may take all of its time on a busy machine.
        with pytest.raises((MetastoreTimeoutError, MetastoreUnreachableError)):
            member.ask(call("get_catalogs", seconds=0.1))
        with pytest.raises((OutcomeUnknownError, MetastoreTimeoutError, MetastoreUnreachableError)):
            member.ask(call("drop_role", seconds=0.1))
    failing.go.set()
    fail(member)
    fail(member, "3 times in a row")


def test_callers_in_a_hurry_do_not_spare_a_metastore_that_connects_slowly(stack: ExitStack) -> None:
    slow = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
    uri = f"thrift://127.0.0.1:{slow.getsockname()[1]}"
    target = Metastore(Upstream("far", MetastoreSettings(uris=(uri,))))
    stack.callback(target.close)
    member = Member("far", target, timeout_s=60)
    for _ in range(4):
        # On a busy machine, the time may end before the gateway connects.
        ended = (MetastoreUnreachableError, MetastoreTimeoutError)
        with pytest.raises(ended, match="no complete answer within"):
            member.ask(call("get_role_names", seconds=0.1))


def test_connections_that_are_all_in_use_do_not_count_against_the_metastore(
    member: Member, failing: Failing
) -> None:
    for _ in range(2):
        fail(member)
    holder = threading.Thread(target=member.target.relay, args=(call("get_catalogs"), bytearray().extend))
    holder.start()
    assert failing.held.wait(20)
    with pytest.raises(GatewayError, match="all 1 connections to far were in use") as caught:
        member.ask(call("get_role_names"))
    assert status_of(caught.value) is Status.EXHAUSTED
    failing.go.set()
    holder.join(20)
    fail(member)
    fail(member, "3 times in a row")
