"""The address of a remote leads to another metastore than before: after a failover, for instance."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import pytest

from airflow_hive_federation.catalog.factories import Factory
from airflow_hive_federation.catalog.open import Catalogs
from airflow_hive_federation.errors import CyclicRemoteError
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.remotes import probes
from airflow_hive_federation.remotes.links import RUN
from airflow_hive_federation.remotes.positions import Try
from airflow_hive_federation.remotes.refresh import OnDropped
from airflow_hive_federation.remotes.session import Remotes
from airflow_hive_federation.remotes.statement import Kind, Name
from tests.support.catalog_contract import DATABASE, tables
from tests.support.memory_catalog import MemoryCatalog
from tests.support.memory_metastore import MemoryMetastore

MIRROR = Name(database="mirror")
SINGLE = Name(database="default", table="parted")
MAKE = (
    f"CREATE REMOTE DATABASE mirror CONNECTED TO {DATABASE} VIA 'far';"
    f"CREATE REMOTE TABLE parted CONNECTED TO {DATABASE}.parted VIA 'far'"
)
Session = Callable[[MemoryCatalog], Remotes]


def site(identity: str | None, root: str, *, events: int = 0) -> MemoryCatalog:
    """A metastore with the tables below a URI, and a number of events besides."""
    catalog = MemoryCatalog(identity)
    for _ in range(events):
        catalog.put_database(types.Database(name="noise"))
    catalog.put_database(types.Database(name=DATABASE, description=root))
    for table, partitions in tables(root).values():
        catalog.put_table(table, partitions)
    return catalog


@pytest.fixture
def session(near: MemoryMetastore) -> Iterator[Session]:
    """Open a session in which ``VIA 'far'`` leads to a metastore."""
    opened: list[Remotes] = []
    with near.served(user="ada") as settings:

        def open_session(far: MemoryCatalog) -> Remotes:
            factory = Factory(name="far", class_names=(), properties={}, open=lambda _: far)
            opened.append(Remotes(settings, catalogs=Catalogs(factories=(factory,))))
            return opened[-1]

        yield open_session
        for remotes in opened:
            remotes.close()


def locations(near: MemoryMetastore) -> set[str]:
    """The roots of the linked tables and partitions, without the directories that the local side chooses."""
    places = [table.sd.location for table in near.tables.values()]
    places += [part.sd.location for parts in near.partitions.values() for part in parts.values()]
    return {"/".join(place.split("/")[:2]) for place in places if "warehouse" not in place}


#: The new metastore's last event is the link's, or an earlier or a later one.
@pytest.mark.parametrize("events", [0, 2, 40])
def test_a_refresh_compares_everything(session: Session, near: MemoryMetastore, events: int) -> None:
    first, second = site("A", "file:/one", events=2), site("B", "file:/two", events=events)
    session(first).run(MAKE)
    remotes = session(second)
    for kind, name in ((Kind.DATABASE, MIRROR), (Kind.TABLE, SINGLE)):
        assert probes.look(remotes, kind, name).changed
        report = remotes.refresh(kind, name)
        assert (report.whole, report.event_id) == (True, second.last_event_id())
        assert not probes.look(remotes, kind, name).changed
        link = remotes.link(kind, name)
        assert (link.path, link.event_id) == (("B",), second.last_event_id())
    assert locations(near) == {"file:/two"}
    assert near.databases["mirror"].description == "file:/two"
    # The next refresh goes by events again.
    second.drop_table(DATABASE, "plain")
    report = remotes.refresh(Kind.DATABASE, MIRROR)
    assert (report.whole, report.dropped) == (False, ["plain"])


def test_a_look_at_a_table_of_a_remote_database(session: Session) -> None:
    session(site("A", "file:/one")).run(MAKE)
    remotes = session(site("B", "file:/two"))
    member = Name(database="mirror", table="plain")
    assert probes.look(remotes, Kind.TABLE, member).changed
    remotes.refresh(Kind.TABLE, member)
    assert not probes.look(remotes, Kind.TABLE, member).changed


def test_a_look_at_a_table_that_the_other_metastore_lacks(session: Session) -> None:
    """Its link, which is kept, has the id of the earlier metastore; the position is the database's."""
    session(site("A", "file:/one")).run(MAKE)
    second = site("B", "file:/two")
    second.drop_table(DATABASE, "plain")
    remotes = session(second)
    assert remotes.refresh(Kind.DATABASE, MIRROR, on_dropped=OnDropped.KEEP).gone == ["plain"]
    member = Name(database="mirror", table="plain")
    assert remotes.link(Kind.TABLE, member).path == ("A",)
    assert not probes.look(remotes, Kind.TABLE, member).changed


@pytest.mark.parametrize("identities", [("A", None), (None, "B"), (None, None), ("A", "A")])
def test_without_two_ids_events_are_compared(
    session: Session, identities: tuple[str | None, str | None]
) -> None:
    before, after = identities
    session(site(before, "file:/one")).run(MAKE)
    remotes = session(site(after, "file:/one"))
    assert not probes.look(remotes, Kind.DATABASE, MIRROR).changed
    assert not remotes.refresh(Kind.DATABASE, MIRROR).whole
    assert remotes.link(Kind.DATABASE, MIRROR).path == tuple(filter(None, [after or before]))


def test_a_watcher_reports_the_move_once(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow_hive_federation.triggers import remote as triggers

    far = site("A", "file:/one")
    session(far).run(MAKE)
    monkeypatch.setattr(triggers, "remotes_of", lambda *_args, **_kwargs: nullcontext(session(far)))
    trigger = triggers.RemoteChangesTrigger(metastore_conn_id="near", remote="mirror")
    assert not trigger._look()
    far = site("B", "file:/two", events=5)
    assert trigger._look()
    assert not trigger._look()
    session(far).refresh(Kind.DATABASE, MIRROR)
    assert not trigger._look()
    far.drop_table(DATABASE, "plain")
    assert trigger._look()


def test_a_try_after_the_move_names_all_tables(session: Session, near: MemoryMetastore) -> None:
    """The events of the earlier metastore's numbers are no events of the new one."""
    first, second = site("A", "file:/one"), site("B", "file:/two", events=9)
    remotes = session(first)
    remotes.run(MAKE)
    remotes.tried = Try(key="a")
    remotes.refresh(Kind.DATABASE, MIRROR)
    remotes = session(second)
    remotes.tried = Try(key="b")
    remotes.refresh(Kind.DATABASE, MIRROR)
    remotes.tried = Try(key="b", number=2)
    assert remotes.refresh(Kind.DATABASE, MIRROR).named == ["parted", "plain"]
    assert near.databases["mirror"].parameters[RUN] == "b -1"
    # Without a task, the runs of the earlier metastore are forgotten.
    remotes = session(first)
    remotes.refresh(Kind.DATABASE, MIRROR)
    assert RUN not in near.databases["mirror"].parameters


def test_what_a_refresh_leaves_behind_is_compared_again(session: Session) -> None:
    session(site("A", "file:/one")).run(MAKE)
    second = site("B", "file:/two")
    refused: Any = tables("file:/two/../else")["plain"][0]
    second.put_table(refused)
    remotes = session(second)
    assert list(remotes.refresh(Kind.DATABASE, MIRROR).skipped) == ["plain"]
    assert remotes.refresh(Kind.DATABASE, MIRROR).whole
    second.put_table(tables("file:/two")["plain"][0])
    assert remotes.refresh(Kind.DATABASE, MIRROR).altered == ["plain"]
    assert not remotes.refresh(Kind.DATABASE, MIRROR).whole


def test_an_address_that_leads_back_is_refused(session: Session, near: MemoryMetastore) -> None:
    session(site("A", "file:/one")).run(MAKE)
    back = site("B", "file:/two")
    back.put_database(types.Database(name=DATABASE, parameters={"hive.federation.remote.path": "in-memory"}))
    near.calls.clear()
    with pytest.raises(CyclicRemoteError, match="leads back"):
        session(back).refresh(Kind.DATABASE, MIRROR)
    assert near.writes == []
