"""However the demo is ended, its ending is carried out."""

from __future__ import annotations

import signal

import pytest

from airflow_hive_federation.cli.demo import _ended_in_order

NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.mark.parametrize("first", NUMBERS)
def test_a_terminal_that_closes_after_an_interrupt_does_not_cut_the_ending_short(
    first: signal.Signals,
) -> None:
    before = [signal.getsignal(number) for number in NUMBERS]
    ended = False
    with pytest.raises(KeyboardInterrupt), _ended_in_order():
        try:
            signal.raise_signal(first)
        finally:
            for number in NUMBERS:
                signal.raise_signal(number)
            ended = True
    assert ended
    assert [signal.getsignal(number) for number in NUMBERS] == before
