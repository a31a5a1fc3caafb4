"""However the demo is ended, its ending is carried out."""

from __future__ import annotations

import signal

import pytest

from airflow_hive_federation.demo.command import _ended_in_order

NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.mark.parametrize("first", NUMBERS)
def test_a_terminal_that_closes_after_an_interrupt_does_not_cut_the_ending_short(
    first: signal.Signals,
) -> None:
    before = handlers()
    steps: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        be_ended(first, steps)
    assert steps == ["began", "ended"]
    assert handlers() == before


def be_ended(first: signal.Signals, steps: list[str]) -> None:
    with _ended_in_order():
        try:
            steps.append("began")
            signal.raise_signal(first)
        finally:
            for number in NUMBERS:
                signal.raise_signal(number)
            steps.append("ended")


def handlers() -> list[object]:
    return [signal.getsignal(number) for number in NUMBERS]
