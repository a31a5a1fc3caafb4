"""Notes and alterations of a change of the primary."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from airflow_hive_federation.clusters.copies.objects import CopyObject
from airflow_hive_federation.clusters.former import forget_dropped_partitions, remove_former_primaries
from airflow_hive_federation.clusters.metadata import ClusterMetadata, Secondary, source_mark, write_metadata
from airflow_hive_federation.clusters.notes import (
    Kind,
    Note,
    forget,
    notes_of,
    read_notes,
    take_note,
    uri_of_note,
)
from airflow_hive_federation.clusters.primary import _Change
from airflow_hive_federation.clusters.registry import ClusterRegistry
from airflow_hive_federation.clusters.sweeping import sweep_cluster
from airflow_hive_federation.errors import NoSuchObjectError, PrimaryRefusedError
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.storage.filesystem import local_path
from airflow_hive_federation.storage.listing import list_files
from tests.support.one_table import OneTable
from tests.support.two_clusters import two_clusters


@pytest.fixture
def registry(tmp_path: Path) -> ClusterRegistry:
    return two_clusters(tmp_path / "C1", tmp_path / "C2")


def placed(tmp_path: Path, primary: str, secondary: str) -> CopyObject:
    """Return a table with a file in its primary, and a copy."""
    places = {name: tmp_path / name / "d.db" / "t" / "copy-1" for name in (primary, secondary)}
    for place in places.values():
        place.mkdir(parents=True, exist_ok=True)
        (place / "data").write_text("x", encoding="utf-8")
    storage = types.StorageDescriptor(location=f"file:{places[primary]}")
    table = types.Table(dbName="d", tableName="t", sd=storage, parameters={}, createTime=1)
    files = list_files(f"file:{places[primary]}")
    mark = source_mark(table, files)
    metadata = ClusterMetadata().with_secondary(
        secondary, Secondary(location=f"file:{places[secondary]}", source=mark)
    )
    return CopyObject(partition="", described=table, metadata=metadata, files=files, mark=mark)


def changing(registry: ClusterRegistry, former: str, cluster: str, store: OneTable | None = None) -> _Change:
    return _Change(
        client=cast("Any", store),
        transaction=cast("Any", SimpleNamespace(check=lambda: None)),
        place=registry.cluster(cluster),
        former=former,
        keep_former=True,
        options=None,
    )


def note(registry: ClusterRegistry, former: str, cluster: str, pending: CopyObject) -> None:
    table = cast("types.Table", pending.described)
    changing(registry, former, cluster)._note(table, [pending], registry.cluster(former))


def test_a_primary_again_is_no_longer_noted_as_a_former_one(
    tmp_path: Path, registry: ClusterRegistry
) -> None:
    """By the note, its files would be removed once no metadata names the directory: a dropped partition's."""

    def noted() -> dict[str, list[tuple[Kind, bool]]]:
        return {
            cluster.name: [(note.kind, note.becomes_primary) for note in notes_of(cluster)]
            for cluster in registry
        }

    note(registry, "C1", "C2", placed(tmp_path, "C1", "C2"))
    assert noted() == {"C1": [(Kind.FORMER_PRIMARY, False)], "C2": []}
    pending = placed(tmp_path, "C2", "C1")
    # This note has stayed since the time as a copy, because a run was killed after its last move.
    table = cast("types.Table", pending.described)
    take_note(registry.cluster("C2"), Note.of(table, Kind.COPY, pending.location))
    note(registry, "C2", "C1", pending)
    assert noted() == {"C1": [(Kind.FORMER_PRIMARY, True)], "C2": [(Kind.FORMER_PRIMARY, False)]}


def test_a_table_whose_location_was_set_meanwhile_keeps_its_primary(
    tmp_path: Path, registry: ClusterRegistry
) -> None:
    pending = placed(tmp_path, "C1", "C2")
    table = cast("types.Table", pending.described)
    store = OneTable(copy.deepcopy(table))
    assert store.table.sd is not None
    store.table.sd.location = f"file:{tmp_path}/C1/other"
    table.parameters = write_metadata({}, pending.metadata)
    with pytest.raises(PrimaryRefusedError, match="has just been altered"):
        changing(registry, "C1", "C2", store).run(table, registry)
    # By a note, a later change would remove the files, of which the table is no longer made. The copy has its
    # note again, without which it would never be removed.
    notes = [noted for cluster in registry for noted in notes_of(cluster)]
    copied = pending.metadata.secondaries["C2"].location
    assert [(noted.kind, noted.directory, noted.is_of(table)) for noted in notes] == [
        (Kind.COPY, copied, True)
    ]
    assert store.table.sd.location == f"file:{tmp_path}/C1/other"
    assert not store.table.parameters
    store.table.sd.location = f"file:{tmp_path}/C2/there"
    changing(registry, "C1", "C2", store)._move_table(table, [])
    assert store.table.parameters == {"hive.cluster.primary": "C2"}


def test_a_copy_to_which_somebody_has_set_the_location_loses_its_note(
    tmp_path: Path, registry: ClusterRegistry
) -> None:
    """By the note, a sweep would remove the files of an external partition that is dropped later."""
    pending = placed(tmp_path, "C2", "C1")
    table = cast("types.Table", pending.described)
    copies = [pending.location, f"file:{tmp_path}/C2/d.db/t.copies/copy-2"]
    for uri in copies:
        take_note(registry.cluster("C2"), Note.of(table, Kind.COPY, uri))
    store = OneTable(table)
    changing(registry, "C1", "C2", store).run(store.get_table("d", "t"), registry)
    assert store.table.parameters == {"hive.cluster.primary": "C2"}
    assert [noted.directory for noted in notes_of(registry.cluster("C2"))] == copies[1:]


@pytest.mark.parametrize("noted", [True, False])
def test_a_refused_return_to_a_former_primary_leaves_its_note_as_it_was(
    tmp_path: Path, registry: ClusterRegistry, noted: bool
) -> None:
    """By a note of a copy, which its directory is not named like, every later sweep would fail."""
    pending = placed(tmp_path, "C1", "C2")
    former = tmp_path / "C2" / "d.db" / "t"
    (former / "copy-1" / "data").rename(former / "data")
    (former / "copy-1").rmdir()
    table = cast("types.Table", pending.described)
    secondary = Secondary(location=f"file:{former}", source=pending.mark)
    table.parameters = write_metadata({}, ClusterMetadata().with_secondary("C2", secondary))
    if noted:
        files = {file.path: (file.size_bytes, file.modified_ns) for file in list_files(f"file:{former}")}
        taken = Note.of(table, Kind.FORMER_PRIMARY, f"file:{former}", files=files)
        take_note(registry.cluster("C2"), taken)
    before = [note for cluster in registry for note in notes_of(cluster)]
    store = OneTable(copy.deepcopy(table))
    assert store.table.sd is not None
    store.table.sd.location = f"file:{tmp_path}/C1/other"
    with pytest.raises(PrimaryRefusedError, match="has just been altered"):
        changing(registry, "C1", "C2", store).run(table, registry)
    assert [note for cluster in registry for note in notes_of(cluster)] == before
    assert len(before) == int(noted)


def test_a_former_primary_before_the_copy_that_becomes_the_primary_is_removed(
    tmp_path: Path, registry: ClusterRegistry
) -> None:
    """It lies where a partition that is dropped and added again would have its directory."""
    pending = placed(tmp_path, "C1", "C2")
    previous = tmp_path / "C2" / "d.db" / "t" / "p=a"
    previous.mkdir()
    table = cast("types.Table", pending.described)
    take_note(registry.cluster("C2"), Note.of(table, Kind.FORMER_PRIMARY, f"file:{previous}", files={}))
    made = replace(pending.metadata.secondaries["C2"], former=f"file:{previous}")
    table.parameters = write_metadata({}, ClusterMetadata().with_secondary("C2", made))
    store = OneTable(table)
    done = changing(registry, "C1", "C2", store).run(store.get_table("d", "t"), registry)
    assert done == (["d.t"], [f"file:{previous}"], {})
    assert not previous.exists()
    assert store.table.sd is not None
    assert store.table.sd.location == made.location
    assert (tmp_path / "C2" / "d.db" / "t" / "copy-1" / "data").is_file()
    assert list(notes_of(registry.cluster("C2"))) == []
    done = changing(registry, "C1", "C2", store).run(store.get_table("d", "t"), registry)
    assert done == ([], [], {})


@pytest.mark.parametrize("renamed", [False, True])
def test_the_copy_before_the_one_that_becomes_the_primary_stays_for_its_readers(
    tmp_path: Path, registry: ClusterRegistry, renamed: bool
) -> None:
    """The copies that a table had under another name lie in a directory of that name."""
    pending = placed(tmp_path, "C1", "C2")
    previous = tmp_path / "C2" / "d.db" / "t.copies" / "copy-0"
    previous.mkdir(parents=True)
    table = cast("types.Table", pending.described)
    table.id = 7
    noted = Note.of(table, Kind.COPY, f"file:{previous}")
    take_note(registry.cluster("C2"), replace(noted, taken_s=10.0))
    table.tableName = "u" if renamed else "t"
    made = replace(pending.metadata.secondaries["C2"], former=f"file:{previous}")
    table.parameters = write_metadata({}, ClusterMetadata().with_secondary("C2", made))
    store = OneTable(table)
    done = changing(registry, "C1", "C2", store).run(store.get_table("d", str(table.tableName)), registry)
    assert done == ([f"d.{table.tableName}"], [], {})
    reason = "statements that were planned earlier may still read it"
    assert sweep_cluster(store.client, registry, "C2").left == {f"file:{previous}": reason}
    assert previous.is_dir()


def test_a_cluster_with_files_of_an_earlier_time_as_the_primary_is_refused(
    tmp_path: Path, registry: ClusterRegistry
) -> None:
    """A partition that is dropped and added again at its default location would show their rows."""
    pending = placed(tmp_path, "C1", "C2")
    table = cast("types.Table", pending.described)
    table.id, table.parameters = 7, write_metadata({}, pending.metadata)
    earlier = tmp_path / "C2" / "d.db" / "t" / "p=a"
    earlier.mkdir()
    (earlier / "data").write_text("x", encoding="utf-8")
    files = {file.path: (file.size_bytes, file.modified_ns) for file in list_files(f"file:{earlier}")}
    for directory, owner in ((earlier, table), (tmp_path / "C2" / "d.db" / "gone", table)):
        taken = Note.of(owner, Kind.FORMER_PRIMARY, f"file:{directory}", files=files)
        take_note(registry.cluster("C2"), taken)
    store = OneTable(table)
    change = changing(registry, "C1", "C2", store)
    with pytest.raises(
        PrimaryRefusedError, match=f"time as the primary remain in file:{earlier}\\. R"
    ) as caught:
        change.run(store.get_table("d", "t"), registry)
    assert "cluster sweep C2" in str(caught.value.remedy)
    assert list(notes_of(registry.cluster("C1"))) == []
    # Its partitions will lie below its present name; a table of its former name may use the other directory.
    renamed = copy.deepcopy(table)
    renamed.tableName = "u"
    change._refuse_remains(renamed, [])
    hidden = tmp_path / "C2" / "d.db" / "u" / "p=a"
    hidden.mkdir(parents=True)
    (hidden / "data").write_text("x", encoding="utf-8")
    before = Note.of(table, Kind.FORMER_PRIMARY, f"file:{hidden}", files={})
    take_note(registry.cluster("C2"), before)
    with pytest.raises(PrimaryRefusedError, match=f"time as the primary remain in file:{hidden}") as caught:
        change._refuse_remains(renamed, [])
    assert "cluster set-primary d.u C1` a day" in str(caught.value.remedy)
    forget(registry.cluster("C2"), Kind.FORMER_PRIMARY, f"file:{hidden}")
    # An interrupted change goes on.
    begun = copy.deepcopy(table)
    begun.parameters = {**(table.parameters or {}), "hive.cluster.primary.next": "C2"}
    change._refuse_remains(begun, [])
    # Those of a table that had its name, and those that metadata names, are no obstacle.
    for created_s, location in ((2, f"file:{tmp_path}/C1/x"), (1, f"file:{earlier}/")):
        other = copy.deepcopy(table)
        other.createTime = created_s
        assert other.sd is not None
        other.sd.location = location
        change._refuse_remains(other, [])
    swept = sweep_cluster(store.client, registry, "C2", former_older_than_s=-60.0)
    assert swept.removed == [f"file:{earlier}"]
    assert change.run(store.get_table("d", "t"), registry)[0] == ["d.t"]


def test_a_change_is_refused_while_a_writer_waits(tmp_path: Path, registry: ClusterRegistry) -> None:
    """Hive has planned its statement to read the present location, where rows of others may be missing."""
    pending = placed(tmp_path, "C1", "C2")
    table = cast("types.Table", pending.described)
    table.parameters = write_metadata({}, pending.metadata)
    store = OneTable(table, writers=[1])
    before = copy.deepcopy(table)
    with pytest.raises(PrimaryRefusedError, match=r"write it wait for its lock \(lock 2 of u@h\)"):
        changing(registry, "C1", "C2", store).run(store.get_table("d", "t"), registry)
    assert store.table == before
    assert [noted for cluster in registry for noted in notes_of(cluster)] == []


def test_writers_that_waited_for_the_change_are_named(tmp_path: Path, registry: ClusterRegistry) -> None:
    pending = placed(tmp_path, "C1", "C2")
    table = cast("types.Table", pending.described)
    table.parameters = write_metadata({}, pending.metadata)
    store = OneTable(table, writers=[0, 2])
    with pytest.raises(PrimaryRefusedError, match=r"C2 now, but .* \(lock 2 of u@h, lock 3 of u@h\)"):
        changing(registry, "C1", "C2", store).run(store.get_table("d", "t"), registry)
    assert store.table.parameters is not None
    assert store.table.parameters["hive.cluster.primary"] == "C2"
    done = changing(registry, "C1", "C2", OneTable(store.table)).run(store.table, registry)
    assert done == ([], [], {})


def changed_primary(tmp_path: Path, registry: ClusterRegistry) -> tuple[OneTable, Path]:
    """Change the primary of ``d.t`` to C2, without a copy in C1; return the store and the former location."""
    pending = placed(tmp_path, "C1", "C2")
    table = cast("types.Table", pending.described)
    table.parameters = write_metadata({}, pending.metadata)
    store = OneTable(table)
    change = replace(changing(registry, "C1", "C2", store), keep_former=False)
    change.run(store.get_table("d", "t"), registry)
    return store, Path(str(local_path(pending.location)))


def former_primaries(
    store: OneTable, registry: ClusterRegistry, older_than_s: float
) -> tuple[list[str], dict[str, str]]:
    place = registry.cluster("C2")
    return remove_former_primaries(store.client, registry, "d.t", place, older_than_s, options=None)


def test_a_former_primary_is_removed_when_its_readers_have_ended(
    tmp_path: Path, registry: ClusterRegistry
) -> None:
    store, former = changed_primary(tmp_path, registry)
    reason = "statements that were planned earlier may still read it"
    assert former_primaries(store, registry, 3600.0) == ([], {f"file:{former}": reason})
    assert (former / "data").is_file()
    store.table.createTime = 2
    (former / "more").touch()
    removed, left = former_primaries(store, registry, -60.0)
    assert (removed, list(left)) == ([], [f"file:{former}"])
    assert left[f"file:{former}"].startswith("its note is of another table that was named d.t; ")
    store.table.createTime = 1
    (former / "more").unlink()
    other = types.Table(dbName="d", tableName="other", createTime=1)
    (tmp_path / "C1" / "other").mkdir()
    take_note(
        registry.cluster("C1"), Note.of(other, Kind.FORMER_PRIMARY, f"file:{tmp_path}/C1/other", files={})
    )
    assert former_primaries(store, registry, -60.0) == ([f"file:{former}"], {})
    assert not former.exists()
    assert former_primaries(store, registry, -60.0) == ([], {})


class TwoTables(OneTable):
    """A metastore with a table, and perhaps another one that has its former name, ``d.t``.

    :param other: the other table, with one partition; ``None`` if none has the name.
    """

    def __init__(self, table: types.Table, other: types.Table | None, partition: types.Partition) -> None:
        super().__init__(table)
        self.other = other
        self.partition = partition

    def get_table(self, database: str, name: str) -> types.Table:
        if (database, name) != ("d", "t"):
            return super().get_table(database, name)
        if self.other is None:
            raise NoSuchObjectError("d.t")
        return self.other

    def iter_partitions(self, database: str, name: str) -> Iterator[types.Partition]:
        yield from [self.partition] if name == "t" else super().iter_partitions(database, name)


def test_a_former_primary_of_a_renamed_table_is_removed(tmp_path: Path, registry: ClusterRegistry) -> None:
    """The table keeps its id; before Hive 4, it has none, and its name may be another table's by now."""
    pending = placed(tmp_path, "C1", "C2")
    former = Path(str(local_path(pending.location)))
    table = types.Table(dbName="d", tableName="u", createTime=1, id=7)
    table.sd = types.StorageDescriptor(location=f"file:{tmp_path}/C2/d.db/u")
    files = {file.path: (file.size_bytes, file.modified_ns) for file in list_files(pending.location)}
    note = Note.of(table, Kind.FORMER_PRIMARY, pending.location, files=files)
    place = registry.cluster("C2")
    for table_id in (0, 8, 7):
        take_note(registry.cluster("C1"), replace(note, table="d.t", table_id=table_id))
        store = TwoTables(table, None, types.Partition())
        removed = remove_former_primaries(store.client, registry, "d.u", place, -60.0, options=None)
        assert removed == (([], {}) if table_id != 7 else ([pending.location], {}))
        assert former.exists() == (table_id != 7)


@pytest.mark.parametrize("uses", ["nothing", "the directory", "the directory for a partition", "another one"])
def test_a_former_primary_of_a_renamed_table_is_left_to_a_table_of_its_former_name(
    tmp_path: Path, registry: ClusterRegistry, uses: str
) -> None:
    """Hive gives a table of that name the directory: its rows are not lost, and need not be moved."""
    pending = placed(tmp_path, "C1", "C2")
    former = Path(str(local_path(pending.location)))
    table = types.Table(dbName="d", tableName="u", createTime=1, id=7)
    table.sd = types.StorageDescriptor(location=f"file:{tmp_path}/C2/d.db/u")
    files = {file.path: (file.size_bytes, file.modified_ns) for file in list_files(pending.location)}
    note = Note.of(table, Kind.FORMER_PRIMARY, pending.location, files=files)
    take_note(registry.cluster("C1"), replace(note, table="d.t"))
    elsewhere = f"file:{tmp_path}/C1/elsewhere"
    location = pending.location if uses == "the directory" else elsewhere
    other = types.Table(dbName="d", tableName="t", createTime=2, id=8)
    other.sd = types.StorageDescriptor(location=location)
    partition = types.Partition(values=["1"], sd=types.StorageDescriptor(location=elsewhere))
    if uses == "the directory for a partition":
        other.partitionKeys = [types.FieldSchema(name="p", type="string")]
        partition.sd = types.StorageDescriptor(location=pending.location)
    is_used = uses in {"the directory", "the directory for a partition"}
    if is_used:
        (former / "more").write_text("y", encoding="utf-8")
    store = TwoTables(table, None if uses == "nothing" else other, partition)
    place = registry.cluster("C2")
    removed, left = remove_former_primaries(store.client, registry, "d.u", place, -60.0, options=None)
    reason = "another table, which has the former name d.t, uses it"
    assert (removed, left) == (([], {pending.location: reason}) if is_used else ([pending.location], {}))
    assert (former / "data").is_file() == is_used


def test_later_copies_below_a_former_primary_are_no_files_of_others(
    tmp_path: Path, registry: ClusterRegistry
) -> None:
    """The remedy, to move files into the present location, would show their rows twice."""
    store, former = changed_primary(tmp_path, registry)
    (later := former / f"copy-{'0123456789ab' * 2}").mkdir()
    (later / "data").write_text("x", encoding="utf-8")
    assert former_primaries(store, registry, -60.0) == ([f"file:{former}"], {})
    assert [path.name for path in former.rglob("*")] == [later.name, "data"]


@pytest.mark.parametrize("name", ["copy-1", f"copy-{'x' * 24}"])
def test_a_directory_that_is_named_almost_like_a_copy_holds_files_of_others(
    tmp_path: Path, registry: ClusterRegistry, name: str
) -> None:
    store, former = changed_primary(tmp_path, registry)
    (former / name).mkdir()
    (former / name / "data").write_text("x", encoding="utf-8")
    with pytest.raises(PrimaryRefusedError, match=f"{name}/data"):
        former_primaries(store, registry, -60.0)


@pytest.mark.parametrize("kept", [False, True])
def test_files_that_others_have_written_to_the_former_location_are_named(
    tmp_path: Path, registry: ClusterRegistry, kept: bool
) -> None:
    """A writer without locks, such as Spark, had planned its write before the change."""
    store, former = changed_primary(tmp_path, registry)
    others = ["more", *(f"more-{number}" for number in range(5))]
    for name in others if kept else others[:1]:
        (former / name).write_text("y", encoding="utf-8")
    if kept:
        made = Secondary(location=f"file:{former}", source=source_mark(store.table, []))
        store.table.parameters = write_metadata({}, ClusterMetadata().with_secondary("C1", made))
    listed = "more, more-0, more-1, more-2, more-3, ..." if kept else "more"
    with pytest.raises(PrimaryRefusedError, match=f"former location file:{former}: {re.escape(listed)}\\."):
        former_primaries(store, registry, -60.0)
    assert (former / "data").is_file()
    assert (former / "more").is_file()
    assert store.table.sd is not None
    # A location that the table has again is no former one.
    store.table.sd.location = f"file:{former}"
    assert former_primaries(store, registry, -60.0) == ([], {})


@pytest.mark.parametrize("named", ["as the location", "as a copy"])
def test_a_former_primary_that_a_partition_names_is_left(
    tmp_path: Path, registry: ClusterRegistry, named: str
) -> None:
    store, former = changed_primary(tmp_path, registry)
    store.table.partitionKeys = [types.FieldSchema(name="ds", type="string")]
    storage = types.StorageDescriptor(location=f"file:{tmp_path}/C2/d.db/t/ds=1")
    partition = types.Partition(values=["1"], sd=storage, parameters={})
    if named == "as the location":
        storage.location = f"file:{former}"
        # They are rows of the partition, and nobody has to move them.
        (former / "more").touch()
    else:
        made = Secondary(location=f"file:{former}", source=source_mark(partition, []))
        partition.parameters = write_metadata({}, ClusterMetadata().with_secondary("C1", made))
    store.partitions = [partition]
    assert former_primaries(store, registry, -60.0) == ([], {})
    assert (former / "data").is_file()


def test_notes_of_partitions_that_a_user_dropped_during_a_change_are_forgotten(
    tmp_path: Path, registry: ClusterRegistry
) -> None:
    """Hive leaves the files of an external partition; a later one of its name was created at another time."""
    home = registry.cluster("C1")
    keys = [types.FieldSchema(name="p", type="string")]
    table = types.Table(dbName="d", tableName="t", createTime=1, id=7, partitionKeys=keys)
    later = types.Table(dbName="d", tableName="t", createTime=1, id=8)

    def noted(name: str, owner: types.Table, partition: str, created_s: int) -> str:
        directory = f"file:{tmp_path}/C1/{name}"
        taken = Note.of(owner, Kind.FORMER_PRIMARY, directory, files={})
        take_note(home, replace(taken, partition=partition, partition_created_s=created_s))
        return directory

    kept = [
        noted("moved", table, "p=moved", 5),
        noted("old", table, "p=old", 0),
        noted("whole", table, "", 0),
        noted("theirs", later, "p=gone", 5),
    ]
    gone = [noted("gone", table, "p=gone", 5), noted("again", table, "p=again", 5)]
    store = OneTable(table)
    store.partitions = [
        types.Partition(values=["moved"], createTime=5),
        types.Partition(values=["again"], createTime=6),
        types.Partition(values=["old"]),
    ]
    place = registry.cluster("C2")
    copies = [Note.of(table, Kind.COPY, f"file:{tmp_path}/C2/d.db/t.copies/copy-{n}") for n in range(4)]
    later_copy = Note.of(later, Kind.COPY, f"file:{tmp_path}/C2/d.db/t.copies/copy-4")
    for note in (*copies[:3], later_copy):
        take_note(place, replace(note, becomes_primary=True))
    take_note(place, copies[3])
    damaged = Path(str(local_path(uri_of_note(place, copies[3])))).with_name("copy-damaged.json")
    damaged.write_text("{", encoding="utf-8")
    store.partitions[0].sd = types.StorageDescriptor(location=copies[1].directory)
    mark = source_mark(store.partitions[1], [])
    metadata = ClusterMetadata().with_secondary("C2", Secondary(location=copies[2].directory, source=mark))
    store.partitions[1].parameters = write_metadata({}, metadata)
    left = forget_dropped_partitions(store.client, table, home, place, None)
    assert left == {
        gone[0]: "its partition p=gone was dropped during the change",
        gone[1]: "its partition p=again was dropped during the change",
        copies[
            0
        ].directory: "it is the copy of a partition that was dropped during the change, perhaps after "
        "the copy had become the partition's directory",
    }
    assert {note.directory for note in notes_of(home)} == set(kept)
    assert {note.directory for note in read_notes(place)[0]} == {
        later_copy.directory,
        *(note.directory for note in copies[1:]),
    }
    assert forget_dropped_partitions(store.client, table, home, place, None) == {}
