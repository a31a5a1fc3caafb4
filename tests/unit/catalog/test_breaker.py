"""A remote that is down gets no more calls for a while."""

from __future__ import annotations

import pytest

from airflow_hive_federation.catalog.breaker import CircuitBreaker
from airflow_hive_federation.errors import (
    HostKeyError,
    MetastoreProtocolError,
    MetastoreUnreachableError,
    NoSuchObjectError,
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


def test_what_lies_on_the_way_has_the_remotes_name() -> None:
    breaker = CircuitBreaker("r", failures=2)
    for error in (MetastoreProtocolError("A web server."), HostKeyError("Another key.", hop="h")):
        with pytest.raises(RemoteError, match=f"Remote r: {error.message}") as caught:
            fail(breaker, error)
        assert not caught.value.retryable
    with pytest.raises(RemoteUnavailableError, match="2 times in a row"), breaker.guard():
        raise AssertionError("asked")


def test_errors_of_our_own_pass() -> None:
    breaker = CircuitBreaker("r", failures=1)
    with pytest.raises(ValueError, match="ours"):
        fail(breaker, ValueError("ours"))
    with breaker.guard():
        pass
