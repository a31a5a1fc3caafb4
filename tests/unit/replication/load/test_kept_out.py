"""Readers of a table in an object store never read a directory of which a part is in place."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from airflow_hive_federation.errors import (
    CycleLostError,
    FileVanishedError,
    HiveFederationError,
    LockTimeoutError,
    MetastoreUnreachableError,
    TargetChangedError,
    TransactionAbortedError,
)
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.model.files import CopyItem
from airflow_hive_federation.replication import left_files
from airflow_hive_federation.replication.format.directory import DumpDirectory
from airflow_hive_federation.replication.load import kept_out, placing
from airflow_hive_federation.replication.load.copying import TableCopy
from airflow_hive_federation.replication.load.kept_out import KeptOut, end_left
from airflow_hive_federation.replication.load.placing import Placing
from airflow_hive_federation.replication.load.replay import Replay
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.replication.replica.layout import STAGE, TargetLayout
from airflow_hive_federation.storage import filesystem, publishing
from tests.support.killed_moves import TABLE, Client, KillError, Life, Metastore, Store

POLICY = ReplicationPolicy(name="p", source_database="d", dump_root="s3://w/dumps")
#: A minor compaction of the source has made them: each hides the smaller directories of both kinds.
MERGED = ("delete_delta_0000001_0000008", "delta_0000001_0000008")
WANTED = [f"{name}/bucket_0000{number}" for name in MERGED for number in (0, 1)]
BEFORE = ["delta_0000001_0000001_0000/bucket_00000"]


@pytest.fixture(autouse=True)
def store(monkeypatch: pytest.MonkeyPatch) -> Store:
    """Hidden directories that are whole, and what readers see before they are placed."""
    made = Store()
    made.store.clear()
    for path in [*BEFORE, *(f"{STAGE}/{path}" for path in WANTED)]:
        made.pipe_file(f"w/t/{path}", path[-1:].encode())
    monkeypatch.setattr(filesystem, "_driver", lambda _location, _options: made)
    # A process that is suspended stops as a whole.
    monkeypatch.setattr(publishing, "_THREADS", 1)
    monkeypatch.setattr(kept_out, "LOCK_POLICY", replace(kept_out.LOCK_POLICY, first_s=0.0, timeout_s=0.0))
    return made


def load(
    store: Store,
    metastore: Metastore,
    life: Life,
    *,
    end_transactions: Callable[[], None] = lambda: None,
) -> None:
    """Place what still waits, end the cycle's transactions, and let readers in, as a load does."""

    def check() -> None:
        if life.has_slept:
            raise CycleLostError("The lock is lost.", policy="p", holder="", reason="silent")

    before, Store.life = Store.life, life
    client: Any = Client(metastore, life, refuse=check)
    try:
        layout = TargetLayout(policy=POLICY, managed="s3://w")
        made = Placing(client, DumpDirectory("s3://w/dumps/p/1-2-3"), layout, check=check)
        copy = TableCopy(
            staged={
                f"{TABLE}/{STAGE}/{name}": f"{TABLE}/{name}"
                for name in MERGED
                if any(path.startswith(f"{STAGE}/{name}/") for path in store.names())
            },
            items=[
                CopyItem(source="s3://s/f", target=f"{TABLE}/{STAGE}/{path}", size_bytes=1)
                for path in WANTED
                if f"{STAGE}/{path}" in store.names() and path not in store.names()
            ],
        )
        if copy.staged:
            made.place("t", copy)
        end_transactions()
        made.let_readers_in()
        Replay(client, POLICY).sweep(())
    finally:
        Store.life = before


def refuse_half(store: Store, metastore: Metastore) -> None:
    """Fail if readers may come in while a part of the directories is in place."""
    in_place = set(store.names()).intersection(WANTED)
    assert metastore.keeps_readers_out() or in_place in (set(), set(WANTED))


def refuse_rest(store: Store, metastore: Metastore) -> None:
    assert store.names() == sorted([*BEFORE, *WANTED])
    assert not metastore.keeps_readers_out()


def calls_of_a_load(store: Store) -> int:
    """Return the number of calls that a whole load makes."""
    files = dict(store.store)
    life = Life(calls=1000)
    load(store, Metastore(), life)
    store.store.clear()
    store.store.update(files)
    assert life.calls is not None
    return 1000 - life.calls


def test_a_load_that_is_killed_between_any_two_calls(store: Store) -> None:
    files, count = dict(store.store), calls_of_a_load(store)
    assert count > 15
    half = 0
    for calls in range(count):
        store.store.clear()
        store.store.update(files)
        metastore = Metastore()
        with pytest.raises(KillError):
            load(store, metastore, Life(calls=calls))
        metastore.time_out()
        refuse_half(store, metastore)
        half += metastore.keeps_readers_out()
        # The next one is killed, too, unless it has hardly anything left to do.
        with suppress(KillError):
            load(store, metastore, Life(calls=3))
        metastore.time_out()
        refuse_half(store, metastore)
        load(store, metastore, Life())
        refuse_rest(store, metastore)
        assert metastore.open_ones() == []
    assert half > 8


def test_a_take_over_after_a_load_that_was_killed_between_any_two_calls(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, count = dict(store.store), calls_of_a_load(store)
    copied = [f"{TABLE}/{STAGE}/{path}" for path in WANTED]
    monkeypatch.setattr(left_files, "read_outcomes", lambda *_, **__: dict.fromkeys(copied))

    def take_over(metastore: Metastore, life: Life) -> None:
        monkeypatch.setattr(Store, "life", life)
        dump = DumpDirectory("s3://w/dumps/p/1-2-3")
        left_files.finish_placing(left_files.Removing(policy=POLICY, check=lambda: None), dump)
        refuse_half(store, metastore)
        Replay(Client(metastore, life), POLICY).sweep(())  # type: ignore[arg-type]

    finished = set()
    for calls in range(count):
        store.store.clear()
        store.store.update(files)
        metastore = Metastore()
        monkeypatch.setattr(Store, "life", Life())
        with pytest.raises(KillError):
            load(store, metastore, Life(calls=calls))
        # So is the take-over, unless it has hardly anything to do.
        with suppress(KillError):
            take_over(metastore, Life(calls=3))
        metastore.time_out()
        refuse_half(store, metastore)
        take_over(metastore, Life())
        refuse_half(store, metastore)
        assert not metastore.keeps_readers_out()
        finished.add(bool(set(store.names()).intersection(WANTED)))
    assert finished == {False, True}


def test_a_load_that_is_suspended_between_any_two_calls_beside_its_successor(store: Store) -> None:
    files, count = dict(store.store), calls_of_a_load(store)
    for calls in range(count):
        store.store.clear()
        store.store.update(files)
        metastore = Metastore()

        def successor(of: Metastore = metastore) -> None:
            of.time_out()
            refuse_half(store, of)
            load(store, of, Life())
            refuse_rest(store, of)

        # The call before which it was suspended is made, and none that writes follows it.
        with suppress(HiveFederationError, FileNotFoundError):
            load(store, metastore, Life(calls=calls, meanwhile=successor))
        metastore.time_out()
        refuse_rest(store, metastore)
        # A transaction that it may have opened is ended by the next load.
        Replay(Client(metastore, Life()), POLICY).sweep(())  # type: ignore[arg-type]
        assert metastore.open_ones() == []


@pytest.mark.parametrize("moves", [0, 1])
def test_an_error_lets_readers_in_unless_a_directory_was_begun(
    moves: int, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    metastore = Metastore()

    def fail(*_: object, **__: object) -> None:
        raise FileVanishedError("gone", path="f")

    monkeypatch.setattr(placing, "rename" if moves else "_refuse_incomplete", fail)
    with pytest.raises(FileVanishedError) as caught:
        load(store, metastore, Life())
    assert metastore.keeps_readers_out() is bool(moves)
    notes = getattr(caught.value, "__notes__", [])
    assert [("Readers of d.t are kept out" in note) for note in notes] == [True] * moves
    # That the first error has moved something is all that a second one knows.
    with pytest.raises(FileVanishedError):
        load(store, metastore, Life())
    assert metastore.keeps_readers_out() is bool(moves)


def kill_half_way(store: Store, metastore: Metastore) -> None:
    """Kill a load when it has moved the first file."""
    with pytest.raises(KillError):
        load(store, metastore, Life(calls=7))
    assert len(set(store.names()).intersection(WANTED)) == 1
    metastore.time_out()


def test_an_error_before_a_load_has_moved_anything_leaves_what_a_killed_one_has_begun(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    metastore = Metastore()
    kill_half_way(store, metastore)

    def fail(*_: object) -> None:
        raise FileVanishedError("gone", path="f")

    monkeypatch.setattr(placing, "_refuse_incomplete", fail)
    with pytest.raises(FileVanishedError):
        load(store, metastore, Life())
    assert metastore.keeps_readers_out()


def test_readers_come_in_after_the_transactions_of_the_load_that_goes_on(store: Store) -> None:
    """Until then, a directory of the killed load may be replaced by one that readers do not see yet.

    A reader that waits for the killed load's lock does not keep the next one out.
    """
    metastore = Metastore()
    kill_half_way(store, metastore)
    reader = len(metastore.states) + 1
    metastore.states[reader] = "open"
    metastore.locks.append(reader)
    kept_out_meanwhile = []
    load(
        store,
        metastore,
        Life(),
        end_transactions=lambda: kept_out_meanwhile.append(metastore.locks[0] in metastore.open_ones()),
    )
    assert kept_out_meanwhile == [True]
    assert metastore.open_ones() == [reader]
    # An abort would mark the target's database as one that Hive's own loads refuse.
    assert metastore.states[metastore.locks[0]] == "committed"


def test_readers_stay_out_of_a_table_that_would_show_rows_twice(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    metastore = Metastore()

    def fail(*_: object) -> None:
        raise TargetChangedError("twice", differences=[])

    monkeypatch.setattr(placing.Placing, "refuse_overlaps", fail)
    with pytest.raises(TargetChangedError):
        load(store, metastore, Life())
    assert set(WANTED) <= set(store.names())
    assert metastore.keeps_readers_out()


def test_a_load_that_has_lost_its_place_waits_for_no_reader(store: Store) -> None:
    metastore = Metastore(states={1: "open"}, locks=[1])
    life = Life(calls=4, meanwhile=lambda: None)
    with pytest.raises(CycleLostError):
        load(store, metastore, life)


def test_readers_that_do_not_end_are_let_alone(store: Store) -> None:
    """Also beside a load that was killed while it waited for them."""
    metastore = Metastore(states={1: "open"}, locks=[1])
    with pytest.raises(KillError):
        load(store, metastore, Life(calls=5))
    assert 2 in metastore.locks
    with pytest.raises(LockTimeoutError, match=r"d\.t"):
        load(store, metastore, Life())
    assert metastore.open_ones() == [1]
    assert not set(store.names()).intersection(WANTED)


def test_a_metastore_that_is_gone_hides_no_error(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    metastore = Metastore()

    def fail(*_: object, **__: object) -> None:
        raise MetastoreUnreachableError("gone", endpoints=["thrift://target:1"])

    monkeypatch.setattr(Client, "commit_txn", fail)
    monkeypatch.setattr(Client, "lock", fail)
    with pytest.raises(MetastoreUnreachableError) as caught:
        load(store, metastore, Life())
    assert "Transaction 1 of the target could not be ended" in caught.value.__notes__[0]


def test_a_transaction_that_somebody_aborts_stops_the_moves(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    metastore = Metastore()
    copy_file = Store.cp_file

    def abort_after(self: Store, *arguments: Any, **options: Any) -> None:
        copy_file(self, *arguments, **options)
        metastore.states |= dict.fromkeys(metastore.open_ones(), "aborted")

    monkeypatch.setattr(Store, "cp_file", abort_after)
    with pytest.raises(TransactionAbortedError, match=r"kept readers out of d\.t"):
        load(store, metastore, Life())
    assert set(store.names()).intersection(WANTED) == {path for path in WANTED if path.startswith(MERGED[0])}


@pytest.mark.parametrize("scheme", ["s3a", "gs", "abfss", "hdfs", "file"])
def test_readers_are_kept_out_where_a_directory_appears_file_by_file(
    scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    requested: list[Any] = []
    lock: Callable[..., types.LockResponse] = Client.lock

    def request(self: Client, components: Any, *, txn_id: int) -> types.LockResponse:
        requested.extend(components)
        return lock(self, components, txn_id=txn_id)

    monkeypatch.setattr(Client, "lock", request)
    monkeypatch.setattr(placing, "place_staged", lambda *_, **__: None)
    place = f"{scheme}:/w/t" if scheme == "file" else f"{scheme}://w/t"
    copy = TableCopy(staged={f"{place}/{STAGE}/base_0000001": f"{place}/base_0000001"})
    client: Any = Client(Metastore(), Life())
    Placing(client, DumpDirectory("s3://w/d"), TargetLayout(policy=POLICY, managed="s3://w")).place("t", copy)
    if scheme in {"hdfs", "file"}:
        assert requested == []
        return
    (component,) = requested
    # A lock that recorded a write would make the transaction one that the source does not have.
    assert (component.type, component.dbname, component.tablename, component.operationType) == (
        types.LockType.EXCLUSIVE,
        "d",
        "t",
        types.DataOperationType.NO_TXN,
    )


def test_a_bootstrap_lets_readers_in_where_the_load_of_a_dropped_target_has_kept_them_out(
    store: Store,
) -> None:
    metastore = Metastore()
    client: Any = Client(metastore, Life())
    KeptOut(client, POLICY, "t").lock(lambda: None)
    # A table that the bootstrap does not copy may still have a part of a directory.
    assert end_left(client, POLICY, keep=["t"]) == []
    assert metastore.keeps_readers_out()
    assert end_left(client, POLICY, keep=[]) == ["t"]
    assert not metastore.keeps_readers_out()
    assert metastore.open_ones() == []


def test_a_bootstrap_ends_no_transaction_of_others(store: Store) -> None:
    metastore = Metastore()
    client: Any = Client(metastore, Life())
    (theirs,) = client.open_txns()
    client.lock([], txn_id=theirs)
    end_left(client, POLICY, keep=[])
    assert metastore.open_ones() == [theirs]
