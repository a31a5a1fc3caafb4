"""The loop and the reports of a compaction worker, without a metastore, and its end by a signal."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from typing import cast

import pytest

from airflow_hive_federation.compaction.worker import _Compaction
from airflow_hive_federation.errors import (
    AcidFormatError,
    HiveFederationError,
    MetastoreTimeoutError,
    OutcomeUnknownError,
    StorageUnavailableError,
    TransactionAbortedError,
)
from airflow_hive_federation.metastore import MetastoreClient
from airflow_hive_federation.metastore.idl import types

#: Each line of Python's threading that the main thread reaches while the worker waits gets a signal.
WHENEVER = """
import signal, sys, threading
from airflow_hive_federation.compaction.worker import CompactionWorker
from airflow_hive_federation.metastore import MetastoreSettings

def trace(frame, event, _):
    if frame.f_code.co_filename == threading.__file__:
        signal.raise_signal(signal.SIGTERM)
    return trace

class Idle(CompactionWorker):
    def _warn_of_the_cleaner(self):
        pass

    def serve_next(self, count=1):
        return []

worker = Idle(MetastoreSettings(uris=["thrift://127.0.0.1:1"]), lambda merges: [])
signal.signal(signal.SIGTERM, lambda *_: worker.stop())
timer = threading.Timer(0.2, worker.stop)
timer.start()
sys.settrace(trace)
reports = worker.serve(poll_s=3600.0)
sys.settrace(None)
timer.join()
print(reports, worker.serve(poll_s=3600.0))
"""


def test_a_signal_may_stop_the_worker_at_any_moment_of_its_wait() -> None:
    run = subprocess.run(
        [sys.executable, "-c", WHENEVER], capture_output=True, text=True, timeout=300, check=True
    )
    assert run.stdout == "[] []\n"


@pytest.mark.parametrize(
    ("error", "retryable"),
    [
        (AcidFormatError("damaged"), False),
        (StorageUnavailableError("throttled"), True),
        (MetastoreTimeoutError("no answer"), True),
        # No other task would repeat these by itself; the next compaction begins another transaction.
        (TransactionAbortedError("lost"), True),
        (OutcomeUnknownError("no answer"), True),
    ],
)
def test_a_failure_that_may_pass_is_reported_as_one(error: HiveFederationError, retryable: bool) -> None:
    calls: list[str] = []
    client = cast("MetastoreClient", SimpleNamespace(call=lambda method, *_: calls.append(method)))
    request = types.CompactionInfoStruct(id=1, dbname="d", tablename="t", type=types.CompactionType.MAJOR)
    compaction = _Compaction(client, None, request)
    compaction.fail(error)
    assert calls == ["mark_failed"]
    assert compaction.report is not None
    assert (compaction.report.state, compaction.report.retryable) == ("failed", retryable)
