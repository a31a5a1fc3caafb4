"""Notes and alterations of a change of the primary."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from airflow_hive_federation.clusters.metadata import ClusterMetadata, Secondary, write_metadata
from airflow_hive_federation.clusters.notes import (
    Kind,
    Note,
    forget,
    notes_of,
    take_note,
)
from airflow_hive_federation.clusters.registry import ClusterRegistry
from airflow_hive_federation.clusters.sweeping import sweep_cluster
from airflow_hive_federation.errors import PrimaryRefusedError
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.storage.listing import list_files
from tests.support.changed_primary import changing, note, placed
from tests.support.one_table import OneTable
from tests.support.two_clusters import two_clusters


@pytest.fixture
def registry(tmp_path: Path) -> ClusterRegistry:
    return two_clusters(tmp_path / "C1", tmp_path / "C2")


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
