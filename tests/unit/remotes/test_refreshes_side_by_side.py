"""Two refreshes of one link: one of them was suspended, or both run at the same time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from airflow_hive_federation.errors import (
    LockLostError,
    LockTimeoutError,
    MetastoreServerError,
    NotARemoteError,
)
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.metastore.protocol import ApplicationFault
from airflow_hive_federation.remotes import alone
from airflow_hive_federation.remotes.session import Remotes
from airflow_hive_federation.remotes.statement import Kind, Name
from airflow_hive_federation.waiting import PollPolicy
from tests.support.catalog_contract import DATABASE, tables
from tests.support.memory_catalog import MemoryCatalog
from tests.support.memory_metastore import MemoryMetastore

MIRROR = Name(database="mirror")


class Clock:
    """A clock that passes by sleeping, and by :meth:`suspend`."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds

    suspend = sleep


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(alone, "boot_time_s", made)
    monkeypatch.setattr(alone, "sleep", made.sleep)
    return made


@pytest.fixture
def mirror(remotes: Remotes) -> Remotes:
    remotes.run(f"CREATE REMOTE DATABASE mirror CONNECTED TO {DATABASE} VIA 'far'")
    return remotes


def move(far: MemoryCatalog, name: str, root: str) -> None:
    far.put_table(*tables(root)[name])


def in_the_middle(far: MemoryCatalog, monkeypatch: pytest.MonkeyPatch, action: Callable[[], object]) -> None:
    """Run the action once, after a refresh has read a table of the remote, and before it writes."""
    get_table, waiting = far.get_table, [action]

    def read(database: str, name: str) -> types.Table:
        table = get_table(database, name)
        if waiting:
            waiting.pop()()
        return table

    monkeypatch.setattr(far, "get_table", read)


@pytest.mark.parametrize("name", ["plain", "parted"])
def test_a_refresh_that_was_suspended_writes_nothing_beside_its_successor(
    name: str,
    mirror: Remotes,
    near: MemoryMetastore,
    far: MemoryCatalog,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def successor() -> None:
        clock.suspend(60.0)
        move(far, name, "file:/second")
        with near.served() as settings, Remotes(settings, catalogs=mirror._catalogs) as other:
            other.refresh(Kind.DATABASE, MIRROR)
        near.calls.clear()

    move(far, name, "file:/first")
    in_the_middle(far, monkeypatch, successor)
    with pytest.raises(LockLostError, match="lock of remote database mirror is lost"):
        mirror.refresh(Kind.DATABASE, MIRROR)
    assert near.writes == []
    described = [near.tables["mirror", name], *near.partitions["mirror", name].values()]
    locations = [part.sd.location for part in described if not part.sd.location.startswith(near.warehouse)]
    assert locations
    assert all(location.startswith("file:/second") for location in locations)
    assert mirror.link(Kind.DATABASE, MIRROR).event_id == far.last_event_id()
    assert not near.locks


def test_a_change_of_the_definition_is_noticed_without_the_lock(
    mirror: Remotes, near: MemoryMetastore, far: MemoryCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The holder may be suspended after its last check, right before it sends its call."""
    move(far, "plain", "file:/first")

    def successor(_args: Any) -> None:
        near.before.clear()
        near.tables["mirror", "plain"].parameters["hive.federation.remote.definition"] = "newer"

    near.before["alter_table_req"] = successor
    with pytest.raises(LockLostError, match=r"mirror\.plain was altered by another refresh"):
        mirror.refresh(Kind.DATABASE, MIRROR)
    assert near.tables["mirror", "plain"].parameters["hive.federation.remote.definition"] == "newer"


def test_a_metastore_without_locks_is_refreshed_without_them(
    mirror: Remotes, near: MemoryMetastore, far: MemoryCatalog, caplog: pytest.LogCaptureFixture
) -> None:
    """As the metastore of Hive 2.3 that Spark makes, whose database has no tables of locks."""

    def fails(_args: Any) -> None:
        raise ApplicationFault(message="Internal error processing lock", type=6)

    move(far, "plain", "file:/first")
    near.before["lock"] = fails
    with pytest.raises(MetastoreServerError, match="Internal error processing lock"):
        mirror.refresh(Kind.DATABASE, MIRROR)
    near.before["get_open_txns_req"] = fails
    mirror.refresh(Kind.DATABASE, MIRROR)
    assert near.tables["mirror", "plain"].sd.location.startswith("file:/first")
    assert "keeps no locks" in caplog.text


@pytest.mark.parametrize(
    "outage",
    ["a moment", "the database for a moment", "the database", "the gateway's metastore of transactions"],
)
def test_a_metastore_that_fails_is_not_one_without_locks(
    outage: str, mirror: Remotes, near: MemoryMetastore, far: MemoryCatalog
) -> None:
    """Its calls may succeed a second later, beside another refresh."""
    failures = {"a moment": 2, "the database for a moment": 4}.get(outage, 1000)
    text = "upstream is down" if "gateway" in outage else "Internal error processing"

    def fails(_args: Any) -> None:
        nonlocal failures
        failures -= 1
        if failures >= 0:
            raise ApplicationFault(message=text, type=6)

    move(far, "plain", "file:/first")
    near.before |= dict.fromkeys(["lock", "get_open_txns_req"], fails)
    if outage.startswith("the database"):
        near.before["get_databases"] = fails
    near.calls.clear()
    with pytest.raises(MetastoreServerError, match=text):
        mirror.refresh(Kind.DATABASE, MIRROR)
    assert near.writes == []


def test_a_refresh_waits_for_another_that_lives(
    mirror: Remotes, near: MemoryMetastore, far: MemoryCatalog, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alone, "_WAITING", PollPolicy(first_s=1.0, longest_s=1.0, timeout_s=100.0))
    lock_id = held(near)

    def beat(seconds: float) -> None:
        clock.now_s += seconds
        near.beats[lock_id] = int(clock.now_s)

    monkeypatch.setattr(alone, "sleep", beat)
    near.calls.clear()
    with pytest.raises(LockTimeoutError, match="has been working on remote database mirror"):
        mirror.refresh(Kind.DATABASE, MIRROR)
    assert near.writes == []
    assert list(near.locks) == [lock_id]
    # Another remote has a lock of its own.
    mirror.run(f"CREATE REMOTE TABLE plain CONNECTED TO {DATABASE}.plain VIA 'far'")


@pytest.mark.parametrize(
    "statement",
    ["DROP REMOTE DATABASE mirror", "DROP REMOTE TABLE mirror.plain", "DROP REMOTE TABLE damaged"],
)
def test_a_link_is_not_dropped_beside_a_refresh(
    statement: str,
    mirror: Remotes,
    near: MemoryMetastore,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The refresh would make tables of the link again, or find a part of it."""
    mirror.run(f"CREATE REMOTE TABLE damaged CONNECTED TO {DATABASE}.plain VIA 'far'")
    near.tables["default", "damaged"].parameters["hive.federation.remote.event"] = "none"
    table_link = statement.endswith("damaged")
    monkeypatch.setattr(alone, "_WAITING", PollPolicy(first_s=1.0, longest_s=1.0, timeout_s=20.0))
    lock_id = held(near, "table default.damaged" if table_link else "database mirror")
    near.calls.clear()
    with pytest.raises(LockTimeoutError, match="has been working on remote"):
        mirror.run(statement)
    assert near.writes == []
    del near.locks[lock_id]
    mirror.run(statement)
    assert "drop_table_req" in near.writes
    assert not near.locks


def test_a_link_whose_name_another_object_has_got_meanwhile_is_not_dropped(
    mirror: Remotes, near: MemoryMetastore, clock: Clock
) -> None:
    lock_id = held(near)

    def replaced(_args: Any) -> None:
        if near.locks.pop(lock_id, None) is not None:
            near.databases["mirror"] = types.Database(name="mirror", parameters={})

    near.after["unlock"] = replaced
    near.calls.clear()
    with pytest.raises(NotARemoteError, match="Database mirror is not a remote"):
        mirror.run("DROP REMOTE DATABASE mirror")
    assert near.writes == []


@pytest.mark.parametrize("state", ["silent", "released"])
def test_the_lock_of_a_killed_refresh_is_taken_over(
    state: str, mirror: Remotes, near: MemoryMetastore, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock_id = held(near)
    began_s = clock()
    if state == "released":
        near.after["unlock"] = lambda _args: near.locks.pop(lock_id, None)
    mirror.refresh(Kind.DATABASE, MIRROR)
    assert (clock() - began_s >= 45.0) is (state == "silent")
    assert not near.locks


def test_long_names_fit_into_the_columns_of_locks(
    remotes: Remotes, near: MemoryMetastore, far: MemoryCatalog
) -> None:
    names = set()
    near.after["lock"] = lambda args: names.add(args.rqst.component[0].tablename)
    for end in "ab":
        remotes.run(f"CREATE REMOTE TABLE {'n' * 200}{end} CONNECTED TO {DATABASE}.plain VIA 'far'")
    assert len(names) == 2
    assert max(map(len, names)) <= 128


def test_properties_that_were_altered_meanwhile_are_kept(
    mirror: Remotes, near: MemoryMetastore, far: MemoryCatalog, clock: Clock
) -> None:
    """The refresh has read the link before it waited for the lock."""
    lock_id = held(near)
    parameters = near.databases["mirror"].parameters

    def alters(args: Any) -> None:
        if near.locks.pop(lock_id, None) is not None:
            parameters["hive.federation.remote.properties"] = '{"note": "altered"}'

    near.after["unlock"] = alters
    move(far, "plain", "file:/first")
    mirror.refresh(Kind.DATABASE, MIRROR)
    assert mirror.link(Kind.DATABASE, MIRROR).properties == {"note": "altered"}


def held(near: MemoryMetastore, link: str = "database mirror") -> int:
    """Lock the link for another process; return the id of the lock."""
    component = types.LockComponent(
        type=types.LockType.EXCLUSIVE,
        level=types.LockLevel.TABLE,
        dbname="hive-federation",
        tablename=f"remote {link}",
    )
    near.locks[-1] = types.LockRequest(component=[component], user="ada", hostname="elsewhere")
    return -1
