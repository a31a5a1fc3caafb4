"""Waiting counts the time of its probes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_hive_federation.waiting import PollPolicy, wait_until


class Day:
    """A clock, and what makes it go on."""

    def __init__(self, probe_s: float, yes_at_s: float | None = None) -> None:
        self.now_s = 0.0
        self.probe_s = probe_s
        self.yes_at_s = yes_at_s
        self.begun_s: list[float] = []

    def sleep(self, seconds: float) -> None:
        assert seconds >= 0
        self.now_s += seconds

    def probe(self) -> bool:
        self.begun_s.append(self.now_s)
        self.now_s += self.probe_s
        return self.yes_at_s is not None and self.begun_s[-1] >= self.yes_at_s

    def wait(self, policy: PollPolicy) -> bool:
        return wait_until(self.probe, policy, sleep=self.sleep, clock=lambda: self.now_s)


def test_a_slow_probe_uses_the_timeout_up() -> None:
    day = Day(0.5)
    assert not day.wait(PollPolicy(timeout_s=1.0))
    assert day.now_s <= 1.5
    assert len(day.begun_s) == 2


def test_a_probe_that_says_yes_is_not_waited_for() -> None:
    day = Day(0.5, yes_at_s=0.0)
    assert day.wait(PollPolicy(timeout_s=0.0))
    assert day.now_s == 0.5


def test_without_a_timeout_it_waits_until_the_probe_says_yes() -> None:
    day = Day(1.0, yes_at_s=10_000.0)
    assert day.wait(PollPolicy(timeout_s=None))


@given(
    probe_s=st.floats(0, 10),
    timeout_s=st.floats(0, 100),
    first_s=st.floats(0.01, 10),
    factor=st.floats(1, 3),
)
def test_a_wait_takes_at_most_a_probe_longer(
    probe_s: float, timeout_s: float, first_s: float, factor: float
) -> None:
    day = Day(probe_s)
    assert not day.wait(PollPolicy(first_s=first_s, factor=factor, longest_s=20.0, timeout_s=timeout_s))
    assert timeout_s <= day.now_s or day.now_s == pytest.approx(timeout_s)
    assert day.now_s <= timeout_s + probe_s + 1e-6
