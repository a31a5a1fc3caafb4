"""Waiting counts the time of its probes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_hive_federation.errors import ConfigurationError, MetastoreUnreachableError
from airflow_hive_federation.waiting import PollPolicy, retry, wait_until


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


def test_a_probe_that_succeeds_is_not_waited_for() -> None:
    day = Day(0.5, yes_at_s=0.0)
    assert day.wait(PollPolicy(timeout_s=0.0))
    assert day.now_s == 0.5


def test_without_a_timeout_it_waits_until_the_probe_succeeds() -> None:
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


AWAY = MetastoreUnreachableError("a:1 does not answer.")
PATIENT = PollPolicy(first_s=1.0, factor=1.0, longest_s=1.0, timeout_s=100.0, patience_s=5.0)


class Ups:
    """A metastore that is away in some seconds of a day, and ready from a moment on.

    :param away_s: the beginning and the end of each absence.
    """

    def __init__(self, *away_s: tuple[float, float], ready_s: float = float("inf")) -> None:
        self.now_s = 0.0
        self.away_s = away_s
        self.ready_s = ready_s

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.now_s += seconds

    def probe(self) -> bool:
        if any(begin <= self.now_s < end for begin, end in self.away_s):
            raise AWAY
        return self.now_s >= self.ready_s

    def wait(self, policy: PollPolicy) -> bool:
        return wait_until(self.probe, policy, sleep=self.sleep, clock=lambda: self.now_s)


def test_absences_within_the_patience_are_borne() -> None:
    assert Ups((0, 5), (6, 11), (20, 25), ready_s=25).wait(PATIENT)


def test_an_absence_beyond_the_patience_ends_the_wait() -> None:
    ups = Ups((10, 16))
    with pytest.raises(MetastoreUnreachableError):
        ups.wait(PATIENT)
    assert ups.now_s == 15


def test_an_absence_at_the_timeout_is_neither_yes_nor_no() -> None:
    """The probe is called until it answers, or until the patience is over."""
    assert not Ups((98, 102)).wait(PATIENT)
    assert Ups((98, 102), ready_s=101).wait(PATIENT)
    with pytest.raises(MetastoreUnreachableError):
        Ups((98, 110)).wait(PATIENT)


def test_one_look_has_patience_too() -> None:
    policy = PollPolicy(first_s=60.0, longest_s=60.0, timeout_s=0.0, patience_s=5.0)
    ups = Ups((0, 5), ready_s=5)
    assert ups.wait(policy)
    assert ups.now_s == 5
    assert not Ups().wait(policy)


def test_without_patience_the_first_error_ends_the_wait() -> None:
    ups = Ups((0, 1))
    with pytest.raises(MetastoreUnreachableError):
        ups.wait(PollPolicy(timeout_s=100.0))
    assert ups.now_s == 0


def test_a_terminal_error_ends_the_wait_at_once() -> None:
    day, refused = Ups(), ConfigurationError("no metastore")

    def probe() -> bool:
        raise refused

    with pytest.raises(ConfigurationError):
        wait_until(probe, PATIENT, sleep=day.sleep, clock=lambda: day.now_s)
    assert day.now_s == 0


def test_a_call_is_repeated_with_the_pauses_of_the_policy_while_its_error_passes() -> None:
    slept: list[float] = []
    failures = [ConnectionResetError(), ConnectionResetError()]

    def call() -> str:
        if failures:
            raise failures.pop()
        return "answer"

    policy = PollPolicy(first_s=1.0, factor=3.0, longest_s=2.0)
    assert retry(call, policy, tries=3, on=ConnectionError, sleep=slept.append) == "answer"
    assert slept == [1.0, 2.0]


@pytest.mark.parametrize(
    ("error", "calls"),
    [
        (ConnectionRefusedError, 3),  # it passes, but not in three calls
        (ConnectionResetError, 1),  # a repetition would raise it again
        (KeyError, 1),
    ],
)
def test_a_call_is_not_repeated_for_ever_nor_after_another_error(error: type[Exception], calls: int) -> None:
    made: list[type[Exception]] = []

    def call() -> None:
        made.append(error)
        raise error

    with pytest.raises(error):
        retry(
            call,
            PollPolicy(),
            tries=3,
            on=ConnectionError,
            but_not_on=(ConnectionResetError,),
            sleep=lambda _: None,
        )
    assert len(made) == calls
