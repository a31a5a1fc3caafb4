"""A remote that is down gets no more calls for a while."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from airflow_hive_federation.catalog.breaker import CircuitBreaker
from airflow_hive_federation.errors import (
    HostKeyError,
    MetastoreProtocolError,
    MetastoreUnreachableError,
    NoSuchObjectError,
    OutcomeUnknownError,
    RemoteError,
    RemoteUnavailableError,
)


def fail(breaker: CircuitBreaker, error: Exception) -> None:
    with breaker.guard():
        raise error


def test_it_opens_after_failures_in_a_row_and_closes_after_a_while() -> None:
    now = [0.0]
    breaker = CircuitBreaker("r", failures=2, pause_s=10, clock=lambda: now[0])
    down = MetastoreUnreachableError("No metastore answers.")
    with pytest.raises(RemoteUnavailableError, match="Remote r does not answer: No metastore") as caught:
        fail(breaker, down)
    assert caught.value.__cause__ is down
    # An answer that refuses shows that it is there.
    with pytest.raises(NoSuchObjectError):
        fail(breaker, NoSuchObjectError("none"))
    for _ in range(2):
        with pytest.raises(RemoteUnavailableError, match="does not answer"):
            fail(breaker, down)
    with pytest.raises(RemoteUnavailableError, match="next call is in 10 s"), breaker.guard():
        raise AssertionError("asked")
    now[0] = 10.0
    with breaker.guard():
        pass


class Paused:
    """The breaker of a remote that did not answer, at the end of its pause of ten seconds."""

    def __init__(self) -> None:
        self.now = 0.0
        self.breaker = CircuitBreaker("r", failures=2, pause_s=10, clock=lambda: self.now)
        for _ in range(2):
            self.fail()
        self.now = 10.0

    def fail(self, seconds: float = 0) -> None:
        with pytest.raises(RemoteUnavailableError, match="does not answer: No metastore answers"):
            self.call_in_vain(seconds)

    def call_in_vain(self, seconds: float) -> None:
        with self.breaker.guard():
            self.now += seconds
            raise MetastoreUnreachableError("No metastore answers.")

    def refuses(self, match: str) -> None:
        with pytest.raises(RemoteUnavailableError, match=match), self.breaker.guard():
            raise AssertionError("asked")


@pytest.fixture
def paused() -> Paused:
    return Paused()


def test_one_call_tries_the_remote_after_the_pause(paused: Paused) -> None:
    with paused.breaker.guard():
        paused.now = 12.0
        paused.refuses("2 times in a row; its next call is in 8 s at the latest, after one that runs now")
    # It has answered, so that several calls run again, and one failure refuses none.
    with paused.breaker.guard(), paused.breaker.guard():
        pass
    paused.fail()
    with paused.breaker.guard():
        pass


def test_one_failure_after_the_pause_begins_another_one(paused: Paused) -> None:
    for _ in range(2):
        paused.fail(3)
        paused.refuses(r"its next call is in 10 s\.")
        paused.now += 10
    with paused.breaker.guard():
        pass
    with paused.breaker.guard(), paused.breaker.guard():
        pass


@pytest.mark.parametrize("ends", [ValueError, KeyboardInterrupt, GeneratorExit])
def test_the_next_call_tries_the_remote_after_one_that_was_cancelled(
    paused: Paused, ends: type[BaseException]
) -> None:
    with pytest.raises(ends), paused.breaker.guard():
        raise ends
    with paused.breaker.guard():
        paused.refuses("after one that runs now")
    with paused.breaker.guard(), paused.breaker.guard():
        pass


def test_a_call_that_never_ends_keeps_others_from_the_remote_for_one_pause(paused: Paused) -> None:
    with ExitStack() as stack:
        stack.enter_context(paused.breaker.guard())
        paused.now = 19.0
        paused.refuses("is in 1 s at the latest")
        paused.now = 20.0
        with paused.breaker.guard():
            paused.refuses("is in 10 s at the latest")
            # The first one decides nothing any more, unless it is answered.
            with pytest.raises(ValueError, match="gave up"), stack:
                raise ValueError("gave up")
            paused.refuses("is in 10 s at the latest")
    with paused.breaker.guard(), paused.breaker.guard():
        pass


def test_a_slow_answer_shows_that_the_remote_is_up(paused: Paused) -> None:
    slow = ExitStack()
    slow.enter_context(paused.breaker.guard())
    paused.now = 20.0
    with paused.breaker.guard():
        slow.close()
        with paused.breaker.guard(), paused.breaker.guard():
            pass


def test_failures_of_calls_from_before_the_pause_do_not_count() -> None:
    now = [0.0]
    breaker = CircuitBreaker("r", failures=2, pause_s=10, clock=lambda: now[0])
    down = MetastoreUnreachableError("No metastore answers.")
    late = [ExitStack() for _ in range(3)]
    for call in late:
        call.enter_context(breaker.guard())
    for _ in range(2):
        with pytest.raises(RemoteUnavailableError, match="does not answer"):
            fail(breaker, down)
    now[0] = 5.0

    def fail_late() -> None:
        with pytest.raises(RemoteUnavailableError, match="does not answer"), late.pop():
            raise down

    # The pause is as long as it was.
    fail_late()
    with pytest.raises(RemoteUnavailableError, match="next call is in 5 s"), breaker.guard():
        raise AssertionError("asked")
    now[0] = 10.0
    with breaker.guard():
        pass
    # Now the remote is up.
    fail_late()
    fail_late()
    with breaker.guard():
        pass


def test_what_lies_on_the_way_has_the_remotes_name() -> None:
    breaker = CircuitBreaker("r", failures=2)
    for error in (MetastoreProtocolError("A web server."), HostKeyError("Another key.", hop="h")):
        with pytest.raises(RemoteError, match=f"Remote r: {error.message}") as caught:
            fail(breaker, error)
        assert not caught.value.retryable
    with pytest.raises(RemoteUnavailableError, match="2 times in a row"), breaker.guard():
        raise AssertionError("asked")


def test_a_write_without_an_answer_is_a_failure_that_keeps_its_error() -> None:
    breaker = CircuitBreaker("r", failures=2)
    for _ in range(2):
        with pytest.raises(OutcomeUnknownError, match="done or not"):
            fail(breaker, OutcomeUnknownError("It may have been done or not."))
    with pytest.raises(RemoteUnavailableError, match="2 times in a row"), breaker.guard():
        raise AssertionError("asked")


def test_errors_of_our_own_pass() -> None:
    breaker = CircuitBreaker("r", failures=1)
    with pytest.raises(ValueError, match="ours"):
        fail(breaker, ValueError("ours"))
    with breaker.guard():
        pass
