from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_hive_federation.storage.bandwidth import TokenBucket


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@given(st.lists(st.tuples(st.integers(0, 5000), st.floats(0, 3)), max_size=60), st.integers(1, 2000))
def test_never_more_than_the_rate_and_one_second_saved_up(steps: list[tuple[int, float]], rate: int) -> None:
    clock = Clock()
    bucket = TokenBucket(rate, clock=clock, sleep=clock.sleep)
    passed = 0
    for size_bytes, idle_s in steps:
        clock.now += idle_s
        bucket.take(size_bytes)
        passed += size_bytes
        assert passed <= rate * (clock.now + 1) + 1e-6


def test_a_steady_taker_gets_exactly_the_rate() -> None:
    clock = Clock()
    bucket = TokenBucket(1000, clock=clock, sleep=clock.sleep)
    for _ in range(100):
        bucket.take(4000)
    assert clock.now == pytest.approx(400)


def test_idle_time_is_saved_up_for_one_second_at_most() -> None:
    clock = Clock()
    bucket = TokenBucket(1000, clock=clock, sleep=clock.sleep)
    clock.now = 60.0
    assert bucket.take(1000) == 0
    assert bucket.take(500) == pytest.approx(0.5)


def test_a_rate_that_moves_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="moves nothing"):
        TokenBucket(0)
