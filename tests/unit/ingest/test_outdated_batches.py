"""A batch whose table is overwritten, or whose files are removed, between two of its transactions."""

from __future__ import annotations

import shutil
import uuid
from pathlib import Path
from typing import Any

import pytest

from airflow_hive_federation.errors import StorageError
from airflow_hive_federation.ingest.errors import StreamingIOFailure, TransactionError
from airflow_hive_federation.ingest.states import ConnectionState
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.metastore.protocol import ApplicationFault
from airflow_hive_federation.storage.filesystem import open_filesystem
from tests.support.memory_metastore import MemoryMetastore
from tests.support.small_source import storage
from tests.support.streaming import Builders, rows


def write_of_another(metastore: MemoryMetastore) -> int:
    """Commit another client's transaction, and return its write id."""
    write_id = next(metastore._ids)
    metastore.txns[write_id] = "committed"
    return write_id


def overwritten(metastore: MemoryMetastore, directory: Path) -> Path:
    base = directory / f"base_{write_of_another(metastore):07d}"
    base.mkdir(parents=True)
    return base


def write(connection: Any, *records: bytes) -> None:
    with connection.transaction():
        connection.write_records(list(records))


def first_write_ids(directory: Path) -> list[int]:
    return sorted(int(delta.name.split("_")[1]) for delta in directory.glob("delta_*"))


@pytest.mark.parametrize("size", [1, 3])
def test_write_ids_are_allocated_under_the_lock(
    builder: Builders, metastore: MemoryMetastore, size: int
) -> None:
    """They would be below the base of an overwrite for which the lock has waited."""
    with builder().with_transaction_batch_size(size).connect() as connection:
        write(connection, b"1,a")
    taken = [method for method in metastore.calls if method in {"lock", "allocate_table_write_ids"}]
    assert taken == ["lock", "allocate_table_write_ids", "lock"]
    # The first request records no write, because its write id would be missing.
    kinds = [request.component[0].operationType for request in metastore.locks.values()]
    assert kinds == [types.DataOperationType.NO_TXN, types.DataOperationType.INSERT]


@pytest.mark.parametrize("place", ["plain", "parted", "parted/p=x"])
def test_rows_after_an_overwrite_are_above_its_base(
    builder: Builders, metastore: MemoryMetastore, tmp_path: Path, place: str
) -> None:
    """Both for a table and for a partition, whose values are the builder's or the records'."""
    described = builder(place.partition("/")[0]).with_transaction_batch_size(3)
    end = b",x" if place == "parted" else b""
    if place == "parted/p=x":
        described.with_static_partition_values(["x"])
    directory = tmp_path / ("plain" if place == "plain" else "parted/p=x")
    with described.connect() as connection:
        write(connection, b"1,a" + end)
        base = overwritten(metastore, directory)
        write(connection, b"2,b" + end)
        assert connection.stats.transaction_batches == 2
        assert connection.state is ConnectionState.COMMITTED
    assert first_write_ids(directory)[-1] > int(base.name[5:])
    assert rows(directory) == [(1, "a"), (2, "b")]
    assert sorted(metastore.txns.values()) == ["aborted"] * 4 + ["committed"] * 3


def test_rows_after_an_overwrite_in_a_store_that_cannot_append(
    builder: Builders, metastore: MemoryMetastore
) -> None:
    place = f"memory://far/{uuid.uuid4().hex}"
    metastore.tables["d", "plain"].sd = storage(place)
    filesystem, path = open_filesystem(place)
    with builder().with_transaction_batch_size(3).connect() as connection:
        write(connection, b"1,a")
        write_id = write_of_another(metastore)
        filesystem.pipe_file(f"{path}/base_{write_id:07d}/_orc_acid_version", b"2")
        write(connection, b"2,b")
    deltas = sorted(name.split("/")[-2] for name in filesystem.find(path) if "/bucket_" in name)
    assert int(deltas[-1].split("_")[1]) > write_id


def test_other_writers_end_no_batch(builder: Builders, metastore: MemoryMetastore, tmp_path: Path) -> None:
    """Each later transaction costs one call, and a base of a lower write id hides nothing."""
    with builder().with_transaction_batch_size(4).connect() as connection:
        for number in range(4):
            write(connection, b"%d,a" % number)
            write_of_another(metastore)
            (tmp_path / "plain" / "base_0000001_v0000007").mkdir(exist_ok=True)
        assert connection.stats.transaction_batches == 1
    assert metastore.calls.count("get_max_allocated_table_write_id") == 3
    assert "get_valid_write_ids" not in metastore.calls
    assert metastore.calls.count("allocate_table_write_ids") == 1


def test_a_partition_that_was_overwritten_before_the_batch_wrote_there(
    builder: Builders, metastore: MemoryMetastore, tmp_path: Path
) -> None:
    """Its name comes with the rows; so the transaction fails, and its records are sent again."""
    with builder("parted").with_transaction_batch_size(3).connect() as connection:
        write(connection, b"1,a,x")
        overwritten(metastore, tmp_path / "parted" / "p=y")
        connection.begin_transaction()
        connection.write(b"2,b,y")
        for _ in range(2):
            with pytest.raises(TransactionError, match=r"A partition of d\.parted was overwritten") as caught:
                connection.commit_transaction()
        assert caught.value.retryable
        connection.abort_transaction()
        write(connection, b"2,b,y")
        assert connection.stats.transaction_batches == 2
    assert rows(tmp_path / "parted" / "p=y") == [(2, "b")]


@pytest.mark.parametrize("change", ["directory", "file", "length"])
def test_no_file_goes_on_without_its_beginning(
    builder: Builders, metastore: MemoryMetastore, tmp_path: Path, change: str
) -> None:
    with builder("parted").with_transaction_batch_size(3).connect() as connection:
        write(connection, b"1,a,x")
        (file,) = (tmp_path / "parted/p=x").glob("delta_*/bucket_00000")
        if change == "directory":
            # As by DROP PARTITION.
            shutil.rmtree(tmp_path / "parted/p=x")
            metastore.partitions["d", "parted"].clear()
        elif change == "file":
            replaced = file.with_name("replaced")
            replaced.write_bytes(file.read_bytes())
            replaced.rename(file)
        else:
            file.write_bytes(file.read_bytes()[:-1])
        write(connection, b"2,b,x")
        assert connection.stats.transaction_batches == 2
    (made,) = (tmp_path / "parted/p=x").glob(f"delta_{first_write_ids(tmp_path / 'parted/p=x')[-1]:07d}_*")
    assert rows(made) == [(2, "b")]


@pytest.mark.parametrize("change", ["removed", "shorter"])
def test_a_file_that_changes_inside_a_transaction(
    builder: Builders, metastore: MemoryMetastore, tmp_path: Path, change: str
) -> None:
    """The lock excludes every statement, but not a person or a program without a lock."""
    with builder().with_transaction_batch_size(3).connect() as connection:
        write(connection, b"1,a")
        connection.begin_transaction()
        connection.write(b"2,b")
        connection.flush()
        (file,) = tmp_path.glob("plain/delta_*/bucket_00000")
        file.unlink() if change == "removed" else file.write_bytes(file.read_bytes()[:9])
        connection.write(b"3,c")
        with pytest.raises(StreamingIOFailure) as caught:
            connection.commit_transaction()
        assert isinstance(caught.value.__cause__, StorageError)
        assert connection.state is ConnectionState.FAILED
    assert not file.exists() or file.stat().st_size == 9
    assert sorted(metastore.txns.values()) == ["aborted", "aborted", "committed"]


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("table", ["plain", "parted"])
def test_a_partition_that_was_given_another_directory(
    builder: Builders, metastore: MemoryMetastore, tmp_path: Path, table: str, size: int
) -> None:
    """Or a table without partitions, by ``SET LOCATION``."""
    end = b",x" if table == "parted" else b""
    with builder(table).with_transaction_batch_size(size).connect() as connection:
        write(connection, b"1,a" + end)
        moved = metastore.partitions["d", "parted"]["p=x"] if end else metastore.tables["d", "plain"]
        moved.sd.location = f"file:{tmp_path}/moved/"
        write(connection, b"2,b" + end)
    assert rows(tmp_path / table) == [(1, "a")]
    assert rows(tmp_path / "moved") == [(2, "b")]
    assert not list(tmp_path.glob("**/*_flush_length"))


@pytest.mark.parametrize("table", ["plain", "parted"])
def test_a_partition_that_was_given_a_directory_around_its_own(
    builder: Builders, metastore: MemoryMetastore, tmp_path: Path, table: str
) -> None:
    end = b",x" if table == "parted" else b""
    directory = tmp_path / ("parted/p=x" if end else "plain")
    with builder(table).with_transaction_batch_size(3).connect() as connection:
        connection.begin_transaction()
        connection.commit_transaction(partitions=["p=x"] if end else [])
        moved = metastore.partitions["d", "parted"]["p=x"] if end else metastore.tables["d", "plain"]
        moved.sd.location = f"file:{directory}/v1"
        write(connection, b"1,a" + end)
        moved.sd.location = f"file:{directory}"
        write(connection, b"2,b" + end)
    assert rows(directory / "v1") == [(1, "a")]
    (made,) = directory.glob("delta_*")
    assert rows(made) == [(2, "b")]


def test_the_rows_of_a_copied_directory_are_kept(
    builder: Builders, metastore: MemoryMetastore, tmp_path: Path
) -> None:
    """The batch's next file would have the name of its copied one."""
    with builder().with_transaction_batch_size(3).connect() as connection:
        write(connection, b"1,a")
        shutil.copytree(tmp_path / "plain", tmp_path / "moved", ignore=shutil.ignore_patterns("*_length"))
        metastore.tables["d", "plain"].sd.location = f"file:{tmp_path}/moved"
        with pytest.raises(StreamingIOFailure, match="exists, and this process has not written it"):
            write(connection, b"2,b")
    assert rows(tmp_path / "moved") == [(1, "a")]
    with builder().with_transaction_batch_size(3).connect() as connection:
        write(connection, b"2,b")
    assert rows(tmp_path / "moved") == [(1, "a"), (2, "b")]


def test_a_table_that_was_made_anew(
    builder: Builders, metastore: MemoryMetastore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its write ids begin with 1 again, and those of the batch would be visible much later."""
    with builder().with_transaction_batch_size(3).connect() as connection:
        write(connection, b"1,a")
        answer = types.MaxAllocatedTableWriteIdResponse(maxWriteId=1)
        monkeypatch.setattr(metastore, "_get_max_allocated_table_write_id", lambda _args: answer)
        with pytest.raises(TransactionError, match=r"d\.plain was dropped and created again"):
            connection.begin_transaction()
        assert connection.state is ConnectionState.ABORTED


@pytest.mark.parametrize("size", [1, 3])
def test_a_table_with_another_id_was_made_anew(
    builder: Builders, metastore: MemoryMetastore, tmp_path: Path, size: int
) -> None:
    """Also without a write id that shows it: others have written more rows than before."""
    with builder().with_transaction_batch_size(size).connect() as connection:
        write(connection, b"1,a")
        shutil.rmtree(tmp_path / "plain")
        metastore.tables["d", "plain"].id += 1
        write_of_another(metastore)
        for _ in range(2):
            with pytest.raises(TransactionError, match=r"d\.plain was dropped and created again"):
                connection.begin_transaction()
        assert connection.state is ConnectionState.ABORTED
    assert metastore.calls.count("allocate_table_write_ids") == 1
    assert not list(tmp_path.glob("plain/*"))


@pytest.mark.parametrize("ids", [(None, 7), (7, None), (None, None)])
def test_a_metastore_without_ids_of_tables(
    builder: Builders, metastore: MemoryMetastore, tmp_path: Path, ids: tuple[int | None, int | None]
) -> None:
    metastore.tables["d", "plain"].id = ids[0]
    with builder().with_transaction_batch_size(3).connect() as connection:
        write(connection, b"1,a")
        metastore.tables["d", "plain"].id = ids[1]
        write(connection, b"2,b")
    assert rows(tmp_path / "plain") == [(1, "a"), (2, "b")]


def test_the_files_of_a_table_that_was_made_anew_are_left_alone(
    builder: Builders, metastore: MemoryMetastore, tmp_path: Path
) -> None:
    """Another batch of the same write ids writes to them."""
    with builder("parted").with_transaction_batch_size(3).connect() as connection:
        write(connection, b"1,a,x")
        metastore.tables["d", "parted"].id += 1
        (file,) = tmp_path.glob("parted/p=x/delta_*/bucket_00000")
        theirs = [file.with_name(name) for name in (file.name, f"{file.name}_flush_length", ".bucket_00000")]
        for path in theirs:
            path.write_bytes(b"others")
        with pytest.raises(TransactionError, match="was dropped and created again"):
            connection.begin_transaction()
    assert [path.read_bytes() for path in theirs] == [b"others"] * 3


def test_a_new_partition_of_a_table_that_was_given_another_directory(
    builder: Builders, metastore: MemoryMetastore, tmp_path: Path
) -> None:
    """As ``INSERT`` creates it."""
    with builder("parted").connect() as connection:
        metastore.tables["d", "parted"].sd.location = f"file:{tmp_path}/moved/"
        write(connection, b"1,a,x")
    assert rows(tmp_path / "moved" / "p=x") == [(1, "a")]


def test_a_batch_without_write_ids_is_replaced(
    builder: Builders, metastore: MemoryMetastore, tmp_path: Path
) -> None:
    def refuse(args: Any) -> None:
        del metastore.before["allocate_table_write_ids"]
        raise types.TxnAbortedException(message=f"{args.rqst.txnIds[-1]} was aborted")

    metastore.before["allocate_table_write_ids"] = refuse
    with builder().with_transaction_batch_size(3).connect() as connection:
        with pytest.raises(TransactionError, match="was aborted"):
            connection.begin_transaction()
        assert connection.current_write_id is None
        write(connection, b"1,a")
        assert connection.stats.transaction_batches == 2
    assert rows(tmp_path / "plain") == [(1, "a")]
    assert sorted(metastore.txns.values()) == ["aborted"] * 5 + ["committed"]


def test_an_older_metastore_is_asked_for_its_high_water_mark(
    builder: Builders, metastore: MemoryMetastore, tmp_path: Path
) -> None:
    """Hive 3.1 cannot count the write ids; it is asked to once per connection."""

    def refuse(_args: Any) -> None:
        raise ApplicationFault(message="no such method", type=ApplicationFault.UNKNOWN_METHOD)

    metastore.before["get_max_allocated_table_write_id"] = refuse
    with builder().with_transaction_batch_size(4).connect() as connection:
        write(connection, b"1,a")
        write(connection, b"2,b")
        base = overwritten(metastore, tmp_path / "plain")
        write(connection, b"3,c")
        assert connection.stats.transaction_batches == 2
    assert first_write_ids(tmp_path / "plain")[-1] > int(base.name[5:])
    assert metastore.calls.count("get_max_allocated_table_write_id") == 1
