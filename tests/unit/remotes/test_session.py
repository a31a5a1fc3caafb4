"""Statements and operations on remotes between a metastore and a catalog in memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import pytest

from airflow_hive_federation.catalog.factories import Factory
from airflow_hive_federation.catalog.open import Catalogs
from airflow_hive_federation.catalog.roles import unreadable
from airflow_hive_federation.errors import (
    ConfigurationError,
    CyclicRemoteError,
    MetastoreUnreachableError,
    NameTakenError,
    NoSuchObjectError,
    NotARemoteError,
    RemoteDroppedError,
    RemoteError,
    RemoteUnavailableError,
    RemoteUnsupportedError,
)
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.remotes import probes
from airflow_hive_federation.remotes.links import EVENT, MAX_RUNS, PATH, RUN
from airflow_hive_federation.remotes.positions import Try
from airflow_hive_federation.remotes.read import read_remote_table, reading_remote_tables
from airflow_hive_federation.remotes.refresh import OnDropped
from airflow_hive_federation.remotes.session import Remotes
from airflow_hive_federation.remotes.statement import Kind, Name
from tests.support.catalog_contract import DATABASE, tables
from tests.support.memory_catalog import MemoryCatalog
from tests.support.memory_metastore import MemoryMetastore

PLAIN = Name(database="default", table="plain")
PARTED = Name(database="default", table="parted")
MIRROR = Name(database="mirror")
MAKE = f"CREATE REMOTE TABLE plain CONNECTED TO {DATABASE}.plain VIA 'far'"
MAKE_PARTED = f"CREATE REMOTE TABLE parted CONNECTED TO {DATABASE}.parted VIA 'far'"
MAKE_MIRROR = f"CREATE REMOTE DATABASE mirror CONNECTED TO {DATABASE} VIA 'far'"


class Silent(MemoryCatalog):
    """A catalog without events, which may be down."""

    is_down = False

    def last_event_id(self) -> None:  # type: ignore[override]
        return None

    def _add_event(self, event_type: str, database: str, table: str | None = None) -> None:
        del event_type, database, table

    def get_table(self, database: str, table: str) -> types.Table:
        if self.is_down:
            raise MetastoreUnreachableError("Gone.")
        return super().get_table(database, table)

    def get_database(self, name: str) -> types.Database:
        if self.is_down:
            raise MetastoreUnreachableError("Gone.")
        return super().get_database(name)


@pytest.fixture
def silent() -> Silent:
    catalog = Silent()
    catalog.put_database(types.Database(name=DATABASE, description="silent"))
    for table, partitions in tables("file:/far").values():
        catalog.put_table(table, partitions)
    return catalog


@pytest.fixture
def without_events(near: MemoryMetastore, silent: Silent) -> Iterator[Remotes]:
    """The session of a user, in which ``VIA 'far'`` leads to a catalog without events."""
    factory = Factory(name="far", class_names=(), properties={}, open=lambda _: silent)
    with (
        near.served(user="ada") as settings,
        Remotes(settings, catalogs=Catalogs(factories=(factory,))) as opened,
    ):
        yield opened


def changed(name: str, **parameters: str) -> tuple[types.Table, list[types.Partition]]:
    table, partitions = tables("file:/far")[name]
    table.parameters = {**(table.parameters or {}), **parameters}
    return table, partitions


# -- creating ------------------------------------------------------------------------------------------------


def test_an_existing_remote_is_left_as_it_is_or_refused(remotes: Remotes, near: MemoryMetastore) -> None:
    remotes.run(MAKE)
    near.calls.clear()
    with pytest.raises(NameTakenError, match=r"Remote table default\.plain exists"):
        remotes.run(MAKE)
    remotes.run(MAKE.replace("TABLE", "TABLE IF NOT EXISTS"))
    # Neither is a link to another table continued as one to this.
    del near.tables["default", "plain"].parameters[EVENT]
    with pytest.raises(NameTakenError):
        remotes.run(MAKE.replace(f"{DATABASE}.plain", f"{DATABASE}.parted"))
    assert near.writes == []
    # A link whose creation was interrupted is completed.
    remotes.run(MAKE)
    assert EVENT in near.tables["default", "plain"].parameters


def test_a_member_is_not_made_a_remote_of_its_own(remotes: Remotes, near: MemoryMetastore) -> None:
    remotes.run(MAKE_MIRROR)
    near.calls.clear()
    for refused in (MAKE.replace("TABLE plain", "TABLE mirror.plain"), MAKE_MIRROR):
        with pytest.raises(NameTakenError):
            remotes.run(refused)
    with pytest.raises(NotARemoteError, match=r"mirror\.plain is part of the remote database mirror"):
        remotes.run("ALTER REMOTE TABLE mirror.plain SET 'note' = 'x'")
    assert near.writes == []


@pytest.mark.parametrize("exists", ["", "IF NOT EXISTS "])
def test_names_of_other_objects_are_taken(remotes: Remotes, near: MemoryMetastore, exists: str) -> None:
    near.put_table(tables("file:/near")["plain"][0])
    for statement in (
        f"CREATE REMOTE TABLE {exists}{DATABASE}.plain VIA 'far'",
        f"CREATE REMOTE DATABASE {exists}{DATABASE} VIA 'far'",
    ):
        with pytest.raises(NameTakenError, match="is not this remote"):
            remotes.run(statement)
    assert near.writes == []


def test_a_database_that_another_client_makes_meanwhile(remotes: Remotes, near: MemoryMetastore) -> None:
    near.before["create_database"] = lambda _args: near.databases.update(mirror=types.Database(name="mirror"))
    with pytest.raises(NameTakenError, match="Database mirror exists"):
        remotes.run(MAKE_MIRROR)


@pytest.mark.parametrize(("count", "shown"), [(2, "acid0, acid1."), (12, "acid8, acid9 and 2 more.")])
def test_tables_that_ordinary_engines_cannot_read_are_named(
    remotes: Remotes, far: MemoryCatalog, count: int, shown: str
) -> None:
    for number in range(count):
        acid: Any = tables("file:/far")["plain"][0]
        acid.tableName, acid.parameters = (
            f"acid{number}" if number < 10 else f"b{number}",
            {"transactional": "true"},
        )
        acid.tableType = "MANAGED_TABLE"
        far.put_table(acid)
    (created, described) = remotes.run(f"{MAKE_MIRROR}; DESCRIBE REMOTE DATABASE mirror")
    assert "Transactional, read by read_remote_table only: acid0, acid1" in created.rows[0][0]
    assert shown in created.rows[0][0]
    rows = list(described.rows)
    place = rows.index(("# Read by read_remote_table Only", "", ""))
    assert rows[place + 1] == ("acid0", "", "transactional")
    assert sum(row[2] == "transactional" for row in rows) == count


def test_what_the_remote_lacks(remotes: Remotes, near: MemoryMetastore, far: MemoryCatalog) -> None:
    with pytest.raises(
        NoSuchObjectError, match=rf"The remote of default\.n has no table {DATABASE}\.n"
    ) as caught:
        remotes.run(f"CREATE REMOTE TABLE n CONNECTED TO {DATABASE}.n VIA 'far'")
    assert "CONNECTED TO" in caught.value.remedy
    with pytest.raises(NoSuchObjectError, match="The remote of n has no database nothing"):
        remotes.run("CREATE REMOTE DATABASE n CONNECTED TO nothing VIA 'far'")
    view: Any = tables("file:/far")["plain"][0]
    view.tableName, view.tableType = "seen", "VIRTUAL_VIEW"
    far.put_table(view)
    with pytest.raises(RemoteUnsupportedError, match="it is a view") as unsupported:
        remotes.run(f"CREATE REMOTE TABLE n CONNECTED TO {DATABASE}.seen VIA 'far'")
    assert "Link the tables" in unsupported.value.remedy
    assert near.writes == []


def test_properties_are_checked_before_anything_else(remotes: Remotes, near: MemoryMetastore) -> None:
    near.put_table(tables("file:/near")["plain"][0])
    with pytest.raises(ConfigurationError, match="no property 'nonsense'") as caught:
        remotes.run(f"CREATE REMOTE TABLE {DATABASE}.plain VIA 'far' 'nonsense' = 'x'")
    assert "DROP REMOTE" not in caught.value.remedy
    remotes.run(MAKE)
    with pytest.raises(ConfigurationError, match=r"Remote table default\.plain: .*no property 'nonsense'"):
        remotes.run("ALTER REMOTE TABLE plain SET 'nonsense' = 'x'")


@pytest.mark.parametrize("statement", [MAKE, MAKE_MIRROR])
def test_remotes_that_lead_back(
    remotes: Remotes, near: MemoryMetastore, far: MemoryCatalog, statement: str
) -> None:
    back = {PATH: "in-memory"}
    far.put_table(*changed("plain", **back))
    far.put_database(types.Database(name=DATABASE, parameters=back))
    with pytest.raises(CyclicRemoteError, match="leads back to this metastore"):
        remotes.run(statement)
    assert near.writes == []


def test_a_member_that_leads_back_is_left_out(
    remotes: Remotes, near: MemoryMetastore, far: MemoryCatalog
) -> None:
    far.put_table(*changed("plain", **{PATH: "in-memory"}))
    remotes.run(MAKE_MIRROR)
    assert set(near.tables) == {("mirror", "parted")}


# -- names ---------------------------------------------------------------------------------------------------


def test_names_that_are_no_remotes(remotes: Remotes, near: MemoryMetastore) -> None:
    near.put_table(tables("file:/near")["plain"][0])
    other = f"{DATABASE}.plain"
    for statement, reason in (
        (f"REFRESH REMOTE TABLE {other}", "is not a remote"),
        (f"DROP REMOTE TABLE {other}", "is not a remote"),
        (f"DROP REMOTE TABLE IF EXISTS {other}", "is not a remote"),
        (f"DROP REMOTE DATABASE {DATABASE}", "is not a remote"),
        ("REFRESH REMOTE TABLE nothing", "does not exist"),
        ("DROP REMOTE TABLE nothing", "does not exist"),
        ("DROP REMOTE DATABASE nothing", "does not exist"),
        ("DESCRIBE nothing", "does not exist"),
    ):
        with pytest.raises(NotARemoteError, match=reason) as caught:
            remotes.run(statement)
        assert "SHOW REMOTES" in caught.value.remedy
    for missing in ("TABLE IF EXISTS nothing", "DATABASE IF EXISTS nothing"):
        assert "did not exist" in remotes.run(f"DROP REMOTE {missing}")[0].rows[0][0]
    assert near.writes == []


def test_a_database_with_tables_of_others_is_not_dropped(remotes: Remotes, near: MemoryMetastore) -> None:
    remotes.run(MAKE_MIRROR)
    own: Any = tables("file:/near")["plain"][0]
    own.dbName, own.tableName = "mirror", "own"
    near.put_table(own)
    near.calls.clear()
    with pytest.raises(RemoteError, match="holds tables that are not remotes: own"):
        remotes.run("DROP REMOTE DATABASE mirror")
    assert near.writes == []


def test_a_link_that_is_gone_can_be_dropped(remotes: Remotes, near: MemoryMetastore) -> None:
    remotes.run(MAKE)

    def gone(_args: Any) -> None:
        near.tables.pop(("default", "plain"), None)

    near.before["get_partition_names"] = gone
    remotes.run("DROP REMOTE TABLE plain")
    assert not near.tables


# -- refreshing ----------------------------------------------------------------------------------------------


def test_a_table_that_the_remote_has_dropped(
    remotes: Remotes, near: MemoryMetastore, far: MemoryCatalog
) -> None:
    remotes.run(f"{MAKE}; {MAKE_MIRROR}")
    far.drop_table(DATABASE, "plain")
    near.calls.clear()
    with pytest.raises(RemoteDroppedError, match=r"default\.plain is linked, no longer exists") as caught:
        remotes.refresh(Kind.TABLE, PLAIN)
    assert "DROP REMOTE TABLE default.plain" in caught.value.remedy
    with pytest.raises(RemoteDroppedError, match=r"mirror\.plain is linked"):
        remotes.refresh(Kind.DATABASE, MIRROR, on_dropped=OnDropped.FAIL)
    assert near.writes == []
    report = remotes.refresh(Kind.DATABASE, MIRROR, on_dropped=OnDropped.KEEP)
    assert (report.gone, report.dropped) == (["plain"], [])
    assert ("mirror", "plain") in near.tables
    assert remotes.refresh(Kind.DATABASE, MIRROR, whole=True).dropped == ["plain"]
    assert remotes.refresh(Kind.TABLE, PLAIN, on_dropped=OnDropped.DROP).dropped == ["plain"]
    assert set(near.tables) == {("mirror", "parted")}


def test_a_database_that_the_remote_has_dropped(remotes: Remotes, far: MemoryCatalog) -> None:
    remotes.run(MAKE_MIRROR)
    far._databases.clear()
    far.put_table(*changed("plain"))
    with pytest.raises(RemoteDroppedError, match=f"Database {DATABASE}, to which mirror is linked") as caught:
        remotes.refresh(Kind.DATABASE, MIRROR)
    assert "DROP REMOTE DATABASE mirror" in caught.value.remedy
    with pytest.raises(RemoteDroppedError, match="to which mirror is linked, no longer exists at the remote"):
        remotes.run("DESCRIBE REMOTE DATABASE mirror")


def test_a_table_that_can_no_longer_be_linked(
    remotes: Remotes, near: MemoryMetastore, far: MemoryCatalog
) -> None:
    remotes.run(f"{MAKE}; {MAKE_MIRROR}")
    far.put_table(*changed("plain", storage_handler="x.JdbcStorageHandler"))
    near.calls.clear()
    with pytest.raises(RemoteUnsupportedError, match="it is kept by"):
        remotes.refresh(Kind.TABLE, PLAIN)
    assert near.writes == []
    report = remotes.refresh(Kind.DATABASE, MIRROR)
    assert (report.dropped, list(report.skipped)) == (["plain"], ["plain"])
    assert set(near.tables) == {("default", "plain"), ("mirror", "parted")}


def test_a_table_that_its_catalog_cannot_read(
    remotes: Remotes, near: MemoryMetastore, far: MemoryCatalog
) -> None:
    """The other tables are refreshed; a link with the earlier state would show rows of it."""
    remotes.run(MAKE_MIRROR)
    reason = "its metadata file is missing; restore the file"
    for name in ("plain", "never_read"):
        far.put_table(unreadable(DATABASE, name, reason))
    later: Any = tables("file:/far")["plain"][0]
    later.tableName = "later"
    far.put_table(later)
    report = remotes.refresh(Kind.DATABASE, MIRROR, whole=True)
    assert (report.created, report.dropped) == (["later"], ["plain"])
    assert sorted(report.skipped) == ["never_read", "plain"]
    assert all(reason in skipped for skipped in report.skipped.values())
    assert sorted(table for database, table in near.tables if database == "mirror") == ["later", "parted"]
    described_rows = remotes.describe(Kind.DATABASE, MIRROR, extended=True).rows
    assert [row[0] for row in described_rows if reason in str(row[-1])] == ["never_read", "plain"]


def test_a_table_of_another_with_a_members_name(
    remotes: Remotes, near: MemoryMetastore, far: MemoryCatalog
) -> None:
    remotes.run(MAKE_MIRROR)
    own: Any = tables("file:/near")["plain"][0]
    own.dbName = "mirror"
    near.put_table(own)
    far.put_table(*changed("plain", note="changed"))
    report = remotes.refresh(Kind.DATABASE, MIRROR)
    assert report.skipped == {"plain": "the local name belongs to another table"}
    assert near.tables["mirror", "plain"] == own
    # A table link that a user made there is no member either.
    del near.tables["mirror", "plain"]
    remotes.run(MAKE.replace("TABLE plain", "TABLE mirror.plain"))
    far.drop_table(DATABASE, "plain")
    report = remotes.refresh(Kind.DATABASE, MIRROR)
    assert (report.dropped, list(report.skipped)) == ([], ["plain"])
    assert ("mirror", "plain") in near.tables


def test_a_refresh_reads_the_events_alone(
    remotes: Remotes, near: MemoryMetastore, far: MemoryCatalog
) -> None:
    remotes.run(f"{MAKE}; {MAKE_PARTED}; {MAKE_MIRROR}")
    report = remotes.refresh(Kind.TABLE, PLAIN)
    assert (report.whole, report.changed) == (False, False)
    near.calls.clear()
    far.put_table(*changed("plain", note="changed"))
    # Another table's event moves the position and changes nothing else.
    report = remotes.refresh(Kind.TABLE, PARTED)
    assert (report.whole, report.changed, near.writes) == (False, False, ["alter_table_req"])
    assert "get_partition_names" not in near.calls
    assert remotes.refresh(Kind.TABLE, PLAIN).altered == ["plain"]
    far.put_table(*changed("plain", note="again"))
    far.forget_events()
    for kind, name in ((Kind.TABLE, PLAIN), (Kind.DATABASE, MIRROR)):
        report = remotes.refresh(kind, name)
        assert (report.whole, report.altered) == (True, ["plain"])


@pytest.mark.parametrize("with_partitions", [True, False])
def test_a_refresh_names_the_tables_that_an_interrupted_one_has_changed(
    with_partitions: bool,
    remotes: Remotes,
    near: MemoryMetastore,
    far: MemoryCatalog,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It finds them as they should be; but whoever waits for their changes has not heard of them."""
    remotes.run(MAKE_MIRROR)
    table, partitions = changed("parted", note="changed")
    far.put_table(table, partitions[1:] if with_partitions else partitions)
    far.put_table(*changed("plain", note="changed"))
    get_table = far.get_table

    def fails(database: str, name: str) -> types.Table:
        if name == "plain":
            raise MetastoreUnreachableError("Gone.")
        return get_table(database, name)

    with monkeypatch.context() as patch:
        patch.setattr(far, "get_table", fails)
        with pytest.raises(RemoteUnavailableError):
            remotes.refresh(Kind.DATABASE, MIRROR)
    assert near.tables["mirror", "parted"].parameters["note"] == "changed"
    report = remotes.refresh(Kind.DATABASE, MIRROR)
    assert (report.altered, report.with_partitions, report.named) == (["plain"], [], ["parted", "plain"])
    # The position is written.
    assert remotes.refresh(Kind.DATABASE, MIRROR).named == []


def test_a_try_names_what_earlier_tries_of_its_run_have_refreshed(
    remotes: Remotes, near: MemoryMetastore, far: MemoryCatalog
) -> None:
    remotes.run(f"{MAKE}; {MAKE_MIRROR}")
    far.put_table(*changed("parted", note="changed"))
    remotes.tried = Try(key="a")
    assert remotes.refresh(Kind.DATABASE, MIRROR).named == ["parted"]
    assert remotes.refresh(Kind.TABLE, PLAIN).named == []
    # The task failed after its position was written, and goes on with later events.
    far.put_table(*changed("plain", note="changed"))
    remotes.tried = Try(key="a", number=2)
    for _ in range(2):
        assert remotes.refresh(Kind.DATABASE, MIRROR).named == ["parted", "plain"]
        assert remotes.refresh(Kind.TABLE, PLAIN).named == ["plain"]
    assert remotes.refresh(Kind.DATABASE, MIRROR, whole=True).named == ["parted", "plain"]
    remotes.tried = Try(key="b")
    assert remotes.refresh(Kind.DATABASE, MIRROR).named == []
    far.put_table(*changed("plain", note="again"))
    assert remotes.refresh(Kind.DATABASE, MIRROR).named == ["plain"]
    remotes.tried = Try(key="b", number=2)
    assert remotes.refresh(Kind.DATABASE, MIRROR).named == ["plain"]
    # The other run had refreshed the link between this one's tries.
    remotes.tried = Try(key="a", number=3)
    assert remotes.refresh(Kind.DATABASE, MIRROR).named == ["parted", "plain"]
    # A table that is gone updates no asset.
    far.drop_table(DATABASE, "plain")
    remotes.tried = Try(key="b", number=3)
    assert remotes.refresh(Kind.DATABASE, MIRROR).named == []
    runs = near.databases["mirror"].parameters[RUN].split(",")
    assert [run.partition(" ")[0] for run in runs] == ["b", "a"]


def test_a_link_keeps_the_last_runs_only(remotes: Remotes, near: MemoryMetastore, far: MemoryCatalog) -> None:
    remotes.run(MAKE_MIRROR)
    runs = [f"{number:032x}" for number in range(MAX_RUNS + 2)]
    for key in runs:
        far.put_table(*changed("plain", note=key))
        remotes.tried = Try(key=key)
        assert remotes.refresh(Kind.DATABASE, MIRROR).named == ["plain"]
    text = near.databases["mirror"].parameters[RUN]
    assert [run.partition(" ")[0] for run in text.split(",")] == runs[:1:-1]
    assert len(text) < 2000


def test_a_remote_without_events_names_all_tables_when_it_is_tried_again(without_events: Remotes) -> None:
    without_events.run(MAKE_MIRROR)
    for number, named in ((1, []), (2, ["parted", "plain"])):
        without_events.tried = Try(key="a", number=number)
        assert without_events.refresh(Kind.DATABASE, MIRROR).named == named


def test_only_linked_tables_are_named(remotes: Remotes, near: MemoryMetastore, far: MemoryCatalog) -> None:
    remotes.run(f"{MAKE}; {MAKE_MIRROR}")
    far.put_table(*changed("plain", note="changed"))
    far.drop_table(DATABASE, "parted")
    missing, _ = changed("plain")
    missing.tableName = "unreadable"
    missing.tableType = "MATERIALIZED_VIEW"
    far.put_table(missing)
    report = remotes.refresh(Kind.DATABASE, MIRROR)
    assert (report.dropped, list(report.skipped), report.named) == (["parted"], ["unreadable"], ["plain"])
    assert remotes.refresh(Kind.TABLE, PLAIN).named == ["plain"]
    assert remotes.refresh(Kind.TABLE, PLAIN, whole=True).named == []


@pytest.mark.parametrize("event", ["-5", "1000000"])
def test_a_position_that_is_none_of_the_remote(remotes: Remotes, near: MemoryMetastore, event: str) -> None:
    remotes.run(MAKE)
    near.tables["default", "plain"].parameters[EVENT] = event
    assert probes.look(remotes, Kind.TABLE, PLAIN).changed
    report = remotes.refresh(Kind.TABLE, PLAIN)
    assert (report.whole, report.changed) == (True, False)
    assert near.tables["default", "plain"].parameters[EVENT] == str(report.event_id)


def test_altered_properties_compare_everything(
    remotes: Remotes, near: MemoryMetastore, far: MemoryCatalog
) -> None:
    remotes.run(MAKE_PARTED)
    near.partitions["default", "parted"].clear()
    (answer,) = remotes.run("ALTER REMOTE TABLE parted SET 'note' = 'x'")
    assert "3 added" in answer.rows[0][0]
    assert not remotes.refresh(Kind.TABLE, PARTED, whole=True).changed
    assert remotes.link(Kind.TABLE, PARTED).properties == {"note": "x"}


def test_a_change_of_types_that_the_local_metastore_refuses(
    remotes: Remotes, near: MemoryMetastore, far: MemoryCatalog
) -> None:
    def refuse(args: Any) -> None:
        if args.req.table.sd.cols[0].type != "int":
            raise types.InvalidOperationException(message="incompatible types")

    remotes.run(MAKE)
    near.before["alter_table_req"] = lambda args: (
        refuse(args) if near.calls.count("drop_table_req") == 0 else None
    )
    table, _ = changed("plain")
    table.sd.cols[0].type = "boolean"  # type: ignore[union-attr,index]
    far.put_table(table)
    assert remotes.refresh(Kind.TABLE, PLAIN).altered == ["plain"]
    assert near.tables["default", "plain"].sd.cols[0].type == "boolean"


def test_changed_keys_make_the_link_anew(remotes: Remotes, near: MemoryMetastore, far: MemoryCatalog) -> None:
    remotes.run(MAKE_PARTED)
    table, partitions = changed("parted")
    table.partitionKeys = [types.FieldSchema(name="q", type="string")]
    far.put_table(table, partitions)
    assert remotes.refresh(Kind.TABLE, PARTED).altered == ["parted"]
    assert sorted(near.partitions["default", "parted"]) == ["q=a", "q=b c", "q=d%2Fe"]


def test_a_link_of_an_earlier_version_leaves_the_remotes_directory(
    remotes: Remotes, near: MemoryMetastore, far: MemoryCatalog
) -> None:
    remotes.run(MAKE_PARTED)
    link = near.tables["default", "parted"]
    link.sd.location = "file:/far/parted"
    far.put_table(*changed("parted", note="changed"))
    assert remotes.refresh(Kind.TABLE, PARTED).altered == ["parted"]
    assert near.tables["default", "parted"].sd.location == "file:/warehouse/default.db/parted"


# -- a remote that is down -----------------------------------------------------------------------------------


def test_a_remote_that_is_down_is_described_from_its_link(without_events: Remotes, silent: Silent) -> None:
    without_events.run(f"{MAKE}; {MAKE_MIRROR}")
    silent.is_down = True
    for statement in ("DESCRIBE plain", "DESCRIBE REMOTE DATABASE mirror"):
        rows = without_events.run(statement)[0].rows
        assert any(row[0] == "Remote Is Down:" and "Gone" in row[1] for row in rows)
    with pytest.raises(RemoteUnavailableError):
        without_events.refresh(Kind.TABLE, PLAIN)


def test_a_dropped_table_is_not_described(remotes: Remotes, far: MemoryCatalog) -> None:
    remotes.run(MAKE)
    far.drop_table(DATABASE, "plain")
    with pytest.raises(RemoteDroppedError, match=r"default\.plain is linked, no longer exists") as caught:
        remotes.run("DESCRIBE plain")
    assert "DROP REMOTE TABLE default.plain" in caught.value.remedy


# -- probes --------------------------------------------------------------------------------------------------


def test_partitions_of_a_remote(remotes: Remotes) -> None:
    remotes.run(MAKE_PARTED)
    for partition, there in (("p=a", True), ("p=z", False)):
        assert probes.partition_exists(remotes, PARTED, partition) is there
        assert probes.happened(remotes, Kind.TABLE, PARTED, partition=partition, where=None) is there
    with pytest.raises(RemoteUnsupportedError, match="finds no partitions by a condition") as caught:
        probes.happened(remotes, Kind.TABLE, PARTED, partition=None, where="p = 'a'")
    assert "Name the partition" in caught.value.remedy


def test_changes_by_events(remotes: Remotes, near: MemoryMetastore, far: MemoryCatalog) -> None:
    remotes.run(f"{MAKE}; {MAKE_MIRROR}")
    assert not probes.happened(remotes, Kind.TABLE, PLAIN, partition=None, where=None)
    far.put_table(*changed("parted", note="changed"))
    assert not probes.pending(remotes, Kind.TABLE, PLAIN)
    assert probes.pending(remotes, Kind.DATABASE, MIRROR)
    first = probes.look(remotes, Kind.DATABASE, MIRROR)
    # Each change counts once for a caller that has seen it.
    assert not probes.look(remotes, Kind.DATABASE, MIRROR, after=first.event_id).changed
    assert not probes.look(remotes, Kind.DATABASE, MIRROR, after=first.event_id).changed
    assert probes.look(remotes, Kind.DATABASE, MIRROR, after=0).changed
    remotes.refresh(Kind.DATABASE, MIRROR)
    assert not probes.look(remotes, Kind.DATABASE, MIRROR, after=0).changed
    far.put_table(*changed("plain", note="changed"))
    assert probes.look(remotes, Kind.TABLE, PLAIN, after=first.event_id).changed
    far.put_table(*changed("parted", note="again"))
    far.forget_events()
    assert probes.pending(remotes, Kind.TABLE, PLAIN)
    # A link whose creation was interrupted lacks everything.
    del near.tables["default", "plain"].parameters[EVENT]
    assert probes.look(remotes, Kind.TABLE, PLAIN) == probes.Look(changed=True)


@pytest.mark.parametrize("seen", [slice(2), slice(-2, None)], ids=["the first", "the last"])
def test_changes_beside_hidden_events_are_compared(
    remotes: Remotes, near: MemoryMetastore, far: MemoryCatalog, monkeypatch: pytest.MonkeyPatch, seen: slice
) -> None:
    """A gateway before the remote hides events of other databases, and may hide a page of the log."""
    remotes.run(MAKE_MIRROR)
    far.put_table(*changed("plain", note="changed"))
    far.put_database(types.Database(name="hidden"))
    far.put_table(*changed("parted", note="changed"))
    monkeypatch.setattr(far, "events", lambda *ends: list(MemoryCatalog.events(far, *ends))[seen])
    assert probes.pending(remotes, Kind.TABLE, Name(database="mirror", table="plain"))
    report = remotes.refresh(Kind.DATABASE, MIRROR)
    assert (report.whole, report.event_id) == (True, far.last_event_id())
    for name in ("plain", "parted"):
        assert near.tables["mirror", name].parameters["note"] == "changed"


def test_changes_of_a_remote_without_events(without_events: Remotes, silent: Silent) -> None:
    without_events.run(f"{MAKE_PARTED}; {MAKE_MIRROR}")
    assert not probes.pending(without_events, Kind.TABLE, PARTED)
    assert not probes.pending(without_events, Kind.DATABASE, MIRROR)
    table, partitions = changed("parted")
    silent.put_table(table, partitions[:2])
    assert probes.pending(without_events, Kind.TABLE, PARTED)
    silent.put_table(*changed("parted", note="changed"))
    assert probes.pending(without_events, Kind.TABLE, PARTED)
    silent.drop_table(DATABASE, "parted")
    assert probes.pending(without_events, Kind.TABLE, PARTED)
    assert probes.pending(without_events, Kind.DATABASE, MIRROR)


def test_tables_that_cannot_be_linked_are_no_change(
    without_events: Remotes, silent: Silent, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow_hive_federation.triggers import remote as triggers

    monkeypatch.setattr(triggers, "remotes_of", lambda *_args, **_kwargs: nullcontext(without_events))
    trigger = triggers.RemoteChangesTrigger(metastore_conn_id="near", remote="mirror")

    def reported() -> bool:
        return bool(trigger._look())

    def put(name: str, table_type: str) -> None:
        table, _ = changed("plain")
        table.tableName, table.tableType = name, table_type
        silent.put_table(table)

    put("seen", "MATERIALIZED_VIEW")
    without_events.run(MAKE_MIRROR)
    assert (reported(), reported()) == (False, False)
    assert not probes.pending(without_events, Kind.DATABASE, MIRROR)
    # Each change is reported once, also while the refresh after an earlier one is pending.
    put("first", "EXTERNAL_TABLE")
    assert (reported(), reported()) == (True, False)
    put("second", "EXTERNAL_TABLE")
    assert (reported(), reported()) == (True, False)
    assert without_events.refresh(Kind.DATABASE, MIRROR).created == ["first", "second"]
    assert not reported()
    silent.drop_table(DATABASE, "first")
    assert (reported(), reported()) == (True, False)
    assert without_events.refresh(Kind.DATABASE, MIRROR, on_dropped=OnDropped.KEEP).gone == ["first"]
    assert (reported(), probes.pending(without_events, Kind.DATABASE, MIRROR)) == (False, False)


def test_a_change_between_a_refresh_and_the_next_look_is_reported(
    without_events: Remotes, silent: Silent, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow_hive_federation.triggers import remote as triggers

    monkeypatch.setattr(triggers, "remotes_of", lambda *_args, **_kwargs: nullcontext(without_events))
    without_events.run(MAKE_PARTED)
    trigger = triggers.RemoteChangesTrigger(metastore_conn_id="near", remote="parted", kind="table")
    for note in ("first", "second"):
        silent.put_table(*changed("parted", note=note))
        assert trigger._look()
        without_events.refresh(Kind.TABLE, PARTED)
        # No look finds the link up to date.
    table, partitions = changed("parted", note="second")
    silent.put_table(table, partitions[:1])
    assert trigger._look()
    assert not trigger._look()


def test_a_partition_of_a_table_without_any_is_not_waited_for(remotes: Remotes, far: MemoryCatalog) -> None:
    """The catalog of an Iceberg table lists none, so the wait would never end."""
    remotes.run(MAKE)
    with pytest.raises(RemoteUnsupportedError, match=r"default\.plain keeps no partitions") as caught:
        probes.partition_exists(remotes, PLAIN, "p=a")
    assert "RemoteTableChangedSensor" in caught.value.remedy
    far.drop_table(DATABASE, "plain")
    assert not probes.partition_exists(remotes, PLAIN, "p=a")


# -- reading -------------------------------------------------------------------------------------------------


def test_only_a_metastore_is_read_with_transactions(remotes: Remotes) -> None:
    remotes.run(MAKE)
    spark: Any = None
    with pytest.raises(
        RemoteUnsupportedError, match=r"default\.plain is of a catalog that has no transactions"
    ):
        read_remote_table(spark, remotes, "default.plain")
    with (
        pytest.raises(RemoteUnsupportedError, match="has no transactions"),
        reading_remote_tables(spark, remotes, ["default.plain"]),
    ):
        pass


def test_tables_of_several_remotes_have_no_common_snapshot(remotes: Remotes) -> None:
    remotes.run(f"{MAKE}; CREATE REMOTE TABLE other CONNECTED TO {DATABASE}.plain VIA 'further'")
    spark: Any = None
    with (
        pytest.raises(ConfigurationError, match=r"default\.plain, default\.other are of 2 remotes"),
        reading_remote_tables(spark, remotes, ["default.plain", "default.other"]),
    ):
        pass
