"""The bounds of a run's transactions, its position, and the names that it refuses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from airflow_hive_federation.errors import ConfigurationError, StreamingTransactionError
from airflow_hive_federation.ingest import HiveStreamingConnection, StrictDelimitedInputWriter
from airflow_hive_federation.ingest.errors import SerializationError
from airflow_hive_federation.ingest.runs import IngestRun, IngestTarget
from airflow_hive_federation.metastore import MetastoreSettings
from tests.support.memory_metastore import MemoryMetastore

TARGET = IngestTarget(table="d.plain", name="mine")


@pytest.fixture
def opened(settings: MetastoreSettings) -> Iterator[Callable[..., tuple[HiveStreamingConnection, IngestRun]]]:
    """Return connections of a target, each with a run; all end with the test."""
    connections: list[HiveStreamingConnection] = []

    def opened(**changes: Any) -> tuple[HiveStreamingConnection, IngestRun]:
        names = ("error_context", "on_begin", "stopped")
        callbacks = {name: changes.pop(name) for name in names if name in changes}
        target = replace(TARGET, **changes)
        writer = StrictDelimitedInputWriter(field_delimiter=",")
        connections.append(target.connection(settings, writer, None).connect())
        return connections[-1], IngestRun(connections[-1], target, **callbacks)

    yield opened
    for connection in connections:
        connection.close()


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"table": "plain"}, "names no table"),
        ({"table": ".plain"}, "names no table"),
        ({"table": "d."}, "names no table"),
        ({"name": ""}, "cannot name a position"),
        ({"name": "a b"}, "cannot name a position"),
        ({"name": "a\n"}, "cannot name a position"),
        ({"name": "x" * 101}, "cannot name a position"),
        ({"commit_records": 0}, "commit_records is 0"),
        ({"commit_bytes": -1}, "commit_bytes is -1"),
        ({"commit_interval_s": 0.0}, r"commit_interval_s is 0\.0"),
        ({"transaction_batch_size": 0}, "transaction_batch_size is 0"),
    ],
)
def test_targets_that_are_refused(changes: dict[str, Any], reason: str) -> None:
    TARGET.check()
    with pytest.raises(ConfigurationError, match=reason) as caught:
        replace(TARGET, **changes).check()
    assert caught.value.remedy


@pytest.mark.parametrize(
    "bound",
    [{"commit_records": 2}, {"commit_bytes": 6}, {"commit_interval_s": 1e-9}],
    ids=lambda settings: next(iter(settings)),
)
def test_a_transaction_is_due_at_each_of_its_bounds(opened: Any, bound: dict[str, Any]) -> None:
    _, run = opened(**bound)
    assert not run.is_due()
    run.write([b"1,a", b"2,b"], "2")
    assert run.is_due()
    run.commit()
    assert not run.is_due()
    assert (run.pending, run.committed) == (0, 2)


def test_a_transaction_below_its_bounds_is_not_due(opened: Any) -> None:
    _, run = opened(commit_records=3, commit_bytes=10)
    run.write([b"1,a"], "1")
    assert not run.is_due()
    run.commit()
    # Bytes and records of committed transactions do not count.
    run.write([b"1,a", b"2,b"], "3")
    assert not run.is_due()


def test_nothing_is_committed_without_a_record_or_a_position(opened: Any, metastore: MemoryMetastore) -> None:
    connection, run = opened()
    run.finish()
    assert "open_txns" not in metastore.calls
    run.advance("7")
    run.commit()
    assert connection.committed_position == "7"
    run.commit()
    assert metastore.calls.count("commit_txn") == 1
    # Records that keep the position are committed too.
    run.write([b"1,a"], "7")
    run.commit()
    assert metastore.calls.count("commit_txn") == 2


def test_a_run_begins_one_transaction_at_a_time(opened: Any, metastore: MemoryMetastore) -> None:
    begun: list[int] = []
    _, run = opened(on_begin=lambda: begun.append(len(begun)))
    run.write([b"1,a"], "1")
    run.write(pa.RecordBatch.from_pydict({"a": [2], "b": ["b"]}), "2", count=5)
    assert (begun, run.pending) == ([0], 6)
    run.commit()
    run.write([b"3,c"], "3")
    assert begun == [0, 1]


def test_a_stopped_run_commits_nothing_more(opened: Any, metastore: MemoryMetastore) -> None:
    stopped: list[bool] = []
    connection, run = opened(stopped=lambda: bool(stopped))
    run.write([b"1,a"], "1")
    stopped.append(True)
    for go_on in (run.commit, lambda: run.write([b"2,b"], "2")):
        with pytest.raises(StreamingTransactionError, match="was stopped") as caught:
            go_on()
        assert caught.value.retryable
    connection.close()
    assert list(metastore.txns.values()) == ["aborted"]
    assert "commit_txn" not in metastore.calls


def test_errors_of_records_have_their_origin(opened: Any) -> None:
    @contextmanager
    def origin() -> Iterator[None]:
        try:
            yield
        except SerializationError as error:
            raise SerializationError("line 3") from error

    _, run = opened(error_context=origin)
    run.write([b"x,a"], "1")
    with pytest.raises(SerializationError, match="line 3"):
        run.commit()
    batch = pa.RecordBatch.from_pydict({"a": [2**40], "b": ["b"]})
    with pytest.raises(SerializationError, match="line 3"):
        run.write(batch, "2")


@pytest.mark.parametrize("compaction", [None, "major"])
def test_a_run_requests_the_compaction_that_its_target_names(
    opened: Any, metastore: MemoryMetastore, compaction: str | None
) -> None:
    _, run = opened(compaction=compaction)
    run.write([b"1,a"], "1")
    run.finish()
    assert metastore.calls.count("compact2") == (compaction is not None)
    report = run.report(0.0, files=1, dead_letters=0)
    assert (report.records, report.transactions, report.position, report.files) == (1, 1, "1", 1)
