"""Directories of copies that are removed, and those that are left."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from airflow_hive_federation.clusters.altering import partitions_by_name
from airflow_hive_federation.clusters.copies.copying import (
    CopyReport,
    _copied,
    _dropped,
    _publish,
    _removed_at_once,
)
from airflow_hive_federation.clusters.copies.directories import DropNotes, release
from airflow_hive_federation.clusters.copies.objects import copy_objects
from airflow_hive_federation.clusters.metadata import (
    ClusterMetadata,
    Secondary,
    read_metadata,
    source_mark,
    write_metadata,
)
from airflow_hive_federation.clusters.notes import Kind, Note, forget, note_of, notes_of, take_note
from airflow_hive_federation.clusters.registry import Cluster
from airflow_hive_federation.clusters.sweeping import sweep_cluster
from airflow_hive_federation.errors import NoSuchLockError
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.storage.copying import copy_file
from airflow_hive_federation.storage.filesystem import local_path
from airflow_hive_federation.storage.listing import list_files
from airflow_hive_federation.storage.plan_files import read_plan
from tests.support.one_table import OneTable
from tests.support.two_clusters import two_clusters


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    """The cluster C2, with two directories of copies of ``d.t``, both noted."""
    made = Cluster(name="C2", root=f"file:{tmp_path}/C2", spark_conn_id="c2")
    for place in places(tmp_path):
        place.mkdir(parents=True)
        (place / "data").write_text("x", encoding="utf-8")
        noted = types.Table(dbName="d", tableName="t", createTime=1)
        take_note(made, Note.of(noted, Kind.COPY, f"file:{place}"))
    return made


def places(tmp_path: Path) -> list[Path]:
    return [tmp_path / "C2" / "d.db" / "t" / name for name in ("copy-1", "copy-2")]


def dropped(store: OneTable, cluster: Cluster, *, at_once: bool = True) -> CopyReport:
    """Drop the copies of the table of a store, as ``drop_copies`` does under its locks."""
    table = store.get_table("d", str(store.table.tableName))
    report = _dropped(store.client, cluster, table, None, None, options=None)
    return _removed_at_once(store.client, cluster, table, report, None) if at_once else report


def table_at(location: str, *, copy: str, former: str) -> types.Table:
    storage = types.StorageDescriptor(location=location)
    table = types.Table(dbName="d", tableName="t", sd=storage, createTime=1)
    made = Secondary(location=copy, former=former, source=source_mark(table, []))
    table.parameters = write_metadata({}, ClusterMetadata().with_secondary("C2", made))
    return table


@pytest.mark.parametrize("serving", [None, 0, 1])
def test_dropped_copies_are_removed_unless_the_table_is_at_one(
    cluster: Cluster, tmp_path: Path, serving: int | None
) -> None:
    """Somebody may have set the table's location to the copy, because the other site was down."""
    both = places(tmp_path)
    location = "file:/c1/t" if serving is None else f"file://{both[serving]}/"
    table = table_at(location, copy=f"file:{both[0]}", former=f"file:{both[1]}")
    store = OneTable(table)
    report = dropped(store, cluster)
    assert read_metadata(store.table.parameters, "d.t").secondaries == {}
    left = [place for number, place in enumerate(both) if number == serving]
    assert [place for place in both if (place / "data").is_file()] == left
    assert report.removed == [f"file:{place}" for place in both if place not in left]
    # Nor does a later sweep remove it.
    assert list(notes_of(cluster)) == []


@pytest.mark.parametrize("at_once", [True, False])
def test_a_replaced_copy_that_is_the_primary_is_left(cluster: Cluster, tmp_path: Path, at_once: bool) -> None:
    first, second = places(tmp_path)
    table = table_at(f"file:{first}", copy=f"file:{second}", former=f"file:{first}")
    primaries = [f"file:{first}/"]
    replaced = release([f"file:{first}"], cluster, table, primaries=primaries, at_once=at_once, options=None)
    assert replaced == ([], [])
    assert (first / "data").is_file()
    # Nor does a later sweep remove it.
    assert [note.directory for note in notes_of(cluster)] == [f"file:{second}"]


def test_copies_that_metadata_stops_naming_wait_for_a_sweep(cluster: Cluster, tmp_path: Path) -> None:
    """A statement that was planned before finds no rows in an empty directory, and no error."""
    first, second = places(tmp_path)
    table = table_at("file:/c1/t", copy=f"file:{first}", former=f"file:{second}")
    for note in list(notes_of(cluster)):
        take_note(cluster, replace(note, taken_s=10.0))
    store = OneTable(table)

    def killed(*_: object, **__: object) -> None:
        # At the last moment before the change, the notes count the time of the readers from now on.
        assert all(note.taken_s > 10.0 for note in notes_of(cluster))
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "alter_table", killed)
        with pytest.raises(KeyboardInterrupt):
            dropped(store, cluster, at_once=False)
    report = dropped(store, cluster, at_once=False)
    assert (report.copied, report.removed) == (["d.t"], [])
    assert report.left == [f"file:{first}", f"file:{second}"]
    assert (first / "data").is_file()
    assert (second / "data").is_file()


@pytest.mark.parametrize("noted", ["another table", "nothing"])
def test_a_directory_that_no_note_gives_to_the_table_is_left(
    cluster: Cluster, tmp_path: Path, noted: str
) -> None:
    """``CREATE TABLE ... LIKE`` copies the parameters of a table that was renamed."""
    first, second = places(tmp_path)
    for place in (first, second):
        if noted == "nothing":
            forget(cluster, Kind.COPY, f"file:{place}")
    store = OneTable(table_at("file:/c1/t", copy=f"file:{first}", former=f"file:{second}"))
    store.table.createTime = 1 if noted == "nothing" else 2
    report = dropped(store, cluster)
    assert report.removed == []
    assert [place for place in (first, second) if (place / "data").is_file()] == [first, second]


@pytest.mark.parametrize("kind", [Kind.COPY, Kind.FORMER_PRIMARY])
@pytest.mark.parametrize("created_s", [9, 11, None])
def test_a_note_without_the_tables_identity_is_of_a_table_that_existed_before_it(
    cluster: Cluster, tmp_path: Path, kind: Kind, created_s: int | None
) -> None:
    """Earlier versions wrote such notes."""
    place, other = places(tmp_path)
    for uri in (f"file:{place}", f"file:{other}"):
        forget(cluster, Kind.COPY, uri)
    files = {file.path: (file.size_bytes, file.modified_ns) for file in list_files(f"file:{place}")}
    take_note(cluster, Note(kind=kind, directory=f"file:{place}", table="d.t", files=files, taken_s=10.0))
    take_note(cluster, Note(kind=kind, directory=f"file:{other}", table="d.u", files=files, taken_s=10.0))
    store = OneTable(table_at("file:/c1/t", copy=f"file:{place}", former=f"file:{other}"))
    store.table.createTime = created_s
    report = dropped(store, cluster)
    assert report.removed == ([f"file:{place}"] if created_s == 9 else [])
    assert (place.is_dir(), other.is_dir()) == (created_s != 9, True)


@pytest.mark.parametrize("others_wrote", [False, True])
def test_a_former_primary_is_removed_with_its_copy_unless_others_have_written_there(
    cluster: Cluster, tmp_path: Path, others_wrote: bool
) -> None:
    place = tmp_path / "C2" / "d.db" / "t" / "p=a"
    place.mkdir()
    (place / "data").write_text("x", encoding="utf-8")
    table = table_at("file:/c1/t", copy=f"file:{place}", former="")
    files = {file.path: (file.size_bytes, file.modified_ns) for file in list_files(f"file:{place}")}
    take_note(cluster, Note.of(table, Kind.FORMER_PRIMARY, f"file:{place}", files=files))
    if others_wrote:
        (place / "more").write_text("y", encoding="utf-8")
    store = OneTable(table)
    report = dropped(store, cluster)
    assert report.removed == ([] if others_wrote else [f"file:{place}"])
    assert report.left == ([f"file:{place}"] if others_wrote else [])
    assert place.exists() == others_wrote
    assert [note.directory for note in notes_of(cluster, kind=Kind.FORMER_PRIMARY)] == (
        [f"file:{place}"] if others_wrote else []
    )


@pytest.mark.parametrize("parts", [("C1", "d.db", "t", "copy-1"), ("C2", "d.db", "t")])
def test_directories_elsewhere_are_left(cluster: Cluster, tmp_path: Path, parts: tuple[str, ...]) -> None:
    """Every user who may alter a table may name any directory in its parameters."""
    place = tmp_path.joinpath(*parts)
    place.mkdir(parents=True, exist_ok=True)
    (place / "theirs").write_text("x", encoding="utf-8")
    table = table_at("file:/c1/t", copy=f"file:{place}", former="")
    store = OneTable(table)
    report = dropped(store, cluster)
    assert (report.removed, report.left) == ([], [])
    assert (place / "theirs").is_file()


def test_a_note_of_an_earlier_version_gets_the_identity_of_the_table(
    cluster: Cluster, tmp_path: Path
) -> None:
    """Without it, a sweep would leave the directory for ever."""
    place, other = places(tmp_path)
    table = table_at("file:/c1/t", copy=f"file:{place}", former=f"file:{other}")
    table.id = 7
    files = {"data": (1, 2)}
    former = Note(kind=Kind.FORMER_PRIMARY, directory=f"file:{place}", table="d.t", files=files, taken_s=10.0)
    take_note(cluster, replace(former, partition="p=a"))
    take_note(cluster, Note(kind=Kind.COPY, directory=f"file:{other}", table="d.u", taken_s=10.0))
    made = read_metadata(table.parameters, "d.t").secondaries["C2"]
    assert DropNotes(cluster, table, None).take(made) == [f"file:{place}", f"file:{other}"]
    noted = note_of(cluster, Kind.FORMER_PRIMARY, f"file:{place}")
    assert noted is not None
    assert noted.is_of(table)
    assert (noted.table_id, noted.partition) == (7, "p=a")
    assert noted.files == {"data": (1, 2)}
    # That of another table stays as it was.
    (theirs,) = (note for note in notes_of(cluster, kind=Kind.COPY) if note.table == "d.u")
    assert (theirs.taken_s, theirs.created_s) == (10.0, 0)


@pytest.mark.parametrize("table_id", [7, None])
def test_a_renamed_table_takes_the_notes_of_its_copies_along(
    cluster: Cluster, tmp_path: Path, table_id: int | None
) -> None:
    """A sweep finds no table of the former name. Before Hive 4, tables have no ids, and directories stay."""
    first, second = places(tmp_path)
    table = table_at("file:/c1/t", copy=f"file:{first}", former=f"file:{second}")
    table.id = table_id
    for place in (first, second):
        take_note(cluster, replace(Note.of(table, Kind.COPY, f"file:{place}"), taken_s=10.0))
    table.tableName = "u"
    store = OneTable(table)
    registry = two_clusters(tmp_path / "C1", tmp_path / "C2")
    report = dropped(store, cluster, at_once=False)
    assert {note.table for note in notes_of(cluster)} == {"d.u" if table_id else "d.t"}
    assert report.left == ([f"file:{first}", f"file:{second}"] if table_id else [])
    if table_id:
        swept = sweep_cluster(store.client, registry, "C2", former_older_than_s=-60.0)
        assert sorted(swept.removed) == report.left
    assert first.exists() == (not table_id)


@pytest.mark.parametrize("only_former", [False, True])
def test_the_notes_of_partitions_are_taken_once_for_what_metadata_stops_naming(
    cluster: Cluster, tmp_path: Path, only_former: bool
) -> None:
    """A long drop has one lock per batch; the time of a note is that before the first one."""
    uris = {}
    table = types.Table(
        dbName="d", tableName="t", createTime=1, partitionKeys=[types.FieldSchema(name="p", type="string")]
    )
    partitions = [types.Partition(values=["none"], parameters={}), types.Partition(values=["other"])]
    elsewhere = Secondary(location="file:/elsewhere/copy-1", source=source_mark(table, []))
    partitions[1].parameters = write_metadata({}, ClusterMetadata().with_secondary("C3", elsewhere))
    for value in "ab":
        names = [f"file:{tmp_path}/C2/d.db/t.copies/p={value}/copy-{number}" for number in range(2)]
        for uri in names:
            take_note(cluster, replace(Note.of(table, Kind.COPY, uri), taken_s=10.0))
        made = Secondary(location=names[0], former=names[1], source=source_mark(table, []))
        metadata = ClusterMetadata().with_secondary("C2", made)
        partitions.append(types.Partition(values=[value], parameters=write_metadata({}, metadata)))
        uris[value] = names
    notes = DropNotes(cluster, table, None)
    notes.take_seen(partitions, only_former=only_former)
    expected = [uri for names in uris.values() for uri in (names[1:] if only_former else names)]
    assert sorted(notes.taken) == sorted(expected)

    def times() -> dict[str, float]:
        return {note.directory: note.taken_s for note in notes_of(cluster) if "copies" in note.directory}

    first = times()
    assert sorted(uri for uri, taken_s in first.items() if taken_s > 10.0) == sorted(expected)
    copy_of_a = read_metadata(partitions[2].parameters, "d.t").secondaries["C2"]
    assert notes.take(copy_of_a, keep={copy_of_a.location}) == uris["a"][1:]
    assert times() == first
    assert notes.take(copy_of_a) == uris["a"]
    assert [note.table_id for note in notes_of(cluster, kind=Kind.COPY)] == [0] * len(notes_of(cluster))


@pytest.mark.parametrize("drops", [True, False])
def test_notes_of_many_partitions_are_taken_before_the_lock(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, drops: bool
) -> None:
    """Writers of the partitions wait for the lock, and each note is a file of a store."""
    keys = [types.FieldSchema(name="p", type="string")]
    storage = types.StorageDescriptor(location="file:/c1/t")
    table = types.Table(
        dbName="d", tableName="t", createTime=1, parameters={}, partitionKeys=keys, sd=storage
    )
    store = OneTable(table)
    for value in "ab":
        home = tmp_path / "C1" / f"p={value}"
        home.mkdir(parents=True)
        names = [f"file:{tmp_path}/C2/d.db/t.copies/p={value}/copy-{number}" for number in range(2)]
        for uri in names:
            take_note(cluster, replace(Note.of(table, Kind.COPY, uri), taken_s=10.0))
        made = Secondary(location=names[0], former=names[1], source=source_mark(table, []))
        metadata = write_metadata({}, ClusterMetadata().with_secondary("C2", made))
        storage = types.StorageDescriptor(location=f"file:{home}")
        store.partitions.append(types.Partition(values=[value], sd=storage, parameters=metadata))
    lock, seen = store.lock, []

    def taken() -> list[str]:
        notes = notes_of(cluster, kind=Kind.COPY)
        return sorted(note.directory for note in notes if "copies" in note.directory and note.taken_s > 10.0)

    def locked(components: list[types.LockComponent]) -> types.LockResponse:
        seen.append(taken())
        return lock(components)

    monkeypatch.setattr(store, "lock", locked)
    if drops:
        _dropped(store.client, cluster, table, None, None, options=None)
    else:
        objects = copy_objects(table, partitions_by_name(store.client, table), None)
        targets = {item.partition: f"file:{tmp_path}/C2/new/{item.partition}/copy-2" for item in objects}
        _publish(store.client, table, objects, targets, cluster, options=None)
    expected = [
        f"file:{tmp_path}/C2/d.db/t.copies/p={value}/copy-{number}"
        for value in "ab"
        for number in ((0, 1) if drops else (1,))
    ]
    assert seen[0] == expected
    assert taken() == expected


def copied(store: OneTable, cluster: Cluster) -> CopyReport:
    """Copy the table of a store to a cluster, without Spark."""

    def run_copy(plan: str, outcomes: str) -> None:
        del outcomes
        for item in read_plan(plan):
            copy_file(item)

    table = store.get_table("d", "t")
    held = cast("Any", SimpleNamespace(prove=lambda client: None))
    objects = copy_objects(table, {}, None)
    report, changed = _copied(store.client, cluster, table, objects, run_copy, options=None, held=held)
    assert changed == set()
    return report


def test_a_copy_is_not_made_in_the_directory_of_a_former_primary(tmp_path: Path) -> None:
    """The primary has moved to the copy and back; by the note of a copy, files of others would be removed."""
    registry = two_clusters(tmp_path / "C1", tmp_path / "C2")
    cluster, home = registry.cluster("C2"), tmp_path / "C1" / "d.db" / "t"
    home.mkdir(parents=True)
    (home / "data").write_text("x", encoding="utf-8")
    storage = types.StorageDescriptor(location=f"file:{home}")
    store = OneTable(types.Table(dbName="d", tableName="t", sd=storage, parameters={}, createTime=1))

    def present() -> str:
        return read_metadata(store.table.parameters, "d.t").secondaries["C2"].location

    assert copied(store, cluster).copied == ["d.t"]
    former = present()
    forget(cluster, Kind.COPY, former)
    files = {file.path: (file.size_bytes, file.modified_ns) for file in list_files(former)}
    take_note(cluster, Note.of(store.table, Kind.FORMER_PRIMARY, former, files=files))
    assert dropped(store, cluster, at_once=False).left == [former]
    late = Path(str(local_path(former))) / "late"
    late.write_text("y", encoding="utf-8")
    assert copied(store, cluster).copied == ["d.t"]
    assert present() != former
    # The next run goes on with the same directory.
    again = present()
    dropped(store, cluster, at_once=False)
    assert copied(store, cluster).copied == ["d.t"]
    assert present() == again
    report = sweep_cluster(store.client, registry, "C2", former_older_than_s=-60.0)
    assert (report.removed, report.used, list(report.left)) == ([], 1, [former])
    assert late.is_file()


@pytest.mark.parametrize("meanwhile", ["a copy is made", "a copy is published", "it becomes the location"])
def test_a_dropped_copy_that_is_used_again_is_not_removed(
    cluster: Cluster, tmp_path: Path, meanwhile: str
) -> None:
    """A run that begins between the drop of the metadata and the removal takes up the same directory."""
    first, second = places(tmp_path)
    store = OneTable(table_at("file:/c1/t", copy=f"file:{first}", former=f"file:{second}"))
    before, lock = copy.deepcopy(store.table), store.lock

    def used_again(components: list[types.LockComponent]) -> types.LockResponse:
        if "copies of d.t" in str(components[0].tablename):
            if meanwhile == "a copy is made":
                store.free = False
            elif meanwhile == "a copy is published":
                store.table = before
            else:
                assert store.table.sd is not None
                store.table.sd.location = f"file:{first}/"
        return lock(components)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "lock", used_again)
        report = dropped(store, cluster)
    gone = [f"file:{second}"] if meanwhile == "it becomes the location" else []
    assert (report.removed, len(report.left)) == (gone, 2 - len(gone))
    assert (first / "data").is_file()
    assert (second / "data").is_file() == (not gone)
    assert note_of(cluster, Kind.COPY, f"file:{first}") is not None


def test_a_removal_at_once_ends_when_its_lock_has_expired(cluster: Cluster, tmp_path: Path) -> None:
    first, second = places(tmp_path)
    store = OneTable(table_at("file:/c1/t", copy=f"file:{first}", former=f"file:{second}"), checks=1)
    with pytest.raises(NoSuchLockError):
        dropped(store, cluster)
    assert not first.exists()
    assert (second / "data").is_file()


def test_the_copies_of_partitions_are_removed_at_once(cluster: Cluster, tmp_path: Path) -> None:
    """Only the partitions that had the copies are read again, whatever number the table has."""
    first, second = places(tmp_path)
    store = OneTable(table_at("file:/c1/t", copy="", former=""))
    store.table.parameters = {}
    store.table.partitionKeys = [types.FieldSchema(name="p", type="string")]
    for value, place in (("a", first), ("b", second)):
        storage = types.StorageDescriptor(location=f"file:/c1/t/p={value}")
        partition = types.Partition(values=[value], sd=storage)
        made = Secondary(location=f"file:{place}", source=source_mark(partition, []))
        partition.parameters = write_metadata({}, ClusterMetadata().with_secondary("C2", made))
        store.partitions.append(partition)
    table, before = store.get_table("d", "t"), store.partitions
    report = _dropped(store.client, cluster, table, ["p=a"], None, options=None)
    after, store.partitions = store.partitions, before
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "iter_partitions", pytest.fail)
        # A run has published the same copy again.
        again = _removed_at_once(store.client, cluster, table, report, None)
        assert (again.removed, again.left) == ([], [f"file:{first}"])
        store.partitions = after
        report = _removed_at_once(store.client, cluster, table, report, None)
    assert (report.copied, report.removed, report.left) == (["p=a"], [f"file:{first}"], [])
    assert (second / "data").is_file()


def test_a_former_primary_of_a_renamed_table_keeps_its_name_and_its_files(
    cluster: Cluster, tmp_path: Path
) -> None:
    """A later table of the former name may lie there, with rows in the files of the renamed one."""
    former, unused = places(tmp_path)
    forget(cluster, Kind.COPY, f"file:{former}")
    owner = types.Table(dbName="d", tableName="t", createTime=1, id=7)
    files = {file.path: (file.size_bytes, file.modified_ns) for file in list_files(f"file:{former}")}
    take_note(cluster, Note.of(owner, Kind.FORMER_PRIMARY, f"file:{former}", files=files))
    renamed = table_at("file:/c1/t", copy=f"file:{former}", former=f"file:{unused}")
    renamed.tableName, renamed.id = "renamed", 7
    report = dropped(OneTable(renamed), cluster)
    assert (former / "data").is_file()
    assert f"file:{former}" not in report.removed
    note = note_of(cluster, Kind.FORMER_PRIMARY, f"file:{former}")
    assert note is not None
    assert note.table == "d.t"
