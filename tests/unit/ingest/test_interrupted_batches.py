"""Exceptions of signals that come while threads write the files of a batch."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, ThreadPoolExecutor, wait
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.orc
import pytest

from airflow_hive_federation.ingest import batch as batch_module
from airflow_hive_federation.ingest.connection import HiveStreamingConnection
from airflow_hive_federation.ingest.delta_files import encoded
from airflow_hive_federation.ingest.errors import StreamingIOFailure
from airflow_hive_federation.ingest.rounds import Round
from airflow_hive_federation.ingest.states import ConnectionState
from airflow_hive_federation.storage import durable
from tests.support.memory_metastore import MemoryMetastore
from tests.support.streaming import Builders, rows

PATIENCE_S = 60.0


class Interrupt(BaseException):
    """As Airflow's ``AirflowTaskTimeout``: no ``Exception``."""


class Slow:
    """A step of the writing threads that has begun, and goes on when it is freed."""

    def __init__(self, step: Callable[..., Any]) -> None:
        self._step = step
        self.begun, self.freed = threading.Event(), threading.Event()

    def __call__(self, *args: Any, **named: Any) -> Any:
        self.begun.set()
        assert self.freed.wait(PATIENCE_S)
        return self._step(*args, **named)


def interrupt_waiting(monkeypatch: pytest.MonkeyPatch, slow: Slow) -> None:
    """Interrupt the main thread once, while it waits for the writing threads."""

    def interrupted(_tasks: Any) -> Any:
        assert slow.begun.wait(PATIENCE_S)
        monkeypatch.setattr(batch_module, "wait", wait)
        raise Interrupt

    monkeypatch.setattr(batch_module, "wait", interrupted)


def free_at_the_end(monkeypatch: pytest.MonkeyPatch, slow: Slow) -> None:
    """Free the slow step as soon as somebody waits for it."""

    def end(this: Round) -> None:
        if slow.begun.is_set():
            slow.freed.set()
        ending(this)

    ending = Round.end
    monkeypatch.setattr(Round, "end", end)


def first_commit(connection: HiveStreamingConnection) -> None:
    with connection.transaction():
        connection.write(b"1,a")


def write_until_interrupt(
    connection: HiveStreamingConnection, monkeypatch: pytest.MonkeyPatch, call: str, slow: Slow
) -> None:
    connection.write(b"2,b")
    if call == "commit_transaction":
        connection.flush()
    interrupt_waiting(monkeypatch, slow)
    getattr(connection, call)()


@pytest.mark.parametrize("managed", [True, False], ids=["abort", "close"])
@pytest.mark.parametrize("call", ["flush", "commit_transaction"])
def test_committed_rows_outlive_an_interrupt(
    builder: Builders,
    metastore: MemoryMetastore,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    call: str,
    managed: bool,
) -> None:
    """The threads would otherwise write to files that the main thread has already cut off and closed."""

    def at(step: str) -> None:
        # Without a wait, the threads go on when the files are closed.
        if step == "finished":
            slow.freed.set()

    connection = builder().with_transaction_batch_size(3).with_step_callback(at).connect()
    first_commit(connection)
    module, name = (batch_module, "encoded") if call == "flush" else (durable, "sync_file")
    slow = Slow(getattr(module, name))
    monkeypatch.setattr(module, name, slow)
    free_at_the_end(monkeypatch, slow)
    if not managed:
        connection.begin_transaction()
    with pytest.raises(Interrupt), connection, connection.transaction() if managed else nullcontext():
        write_until_interrupt(connection, monkeypatch, call, slow)
    # The file keeps rows that the interrupted commit has published; their aborted write id hides them.
    assert rows(tmp_path / "plain") == [(1, "a"), (2, "b")][: 1 if call == "flush" else 2]
    assert not list(tmp_path.glob("plain/**/*_flush_length"))
    assert sorted(metastore.txns.values()) == ["aborted", "aborted", "committed"]


def test_a_second_interrupt_leaves_the_files_as_a_kill_does(
    builder: Builders, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def interrupted(this: Round) -> None:
        if this._running:
            raise Interrupt
        ending(this)

    ending = Round.end
    connection = builder().with_transaction_batch_size(3).connect()
    first_commit(connection)
    batch: Any = connection._batch
    slow = Slow(encoded)
    monkeypatch.setattr(batch_module, "encoded", slow)
    with monkeypatch.context() as patch:
        patch.setattr(Round, "end", interrupted)
        with pytest.raises(Interrupt), connection, connection.transaction():
            write_until_interrupt(connection, patch, "flush", slow)
    slow.freed.set()
    batch._round.end()
    batch._pool.shutdown()
    (side,) = tmp_path.glob("plain/delta_*/bucket_00000_flush_length")
    length = int.from_bytes(side.read_bytes(), "big")
    committed = side.with_name("bucket_00000").read_bytes()[:length]
    assert pyarrow.orc.read_table(pyarrow.BufferReader(committed)).num_rows == 1


def test_an_interrupted_transaction_is_not_committed_without_its_rows(
    builder: Builders, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A caller may handle Ctrl-C, and go on."""
    slow = Slow(encoded)
    monkeypatch.setattr(batch_module, "encoded", slow)
    free_at_the_end(monkeypatch, slow)
    with builder().with_transaction_batch_size(3).connect() as connection:
        connection.begin_transaction()
        with pytest.raises(Interrupt):
            write_until_interrupt(connection, monkeypatch, "flush", slow)
        with pytest.raises(StreamingIOFailure, match="are missing from its files"):
            connection.commit_transaction()
        assert connection.state is ConnectionState.FAILED
    assert rows(tmp_path / "plain") == []


def test_an_interrupted_commit_is_repeated(
    builder: Builders, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Two threads would otherwise publish one file."""
    slow = Slow(durable.sync_file)
    monkeypatch.setattr(durable, "sync_file", slow)
    free_at_the_end(monkeypatch, slow)
    with builder().with_transaction_batch_size(3).connect() as connection:
        connection.begin_transaction()
        with pytest.raises(Interrupt):
            write_until_interrupt(connection, monkeypatch, "commit_transaction", slow)
        connection.commit_transaction()
    assert rows(tmp_path / "plain") == [(2, "b")]


def test_rows_are_kept_if_an_interrupt_comes_before_they_are_written(
    builder: Builders, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def at(step: str) -> None:
        if step == "prepared" and not interrupts:
            interrupts.append(step)
            raise Interrupt

    interrupts: list[str] = []
    with builder().with_step_callback(at).connect() as connection:
        connection.begin_transaction()
        connection.write(b"1,a")
        with pytest.raises(Interrupt):
            connection.flush()
        assert not list(tmp_path.glob("plain/delta_*"))
        connection.commit_transaction()
    assert rows(tmp_path / "plain") == [(1, "a")]


@pytest.mark.parametrize("again", [False, True])
def test_a_transaction_whose_begin_was_interrupted_is_aborted(
    builder: Builders, metastore: MemoryMetastore, tmp_path: Path, again: bool
) -> None:
    """While it waits for its lock, for instance; it would otherwise hold the lock until its timeout."""

    def at(step: str) -> None:
        if step == "locked" and not interrupts:
            interrupts.append(step)
            raise Interrupt

    interrupts: list[str] = []
    with builder().with_transaction_batch_size(3).with_step_callback(at).connect() as connection:
        with pytest.raises(Interrupt):
            connection.begin_transaction()
        if again:
            first_commit(connection)
    # Without write ids, another batch takes its place.
    assert sorted(metastore.txns.values()) == ["aborted"] * (5 if again else 3) + ["committed"] * again
    assert rows(tmp_path / "plain") == [(1, "a")] * again


def test_a_task_of_a_round_that_is_over_does_not_begin() -> None:
    """No caller has its future if the exception came inside of ``submit``."""
    begun: list[int] = []
    block = threading.Event()
    with ThreadPoolExecutor(1) as threads:
        first = threads.submit(block.wait)
        this = Round(threads)
        late = this.submit(begun.append, 1)
        this.end()
        block.set()
        assert first.result()
        with pytest.raises(CancelledError):
            late.result()
    assert begun == []


def test_the_end_of_a_round_wakes_a_task_that_may_not_write_yet() -> None:
    waiting = threading.Event()

    def task() -> None:
        waiting.set()
        this.wait_until_allowed()

    with ThreadPoolExecutor(1) as threads:
        this = Round(threads)
        done = this.submit(task)
        assert waiting.wait(PATIENCE_S)
        this.end()
        with pytest.raises(CancelledError):
            done.result()
        this.end()
