"""Former primaries of a table: removed when their readers have ended, and left where others need them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from airflow_hive_federation.clusters.former import forget_dropped_partitions, remove_former_primaries
from airflow_hive_federation.clusters.metadata import ClusterMetadata, Secondary, source_mark, write_metadata
from airflow_hive_federation.clusters.notes import (
    Kind,
    Note,
    notes_of,
    read_notes,
    take_note,
    uri_of_note,
)
from airflow_hive_federation.clusters.registry import ClusterRegistry
from airflow_hive_federation.errors import NoSuchObjectError, PrimaryRefusedError
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.storage.filesystem import local_path
from airflow_hive_federation.storage.listing import list_files
from tests.support.changed_primary import changing, placed
from tests.support.one_table import OneTable
from tests.support.two_clusters import two_clusters


@pytest.fixture
def registry(tmp_path: Path) -> ClusterRegistry:
    return two_clusters(tmp_path / "C1", tmp_path / "C2")


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
    for entry in (*copies[:3], later_copy):
        take_note(place, replace(entry, becomes_primary=True))
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
