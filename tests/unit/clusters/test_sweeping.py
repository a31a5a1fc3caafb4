"""Directories that a sweep leaves."""

from __future__ import annotations

import json
import os
import time
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import pytest

from airflow_hive_federation.clusters.metadata import ClusterMetadata, Secondary, source_mark, write_metadata
from airflow_hive_federation.clusters.notes import (
    Kind,
    Note,
    forget,
    notes_of,
    state_of,
    take_note,
    uri_of_note,
)
from airflow_hive_federation.clusters.registry import ClusterRegistry
from airflow_hive_federation.clusters.sweeping import SweepReport, sweep_cluster
from airflow_hive_federation.errors import (
    ClusterMetadataError,
    MetastoreError,
    MetastoreServerError,
    NoSuchLockError,
    NoSuchObjectError,
    StorageError,
    UnsupportedMethodError,
)
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.model.results import result_json
from airflow_hive_federation.storage.filesystem import local_path
from airflow_hive_federation.storage.listing import list_files
from tests.support.one_table import OneTable
from tests.support.two_clusters import two_clusters


@pytest.fixture
def registry(tmp_path: Path) -> ClusterRegistry:
    return two_clusters(tmp_path / "C1", tmp_path / "C2")


def swept(registry: ClusterRegistry, place: Path, primary: str) -> SweepReport:
    """Sweep C1, in which a directory that no metadata names has the note of a former primary."""
    table = described(primary)
    note_former(registry, table, place)
    return sweep_cluster(OneTable(table).client, registry, "C1", former_older_than_s=-60.0)


def described(primary: str) -> types.Table:
    storage = types.StorageDescriptor(location="file:/elsewhere")
    parameters = {"hive.cluster.primary": primary} if primary else {}
    return types.Table(dbName="d", tableName="t", sd=storage, parameters=parameters, createTime=1, id=7)


def note_former(registry: ClusterRegistry, table: types.Table, place: Path) -> None:
    files = {file.path: (file.size_bytes, file.modified_ns) for file in list_files(f"file:{place}")}
    take_note(registry.cluster("C1"), Note.of(table, Kind.FORMER_PRIMARY, f"file:{place}", files=files))


@pytest.mark.parametrize("primary", ["C1", ""])
def test_files_in_the_primary_cluster_are_not_those_of_a_former_primary(
    tmp_path: Path, registry: ClusterRegistry, primary: str
) -> None:
    """A refused change has left the note, and a client has dropped the external partition since."""
    place = tmp_path / "C1" / "d.db" / "t" / "p=a"
    place.mkdir(parents=True)
    (place / "data").write_text("x", encoding="utf-8")
    report = swept(registry, place, primary)
    assert (report.removed, report.used) == ([], 0)
    assert report.left == {f"file:{place}": "C1 is the primary of d.t, so its files may be in use"}
    assert (place / "data").is_file()
    report = swept(registry, place, "C2")
    assert (report.removed, report.left) == ([f"file:{place}"], {})
    assert not place.exists()


def test_a_sweep_ends_when_its_lock_has_expired(tmp_path: Path, registry: ClusterRegistry) -> None:
    """A copy may have begun that takes up the directories."""
    places = [tmp_path / "C1" / "d.db" / "t" / f"copy-{number}" for number in range(3)]
    table = described("C2")
    for place in places:
        place.mkdir(parents=True)
        take_note(registry.cluster("C1"), Note.of(table, Kind.COPY, f"file:{place}"))
    with pytest.raises(NoSuchLockError):
        sweep_cluster(OneTable(table, checks=1).client, registry, "C1", former_older_than_s=-60.0)
    assert len([place for place in places if place.is_dir()]) == 2
    swept = sweep_cluster(OneTable(table).client, registry, "C1", former_older_than_s=-60.0)
    assert len(swept.removed) == 2


@pytest.fixture
def former(tmp_path: Path, registry: ClusterRegistry) -> Path:
    """A former primary of ``d.t`` in C1, with a file, and its note."""
    place = tmp_path / "C1" / "d.db" / "t"
    place.mkdir(parents=True)
    (place / "data").write_text("x", encoding="utf-8")
    note_former(registry, described("C2"), place)
    return place


def test_a_former_primary_stays_until_its_readers_have_ended(registry: ClusterRegistry, former: Path) -> None:
    """A statement that was planned before the change finds no rows in an empty directory, and no error."""
    store = OneTable(described("C2"))
    report = sweep_cluster(store.client, registry, "C1")
    assert (report.removed, report.used) == ([], 0)
    assert report.left == {f"file:{former}": "statements that were planned earlier may still read it"}
    assert sweep_cluster(store.client, registry, "C1", former_older_than_s=-60.0).removed == [
        f"file:{former}"
    ]


def test_files_that_others_have_written_to_a_former_primary_are_named(
    registry: ClusterRegistry, former: Path
) -> None:
    (former / "more").write_text("y", encoding="utf-8")
    (former / "_temporary").touch()
    store = OneTable(described("C2"))
    report = sweep_cluster(store.client, registry, "C1", former_older_than_s=-60.0)
    assert report.removed == []
    reason = "others have written files there since the change of the primary: more"
    assert report.left == {f"file:{former}": reason}
    assert sorted(path.name for path in former.iterdir()) == ["_temporary", "data", "more"]


@pytest.mark.parametrize("kind", [Kind.FORMER_PRIMARY, Kind.COPY, Kind.PLAN])
@pytest.mark.parametrize(("created_s", "table_id"), [(2, 7), (1, 8), (2, None), (None, 7)])
def test_a_later_table_of_the_same_name_has_no_right_to_the_directories(
    tmp_path: Path, registry: ClusterRegistry, kind: Kind, created_s: int | None, table_id: int | None
) -> None:
    """The first one was renamed, and its metadata still names them."""
    parts = {Kind.COPY: ("d.db", "t", "copy-1"), Kind.PLAN: ("_hive_federation", "1")}.get(
        kind, ("d.db", "t")
    )
    place = tmp_path.joinpath("C1", *parts)
    place.mkdir(parents=True)
    first = described("C2")
    take_note(registry.cluster("C1"), Note.of(first, kind, f"file:{place}", files={}))
    later = described("C1")
    later.createTime, later.id = created_s, table_id
    report = sweep_cluster(OneTable(later).client, registry, "C1", former_older_than_s=-60.0)
    assert (report.removed, report.used) == ([], 0)
    assert list(report.left) == [f"file:{place}"]
    reason = "its note is of another table that was named d.t; if that one was renamed, drop or copy it again"
    assert report.left[f"file:{place}"].startswith(reason)
    assert place.is_dir()
    # Before Hive 4, metastores send no ids of tables.
    first.id = None
    report = sweep_cluster(OneTable(first).client, registry, "C1", former_older_than_s=-60.0)
    assert report.removed == [f"file:{place}"]


@pytest.mark.parametrize("kind", [Kind.FORMER_PRIMARY, Kind.COPY])
def test_a_directory_whose_note_identifies_no_table_is_left(
    tmp_path: Path, registry: ClusterRegistry, kind: Kind
) -> None:
    """Another table, which had this name when the note was taken, may name the directory."""
    place = tmp_path / "C1" / "d.db" / "t" / "copy-1"
    place.mkdir(parents=True)
    note = Note(kind=kind, directory=f"file:{place}", table="d.t", files={}, taken_s=10.0)
    take_note(registry.cluster("C1"), note)
    report = sweep_cluster(OneTable(described("C2")).client, registry, "C1", former_older_than_s=-60.0)
    assert (report.removed, list(report.left)) == ([], [f"file:{place}"])
    assert "its note is of an earlier version, and does not identify the table" in report.left[note.directory]
    assert place.is_dir()


def test_directories_that_a_sweep_leaves_have_their_reasons(
    tmp_path: Path, registry: ClusterRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = registry.cluster("C1")
    copy = tmp_path / "C1" / "d.db" / "t" / "copy-1"
    statement = tmp_path / "C1" / "_hive_federation" / "sql-1"
    for place in (copy, statement):
        place.mkdir(parents=True)
    store = OneTable(described("C2"))
    take_note(cluster, Note.of(store.table, Kind.COPY, f"file:{copy}"))
    take_note(cluster, Note(kind=Kind.STATEMENT, directory=f"file:{statement}"))

    def gone(database: str, name: str) -> types.Table:
        raise NoSuchObjectError(f"{database}.{name}")

    left = {f"file:{statement}": "it is too young"}
    monkeypatch.setattr(store, "get_table", gone)
    report = sweep_cluster(store.client, registry, "C1")
    (of_copy,) = notes_of(cluster, kind=Kind.COPY)
    reason = (
        "there is no table d.t; if it was renamed, drop or copy it again, or set its primary again, under "
        "its present name, and if it was dropped, remove the directory and its note "
        f"{uri_of_note(cluster, of_copy)}"
    )
    assert Path(str(local_path(uri_of_note(cluster, of_copy)))).is_file()
    assert result_json(report) == {
        "cluster": "C1",
        "removed": [],
        "used": 0,
        "left": {f"file:{copy}": reason, **left},
    }
    monkeypatch.undo()
    store.free = False
    report = sweep_cluster(store.client, registry, "C1")
    assert (report.removed, report.left) == ([], {f"file:{copy}": "a copy of it is being made", **left})
    store.free = True
    report = sweep_cluster(store.client, registry, "C1", statements_older_than_s=-60.0)
    reason = "statements that were planned earlier may still read it"
    assert (report.removed, report.left) == ([f"file:{statement}"], {f"file:{copy}": reason})
    assert copy.is_dir()
    # Its files have no place in its note, which is not of a former primary.
    (copy / "data").touch()
    report = sweep_cluster(store.client, registry, "C1", former_older_than_s=-60.0)
    assert (report.removed, report.left) == ([f"file:{copy}"], {})


@pytest.mark.parametrize("ages", [{"copies_older_than_s": -60.0}, {"former_older_than_s": -60.0}])
def test_copies_may_be_removed_before_former_primaries(
    tmp_path: Path, registry: ClusterRegistry, former: Path, ages: dict[str, float]
) -> None:
    copy = tmp_path / "C1" / "d.db" / "t.copies" / "copy-1"
    copy.mkdir(parents=True)
    store = OneTable(described("C2"))
    take_note(registry.cluster("C1"), Note.of(store.table, Kind.COPY, f"file:{copy}"))
    report = sweep_cluster(store.client, registry, "C1", **ages)
    both = [f"file:{copy}", f"file:{former}"]
    assert (sorted(report.removed) == sorted(both)) == ("former_older_than_s" in ages)
    assert f"file:{copy}" in report.removed


@pytest.mark.parametrize("at_once", [False, True])
def test_a_copy_that_is_dropped_before_the_sweep_has_its_lock_stays_for_its_readers(
    tmp_path: Path, registry: ClusterRegistry, monkeypatch: pytest.MonkeyPatch, at_once: bool
) -> None:
    """The sweep has read its note before, when the table named it."""
    cluster = registry.cluster("C1")
    copy = tmp_path / "C1" / "d.db" / "t.copies" / "copy-1"
    copy.mkdir(parents=True)
    table = described("C2")
    note = Note.of(table, Kind.COPY, f"file:{copy}")
    take_note(cluster, replace(note, taken_s=10.0))
    store = OneTable(table)
    lock = store.lock

    def dropped_before(components: list[types.LockComponent]) -> types.LockResponse:
        if at_once:
            forget(cluster, Kind.COPY, f"file:{copy}")
        else:
            take_note(cluster, note)
        return lock(components)

    monkeypatch.setattr(store, "lock", dropped_before)
    report = sweep_cluster(store.client, registry, "C1")
    assert (report.removed, report.used, len(report.left)) == ([], 0, 0 if at_once else 1)
    assert copy.is_dir()


def test_plans_are_removed_at_once_and_other_tables_are_not_swept(
    tmp_path: Path, registry: ClusterRegistry
) -> None:
    """Only the run that wrote a plan reads it."""
    cluster = registry.cluster("C1")
    mine, theirs = (tmp_path / "C1" / "_hive_federation" / name for name in ("plan-1", "plan-2"))
    store = OneTable(described("C2"))
    for place in (mine, theirs):
        place.mkdir(parents=True)
    # The clock of the machine that wrote it is ahead.
    note = Note.of(store.table, Kind.PLAN, f"file:{mine}")
    take_note(cluster, replace(note, taken_s=time.time() + 3600.0))
    take_note(cluster, Note(kind=Kind.PLAN, directory=f"file:{theirs}", table="d.u"))
    report = sweep_cluster(store.client, registry, "C1", table="d.t")
    assert (report.removed, report.left) == ([f"file:{mine}"], {})
    assert theirs.is_dir()


def test_a_damaged_partition_is_named_and_nothing_is_removed(registry: ClusterRegistry, former: Path) -> None:
    store = OneTable(described("C2"))
    store.table.partitionKeys = [types.FieldSchema(name="ds", type="string")]
    parameters = {"hive.cluster.secondary.C1.location": f"file:{former}"}
    store.partitions = [types.Partition(values=["1"], parameters=parameters)]
    with pytest.raises(ClusterMetadataError, match=r"d\.t/ds=1") as caught:
        sweep_cluster(store.client, registry, "C1", former_older_than_s=-60.0)
    assert (caught.value.table, caught.value.partition) == ("d.t", "ds=1")
    assert (former / "data").is_file()


@pytest.mark.parametrize("named", [False, True])
def test_a_copy_in_the_primary_cluster_is_removed_unless_metadata_names_it(
    tmp_path: Path, registry: ClusterRegistry, named: bool
) -> None:
    """It is one of the time when that cluster was a secondary."""
    copy = tmp_path / "C1" / "d.db" / "t" / "copy-1"
    copy.mkdir(parents=True)
    table = described("C1")
    take_note(registry.cluster("C1"), Note.of(table, Kind.COPY, f"file:{copy}"))
    if named:
        made = Secondary(location=f"file:{copy}", source=source_mark(table, []))
        table.parameters = write_metadata(table.parameters, ClusterMetadata().with_secondary("C1", made))
    report = sweep_cluster(OneTable(table).client, registry, "C1", former_older_than_s=-60.0)
    assert (report.removed, report.used, report.left) == (([], 1, {}) if named else ([f"file:{copy}"], 0, {}))
    assert copy.is_dir() == named


def damage(registry: ClusterRegistry, note: Note, text: str) -> str:
    """Damage a note of C1; return the URI of its file."""
    cluster = registry.cluster("C1")
    home = Path(str(local_path(state_of(cluster))), "notes")
    before = set(home.iterdir()) if home.is_dir() else set()
    take_note(cluster, note)
    (path,) = set(home.iterdir()) - before
    path.write_text(text or path.read_text("utf-8").replace(note.directory, f"{note.directory}-b"), "utf-8")
    return f"file:{path}"


def test_a_damaged_note_is_named_after_all_others_have_been_swept(
    tmp_path: Path, registry: ClusterRegistry, former: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The copies that were made before the sweep are complete, whatever the notes of other tables hold."""
    store = OneTable(described("C2"))
    copies = [tmp_path / "C1" / "d.db" / "t.copies" / f"copy-{number}" for number in range(7)]
    other = types.Table(dbName="d", tableName="u", createTime=1)
    unreadable, theirs = (
        damage(registry, Note.of(table, Kind.COPY, f"file:{copy}"), text)
        for table, copy, text in ((store.table, copies[0], "{"), (other, copies[1], ""))
    )
    copies[0].mkdir(parents=True)
    report = sweep_cluster(store.client, registry, "C1", table="d.t", former_older_than_s=-60.0)
    assert report.removed == [f"file:{former}"]
    logged = sorted(record.getMessage().partition(" ")[0] for record in caplog.records)
    assert logged == sorted([unreadable, theirs])
    ours = [damage(registry, Note.of(store.table, Kind.COPY, f"file:{copy}"), "") for copy in copies[2:]]
    note_former(registry, store.table, copies[0])
    with pytest.raises(StorageError, match="directories of 5 damaged notes, and removed 1 dir") as caught:
        sweep_cluster(store.client, registry, "C1", table="d.t", former_older_than_s=-60.0)
    assert all(uri in str(caught.value) for uri in ours)
    assert ", ..." not in str(caught.value)
    assert caught.value.path in ours
    with pytest.raises(StorageError, match=r"directories of 7 damaged notes.*, \.\.\.\.") as caught:
        sweep_cluster(store.client, registry, "C1", former_older_than_s=-60.0)
    assert "remove the note" in str(caught.value.remedy)
    assert not copies[0].is_dir()
    assert all(Path(str(local_path(uri))).is_file() for uri in (unreadable, theirs, *ours))


def test_damaged_tables_are_named_after_all_others_have_been_swept(
    tmp_path: Path, registry: ClusterRegistry, former: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tables before and behind them in the order of names have nothing to do with the damage."""
    store = OneTable(described("C2"), checks=99)
    tables = {name: named(described("C2"), name, number) for number, name in enumerate("abcdefguv", 10)}
    for name in "bcdefgu":
        tables[name].parameters = {"hive.cluster.secondary.C1.location": "file:/elsewhere"}
    tables["t"] = store.table
    copies = {name: tmp_path / "C1" / "d.db" / f"{name}.copies" / "copy-1" for name in tables}
    for name, copy in copies.items():
        copy.mkdir(parents=True)
        take_note(registry.cluster("C1"), Note.of(tables[name], Kind.COPY, f"file:{copy}"))
    monkeypatch.setattr(store, "get_table", lambda _, name: tables[name])
    with pytest.raises(ClusterMetadataError) as caught:
        sweep_cluster(store.client, registry, "C1", former_older_than_s=-60.0)
    begin = (
        "The sweep of cluster C1 has left the directories of 7 tables with damaged metadata, and removed 4 "
        "directories of other notes. The cluster metadata of d.b is damaged: "
    )
    assert caught.value.message.startswith(begin)
    assert caught.value.message.endswith(" ...")
    assert ["d.f is" in caught.value.message, "d.g is" in caught.value.message] == [True, False]
    assert caught.value.table == "d.b"
    assert "Unset the parameters" in str(caught.value.remedy)
    assert {name for name, copy in copies.items() if copy.is_dir()} == set("bcdefgu")
    # A damaged note is named beside them.
    unreadable = damage(registry, Note.of(store.table, Kind.COPY, f"file:{copies['a']}-1"), "{")
    with pytest.raises(ClusterMetadataError) as caught:
        sweep_cluster(store.client, registry, "C1", former_older_than_s=-60.0)
    assert "of 7 tables with damaged metadata and of 1 damaged note, and removed 0" in caught.value.message
    assert caught.value.message.endswith(f"... Damaged notes: {unreadable} is not a note of a directory.")
    assert "remove the note" in str(caught.value.remedy)
    for name in "bcdefg":
        tables[name].parameters = {}
    with pytest.raises(ClusterMetadataError, match="of 1 table with damaged metadata") as caught:
        sweep_cluster(store.client, registry, "C1", former_older_than_s=-60.0)
    assert "..." not in caught.value.message
    assert {name for name, copy in copies.items() if copy.is_dir()} == {"u"}


def named(table: types.Table, name: str, number: int) -> types.Table:
    table.tableName, table.id = name, number
    return table


@pytest.mark.parametrize("continues", [False, True])
@pytest.mark.parametrize("kind", [Kind.COPY, Kind.FORMER_PRIMARY])
def test_notes_that_a_killed_change_of_the_primary_has_marked_are_settled(
    tmp_path: Path, registry: ClusterRegistry, kind: Kind, continues: bool
) -> None:
    """The directory may have become that of the primary; then no note may let its files be removed."""
    cluster = registry.cluster("C1")
    place = tmp_path / "C1" / "d.db" / "t.copies" / "copy-1"
    place.mkdir(parents=True)
    (place / "data").touch()
    table = described("C2")
    files = {file.path: (file.size_bytes, file.modified_ns) for file in list_files(f"file:{place}")}
    note = replace(Note.of(table, kind, f"file:{place}", files=files), becomes_primary=True, taken_s=10.0)
    copied = Secondary(location=f"file:{place}", source=source_mark(table, []))
    named = write_metadata(table.parameters, ClusterMetadata(primary="C2").with_secondary("C1", copied))
    if continues:
        named["hive.cluster.primary.next"] = "C1"

    def swept(store: OneTable) -> tuple[SweepReport, list[bool]]:
        report = sweep_cluster(store.client, registry, "C1", former_older_than_s=-60.0)
        return report, [left.becomes_primary for left in notes_of(cluster)]

    take_note(cluster, note)
    store = OneTable(table)
    report, marked = swept(store)
    assert (report.removed, report.used, marked) == ([], 0, [True])
    assert report.left[note.directory].startswith("a killed change of the primary of d.t may have made it")
    store.table.parameters = named
    report, marked = swept(store)
    assert (report.removed, report.used, report.left, marked) == ([], 1, {}, [continues])
    # Another table's note is left as it is.
    take_note(cluster, note)
    store.table.id = 8
    assert swept(store)[1] == [True]
    store.table.id = 7
    store.table.parameters = {}
    store.table.sd = types.StorageDescriptor(location=f"file:{place}")
    report, marked = swept(store)
    assert (report.removed, report.used, report.left, marked) == ([], 1, {}, [])
    assert (place / "data").is_file()
    # A note without the mark is one of a change that has not moved the directory yet.
    take_note(cluster, replace(note, becomes_primary=False))
    assert swept(store)[1] == [False]


@pytest.mark.parametrize("meanwhile", ["forgotten", "taken anew", "expired"])
@pytest.mark.parametrize("is_primary", [False, True])
def test_marks_are_settled_by_the_notes_under_the_lock(
    tmp_path: Path,
    registry: ClusterRegistry,
    monkeypatch: pytest.MonkeyPatch,
    meanwhile: str,
    is_primary: bool,
) -> None:
    """Between the reading of all notes and the lock of a table, the change may have ended, or been undone."""
    cluster = registry.cluster("C1")
    place = tmp_path / "C1" / "d.db" / "t.copies" / "copy-1"
    place.mkdir(parents=True)
    table = described("C2")
    copied = Secondary(location=f"file:{place}", source=source_mark(table, []))
    if is_primary:
        table.sd = types.StorageDescriptor(location=f"file:{place}")
    else:
        metadata = ClusterMetadata(primary="C2").with_secondary("C1", copied)
        table.parameters = write_metadata(table.parameters, metadata)
    note = replace(Note.of(table, Kind.COPY, f"file:{place}"), taken_s=10.0)
    take_note(cluster, replace(note, becomes_primary=True))
    store = OneTable(table, checks=0 if meanwhile == "expired" else 1)
    lock = store.lock
    taken_anew = replace(note, taken_s=20.0)

    def changed_before(components: list[types.LockComponent]) -> types.LockResponse:
        if meanwhile == "forgotten":
            forget(cluster, Kind.COPY, f"file:{place}")
        elif meanwhile == "taken anew":
            take_note(cluster, taken_anew)
        return lock(components)

    monkeypatch.setattr(store, "lock", changed_before)
    if meanwhile == "expired":
        # A change that has begun since may have marked the note.
        with pytest.raises(NoSuchLockError):
            sweep_cluster(store.client, registry, "C1")
        assert [kept.becomes_primary for kept in notes_of(cluster)] == [True]
    else:
        assert sweep_cluster(store.client, registry, "C1").used == 1
        assert notes_of(cluster) == ([] if meanwhile == "forgotten" else [taken_anew])


def dropping(
    *, at_s: int, created_s: int = 1, table_id: int = 7, location: str = "file:/elsewhere", **table: str
) -> types.NotificationEvent:
    """Return the event of the drop of ``d.t``, with the fields that the test names."""
    document = {
        "1": {"str": "t"},
        "2": {"str": "d"},
        "4": {"i32": created_s},
        "7": {"rec": {"2": {"str": location}}},
        "8": {"lst": ["rec", 1, {"1": {"str": "p"}}] if table.get("keys") else ["rec", 0]},
        "9": {"map": ["str", "str", 1, {"external.table.purge": table.get("purge", "false")}]},
        "12": {"str": table.get("kind", "EXTERNAL_TABLE")},
        "25": {"i64": table_id},
    }
    message = table.get("message", json.dumps({"tableObjJson": json.dumps(document)}))
    return types.NotificationEvent(
        eventId=1,
        eventTime=at_s,
        eventType=table.get("event", "DROP_TABLE"),
        dbName="d",
        tableName="t",
        message=message,
        messageFormat="json-0.2",
    )


MANAGED = {"kind": "MANAGED_TABLE", "keys": "p"}
WITHOUT_PARAMETERS = json.dumps(
    {
        "4": {"i32": 1},
        "7": {"rec": {"2": {"str": "file:/elsewhere"}}},
        "9": {"map": ["no parameters"]},
        "12": {"str": "EXTERNAL_TABLE"},
        "25": {"i64": 7},
    }
)


@pytest.mark.parametrize("later", [False, True])
@pytest.mark.parametrize(
    ("event", "removed"),
    [
        (dropping(at_s=20), True),
        (dropping(at_s=20, **MANAGED), True),
        (dropping(at_s=20, keys="p", purge="TRUE"), True),
        # A partition of an external table may lie where its copy was, whose note names no primary.
        (dropping(at_s=20, keys="p"), False),
        (dropping(at_s=20, location="COPY"), False),
        (dropping(at_s=20, location="COPY/inner"), False),
        (dropping(at_s=20, location="COPY/../other"), False),
        (dropping(at_s=20, created_s=2, **MANAGED), False),
        (dropping(at_s=20, table_id=8, **MANAGED), False),
        (dropping(at_s=20, event="ALTER_TABLE", **MANAGED), False),
        (dropping(at_s=20, message="{", **MANAGED), False),
        (dropping(at_s=20, message="{}", **MANAGED), False),
        (dropping(at_s=20, message='{"tableObjJson": "[]"}', **MANAGED), False),
        (dropping(at_s=20, message=json.dumps({"tableObjJson": WITHOUT_PARAMETERS})), False),
    ],
)
def test_the_event_of_a_drop_lets_copies_be_removed(
    tmp_path: Path,
    registry: ClusterRegistry,
    monkeypatch: pytest.MonkeyPatch,
    event: types.NotificationEvent,
    removed: bool,
    later: bool,
) -> None:
    """Nothing else proves that the table is gone: the metastore may list no table, or another one."""
    cluster = registry.cluster("C1")
    copy = tmp_path / "C1" / "d.db" / "t.copies" / "copy-1"
    copy.mkdir(parents=True)
    note = replace(Note.of(described("C2"), Kind.COPY, f"file:{copy}"), taken_s=10.0)
    take_note(cluster, note)
    store = store_after_drop(monkeypatch, later=later)
    event = replace_message(event, f"file:{copy}")
    store.events = [dropping(at_s=30, table_id=6), event]
    report = sweep_cluster(store.client, registry, "C1")
    assert report.removed == ([f"file:{copy}"] if removed else [])
    assert list(report.left) == ([] if removed else [f"file:{copy}"])
    assert copy.is_dir() != removed
    assert notes_of(cluster) == ([] if removed else [note])


def replace_message(event: types.NotificationEvent, copy: str) -> types.NotificationEvent:
    event = deepcopy(event)
    event.message = str(event.message).replace("COPY", copy)
    return event


def store_after_drop(monkeypatch: pytest.MonkeyPatch, *, later: bool) -> OneTable:
    """Return a metastore without a table, or with a later one of its name."""

    def gone(database: str, name: str) -> types.Table:
        raise NoSuchObjectError(f"{database}.{name}")

    store = OneTable(described("C2"))
    store.table.id = 9
    if not later:
        monkeypatch.setattr(store, "get_table", gone)
    return store


@pytest.mark.parametrize("later", [False, True])
def test_a_dropped_table_is_remembered_until_its_readers_have_ended(
    tmp_path: Path, registry: ClusterRegistry, monkeypatch: pytest.MonkeyPatch, later: bool
) -> None:
    """Metastores keep their events for a day, and the sweep runs once a day."""
    cluster = registry.cluster("C1")
    copy = tmp_path / "C1" / "d.db" / "t.copies" / "copy-1"
    plan = tmp_path / "C1" / "_hive_federation" / "1"
    for place in (copy, plan):
        place.mkdir(parents=True)
    table = described("C2")
    take_note(cluster, replace(Note.of(table, Kind.COPY, f"file:{copy}"), taken_s=10.0))
    take_note(cluster, replace(Note.of(table, Kind.PLAN, f"file:{plan}"), taken_s=10.0))
    store = store_after_drop(monkeypatch, later=later)
    now = int(time.time())
    store.events = [dropping(at_s=now)]
    report = sweep_cluster(store.client, registry, "C1")
    reason = "statements that were planned earlier may still read it"
    assert (report.removed, report.left) == ([f"file:{plan}"], {f"file:{copy}": reason})
    assert [note.dropped_s for note in notes_of(cluster)] == [now]
    assert store.reads == 1
    store.events = []
    assert sweep_cluster(store.client, registry, "C1").removed == []
    assert sweep_cluster(store.client, registry, "C1", former_older_than_s=-60.0).removed == [f"file:{copy}"]


@pytest.mark.parametrize("later", [False, True])
@pytest.mark.parametrize(("location", "removed"), [("", False), ("/inner", False), ("2", True)])
def test_the_copy_of_a_dropped_table_stays_while_another_table_lies_there(
    tmp_path: Path,
    registry: ClusterRegistry,
    monkeypatch: pytest.MonkeyPatch,
    location: str,
    removed: bool,
    later: bool,
) -> None:
    """Somebody has saved the rows by a table of another name."""
    copy = tmp_path / "C1" / "d.db" / "t.copies" / "copy-1"
    copy.mkdir(parents=True)
    take_note(registry.cluster("C1"), Note.of(described("C2"), Kind.COPY, f"file:{copy}"))
    store = store_after_drop(monkeypatch, later=later)
    store.events = [dropping(at_s=20, **MANAGED)]
    storage = types.StorageDescriptor(location=f"file:{copy}{location}")
    store.others = [
        types.Table(dbName="d", tableName="a_view"),
        types.Table(dbName="d", tableName="odd", sd=types.StorageDescriptor(location="file:/a/../b")),
        types.Table(dbName="d", tableName="saved", sd=storage),
    ]
    report = sweep_cluster(store.client, registry, "C1", former_older_than_s=-60.0)
    reason = "d.t was dropped, and the table d.saved lies there"
    assert report.left == ({} if removed else {f"file:{copy}": reason})
    assert copy.is_dir() != removed


def test_without_its_database_the_copy_of_a_dropped_table_goes(
    tmp_path: Path, registry: ClusterRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = tmp_path / "C1" / "d.db" / "t.copies" / "copy-1"
    copy.mkdir(parents=True)
    take_note(registry.cluster("C1"), Note.of(described("C2"), Kind.COPY, f"file:{copy}"))
    store = store_after_drop(monkeypatch, later=False)
    store.events = [dropping(at_s=20, **MANAGED)]

    def gone(database: str) -> NoReturn:
        raise NoSuchObjectError(database)

    monkeypatch.setattr(store, "iter_tables", gone)
    report = sweep_cluster(store.client, registry, "C1", former_older_than_s=-60.0)
    assert report.removed == [f"file:{copy}"]


def test_a_table_that_a_backup_has_brought_back_does_not_count_as_dropped(
    tmp_path: Path, registry: ClusterRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The events of the drop went with the metastore's former state; the note stayed below the cluster."""
    cluster = registry.cluster("C1")
    copy = tmp_path / "C1" / "d.db" / "t.copies" / "copy-1"
    copy.mkdir(parents=True)
    table = described("C2")
    note = replace(Note.of(table, Kind.COPY, f"file:{copy}"), taken_s=10.0)
    take_note(cluster, replace(note, dropped_s=20.0))
    copied = Secondary(location=f"file:{copy}", source=source_mark(table, []))
    table.parameters = write_metadata(table.parameters, ClusterMetadata().with_secondary("C1", copied))
    assert sweep_cluster(OneTable(table).client, registry, "C1").used == 1
    assert notes_of(cluster) == [note]
    # The table is renamed, and names its copy as before.
    report = sweep_cluster(store_after_drop(monkeypatch, later=False).client, registry, "C1")
    assert (report.removed, list(report.left)) == ([], [f"file:{copy}"])
    assert copy.is_dir()


@pytest.mark.parametrize("later", [False, True])
@pytest.mark.parametrize("database", ["d", "other"])
def test_a_table_that_a_backup_has_brought_back_between_two_sweeps_keeps_its_copy(
    tmp_path: Path, registry: ClusterRegistry, monkeypatch: pytest.MonkeyPatch, later: bool, database: str
) -> None:
    """It was renamed at once, so that no sweep has seen it under the name of its note."""
    cluster = registry.cluster("C1")
    copy = tmp_path / "C1" / "d.db" / "t.copies" / "copy-1"
    copy.mkdir(parents=True)
    table = described("C2")
    take_note(cluster, replace(Note.of(table, Kind.COPY, f"file:{copy}"), taken_s=10.0))
    store = store_after_drop(monkeypatch, later=later)
    store.events = [dropping(at_s=int(time.time()))]
    assert sweep_cluster(store.client, registry, "C1").removed == []
    assert [note.dropped_s > 0 for note in notes_of(cluster)] == [True]
    # The backup, and the new name.
    store.events = []
    table.dbName, table.tableName = database, "renamed"
    store.others = [table]
    report = sweep_cluster(store.client, registry, "C1", former_older_than_s=-60.0)
    assert (report.removed, list(report.left)) == ([], [f"file:{copy}"])
    reason = f"d.t was dropped, and is back as {database}.renamed, which may use it"
    assert report.left[f"file:{copy}"].startswith(reason)
    # Its next copy takes the note, under its present name; once it has gone for good, its copy goes.
    store.others = [replace_id(table, 8)]
    assert sweep_cluster(store.client, registry, "C1", former_older_than_s=-60.0).removed == [f"file:{copy}"]


def replace_id(table: types.Table, number: int) -> types.Table:
    table.id = number
    return table


@pytest.mark.parametrize("error", [MetastoreServerError, UnsupportedMethodError])
def test_without_access_to_events_a_sweep_leaves_the_copies_of_a_table_that_is_gone(
    tmp_path: Path, registry: ClusterRegistry, monkeypatch: pytest.MonkeyPatch, error: type[MetastoreError]
) -> None:
    """By default, Hive shows them to the users only who may act for others."""
    copy = tmp_path / "C1" / "d.db" / "t.copies" / "copy-1"
    copy.mkdir(parents=True)
    take_note(registry.cluster("C1"), Note.of(described("C2"), Kind.COPY, f"file:{copy}"))
    store = store_after_drop(monkeypatch, later=False)

    def denied(*_: str) -> NoReturn:
        raise error("User u is not allowed to perform this API call")

    monkeypatch.setattr(store, "iter_table_events", denied)
    report = sweep_cluster(store.client, registry, "C1", former_older_than_s=-60.0)
    assert (report.removed, list(report.left)) == ([], [f"file:{copy}"])
    assert report.left[f"file:{copy}"].startswith("there is no table d.t")


@pytest.mark.parametrize(
    "change",
    [
        {"kind": Kind.FORMER_PRIMARY, "files": {}},
        {"becomes_primary": True},
        # The table was back after a drop: only then could a change of its primary mark the note.
        {"becomes_primary": True, "dropped_s": 20.0},
        {"table_id": 0},
    ],
)
def test_the_event_of_a_drop_lets_no_files_of_a_primary_be_removed(
    tmp_path: Path, registry: ClusterRegistry, monkeypatch: pytest.MonkeyPatch, change: dict[str, Any]
) -> None:
    """Hive leaves the files of external tables where they lie; before Hive 4, no event identifies a table."""
    cluster = registry.cluster("C1")
    copy = tmp_path / "C1" / "d.db" / "t.copies" / "copy-1"
    copy.mkdir(parents=True)
    note = replace(Note.of(described("C2"), Kind.COPY, f"file:{copy}"), taken_s=10.0)
    take_note(cluster, replace(note, **change))
    store = store_after_drop(monkeypatch, later=False)
    store.events = [dropping(at_s=20, table_id=change.get("table_id", 7))]
    assert sweep_cluster(store.client, registry, "C1").removed == []
    assert copy.is_dir()


@pytest.mark.parametrize(
    ("meanwhile", "reason"),
    [
        ("nothing", ""),
        ("hidden", ""),
        # The owner keeps the files of an external table; a partition may have been moved into the copy since.
        ("removed", "of which it is a copy, have changed or are gone; if nobody needs it"),
        ("rewritten", "of which it is a copy, have changed or are gone; if nobody needs it"),
        ("added", "of which it is a copy, have changed or are gone; if nobody needs it"),
        ("written to the copy", "and others have written files there; if nobody needs it"),
        ("unreadable", "its files cannot be compared with those in"),
    ],
)
def test_copies_of_a_dropped_external_table_go_only_while_its_files_are_kept(
    tmp_path: Path, registry: ClusterRegistry, monkeypatch: pytest.MonkeyPatch, meanwhile: str, reason: str
) -> None:
    """Hive leaves them, and the event does not name the locations of partitions."""
    cluster = registry.cluster("C1")
    primary, copy = tmp_path / "kept" / "p=a", tmp_path / "C1" / "d.db" / "t.copies" / "p=a" / "copy-1"
    for place in (primary, copy):
        place.mkdir(parents=True)
        (place / "data").write_text("rows", encoding="utf-8")
    mark = source_mark(described("C2"), list_files(f"file:{primary}"))
    note = replace(
        Note.of(described("C2"), Kind.COPY, f"file:{copy}"),
        primary=f"file:{primary}",
        primary_listing=mark.listing,
        content=mark.content,
    )
    take_note(cluster, note)
    store = store_after_drop(monkeypatch, later=False)
    store.events = [dropping(at_s=20, keys="p")]
    # The metastore forgets the event; the note keeps its time, and the condition.
    assert sweep_cluster(store.client, registry, "C1").removed == []
    store.events = []
    if meanwhile == "removed":
        (primary / "data").unlink()
    elif meanwhile == "rewritten":
        os.utime(primary / "data", ns=(1, 1))
    elif meanwhile == "added":
        (primary / "more").touch()
    elif meanwhile == "hidden":
        (primary / "_temporary").touch()
    elif meanwhile == "written to the copy":
        (copy / "more").touch()
    elif meanwhile == "unreadable":
        note = replace(note, primary="file:/a/../b", taken_s=10.0, dropped_s=20.0, only_beside_primary=True)
        take_note(cluster, note)
    report = sweep_cluster(store.client, registry, "C1", former_older_than_s=-60.0)
    assert report.removed == ([] if reason else [f"file:{copy}"])
    assert reason in "".join(report.left.values())
    assert copy.is_dir() == bool(reason)
    assert primary.is_dir()


@pytest.mark.parametrize("place", ["", "/..", "/inner"])
def test_a_copy_is_not_compared_with_itself(
    tmp_path: Path, registry: ClusterRegistry, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    copy = tmp_path / "C1" / "d.db" / "t.copies" / "copy-1"
    copy.mkdir(parents=True)
    note = Note.of(described("C2"), Kind.COPY, f"file:{copy}")
    mark = source_mark(described("C2"), [])
    primary = {"": f"file:{copy}", "/..": f"file:{copy.parent}", "/inner": f"file:{copy}/inner"}[place]
    take_note(
        registry.cluster("C1"),
        replace(note, primary=primary, primary_listing=mark.listing, content=mark.content),
    )
    store = store_after_drop(monkeypatch, later=False)
    store.events = [dropping(at_s=20, keys="p")]
    report = sweep_cluster(store.client, registry, "C1", former_older_than_s=-60.0)
    assert (report.removed, list(report.left)) == ([], [f"file:{copy}"])
