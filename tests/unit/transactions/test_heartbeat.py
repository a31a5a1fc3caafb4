"""Heartbeats fail towards "lost": whatever goes wrong, the holder stops before others may take over."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from airflow_hive_federation.errors import (
    HiveFederationError,
    MetastoreUnreachableError,
    NoSuchLockError,
    TransactionAbortedError,
    TunnelUnreachableError,
)
from airflow_hive_federation.metastore import MetastoreClient, MetastorePool, MetastoreSettings
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.transactions.heartbeat import Heartbeat, Loss, LossReason

SETTINGS = MetastoreSettings(uris=("thrift://127.0.0.1:1",))
#: What a heartbeat may come to, none of which is a confirmation.
FAILURES = (
    MetastoreUnreachableError("gone"),
    TunnelUnreachableError("the hop is gone"),
    HiveFederationError("any of ours"),
    TimeoutError("slow"),
    AttributeError("a mistake of this package"),
    MemoryError(),
    RecursionError(),
)


class Clock:
    """Seconds that go on when a test moves them."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def heartbeat(beat: Callable[[Any], None], clock: Clock, **named: Any) -> Heartbeat:
    fields = {"name": "lock 7", "interval_s": 5.0, "silence_s": 30.0, "clock": clock, **named}
    return Heartbeat(SETTINGS, beat, **fields)


def failing(error: BaseException) -> Callable[[Any], None]:
    def beat(_client: Any) -> None:
        raise error

    return beat


@pytest.mark.parametrize("failure", FAILURES, ids=lambda failure: type(failure).__name__)
def test_any_failure_ends_in_lost_when_it_lasts(failure: Exception) -> None:
    clock, losses = Clock(), list[Loss]()
    heart = heartbeat(failing(failure), clock, on_loss=losses.append)
    for _ in range(6):
        assert not heart.send()
        assert heart.loss is None
        clock.now_s += 5.0
    clock.now_s += 0.1
    loss = heart.loss
    assert loss is not None
    assert (loss.reason, loss.cause) == (LossReason.SILENT, failure)
    assert "30.1 s" in loss.description
    assert type(failure).__name__ in loss.description
    assert losses == [loss]


@pytest.mark.parametrize("failure", FAILURES, ids=lambda failure: type(failure).__name__)
def test_a_failure_that_passes_is_forgiven(failure: Exception) -> None:
    clock, outcomes = Clock(), iter([failure, failure, None, failure])

    def beat(_client: Any) -> None:
        if (error := next(outcomes)) is not None:
            raise error

    heart = heartbeat(beat, clock)
    clock.now_s += 28.0
    assert [heart.send(), heart.send(), heart.send()] == [False, False, True]
    clock.now_s += 28.0
    assert not heart.send()
    assert heart.loss is None


@pytest.mark.parametrize("answer", [NoSuchLockError("no lock 7"), TransactionAbortedError("aborted")])
def test_a_final_answer_is_a_loss_at_once(answer: Exception) -> None:
    heart = heartbeat(failing(answer), Clock())
    assert not heart.send()
    assert heart.loss is not None
    assert (heart.loss.reason, heart.loss.cause) == (LossReason.REFUSED, answer)


def test_a_suspended_process_is_lost_before_it_sends_another_heartbeat() -> None:
    clock, sent = Clock(), list[str]()
    heart = heartbeat(lambda _: sent.append("beat"), clock)
    assert heart.send()
    clock.now_s += 600.0
    assert not heart.send()
    assert heart.prove() is not None
    assert sent == ["beat"]


def test_a_loss_stays_a_loss() -> None:
    clock = Clock()
    heart = heartbeat(lambda _: None, clock)
    clock.now_s += 31.0
    first = heart.loss
    clock.now_s = 1000.0
    assert first is not None
    assert not heart.send()
    assert heart.loss is first


def test_an_answer_after_the_silence_comes_too_late() -> None:
    clock = Clock()

    def slow(_client: Any) -> None:
        clock.now_s += 31.0

    heart = heartbeat(slow, clock)
    assert not heart.send()
    assert heart.loss is not None


def test_the_age_counts_from_when_a_heartbeat_was_sent() -> None:
    clock = Clock()

    def slow(_client: Any) -> None:
        clock.now_s += 4.0

    heart = heartbeat(slow, clock)
    assert heart.send()
    assert heart.age_s == 4.0


def test_the_age_begins_before_the_lock_was_asked_for() -> None:
    clock = Clock()
    heart = heartbeat(lambda _: None, clock, since_s=clock.now_s - 31.0)
    assert heart.loss is not None


def test_a_proof_is_asked_for_again_until_it_is_given() -> None:
    clock, outcomes = (
        Clock(),
        iter([MetastoreUnreachableError("gone"), MetastoreUnreachableError("gone"), None]),
    )

    def beat(_client: Any) -> None:
        if (error := next(outcomes)) is not None:
            raise error

    heart = heartbeat(beat, clock, interval_s=0.001)
    assert heart.prove() is None
    assert next(outcomes, "all asked") == "all asked"
    # A fresh one needs no other.
    assert heart.prove(fresh_s=1.0) is None


def test_a_proof_that_never_comes_is_a_loss() -> None:
    clock = Clock()

    def beat(_client: Any) -> None:
        clock.now_s += 7.0
        raise MetastoreUnreachableError("gone")

    heart = heartbeat(beat, clock, interval_s=0.001)
    loss = heart.prove()
    assert loss is not None
    assert loss.reason is LossReason.SILENT


def test_a_refused_proof_waits_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    heart = heartbeat(failing(NoSuchLockError("it is gone")), Clock())
    waits: list[float] = []
    monkeypatch.setattr(heart._stopped, "wait", waits.append)
    loss = heart.prove()
    assert loss is not None
    assert loss.reason is LossReason.REFUSED
    assert waits == []


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_that_dies_is_a_silence() -> None:
    clock = Clock()

    def beat(_client: Any) -> None:
        raise SystemExit  # no Exception: nothing catches it

    heart = heartbeat(beat, clock)
    heart.start(at_once=True)
    heart._thread.join(timeout=30)
    assert not heart._thread.is_alive()
    assert heart.loss is None
    clock.now_s += 31.0
    assert heart.loss is not None


def test_the_thread_notices_a_silence_by_itself() -> None:
    lost = threading.Event()
    heart = Heartbeat(
        SETTINGS,
        failing(MetastoreUnreachableError("gone")),
        name="lock 7",
        interval_s=0.01,
        silence_s=0.05,
        on_loss=lambda _: lost.set(),
    )
    with heart:
        assert lost.wait(30)


@contextmanager
def deaf_server() -> Iterator[str]:
    """A server that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"thrift://127.0.0.1:{server.getsockname()[1]}"


def test_a_call_that_hangs_is_given_up_while_there_is_time_for_others() -> None:
    with deaf_server() as uri:
        settings = MetastoreSettings(uris=(uri,), call_timeout_s=600.0)

        def beat(client: MetastoreClient) -> None:
            client.call("heartbeat", types.HeartbeatRequest(lockid=7))

        heart = Heartbeat(settings, beat, name="lock 7", interval_s=0.1, silence_s=0.6)
        for deadline_s in (heart._client.settings.connect_timeout_s, heart._client.settings.call_timeout_s):
            assert deadline_s <= 0.6 / 6
        assert not heart.send()  # returns: with the client's own deadline it would take ten minutes
        assert heart.loss is None or heart.loss.reason is LossReason.SILENT
        loss = heart.prove()
        assert loss is not None
        assert loss.reason is LossReason.SILENT
        heart.stop()


def test_a_pool_that_is_used_up_does_not_starve_it() -> None:
    confirmed = threading.Event()
    with (
        MetastorePool(SETTINGS, 1, wait_timeout_s=600.0) as pool,
        pool.client(),
        Heartbeat(pool.settings, lambda _: confirmed.set(), name="x", interval_s=0.001, silence_s=30.0),
    ):
        assert confirmed.wait(30)


def test_a_guarded_pool_asks_before_calls_that_write_only() -> None:
    asked: list[str] = []

    def guard(method: str) -> None:
        asked.append(method)
        raise NoSuchLockError("lost")

    class Connected:
        """A connection that nothing may be sent over but reads."""

        endpoint = "e"

        def exchange(self, method: str, *_: Any) -> Any:
            return method

        def is_stale(self) -> bool:
            return False

        def close(self) -> None:
            """Nothing is open."""

    with MetastorePool(SETTINGS, 1) as pool:
        with pool.guarded(guard).client() as client:
            client._connection = Connected()  # type: ignore[assignment]
            assert client._call("get_database", ()) == "get_database"
            for method in ("alter_database", "drop_table_with_environment_context", "commit_txn", "lock"):
                with pytest.raises(NoSuchLockError):
                    client._call(method, ())
        assert asked == ["alter_database", "drop_table_with_environment_context", "commit_txn", "lock"]
        with pool.client() as client:
            assert client._call("alter_database", ()) == "alter_database"


def test_the_end_of_a_hold_leaves_no_thread_and_no_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[MetastoreClient] = []

    def close(client: MetastoreClient) -> None:
        closed.append(client)

    monkeypatch.setattr(MetastoreClient, "close", close)
    with heartbeat(lambda _: None, Clock()) as heart:
        assert heart._thread.is_alive()
    assert not heart._thread.is_alive()
    assert closed == [heart._client]


def test_a_hold_that_is_given_up_is_lost_for_good() -> None:
    losses: list[Loss] = []
    heart = heartbeat(lambda _: None, Clock(), on_loss=losses.append)
    assert heart.send()
    cause = NoSuchLockError("another one has taken its place")
    heart.give_up(cause)
    assert heart.loss is not None
    assert (heart.loss.reason, heart.loss.cause) == (LossReason.REFUSED, cause)
    assert not heart.send()
    assert heart.prove() is losses[0]
