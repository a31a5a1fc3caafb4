"""Copies of tables that were dropped, as an event shows."""

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
    notes_of,
    take_note,
)
from airflow_hive_federation.clusters.registry import ClusterRegistry
from airflow_hive_federation.clusters.sweeping import sweep_cluster
from airflow_hive_federation.errors import (
    MetastoreError,
    MetastoreServerError,
    NoSuchObjectError,
    UnsupportedMethodError,
)
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.storage.listing import list_files
from tests.support.one_table import OneTable, described
from tests.support.two_clusters import two_clusters


@pytest.fixture
def registry(tmp_path: Path) -> ClusterRegistry:
    return two_clusters(tmp_path / "C1", tmp_path / "C2")


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
    reason = "d.t was dropped, and the table d.saved uses the directory"
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
    """By default, Hive shows events only to users who may act for others."""
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
        (
            "removed",
            "of which the directory is a copy, have changed or are gone; if nobody needs the directory",
        ),
        ("rewritten", "of which the directory is a copy, have changed or are gone"),
        ("added", "of which the directory is a copy, have changed or are gone"),
        ("written to the copy", "and others have written files into the directory; if nobody needs the"),
        ("unreadable", "and the directory cannot be compared with"),
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
