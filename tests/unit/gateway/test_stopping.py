"""Signals that stop a process, whenever they come."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading

import pytest

from airflow_hive_federation.gateway.stopping import Stopping

#: Each line of Python's threading that the main thread reaches while it waits gets a signal.
WHENEVER = """
import signal, sys, threading
from airflow_hive_federation.gateway.stopping import Stopping

def trace(frame, event, _):
    if frame.f_code.co_filename == threading.__file__:
        signal.raise_signal(signal.SIGTERM)
    return trace

with Stopping() as stopping:
    timer = threading.Timer(0.2, stopping.request)
    timer.start()
    sys.settrace(trace)
    stopped = stopping.wait()
    sys.settrace(None)
timer.join()
print(stopped)
"""


def test_a_signal_may_come_at_any_moment_of_the_wait() -> None:
    run = subprocess.run(
        [sys.executable, "-c", WHENEVER], capture_output=True, text=True, timeout=60, check=True
    )
    assert run.stdout == "True\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_both_signals_stop_and_the_former_handlers_return(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with Stopping() as stopping:
        assert not stopping.wait(0)
        signal.raise_signal(number)
        assert stopping.wait()
    assert signal.getsignal(number) is before


def test_another_thread_may_request_the_stop() -> None:
    with Stopping() as stopping:
        thread = threading.Thread(target=stopping.request)
        thread.start()
        assert stopping.wait(60)
        thread.join()
