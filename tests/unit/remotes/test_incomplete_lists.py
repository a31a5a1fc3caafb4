"""A link is dropped because the remote denies its table by name, never because a list lacks it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from airflow_hive_federation.catalog.factories import Factory
from airflow_hive_federation.catalog.hive import POOL_SIZE
from airflow_hive_federation.catalog.open import Catalogs
from airflow_hive_federation.errors import (
    ConfigurationError,
    HiveFederationError,
    InvalidObjectError,
    InvalidOperationError,
    MetastoreAuthenticationError,
    MetastoreProtocolError,
    MetastoreServerError,
    MetastoreUnreachableError,
    NoSuchObjectError,
    RemoteDroppedError,
    RemoteError,
    RemoteUnavailableError,
    UnsupportedMethodError,
)
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.remotes.refresh import OnDropped
from airflow_hive_federation.remotes.session import Remotes
from airflow_hive_federation.remotes.statement import Kind, Name
from tests.support.catalog_contract import DATABASE, NAMES, tables
from tests.support.memory_catalog import MemoryCatalog
from tests.support.memory_metastore import MemoryMetastore

MIRROR = Name(database="mirror")
MAKE_MIRROR = f"CREATE REMOTE DATABASE mirror CONNECTED TO {DATABASE} VIA 'far'"


def links(near: MemoryMetastore) -> list[str]:
    return sorted(table for database, table in near.tables if database == "mirror")


def put_changed(far: MemoryCatalog, name: str) -> None:
    table, partitions = tables("file:/far")[name]
    table.parameters = {**(table.parameters or {}), "note": "changed"}
    far.put_table(table, partitions)


def gone(*_: Any) -> Any:
    raise NoSuchObjectError("It is gone.")


def down(*_: Any) -> Any:
    raise MetastoreUnreachableError("No answer.")


@pytest.fixture
def lacking(far: MemoryCatalog, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Let the remote's list, or its answer to a call for many tables, lack the table ``plain``."""

    def lack(part: str) -> None:
        if part == "list":
            monkeypatch.setattr(far, "list_tables", lambda _database: ["parted"])
        else:
            monkeypatch.setattr(far, "get_tables", lambda *_: [far.get_table(DATABASE, "parted")])

    return lack


@pytest.mark.parametrize("part", ["list", "tables"])
def test_a_table_that_an_answer_lacks_is_asked_for_by_its_name(
    remotes: Remotes, near: MemoryMetastore, far: MemoryCatalog, lacking: Callable[[str], None], part: str
) -> None:
    remotes.run(MAKE_MIRROR)
    put_changed(far, "plain")
    lacking(part)
    report = remotes.refresh(Kind.DATABASE, MIRROR, whole=True)
    assert (report.altered, report.dropped) == (["plain"], [])
    assert near.tables["mirror", "plain"].parameters["note"] == "changed"
    far.drop_table(DATABASE, "plain")
    assert remotes.refresh(Kind.DATABASE, MIRROR, whole=True).dropped == ["plain"]


@pytest.fixture
def refusing(far: MemoryCatalog, monkeypatch: pytest.MonkeyPatch) -> Callable[[HiveFederationError], None]:
    """Let the remote answer with an error when it is asked for the table ``plain``."""
    answered = far.get_table

    def refuse(error: HiveFederationError) -> None:
        def get_table(database: str, table: str) -> types.Table:
            if table == "plain":
                raise error
            return answered(database, table)

        monkeypatch.setattr(far, "get_table", get_table)

    return refuse


REFUSALS = (
    MetastoreServerError("bob has no privilege to read it."),
    InvalidOperationError("bob has no privilege to read it."),
    InvalidObjectError("Its metadata cannot be read."),
    ConfigurationError("bob has no privilege to read it.", remedy="Grant it."),
)


@pytest.mark.parametrize("error", REFUSALS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("part", ["list", "tables"])
def test_a_hidden_table_that_the_remote_refuses_to_read_keeps_its_link(
    remotes: Remotes,
    near: MemoryMetastore,
    far: MemoryCatalog,
    lacking: Callable[[str], None],
    refusing: Callable[[HiveFederationError], None],
    part: str,
    error: HiveFederationError,
) -> None:
    """The filter of a metastore's authorization hides it from lists, and its listener refuses the read."""
    remotes.run(MAKE_MIRROR)
    for name in ("plain", "parted"):
        put_changed(far, name)
    lacking(part)
    refusing(error)
    before = near.tables["mirror", "plain"]
    report = remotes.refresh(Kind.DATABASE, MIRROR, whole=True)
    assert report.skipped == {"plain": f"the remote hides it, and refuses to read it: {error}"}
    assert (report.altered, report.dropped) == (["parted"], [])
    assert near.tables["mirror", "plain"] == before
    assert remotes.link(Kind.DATABASE, MIRROR).event_id == report.event_id == far.last_event_id()
    # Events go on from there.
    report = remotes.refresh(Kind.DATABASE, MIRROR)
    assert (report.whole, report.skipped, report.changed) == (False, {}, False)


def test_an_event_of_a_hidden_table_that_the_remote_refuses_to_read(
    remotes: Remotes,
    near: MemoryMetastore,
    far: MemoryCatalog,
    lacking: Callable[[str], None],
    refusing: Callable[[HiveFederationError], None],
) -> None:
    remotes.run(MAKE_MIRROR)
    for name in ("plain", "parted"):
        put_changed(far, name)
    lacking("list")
    refusing(MetastoreServerError("bob has no privilege to read it."))
    report = remotes.refresh(Kind.DATABASE, MIRROR)
    assert (report.whole, report.altered, report.dropped) == (False, ["parted"], [])
    assert "bob has no privilege" in report.skipped["plain"]
    assert links(near) == ["parted", "plain"]
    assert remotes.link(Kind.DATABASE, MIRROR).event_id == far.last_event_id()
    # A table that was never linked is left out in the same way.
    with near.served() as settings, Remotes(settings) as local:
        local.run("DROP REMOTE TABLE mirror.plain")
    put_changed(far, "plain")
    assert list(remotes.refresh(Kind.DATABASE, MIRROR).skipped) == ["plain"]


def test_an_event_of_a_listed_table_that_the_remote_refuses_to_read(
    remotes: Remotes, far: MemoryCatalog, refusing: Callable[[HiveFederationError], None]
) -> None:
    """The position stays, so that its change is not lost."""
    remotes.run(MAKE_MIRROR)
    position = remotes.link(Kind.DATABASE, MIRROR).event_id
    put_changed(far, "plain")
    refusing(MetastoreServerError("The database is away."))
    with pytest.raises(MetastoreServerError, match="away"):
        remotes.refresh(Kind.DATABASE, MIRROR)
    assert remotes.link(Kind.DATABASE, MIRROR).event_id == position


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (MetastoreProtocolError("It is another server."), RemoteError),
        (MetastoreAuthenticationError("It does not know bob."), MetastoreAuthenticationError),
        (UnsupportedMethodError("It has no such call."), UnsupportedMethodError),
    ],
)
def test_an_error_of_the_whole_remote_fails_the_refresh(
    remotes: Remotes,
    near: MemoryMetastore,
    lacking: Callable[[str], None],
    refusing: Callable[[HiveFederationError], None],
    error: HiveFederationError,
    raised: type[HiveFederationError],
) -> None:
    remotes.run(MAKE_MIRROR)
    lacking("list")
    refusing(error)
    with pytest.raises(raised):
        remotes.refresh(Kind.DATABASE, MIRROR, whole=True)
    assert links(near) == ["parted", "plain"]


def test_tables_that_are_gone_are_asked_for_side_by_side(
    remotes: Remotes, near: MemoryMetastore, far: MemoryCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(POOL_SIZE - 1):
        table: Any = tables("file:/far")["plain"][0]
        table.tableName = f"plain{number}"
        far.put_table(table)
    remotes.run(MAKE_MIRROR)
    gone = [name for name in links(near) if name.startswith("plain")]
    for name in gone:
        far.drop_table(DATABASE, name)
    together = threading.Barrier(POOL_SIZE, timeout=60)
    asked: list[str] = []

    def get_table(database: str, table: str) -> types.Table:
        if table in gone:
            together.wait()
        return MemoryCatalog.get_table(far, database, table)

    def get_database(name: str) -> types.Database:
        asked.append(name)
        return MemoryCatalog.get_database(far, name)

    monkeypatch.setattr(far, "get_table", get_table)
    monkeypatch.setattr(far, "get_database", get_database)
    for whole in (False, True):
        asked.clear()
        report = remotes.refresh(Kind.DATABASE, MIRROR, whole=whole, on_dropped=OnDropped.KEEP)
        assert (report.whole, report.gone) == (whole, gone)
        # Once before the tables, and once for all that are gone.
        assert asked == [DATABASE, DATABASE]
    assert links(near) == ["parted", *gone]


@pytest.mark.parametrize("part", ["list", "tables"])
def test_a_table_whose_owner_does_not_answer_keeps_its_link(
    remotes: Remotes,
    near: MemoryMetastore,
    far: MemoryCatalog,
    lacking: Callable[[str], None],
    monkeypatch: pytest.MonkeyPatch,
    part: str,
) -> None:
    """A federating gateway with ``on_missing = "partial"`` answers like this over gRPC."""
    remotes.run(MAKE_MIRROR)
    position = remotes.link(Kind.DATABASE, MIRROR).event_id
    put_changed(far, "parted")
    with monkeypatch.context() as patch:
        lacking(part)
        answered = far.get_table
        patch.setattr(far, "get_table", lambda *of: down() if of[1] == "plain" else answered(*of))
        with pytest.raises(RemoteUnavailableError):
            remotes.refresh(Kind.DATABASE, MIRROR, whole=True)
    assert links(near) == ["parted", "plain"]
    assert remotes.link(Kind.DATABASE, MIRROR).event_id == position
    # The others are up to date.
    assert near.tables["mirror", "parted"].parameters["note"] == "changed"


def test_a_database_that_is_gone_when_it_is_listed_keeps_its_links(
    remotes: Remotes, near: MemoryMetastore, far: MemoryCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    remotes.run(MAKE_MIRROR)
    monkeypatch.setattr(far, "list_tables", gone)
    with pytest.raises(RemoteDroppedError, match=f"Database {DATABASE}, to which mirror is linked"):
        remotes.refresh(Kind.DATABASE, MIRROR, whole=True)
    assert links(near) == ["parted", "plain"]


@pytest.mark.parametrize("whole", [True, False])
def test_a_database_that_is_gone_when_its_tables_are_asked_for_keeps_its_links(
    remotes: Remotes, near: MemoryMetastore, far: MemoryCatalog, monkeypatch: pytest.MonkeyPatch, whole: bool
) -> None:
    remotes.run(MAKE_MIRROR)
    far.drop_table(DATABASE, "plain")

    def get_table(database: str, table: str) -> types.Table:
        far._databases.clear()
        return MemoryCatalog.get_table(far, database, table)

    monkeypatch.setattr(far, "get_table", get_table)
    with pytest.raises(RemoteDroppedError, match="to which mirror is linked"):
        remotes.refresh(Kind.DATABASE, MIRROR, whole=whole)
    assert links(near) == ["parted", "plain"]


def test_tables_of_others_are_not_asked_for(
    remotes: Remotes, near: MemoryMetastore, far: MemoryCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    remotes.run(MAKE_MIRROR)
    own: Any = tables("file:/near")["plain"][0]
    own.dbName, own.tableName = "mirror", "own"
    near.put_table(own)
    answered = far.get_table
    monkeypatch.setattr(far, "get_table", lambda *of: down() if of[1] == "own" else answered(*of))
    report = remotes.refresh(Kind.DATABASE, MIRROR, whole=True)
    assert report.skipped == {"own": "the local name belongs to another table"}


def test_a_partition_that_a_list_lacks_is_asked_for_by_its_name(
    remotes: Remotes, near: MemoryMetastore, far: MemoryCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    remotes.run(MAKE_MIRROR)

    def get_partitions(database: str, table: str, names: Sequence[str] | None = None) -> list[Any]:
        found = MemoryCatalog.get_partitions(far, database, table, names)
        return found[1:] if names is None else found

    monkeypatch.setattr(far, "get_partitions", get_partitions)
    report = remotes.refresh(Kind.DATABASE, MIRROR, whole=True)
    assert report.partitions_dropped == 0
    assert sorted(near.partitions["mirror", "parted"]) == NAMES
    table, partitions = tables("file:/far")["parted"]
    far.put_table(table, partitions[:1])
    assert remotes.refresh(Kind.DATABASE, MIRROR, whole=True).partitions_dropped == 2


class Listing(MemoryCatalog):
    """A catalog whose list of names costs as much as one of tables, and may name a table twice."""

    listings = 0
    lacks = ""

    def iter_tables(self, database: str) -> Iterator[types.Table]:
        self.get_database(database)
        self.listings += 1
        for name in (*self.list_tables(database), "plain"):
            if name != self.lacks:
                yield self.get_table(database, name)

    def get_tables(self, database: str, names: Sequence[str]) -> list[types.Table]:
        raise AssertionError("it was listed a second time")


def test_a_catalog_that_lists_tables_is_listed_once(near: MemoryMetastore) -> None:
    far = Listing()
    far.put_database(types.Database(name=DATABASE))
    for number in range(250):
        table: Any = tables("file:/far")["plain"][0]
        table.tableName = f"t{number}"
        far.put_table(table)
    far.put_table(tables("file:/far")["plain"][0])
    factory = Factory(name="far", class_names=(), properties={}, open=lambda _: far)
    with near.served() as settings, Remotes(settings, catalogs=Catalogs(factories=(factory,))) as remotes:
        remotes.run(MAKE_MIRROR)
        assert (len(links(near)), far.listings) == (251, 1)
        far.lacks = "plain"
        assert remotes.refresh(Kind.DATABASE, MIRROR, whole=True).dropped == []
        far.drop_table(DATABASE, "t7")
        far.lacks = ""
        assert remotes.refresh(Kind.DATABASE, MIRROR, whole=True).dropped == ["t7"]
        far._databases.clear()
        far.iter_tables = gone  # type: ignore[method-assign]
        with pytest.raises(RemoteDroppedError):
            remotes.refresh(Kind.DATABASE, MIRROR, whole=True)
    assert len(links(near)) == 250
