"""Transaction batches and the partitions that they prepare: refusals, repeats and what is left behind."""

from __future__ import annotations

import errno
import os
import shutil
import threading
import uuid
from pathlib import Path
from typing import Any

import pyarrow.orc
import pytest

from airflow_hive_federation.errors import StorageError, StreamingConnectionError
from airflow_hive_federation.ingest import batch as batch_module
from airflow_hive_federation.ingest.connection import HiveStreamingConnection
from airflow_hive_federation.ingest.delta_files import DeltaFile
from airflow_hive_federation.ingest.errors import (
    CommitOutcomeUnknown,
    HeartBeatFailure,
    InvalidTable,
    PartitionCreationFailed,
    StreamingIOFailure,
    TransactionError,
)
from airflow_hive_federation.ingest.states import ConnectionState
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.storage import durable
from airflow_hive_federation.storage.filesystem import open_filesystem
from airflow_hive_federation.transactions.positions import fence_name
from tests.support.memory_metastore import MemoryMetastore, hang_up
from tests.support.small_source import storage
from tests.support.streaming import Builders, rows

ACCURATE = "COLUMN_STATS_ACCURATE"
KEY, OTHER = "_meta.here", "_meta.there"


def once(metastore: MemoryMetastore, method: str) -> Any:
    """Hang up at one call of a method, and answer the later ones."""

    def rule(_args: Any) -> None:
        del metastore.after[method]
        hang_up(_args)

    return rule


def stale(args: Any) -> None:
    if args.req.expectedParameterKey:
        raise types.MetaException(message="The table has been modified.")


def flush_without_memory(connection: HiveStreamingConnection, monkeypatch: pytest.MonkeyPatch) -> None:
    def out_of_memory(*_args: Any, **_named: Any) -> Any:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(batch_module, "encoded", out_of_memory)
        with pytest.raises(MemoryError):
            connection.flush()


def test_rows_that_never_came_to_the_files_are_missed(
    builder: Builders, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with builder().with_transaction_batch_size(2).connect() as connection:
        connection.begin_transaction()
        connection.write(b"1,a")
        flush_without_memory(connection, monkeypatch)
        for call in (lambda: connection.write_records([b"2,b"]), connection.commit_transaction):
            with pytest.raises(Exception, match=r"are missing from its files|failed") as caught:
                call()
        assert connection.state is ConnectionState.FAILED
        assert "Close the connection" in caught.value.remedy
    assert rows(tmp_path / "plain") == []


def test_a_torn_transaction_spoils_only_itself(
    builder: Builders, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with builder().with_transaction_batch_size(2).connect() as connection:
        connection.begin_transaction()
        connection.write(b"1,a")
        flush_without_memory(connection, monkeypatch)
        connection.abort_transaction()
        with connection.transaction():
            connection.write(b"2,b")
    assert rows(tmp_path / "plain") == [(2, "b")]


def test_rows_above_the_buffer_are_written_before_the_commit(builder: Builders, tmp_path: Path) -> None:
    with builder().with_buffer_bytes(20).connect() as connection:
        connection.begin_transaction()
        connection.write_records([b"1,a"] * 3)
        connection.flush()
        assert list(tmp_path.glob("plain/delta_*/.bucket_*"))
        connection.commit_transaction()
    assert connection.stats.auto_flush_count == 1


def test_a_partition_without_a_row_is_not_created(builder: Builders, metastore: MemoryMetastore) -> None:
    letters: list[Any] = []
    described = builder("parted").with_static_partition_values(["x"]).with_dead_letters(letters.append)
    with described.connect() as connection, connection.transaction():
        connection.write(b"bad,a")
    assert len(letters) == 1
    assert metastore.partitions["d", "parted"] == {}
    # A transaction without a row makes no event of files.
    assert not {method for method in metastore.calls if "notification" in method}


def test_partitions_are_created_by_name(builder: Builders, metastore: MemoryMetastore) -> None:
    with builder("parted").connect() as connection:
        connection.begin_transaction()
        connection.commit_transaction(partitions=["p=a%2Fb"])
    (made,) = metastore.partitions["d", "parted"].values()
    assert made.values == ["a/b"]
    assert made.sd.location.endswith("/parted/p=a%2Fb")
    assert connection.stats.created_partitions == 1


def test_rows_are_kept_while_no_metastore_answers(
    builder: Builders, metastore: MemoryMetastore, tmp_path: Path
) -> None:
    with builder("parted").connect() as connection:
        connection.begin_transaction()
        connection.write(b"1,a,x")
        metastore.before["get_partitions_by_names_req"] = hang_up
        for _ in range(2):
            with pytest.raises(StreamingConnectionError) as caught:
                connection.commit_transaction()
            assert caught.value.retryable
            assert connection.state is ConnectionState.OPEN
        del metastore.before["get_partitions_by_names_req"]
        connection.commit_transaction()
    assert rows(tmp_path / "parted") == [(1, "a")]


def test_a_commit_whose_answer_is_lost_is_repeated(builder: Builders, metastore: MemoryMetastore) -> None:
    metastore.after["commit_txn"] = once(metastore, "commit_txn")
    with builder().connect() as connection, connection.transaction():
        connection.write(b"1,a")
    assert connection.stats.committed_transactions == 1
    assert metastore.calls.count("commit_txn") == 2


@pytest.mark.parametrize("ending", ["silence", "forgotten"])
def test_a_commit_of_unknown_outcome(builder: Builders, metastore: MemoryMetastore, ending: str) -> None:
    def forget(args: Any) -> None:
        del metastore.txns[args.rqst.txnid]
        del metastore.after["commit_txn"]
        hang_up(args)

    metastore.after["commit_txn"] = hang_up if ending == "silence" else forget
    with builder().connect() as connection:
        connection.begin_transaction()
        connection.write(b"1,a")
        with pytest.raises(CommitOutcomeUnknown, match="It is unknown whether transaction") as caught:
            connection.commit_transaction()
        assert not caught.value.retryable
        assert "position" in caught.value.remedy
        metastore.after.clear()
        metastore.txns.clear()
        metastore.before["abort_txns"] = lambda args: args.rqst.txn_ids.clear()


def test_a_commit_of_an_aborted_transaction(builder: Builders, metastore: MemoryMetastore) -> None:
    with builder().connect() as connection:
        connection.begin_transaction()
        connection.write(b"1,a")
        metastore.txns[connection.current_txn_id or 0] = "aborted"
        with pytest.raises(HeartBeatFailure, match="was aborted") as caught:
            connection.commit_transaction()
        assert "Connect again" in caught.value.remedy
        assert connection.state is ConnectionState.FAILED


def test_a_metastore_that_opens_fewer_transactions(
    builder: Builders, metastore: MemoryMetastore, tmp_path: Path
) -> None:
    """As with ``hive.txn.max.open.batch``."""

    def at_most_two(args: Any) -> None:
        args.rqst.num_txns = min(args.rqst.num_txns, 2)

    metastore.before["open_txns"] = at_most_two
    with builder().with_transaction_batch_size(5).connect() as connection:
        remaining = []
        for number in range(3):
            with connection.transaction():
                connection.write(b"%d,a" % number)
                remaining.append(connection.remaining_transactions)
        assert remaining == [1, 0, 1]
        assert connection.stats.transaction_batches == 2
    assert rows(tmp_path / "plain") == [(0, "a"), (1, "a"), (2, "a")]


@pytest.mark.parametrize("size", [1, 2])
def test_a_transaction_that_was_lost_while_its_rows_were_written(
    builder: Builders, metastore: MemoryMetastore, tmp_path: Path, size: int
) -> None:
    """Its files get no visible names."""

    def at(step: str) -> None:
        steps.append(step)
        if step == "flushed":
            batch: Any = connection._batch
            batch._hearts._lost.add(batch.txn_id)

    steps: list[str] = []
    with builder().with_transaction_batch_size(size).with_step_callback(at).connect() as connection:
        connection.begin_transaction()
        connection.write(b"1,a")
        with pytest.raises(HeartBeatFailure, match="is lost"):
            connection.commit_transaction()
        assert connection.state is ConnectionState.FAILED
    assert "published" not in steps
    assert not list(tmp_path.glob("plain/**/bucket_*"))
    assert "commit_txn" not in metastore.calls


def test_a_commit_that_the_metastore_refuses(builder: Builders, metastore: MemoryMetastore) -> None:
    def forget(args: Any) -> None:
        raise types.NoSuchTxnException(message=f"no txn {args.rqst.txnid}")

    with builder().connect() as connection:
        connection.begin_transaction()
        metastore.before["commit_txn"] = forget
        with pytest.raises(TransactionError, match="no txn") as caught:
            connection.commit_transaction()
        assert type(caught.value) is TransactionError
        assert connection.state is ConnectionState.OPEN


@pytest.mark.parametrize("lacking", [0, 1, 2])
def test_the_files_of_a_commit_are_announced(
    builder: Builders, metastore: MemoryMetastore, lacking: int
) -> None:
    """Hive 3.1 lacks both calls."""
    writes: list[Any] = []
    metastore.before["add_write_notification_log_in_batch"] = lambda args: writes.extend(
        args.rqst.requestList
    )
    metastore.before["add_write_notification_log"] = lambda args: writes.append(args.rqst)
    calls = ("add_write_notification_log_in_batch", "add_write_notification_log")
    metastore.thrift.lacking.update(calls[:lacking])
    with builder("parted").with_transaction_batch_size(2).connect() as connection:
        for value in ("x", "y"):
            writes.clear()
            with connection.transaction():
                connection.write(f"1,a,{value}".encode())
            assert len(writes) == (lacking < 2)
            for request in writes:
                assert request.partitionVals == [value]
                assert [uri.rsplit("/", 3)[1] for uri in request.fileInfo.filesAdded] == [f"p={value}"]


def test_an_aborted_transaction_leaves_no_row_in_the_file(builder: Builders, tmp_path: Path) -> None:
    with builder().with_transaction_batch_size(3).connect() as connection:
        for number, end in enumerate(("commit", "abort", "commit")):
            connection.begin_transaction()
            connection.write(f"{number},x".encode())
            connection.flush()
            getattr(connection, f"{end}_transaction")()
    assert rows(tmp_path / "plain") == [(0, "x"), (2, "x")]


def test_rows_of_a_later_flush_have_later_numbers(builder: Builders, tmp_path: Path) -> None:
    with builder().connect() as connection, connection.transaction():
        for record in (b"1,a", b"2,b"):
            connection.write(record)
            connection.flush()
    (file,) = tmp_path.glob("plain/delta_*/bucket_*")
    assert pyarrow.orc.read_table(file)["rowId"].to_pylist() == [0, 1]


def test_an_abandoned_transaction_leaves_no_row_in_the_file(
    builder: Builders, metastore: MemoryMetastore, tmp_path: Path
) -> None:
    with builder().with_transaction_batch_size(2).connect() as connection:
        with connection.transaction():
            connection.write(b"1,a")
        connection.begin_transaction()
        connection.write(b"2,b")
        connection.flush()
    assert rows(tmp_path / "plain") == [(1, "a")]
    assert list(metastore.txns.values()) == ["committed", "aborted"]


def test_closing_tries_every_step_and_raises_the_first_error(
    builder: Builders, metastore: MemoryMetastore, tmp_path: Path
) -> None:
    def refuse(_args: Any) -> None:
        raise types.NoSuchTxnException(message="the database is full")

    connection = builder().with_transaction_batch_size(2).connect()
    with connection.transaction():
        connection.write(b"1,a")
    shutil.rmtree(tmp_path / "plain")
    (tmp_path / "plain").write_text("no directory", encoding="utf-8")
    metastore.before["abort_txns"] = refuse
    with pytest.raises(StreamingIOFailure, match=r"could not be ended: .*plain") as caught:
        connection.close()
    assert "the database is full" not in caught.value.message
    assert metastore.calls[-1] == "abort_txns"
    assert not [thread for thread in _encoders() if thread.is_alive()]


def test_a_disk_that_fails_at_a_later_commit_takes_no_committed_row(
    builder: Builders, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fail(_path: Path) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with builder().with_transaction_batch_size(2).connect() as connection:
        with connection.transaction():
            connection.write(b"1,a")
        connection.begin_transaction()
        connection.write(b"2,b")
        monkeypatch.setattr(durable, "sync_file", fail)
        with pytest.raises(StreamingIOFailure, match="Input/output error"):
            connection.commit_transaction()
        assert connection.state is ConnectionState.FAILED
    assert rows(tmp_path / "plain") == [(1, "a")]


def test_closing_finishes_files_that_it_cannot_cut_off(
    builder: Builders, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fail(file: DeltaFile) -> None:
        raise StorageError(f"{file.uri} cannot be cut off.", path=file.uri)

    connection = builder("parted").with_transaction_batch_size(2).connect()
    connection.begin_transaction()
    connection.write_records([b"1,a,x", b"2,b,y"])
    connection.flush()
    assert len(list(tmp_path.glob("parted/*/delta_*/.bucket_*"))) == 2
    monkeypatch.setattr(DeltaFile, "rewind", fail)
    with pytest.raises(StreamingIOFailure, match="cannot be cut off"):
        connection.close()
    assert not list(tmp_path.glob("parted/*/delta_*"))


def _encoders() -> list[Any]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("hive-ingest-encode")]


@pytest.mark.parametrize("end", ["commit_transaction", "abort_transaction"])
def test_no_heartbeat_names_an_ended_transaction(
    builder: Builders, metastore: MemoryMetastore, end: str
) -> None:
    beats: list[int] = []
    metastore.before["heartbeat_txn_range"] = lambda args: beats.append(args.txns.min)
    with builder().with_transaction_batch_size(2).connect() as connection:
        connection.begin_transaction()
        first: Any = connection.current_txn_id
        batch: Any = connection._batch
        batch._hearts._beat(connection._client)
        getattr(connection, end)()
        batch._hearts._beat(connection._client)
    assert beats == [first, first + 1]
    assert not [thread for thread in threading.enumerate() if f"transactions {first}" in thread.name]


def test_a_partition_is_prepared_once_per_transaction(builder: Builders, metastore: MemoryMetastore) -> None:
    with builder("parted").with_transaction_batch_size(2).connect() as connection:
        for count in (1, 2):
            connection.begin_transaction()
            for record in (b"1,a,x", b"2,b,x"):
                connection.write(record)
                connection.flush()
            connection.commit_transaction()
            assert metastore.calls.count("add_dynamic_partitions") == count
    assert connection.stats.created_partitions == 1


def test_a_partition_of_another_storage_is_refused(
    builder: Builders, metastore: MemoryMetastore, tmp_path: Path
) -> None:
    other = storage(f"file:{tmp_path}/parted/p=x")
    other.outputFormat = "org.apache.hadoop.hive.ql.io.HiveIgnoreKeyTextOutputFormat"
    parted = metastore.tables["d", "parted"]
    metastore.put_table(parted, types.Partition(dbName="d", tableName="parted", values=["x"], sd=other))
    with builder("parted").connect() as connection:
        connection.begin_transaction()
        connection.write(b"1,a,x")
        connection.write(b"2,b,new")
        with pytest.raises(InvalidTable, match=r"Partition p=x of d\.parted is not stored as its table"):
            connection.commit_transaction()
        assert not list(tmp_path.glob("parted/**/*bucket*"))
        connection.abort_transaction()
    assert list(metastore.partitions["d", "parted"]) == ["p=x"]


def test_a_partition_that_another_writer_has_made_first(
    builder: Builders, metastore: MemoryMetastore, tmp_path: Path
) -> None:
    def first(_args: Any) -> None:
        theirs = types.Partition(
            dbName="d", tableName="parted", values=["x"], sd=storage(f"file:{tmp_path}/theirs/")
        )
        metastore.partitions["d", "parted"]["p=x"] = theirs

    metastore.before["add_partitions_req"] = first
    with builder("parted").connect() as connection, connection.transaction():
        connection.write(b"1,a,x")
    assert rows(tmp_path / "theirs") == [(1, "a")]
    assert not (tmp_path / "parted").exists()


def test_a_partition_in_a_store_that_cannot_append(builder: Builders, metastore: MemoryMetastore) -> None:
    """Its rows stay when a later transaction of the batch is aborted, although the table's files grow."""
    place = f"memory://far/{uuid.uuid4().hex}"
    far = types.Partition(dbName="d", tableName="parted", values=["x"], sd=storage(place))
    metastore.put_table(metastore.tables["d", "parted"], far)
    with builder("parted").with_transaction_batch_size(3).connect() as connection:
        for number, end in enumerate(("commit", "abort", "commit")):
            connection.begin_transaction()
            connection.write(f"{number},a,x".encode())
            connection.flush()
            getattr(connection, f"{end}_transaction")()
    filesystem, path = open_filesystem(place)
    tables = [
        pyarrow.orc.read_table(pyarrow.BufferReader(filesystem.cat_file(name)))
        for name in filesystem.find(path)
        if "/bucket_" in name
    ]
    assert sorted(row["a"] for table in tables for row in table["row"].to_pylist()) == [0, 2]


def test_a_partition_that_cannot_be_created(builder: Builders, metastore: MemoryMetastore) -> None:
    def refuse(_args: Any) -> None:
        raise types.MetaException(message="no more partitions")

    metastore.before["add_partitions_req"] = refuse
    with builder("parted").connect() as connection:
        connection.begin_transaction()
        connection.write(b"1,a,x")
        with pytest.raises(PartitionCreationFailed, match="no more partitions"):
            connection.commit_transaction()
        assert connection.state is ConnectionState.FAILED
    assert list(metastore.txns.values()) == ["aborted"]


def test_statistics_are_no_longer_accurate(builder: Builders, metastore: MemoryMetastore) -> None:
    metastore.tables["d", "plain"].parameters[ACCURATE] = "{}"
    with builder().connect() as connection, connection.transaction():
        connection.write(b"1,a")
    assert ACCURATE not in metastore.tables["d", "plain"].parameters
    assert "add_dynamic_partitions" not in metastore.calls


def test_a_position_is_not_set_back_with_the_statistics(
    builder: Builders, metastore: MemoryMetastore
) -> None:
    parameters = metastore.tables["d", "plain"].parameters
    parameters |= {ACCURATE: "{}", KEY: "1"}

    def move(_args: Any) -> None:
        del metastore.before["alter_table_req"]
        metastore.tables["d", "plain"].parameters[KEY] = "2"

    metastore.before["alter_table_req"] = move
    with builder().connect() as connection, connection.transaction():
        connection.write(b"1,a")
    after = metastore.tables["d", "plain"].parameters
    assert (after[KEY], ACCURATE in after) == ("2", False)


@pytest.mark.parametrize("mine", [KEY, OTHER])
def test_the_position_of_the_other_stream_is_not_set_back(
    builder: Builders, metastore: MemoryMetastore, mine: str
) -> None:
    """Nobody else moves a stream's own position, so the metastore compares that of the other stream."""
    (other,) = {KEY, OTHER} - {mine}
    metastore.tables["d", "plain"].parameters |= {ACCURATE: "{}", KEY: "1", OTHER: "1"}

    def move(_args: Any) -> None:
        del metastore.before["alter_table_req"]
        metastore.tables["d", "plain"].parameters[other] = "2"

    metastore.before["alter_table_req"] = move
    with builder().with_position_key(mine).connect() as connection, connection.transaction():
        connection.write(b"1,a")
    after = metastore.tables["d", "plain"].parameters
    assert (after[mine], after[other], ACCURATE in after) == ("1", "2", False)
    assert metastore.calls.count("alter_table_req") == 2
    assert not metastore.locks_of(f"plain:{other}")


def test_the_positions_of_several_streams_stand_still_for_the_statistics(
    builder: Builders, metastore: MemoryMetastore
) -> None:
    metastore.tables["d", "plain"].parameters |= {ACCURATE: "{}", KEY: "1", OTHER: "1"}

    def commit(args: Any) -> None:
        # The other stream commits before its fence is free.
        if any(component.tablename == f"plain:{OTHER}" for component in args.rqst.component):
            metastore.tables["d", "plain"].parameters[OTHER] = "2"

    fenced: list[bool] = []
    metastore.before["lock"] = commit
    metastore.before["alter_table_req"] = lambda _args: fenced.append(
        bool(metastore.locks_of(f"plain:{OTHER}"))
    )
    with builder().connect() as connection, connection.transaction():
        connection.write(b"1,a")
    after = metastore.tables["d", "plain"].parameters
    assert (after[KEY], after[OTHER], ACCURATE in after) == ("1", "2", False)
    assert fenced == [True]
    assert not metastore.locks_of(f"plain:{OTHER}")


def test_positions_whose_keys_differ_in_case_have_fences_of_their_own(
    builder: Builders, metastore: MemoryMetastore, tmp_path: Path
) -> None:
    """A connect aborts the open transactions of its own position only."""
    with (
        builder().with_position_key("_meta.Orders").connect() as mine,
        mine.transaction(),
    ):
        mine.write(b"1,a")
        builder().with_position_key("_meta.orders").connect().close()
        mine.commit_transaction(key="_meta.Orders", value="1")
    assert rows(tmp_path / "plain") == [(1, "a")]
    assert len(metastore.locks_of("plain:_meta.^orders")) == 1


@pytest.mark.parametrize(
    "key", ["_meta.orders", "_meta.Orders", "_meta.^orders", "_meta.ORders", "_meta.^Orders"]
)
def test_the_name_of_a_fence_belongs_to_one_key(key: str) -> None:
    keys = ["_meta.orders", "_meta.Orders", "_meta.^orders", "_meta.ORders", "_meta.^Orders"]
    assert [other for other in keys if fence_name("T", other) == fence_name("t", key)] == [key]
    assert fence_name("T", key) == fence_name("T", key).lower()
    assert (fence_name("T", key) == f"t:{key}") == (key == "_meta.orders")


def test_a_position_is_made_while_no_cluster_metadata_is_changed(
    builder: Builders, metastore: MemoryMetastore
) -> None:
    locked: list[bool] = []
    metastore.before["alter_table_req"] = lambda _args: locked.append(
        bool(metastore.locks_of("plain:metadata"))
    )
    with builder().with_position_key(KEY).connect():
        assert locked == [True]
    assert not metastore.locks_of("plain:metadata")


def test_a_lost_transaction_does_not_set_its_own_position_back(
    builder: Builders, metastore: MemoryMetastore
) -> None:
    """Another process may have taken the position over while this one was suspended."""
    metastore.tables["d", "plain"].parameters |= {ACCURATE: "{}", KEY: "1", OTHER: "1"}
    with builder().with_position_key(OTHER).connect() as connection:
        connection.begin_transaction()
        connection.write(b"1,a")
        hearts: Any = connection._batch._hearts  # type: ignore[union-attr]
        metastore.before["get_valid_write_ids"] = lambda _args: hearts._lost.add(connection.current_txn_id)
        with pytest.raises(HeartBeatFailure):
            connection.commit_transaction()
    assert "alter_table_req" not in metastore.calls


def test_statistics_that_another_stream_has_withdrawn(builder: Builders, metastore: MemoryMetastore) -> None:
    metastore.tables["d", "plain"].parameters |= {ACCURATE: "{}", KEY: "1"}

    def withdraw(_args: Any) -> None:
        del metastore.before["alter_table_req"]
        metastore.tables["d", "plain"].parameters = {"transactional": "true", KEY: "2"}

    metastore.before["alter_table_req"] = withdraw
    with builder().connect() as connection, connection.transaction():
        connection.write(b"1,a")
    assert metastore.calls.count("alter_table_req") == 1


def test_a_table_that_is_altered_all_the_time(builder: Builders, metastore: MemoryMetastore) -> None:
    metastore.tables["d", "plain"].parameters |= {ACCURATE: "{}", KEY: "1"}
    metastore.before["alter_table_req"] = stale
    with builder().connect() as connection:
        connection.begin_transaction()
        connection.write(b"1,a")
        with pytest.raises(TransactionError, match=r"d\.plain is altered all the time"):
            connection.commit_transaction()
        assert metastore.calls.count("alter_table_req") == 5


def test_another_error_of_the_statistics_is_not_repeated(
    builder: Builders, metastore: MemoryMetastore
) -> None:
    def refuse(_args: Any) -> None:
        raise types.MetaException(message="read only")

    metastore.tables["d", "plain"].parameters |= {ACCURATE: "{}", KEY: "1"}
    metastore.before["alter_table_req"] = refuse
    with builder().connect() as connection:
        connection.begin_transaction()
        connection.write(b"1,a")
        with pytest.raises(TransactionError, match=r"d\.plain: statistics: .*read only"):
            connection.commit_transaction()
    assert metastore.calls.count("alter_table_req") == 1
