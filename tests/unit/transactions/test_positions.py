"""Changes of a table wait for the commits that move its positions, and not for ever."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from airflow_hive_federation.clusters import altering as clusters_altering
from airflow_hive_federation.clusters.altering import alter_partitions, alter_table
from airflow_hive_federation.errors import (
    LockLostError,
    LockTimeoutError,
    MetastoreServerError,
    UnsupportedMethodError,
)
from airflow_hive_federation.ingest import position
from airflow_hive_federation.ingest.position import ensure_position
from airflow_hive_federation.metastore import MetastoreClient
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.transactions import locks, positions
from airflow_hive_federation.transactions.positions import alter_beside_streams, still
from airflow_hive_federation.waiting import PollPolicy
from tests.support.memory_metastore import MemoryMetastore

KEY = "_meta.a"


@pytest.fixture
def metastore() -> MemoryMetastore:
    """A metastore with the table ``d.t``, which keeps a position."""
    made = MemoryMetastore()
    made.put_table(types.Table(dbName="d", tableName="t", parameters={KEY: "1", "transactional": "true"}))
    return made


@pytest.fixture
def client(metastore: MemoryMetastore) -> Iterator[MetastoreClient]:
    with metastore.served() as settings, MetastoreClient(settings) as connected:
        yield connected


def marked(table: types.Table) -> types.Table:
    table.parameters = {**(table.parameters or {}), "mark": "set"}
    return table


class Suspension:
    """The process stands still from a call's answer on, until the metastore has dropped its locks."""

    def __init__(self, metastore: MemoryMetastore) -> None:
        self._metastore = metastore
        self.now_s = 1000.0
        self.missed: Callable[[], None] = lambda: None

    def after(self, method: str, nth: int = 1, *, lasts_s: float = 600.0) -> None:
        answers = iter(range(1, 100))

        def suspend(_args: object) -> None:
            if next(answers) == nth:
                self.now_s += lasts_s
                self._metastore.locks.clear()
                self.missed()

        self._metastore.after[method] = suspend


@pytest.fixture
def suspension(metastore: MemoryMetastore, monkeypatch: pytest.MonkeyPatch) -> Suspension:
    made = Suspension(metastore)
    monkeypatch.setattr(locks, "boot_time_s", lambda: made.now_s)
    return made


def move(metastore: MemoryMetastore, key: str) -> Callable[[], None]:
    """Return the commit of a stream that moves a position."""
    return lambda: metastore.tables["d", "t"].parameters.update({key: "2"})


def test_cluster_metadata_sets_no_position_back(metastore: MemoryMetastore, client: MetastoreClient) -> None:
    """The metastore compares the time of the last change there, which a commit leaves as it is."""
    fenced: list[bool] = []

    def commit(args: Any) -> None:
        if any(component.tablename == f"t:{KEY}" for component in args.rqst.component):
            metastore.tables["d", "t"].parameters[KEY] = "2"

    metastore.before["lock"] = commit
    metastore.before["alter_table_req"] = lambda _args: fenced.append(bool(metastore.locks_of(f"t:{KEY}")))
    alter_table(client, "d.t", marked)
    assert metastore.tables["d", "t"].parameters == {KEY: "2", "transactional": "true", "mark": "set"}
    assert fenced == [True]
    assert metastore.locks == {}


def test_a_position_that_is_made_meanwhile_stands_still_too(
    metastore: MemoryMetastore, client: MetastoreClient
) -> None:
    def make(_args: object) -> None:
        metastore.tables["d", "t"].parameters["_meta.b"] = "1"

    fenced: list[bool] = []
    metastore.before["lock"] = make
    metastore.before["alter_table_req"] = lambda _args: fenced.append(bool(metastore.locks_of("t:_meta.b")))
    alter_table(client, "d.t", marked)
    assert fenced == [True]


def test_transactions_that_move_a_position_are_not_waited_for_without_end(
    metastore: MemoryMetastore, client: MetastoreClient
) -> None:
    metastore.waiting = {f"t:{KEY}"}
    policy = PollPolicy(first_s=0.01, timeout_s=0.05)
    with (
        pytest.raises(LockTimeoutError, match=r"d\.t cannot be altered: .* about to move _meta\.a"),
        still(client, "d", "t", [KEY], policy=policy),
    ):
        pytest.fail("the positions do not stand still")
    assert metastore.locks == {}


def test_a_table_that_is_altered_all_the_time(metastore: MemoryMetastore, client: MetastoreClient) -> None:
    def stale(_args: object) -> None:
        raise types.MetaException(message="The table has been modified.")

    metastore.before["alter_table_req"] = stale
    with pytest.raises(MetastoreServerError, match=r"d\.t is altered all the time: .*has been modified"):
        alter_beside_streams(client, "d", "t", marked)
    assert metastore.calls.count("alter_table_req") == 5


def test_metastores_before_hive_4_compare_nothing(
    metastore: MemoryMetastore, client: MetastoreClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table with a position is not altered there: a commit meanwhile would be set back."""

    def of_hive_3(
        call: Callable[..., None], *args: Any, expected_parameter: Any = None, **kwargs: Any
    ) -> None:
        if expected_parameter is not None:
            raise UnsupportedMethodError("This metastore compares nothing.", remedy="Use Hive 4.")
        call(*args, **kwargs)

    monkeypatch.setattr(client, "alter_table", partial(of_hive_3, client.alter_table))
    metastore.tables["d", "t"].parameters["transient_lastDdlTime"] = "1"
    with pytest.raises(UnsupportedMethodError):
        alter_beside_streams(client, "d", "t", marked)
    del metastore.tables["d", "t"].parameters[KEY]
    alter_beside_streams(client, "d", "t", marked)
    assert metastore.tables["d", "t"].parameters["mark"] == "set"
    assert metastore.locks == {}


def test_a_table_that_is_right_already_is_left(metastore: MemoryMetastore, client: MetastoreClient) -> None:
    alter_beside_streams(client, "d", "t", lambda _table: None)
    assert metastore.writes == []


@pytest.mark.parametrize("ddl_time", [{}, {"transient_lastDdlTime": "1"}])
def test_a_suspended_change_of_cluster_metadata_sets_no_position_back(
    ddl_time: dict[str, str], metastore: MemoryMetastore, client: MetastoreClient, suspension: Suspension
) -> None:
    metastore.tables["d", "t"].parameters.update(ddl_time)
    suspension.missed = move(metastore, KEY)
    # The table is read a second time once its position stands still.
    suspension.after("get_table_req", 2)
    with pytest.raises(LockLostError, match=r"Locks on d\.t are lost: they are 600 s old") as caught:
        alter_table(client, "d.t", marked)
    assert caught.value.retryable
    assert metastore.writes == []
    assert metastore.tables["d", "t"].parameters[KEY] == "2"


@pytest.mark.parametrize("name", ["altering", "positions"])
def test_each_lock_of_a_change_is_checked(
    name: str, metastore: MemoryMetastore, client: MetastoreClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of both may be renewed by a wait, and the other not."""
    checked: list[str] = []

    def lost(*_args: object, **_keywords: object) -> Any:
        return contextlib.nullcontext(lambda: checked.append(name))

    monkeypatch.setattr(clusters_altering, {"altering": "altering", "positions": "still"}[name], lost)
    metastore.before["alter_table_req"] = lambda _args: checked.append("alter")
    alter_table(client, "d.t", marked, check=lambda: checked.append("caller"))
    assert checked == ["caller", name, "alter"]


@pytest.mark.parametrize("name", ["alone_altering", "held"])
def test_each_lock_of_a_new_position_is_checked(
    name: str, metastore: MemoryMetastore, client: MetastoreClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked: list[str] = []

    def lost(*_args: object, **_keywords: object) -> Any:
        return contextlib.nullcontext(lambda: checked.append(name))

    monkeypatch.setattr(position if name == "held" else positions, name, lost)
    metastore.before["alter_table_req"] = lambda _args: checked.append("alter")
    ensure_position(client, "d", "t", "_meta.new")
    assert checked == [name, "alter"]


def test_a_lock_that_ends_while_the_call_is_on_its_way(
    metastore: MemoryMetastore, client: MetastoreClient, suspension: Suspension
) -> None:
    """Nothing prevents the change then, but it is not reported as done."""
    suspension.after("alter_table_req")
    with pytest.raises(LockLostError, match="they are 600 s old"):
        alter_table(client, "d.t", marked)
    assert metastore.writes == ["alter_table_req"]


def test_a_lock_that_protected_nothing_may_end(
    metastore: MemoryMetastore, client: MetastoreClient, suspension: Suspension
) -> None:
    suspension.after("get_table_req", 2)
    alter_table(client, "d.t", lambda _table: None)
    assert metastore.writes == []


def test_a_suspended_change_sets_none_of_several_positions_back(
    metastore: MemoryMetastore, client: MetastoreClient, suspension: Suspension
) -> None:
    """The metastore compares the first one only."""
    metastore.tables["d", "t"].parameters["_meta.b"] = "1"
    suspension.missed = move(metastore, "_meta.b")
    suspension.after("get_table_req", 2)
    with pytest.raises(LockLostError):
        alter_beside_streams(client, "d", "t", marked)
    assert metastore.tables["d", "t"].parameters["_meta.b"] == "2"


def test_a_suspended_transaction_does_not_set_its_own_position_back(
    metastore: MemoryMetastore, client: MetastoreClient
) -> None:
    def lost() -> None:
        raise LockLostError("the transaction was aborted")

    metastore.tables["d", "t"].parameters["_meta.b"] = "1"
    with pytest.raises(LockLostError, match="the transaction was aborted"):
        alter_beside_streams(client, "d", "t", marked, own=["_meta.b"], check=lost)
    assert metastore.writes == []


def test_a_suspended_change_of_partitions_reverts_no_other(
    metastore: MemoryMetastore, client: MetastoreClient, suspension: Suspension
) -> None:
    storage = types.StorageDescriptor(location="file:/former")
    table = types.Table(
        dbName="d", tableName="p", partitionKeys=[types.FieldSchema(name="k", type="string")], parameters={}
    )
    metastore.put_table(table, types.Partition(values=["1"], sd=storage, parameters={}))

    def set_location() -> None:
        metastore.partitions["d", "p"]["k=1"].sd.location = "file:/later"

    def changed(now: types.Partition) -> types.Partition:
        now.parameters = {"mark": "set"}
        return now

    suspension.missed = set_location
    suspension.after("get_partitions_by_names_req")
    with pytest.raises(LockLostError):
        alter_partitions(client, table, ["k=1"], changed)
    assert metastore.partitions["d", "p"]["k=1"].sd.location == "file:/later"
    checked: list[int] = []
    alter_partitions(client, table, ["k=1"], changed, check=lambda: checked.append(len(metastore.writes)))
    assert (checked, metastore.writes) == ([0], ["alter_partitions_req"])


def test_a_change_of_a_transactional_partition_keeps_no_statistics_that_an_insert_has_replaced(
    metastore: MemoryMetastore, client: MetastoreClient
) -> None:
    """The metastore compares the partition's write id with a snapshot from before the partition was read."""
    table = types.Table(
        dbName="d",
        tableName="p",
        partitionKeys=[types.FieldSchema(name="k", type="string")],
        parameters={"transactional": "true"},
    )
    accurate = {"COLUMN_STATS_ACCURATE": "{}"}
    metastore.put_table(
        table,
        types.Partition(values=["1"], parameters=dict(accurate), writeId=3),
        types.Partition(values=["2"], parameters=dict(accurate), writeId=-1),
    )
    snapshots: list[str | None] = []
    held: list[list[tuple[str, int]]] = []

    def altered(args: Any) -> None:
        snapshots.append(args.req.validWriteIdList)
        held.append(
            [(part.tablename, part.type) for lock in metastore.locks.values() for part in lock.component]
        )

    def changed(now: types.Partition) -> types.Partition:
        now.parameters = {**(now.parameters or {}), "mark": "set"}
        return now

    metastore.before["alter_partitions_req"] = altered
    alter_partitions(client, table, ["k=1", "k=2"], changed)
    assert [str(text).split(":")[0] for text in snapshots] == ["d.p", "d.p"]
    assert metastore.calls.index("get_valid_write_ids") < metastore.calls.index("get_partitions_by_names_req")
    after = metastore.partitions["d", "p"]
    assert after["k=1"].parameters == {**accurate, "mark": "set"}
    # Without a write id, the metastore would have nothing to compare.
    assert after["k=2"].parameters == {"mark": "set"}
    readers = [("p", types.LockType.SHARED_READ)] * 2
    # In this order: a writer waits for the last one with the locks of its transaction.
    assert held == [[*readers, ("p:metadata", types.LockType.EXCLUSIVE)]] * 2


def test_a_suspended_start_of_a_stream_sets_no_position_back(
    metastore: MemoryMetastore, client: MetastoreClient, suspension: Suspension
) -> None:
    metastore.tables["d", "t"].parameters["_meta.b"] = "1"
    suspension.missed = move(metastore, "_meta.b")
    suspension.after("get_table_req", 2)
    with pytest.raises(LockLostError):
        ensure_position(client, "d", "t", "_meta.new")
    assert metastore.tables["d", "t"].parameters["_meta.b"] == "2"
    assert metastore.writes == []


def test_a_new_position_does_not_set_back_one_that_moves_without_locks(
    metastore: MemoryMetastore, client: MetastoreClient
) -> None:
    metastore.tables["d", "t"].parameters["_meta.b"] = "1"
    # Its stream holds this fence, and waits for the table.
    metastore.waiting = {"t:_meta.b"}
    moves = iter([move(metastore, KEY)])
    metastore.before["alter_table_req"] = lambda _args: next(moves, lambda: None)()
    ensure_position(client, "d", "t", "_meta.new")
    after = metastore.tables["d", "t"].parameters
    assert after == {KEY: "2", "_meta.b": "1", "_meta.new": "", "transactional": "true"}
    assert metastore.locks == {}


def test_a_wait_for_a_lock_counts_as_its_use(
    metastore: MemoryMetastore, client: MetastoreClient, suspension: Suspension
) -> None:
    """The metastore records each look at a lock as a heartbeat."""
    metastore.waiting = {f"t:{KEY}"}

    def granted(_args: object) -> None:
        suspension.now_s += 200.0
        if suspension.now_s > 1500.0:
            metastore.waiting.clear()

    metastore.after["check_lock"] = granted
    policy = PollPolicy(first_s=0.01, longest_s=0.01, timeout_s=60.0)
    with still(client, "d", "t", [KEY], policy=policy) as check:
        check()
    assert suspension.now_s > 1500.0


def test_a_lock_that_ends_while_it_is_waited_for(metastore: MemoryMetastore, client: MetastoreClient) -> None:
    metastore.waiting = {f"t:{KEY}"}
    metastore.before["check_lock"] = lambda _args: metastore.locks.clear()
    with (
        pytest.raises(LockLostError, match="has dropped them before it granted them"),
        still(client, "d", "t", [KEY]),
    ):
        pytest.fail("the lock was not granted")
