"""The calls of a streaming connection: those that are refused, and the state that each error leaves."""

from __future__ import annotations

import io
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from airflow_hive_federation.compaction.plan import CompactionKind
from airflow_hive_federation.errors import ConfigurationError, StreamingConnectionError
from airflow_hive_federation.ingest import HiveStreamingConnection
from airflow_hive_federation.ingest import connection as connection_module
from airflow_hive_federation.ingest import dead_letters as dead_letters_module
from airflow_hive_federation.ingest.dead_letters import DeadLetter
from airflow_hive_federation.ingest.description import Description
from airflow_hive_federation.ingest.errors import (
    DeadLetterLimitExceeded,
    HeartBeatFailure,
    InvalidConnection,
    InvalidTable,
    InvalidTransactionState,
    SerializationError,
    StreamingIOFailure,
    TransactionError,
)
from airflow_hive_federation.ingest.states import ConnectionState
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.waiting import PollPolicy
from tests.support.gateways import until
from tests.support.memory_metastore import MemoryMetastore, hang_up
from tests.support.streaming import Builders, rows

SOON = PollPolicy(first_s=0.01, timeout_s=0.05)
KEY = "_meta.here"


def fail(_args: Any) -> None:
    raise types.NoSuchTxnException(message="the database is full")


def beat(connection: HiveStreamingConnection) -> None:
    """Send the heartbeat that the connection would send by itself after half of the transactions' timeout."""
    batch: Any = connection._batch
    batch._hearts._beat(connection._client)


def write(connection: HiveStreamingConnection, record: bytes) -> None:
    connection.write(record)
    connection.flush()


def abandon(connection: HiveStreamingConnection) -> None:
    with connection:
        connection.begin_transaction()
        raise ValueError("mine")


def break_off(connection: HiveStreamingConnection, before: Callable[[], None] = lambda: None) -> None:
    with connection.transaction():
        before()
        raise ValueError("mine")


def test_a_connection_needs_a_description() -> None:
    with pytest.raises(InvalidConnection, match="not described"):
        HiveStreamingConnection(Description())


def test_a_connection_that_cannot_be_made_closes_its_client(
    builder: Builders, metastore: MemoryMetastore
) -> None:
    metastore.waiting.add("plain")
    with pytest.raises(TransactionError, match="no lock within") as caught:
        builder().with_position_key(KEY).with_lock_policy(SOON).connect()
    until(lambda: metastore.open_connections == 0)
    assert caught.value.retryable


def test_an_error_inside_the_block_is_not_hidden_by_one_of_closing(
    builder: Builders, metastore: MemoryMetastore
) -> None:
    metastore.before["abort_txns"] = fail
    with pytest.raises(ValueError, match="mine") as caught:
        abandon(builder().connect())
    (note,) = caught.value.__notes__
    assert "could not be closed" in note
    connection = builder().connect()
    connection.begin_transaction()
    with pytest.raises(StreamingIOFailure, match=r"could not be ended: .*the database is full"):
        connection.__exit__(None, None, None)
    assert connection.state is ConnectionState.CLOSED


def test_an_error_inside_a_transaction_aborts_it(builder: Builders, metastore: MemoryMetastore) -> None:
    with builder().connect() as connection:
        with pytest.raises(ValueError, match="mine"):
            break_off(connection, lambda: connection.write(b"1,a"))
        assert connection.state is ConnectionState.ABORTED
        assert list(metastore.txns.values()) == ["aborted"]
        metastore.before["abort_txns"] = fail
        with pytest.raises(ValueError, match="mine") as caught:
            break_off(connection)
        (note,) = caught.value.__notes__
        assert "could not be aborted" in note
        # The failed transaction is not ended a second time.
        assert connection.state is ConnectionState.FAILED
        with pytest.raises(InvalidTransactionState):
            break_off(connection)
        del metastore.before["abort_txns"]


def test_a_transaction_that_has_ended_inside_its_block_is_left_alone(
    builder: Builders, metastore: MemoryMetastore
) -> None:
    with builder().connect() as connection:
        with connection.transaction():
            connection.abort_transaction()
        with pytest.raises(ValueError, match="mine") as caught:
            break_off(connection, connection.commit_transaction)
        assert not hasattr(caught.value, "__notes__")
    assert list(metastore.txns.values()) == ["aborted", "committed"]


def test_a_transaction_without_its_lock_is_aborted(
    builder: Builders, metastore: MemoryMetastore, tmp_path: Path
) -> None:
    metastore.waiting.add("plain")
    described = builder().with_lock_policy(SOON).with_transaction_batch_size(2)
    with described.connect() as connection:
        with pytest.raises(TransactionError, match=r"was not granted its lock on d\.plain in 0\.05 s"):
            connection.begin_transaction()
        assert connection.state is ConnectionState.ABORTED
        assert sorted(metastore.txns.values()) == ["aborted", "open"]
        # The next one is granted it after a while.
        metastore.before["check_lock"] = lambda _args: metastore.waiting.clear()
        with connection.transaction():
            connection.write(b"1,a")
    assert rows(tmp_path / "plain") == [(1, "a")]


@pytest.mark.parametrize("bound", ["_PARSE_RECORDS", "_PARSE_BYTES"])
@pytest.mark.parametrize("way", ["write", "write_records"])
def test_records_are_parsed_before_they_are_too_many(
    builder: Builders, monkeypatch: pytest.MonkeyPatch, bound: str, way: str
) -> None:
    monkeypatch.setattr(connection_module, bound, 2 if bound == "_PARSE_RECORDS" else 6)
    with builder().connect() as connection, connection.transaction():
        for record in (b"1,a", b"2,b", b"3,c"):
            connection.write(record) if way == "write" else connection.write_records([record])
        assert connection.stats.records_written == 2


def test_a_commit_takes_a_key_and_a_value_together(builder: Builders) -> None:
    with builder().connect() as connection:
        connection.begin_transaction()
        for wrong in ({"key": KEY}, {"value": "7"}):
            with pytest.raises(InvalidTransactionState, match="go together"):
                connection.commit_transaction(**wrong)
        with pytest.raises(ConfigurationError, match="Begin its name with _meta"):
            connection.commit_transaction(key="owner", value="7")
        assert connection.state is ConnectionState.OPEN


def test_a_committed_batch_that_cannot_be_closed_is_committed(
    builder: Builders, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def hide(step: str) -> None:
        if step == "committed" and connection.remaining_transactions == 0:
            # Nothing can be finished below a file.
            (tmp_path / "plain").rename(tmp_path / "hidden")
            (tmp_path / "plain").write_text("")

    with builder().with_transaction_batch_size(2).with_step_callback(hide).connect() as connection:
        for record in (b"1,a", b"2,b"):
            with connection.transaction():
                connection.write(record)
    assert connection.stats.committed_transactions == 2
    (side,) = tmp_path.glob("hidden/delta_*/*_flush_length")
    side.unlink()
    assert rows(tmp_path / "hidden") == [(1, "a"), (2, "b")]
    assert "could not be ended" in caplog.text


def test_a_transaction_that_can_be_neither_begun_nor_aborted(
    builder: Builders, metastore: MemoryMetastore
) -> None:
    metastore.waiting.add("plain")
    metastore.before["abort_txns"] = fail
    with builder().with_lock_policy(SOON).connect() as connection:
        with pytest.raises(TransactionError, match="the database is full"):
            connection.begin_transaction()
        assert connection.state is ConnectionState.FAILED
        del metastore.before["abort_txns"]
    # Closing the connection aborts it after all.
    assert list(metastore.txns.values()) == ["aborted"]


def test_a_transaction_is_not_begun_inside_another(builder: Builders, metastore: MemoryMetastore) -> None:
    with builder().connect() as connection:
        connection.begin_transaction()
        with pytest.raises(InvalidTransactionState, match="inside a transaction"):
            connection.begin_transaction()
        assert connection.state is ConnectionState.OPEN
        assert len(metastore.txns) == 1


def test_nothing_is_compacted_where_nothing_was_written(
    builder: Builders, metastore: MemoryMetastore
) -> None:
    with builder("parted").connect() as connection:
        assert connection.request_compaction(CompactionKind.MINOR) == []
        with builder("plain").connect() as plain:
            assert plain.request_compaction(CompactionKind.MINOR) == []
        with connection.transaction():
            connection.write(b"1,a,x")
        (request,) = connection.request_compaction(CompactionKind.MINOR)
        assert request.partition == "p=x"
    assert metastore.calls.count("compact2") == 1


def test_a_second_close_has_no_effect(
    builder: Builders, metastore: MemoryMetastore, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, connection_module.__name__)
    connection = builder().connect()
    connection.begin_transaction()
    connection.close()
    asked = len(metastore.calls)
    connection.close()
    assert (len(metastore.calls), connection.stats.aborted_transactions) == (asked, 1)
    assert caplog.text.count("closed streaming connection") == 1


def test_a_call_inside_another_call_is_refused(builder: Builders) -> None:
    refused: list[str] = []

    def inside(step: str) -> None:
        if step == "flushed":
            with pytest.raises(InvalidTransactionState, match="another thread is inside") as caught:
                connection.write_records([b"2,b"])
            refused.append(caught.value.state)

    with builder().with_step_callback(inside).connect() as connection, connection.transaction():
        connection.write(b"1,a")
    assert refused == ["open"]


def test_one_thread_uses_a_transaction(builder: Builders, tmp_path: Path) -> None:
    with ThreadPoolExecutor(1) as other, builder().connect() as connection:
        connection.begin_transaction()
        for call in (
            lambda: connection.write(b"1,a"),
            lambda: connection.write_records([b"1,a"]),
            connection.commit_transaction,
        ):
            with pytest.raises(InvalidTransactionState, match="another thread has begun"):
                other.submit(call).result()
        connection.write(b"2,b")
        connection.commit_transaction()
        # The thread of an ended transaction has no right to the next one.
        other.submit(connection.begin_transaction).result()
        with pytest.raises(InvalidTransactionState, match="another thread has begun"):
            connection.write(b"3,c")
        other.submit(connection.abort_transaction).result()
    assert rows(tmp_path / "plain") == [(2, "b")]


def test_a_lost_transaction_takes_no_record(builder: Builders, metastore: MemoryMetastore) -> None:
    with builder().with_transaction_batch_size(2).connect() as connection:
        connection.begin_transaction()
        connection.write(b"1,a")
        metastore.txns[connection.current_txn_id or 0] = "aborted"
        beat(connection)
        # The fast way of writing does not look at the transaction, so a lost one has to close it.
        with pytest.raises(HeartBeatFailure, match="is lost"):
            connection.write(b"2,b")
        assert connection.state is ConnectionState.FAILED
        asked = metastore.calls.count("abort_txns")
        connection.abort_transaction()
        assert metastore.calls.count("abort_txns") == asked
        assert connection.stats.aborted_transactions == 0


def test_the_loss_of_another_transaction_of_the_batch_stops_no_record(
    builder: Builders, metastore: MemoryMetastore
) -> None:
    with builder().with_transaction_batch_size(2).connect() as connection:
        connection.begin_transaction()
        thread, lost = connection._thread, max(metastore.txns)
        metastore.txns[lost] = "aborted"
        beat(connection)
        assert connection._thread == thread
        connection.write(b"1,a")
        connection.commit_transaction()
        # The lost one is found when it is begun, before anything is written for it.
        with pytest.raises(HeartBeatFailure, match=f"Transaction {lost} is lost"):
            connection.begin_transaction()
        assert connection.state is ConnectionState.ABORTED


def test_a_position_that_another_process_moved(builder: Builders, metastore: MemoryMetastore) -> None:
    with builder().with_position_key(KEY).connect() as connection:
        assert connection.committed_position is None
        metastore.tables["d", "plain"].parameters[KEY] = "theirs"
        with pytest.raises(
            TransactionError, match=r"another process moved _meta\.here from None to 'theirs'"
        ):
            connection.begin_transaction()
        assert connection.state is ConnectionState.ABORTED
        assert list(metastore.txns.values()) == ["aborted"]
    with builder().with_position_key(KEY).connect() as connection:
        assert connection.committed_position == "theirs"


def test_a_record_is_bytes_a_text_or_a_stream(builder: Builders, tmp_path: Path) -> None:
    with builder().connect() as connection, connection.transaction():
        for record in ("1,é", bytearray(b"2,b"), memoryview(b"3,c"), io.BytesIO(b"4,d\n5,e\n")):
            connection.write(record)
        for wrong in (7, None, [b"1,a"]):
            with pytest.raises(SerializationError, match="is not a record"):
                connection.write(wrong)
    assert rows(tmp_path / "plain") == [(1, "é"), (2, "b"), (3, "c"), (4, "d"), (5, "e")]


def test_records_of_an_aborted_transaction_are_dropped(builder: Builders, tmp_path: Path) -> None:
    with builder().with_transaction_batch_size(2).connect() as connection:
        connection.begin_transaction()
        connection.write(b"1,a")
        connection.abort_transaction()
        with connection.transaction():
            connection.write(b"2,b")
    assert rows(tmp_path / "plain") == [(2, "b")]


def test_a_bad_record_keeps_its_number_in_the_transaction(builder: Builders) -> None:
    with builder().with_transaction_batch_size(2).connect() as connection:
        for _ in range(2):
            connection.begin_transaction()
            connection.write(b"1,a")
            connection.flush()
            connection.write(b"x,b")
            with pytest.raises(SerializationError, match="Record 2 of the transaction"):
                connection.flush()
            connection.abort_transaction()


def test_records_with_a_null_in_a_column_that_is_not_null(
    builder: Builders, metastore: MemoryMetastore, tmp_path: Path
) -> None:
    rule = types.SQLNotNullConstraint(column_name="B", enable_cstr=True, rely_cstr=True)
    free = types.SQLNotNullConstraint(column_name="a", enable_cstr=False, rely_cstr=True)
    metastore.constraints["d", "plain"] = types.SQLAllTableConstraints(notNullConstraints=[rule, free])
    letters: list[DeadLetter] = []
    with builder().with_dead_letters(letters.append).connect() as connection, connection.transaction():
        connection.write_records([b"x,y", rb"\N,b", rb"2,\N", rb"4,\N"])
    found = [(letter.record_number, letter.column, letter.record) for letter in letters]
    assert found == [(1, "a", b"x,y"), (3, "b", rb"2,\N"), (4, "b", rb"4,\N")]
    assert metastore.calls.count("get_all_table_constraints") == 1
    assert rows(tmp_path / "plain") == [(None, "b")]
    with builder().connect() as connection:
        connection.begin_transaction()
        with pytest.raises(
            SerializationError, match=r"Record 1 .*, column b: it is null, but the column is NOT"
        ):
            write(connection, rb"2,\N")
        batch = pa.table({"a": [1, 2], "b": ["a", None]})
        with pytest.raises(SerializationError, match="Row 2 of the batch, column b: it is null"):
            connection.write_batch(batch)
        connection.abort_transaction()


def test_a_table_with_a_check_constraint_is_refused(builder: Builders, metastore: MemoryMetastore) -> None:
    rule = types.SQLCheckConstraint(dc_name="positive", check_expression="a > 0", enable_cstr=True)
    metastore.constraints["d", "plain"] = types.SQLAllTableConstraints(checkConstraints=[rule])
    with pytest.raises(InvalidTable, match=r"d\.plain has a CHECK constraint .*: positive \(a > 0\)\."):
        builder().connect()


@pytest.mark.parametrize("end", ["commit_transaction", "abort_transaction", "close"])
def test_an_ended_transaction_takes_no_record(builder: Builders, tmp_path: Path, end: str) -> None:
    with builder().with_transaction_batch_size(2).connect() as connection:
        connection.begin_transaction()
        connection.write(b"1,a")
        getattr(connection, end)()
        with pytest.raises(InvalidTransactionState):
            connection.write(b"2,b")
    assert rows(tmp_path / "plain") == ([(1, "a")] if end == "commit_transaction" else [])


def test_a_transaction_that_was_not_begun_takes_no_record(
    builder: Builders, metastore: MemoryMetastore, tmp_path: Path
) -> None:
    with builder().with_transaction_batch_size(2).connect() as connection:
        metastore.before["lock"] = fail
        with pytest.raises(TransactionError, match="the database is full"):
            connection.begin_transaction()
        with pytest.raises(InvalidTransactionState):
            connection.write(b"1,a")
        del metastore.before["lock"]
        with connection.transaction():
            connection.write(b"2,b")
    assert rows(tmp_path / "plain") == [(2, "b")]


def test_a_used_up_batch_is_closed_by_its_last_commit(builder: Builders) -> None:
    with builder().with_transaction_batch_size(2).connect() as connection:
        for remaining in (1, 0):
            with connection.transaction():
                connection.write(b"1,a")
            assert connection.remaining_transactions == remaining
            assert (connection.current_txn_id is None) == (remaining == 0)
        assert connection.stats.transaction_batches == 1
        assert connection.stats.total_partitions == 0


def test_another_key_moves_no_position(builder: Builders, metastore: MemoryMetastore) -> None:
    metastore.tables["d", "plain"].parameters["_meta.other"] = ""
    with builder().with_position_key(KEY).connect() as connection:
        connection.begin_transaction()
        connection.commit_transaction(key="_meta.other", value="9")
        assert connection.committed_position is None
    assert metastore.tables["d", "plain"].parameters["_meta.other"] == "9"


def test_bad_records_are_on_the_disk_before_the_commit(builder: Builders, tmp_path: Path) -> None:
    letters = tmp_path / "letters.jsonl"
    present: list[bool] = []

    def look(step: str) -> None:
        if step == "flushed":
            present.append(letters.exists() and b"x,b" in letters.read_bytes())

    described = builder().with_dead_letters(str(letters), limit=1).with_step_callback(look)
    with described.connect() as connection:
        with connection.transaction():
            connection.write_records([b"1,a", b"x,b"])
        assert present == [True]
        connection.begin_transaction()
        connection.write(b"y,b")
        with pytest.raises(SerializationError, match="More than 1 bad records"):
            connection.flush()
        assert connection.stats.dead_letters == 1
        connection.abort_transaction()


def test_bad_records_outlast_an_error_of_the_rows_beside_them(
    builder: Builders, metastore: MemoryMetastore, tmp_path: Path
) -> None:
    """The rows are written at once, but no metastore answers; then the caller repeats the commit."""
    letters: list[DeadLetter] = []
    described = builder("parted").with_dead_letters(letters.append).with_buffer_bytes(1)
    with described.connect() as connection:
        connection.begin_transaction()
        connection.write_records([b"1,a,x", b"y,b,x", b"3,c,x"])
        metastore.before["get_partitions_by_names_req"] = hang_up
        with pytest.raises(StreamingConnectionError):
            connection.commit_transaction()
        assert letters == []
        del metastore.before["get_partitions_by_names_req"]
        connection.commit_transaction()
        assert [letter.record_number for letter in letters] == [2]
        assert (connection.stats.dead_letters, connection.stats.records_written) == (1, 2)
    assert rows(tmp_path / "parted") == [(1, "a"), (3, "c")]


def test_a_handler_that_fails_gets_the_rest_of_the_bad_records_later(builder: Builders) -> None:
    letters: list[int] = []

    def handle(letter: DeadLetter) -> None:
        if letter.record_number == 2 and not failed:
            failed.append(letter)
            raise ValueError("busy")
        letters.append(letter.record_number)

    failed: list[DeadLetter] = []
    with builder().with_dead_letters(handle).connect() as connection:
        connection.begin_transaction()
        connection.write_records([b"x,a", b"y,b", b"z,c", b"4,d"])
        with pytest.raises(ValueError, match="busy"):
            connection.commit_transaction()
        assert letters == [1]
        connection.commit_transaction()
        assert letters == [1, 2, 3]
        assert connection.stats.dead_letters == 3


def test_bad_records_beyond_the_limit_keep_refusing_the_commit(builder: Builders) -> None:
    letters: list[DeadLetter] = []
    with builder().with_dead_letters(letters.append, limit=1).connect() as connection:
        connection.begin_transaction()
        connection.write_records([b"x,a", b"y,b", b"3,c"])
        for _ in range(2):
            with pytest.raises(DeadLetterLimitExceeded, match="Record 2 of the transaction"):
                connection.commit_transaction()
        connection.abort_transaction()
        with connection.transaction():
            connection.write(b"3,c")
    assert len(letters) == 1


def test_a_disk_without_room_for_dead_letters_fails_the_transaction(
    builder: Builders, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(dead_letters_module, "_HELD_BYTES", 1)
    (tmp_path / "file").touch()
    with builder().with_dead_letters(f"{tmp_path}/file/bad.jsonl").connect() as connection:
        connection.begin_transaction()
        connection.write_records([b"x,a", b"y,b", b"3,c"])
        with pytest.raises(StreamingIOFailure, match="Dead letters"):
            connection.flush()
        assert connection.state is ConnectionState.FAILED
        (tmp_path / "file").unlink()
