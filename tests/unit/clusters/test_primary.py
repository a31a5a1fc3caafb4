"""Notes and alterations of a change of the primary."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from airflow_hive_federation.clusters.copies.objects import CopyObject
from airflow_hive_federation.clusters.metadata import ClusterMetadata, Secondary, source_mark, write_metadata
from airflow_hive_federation.clusters.notes import Kind, Note, notes_of, take_note
from airflow_hive_federation.clusters.primary import _Change
from airflow_hive_federation.clusters.registry import ClusterRegistry
from airflow_hive_federation.errors import PrimaryRefusedError
from airflow_hive_federation.metastore.idl import types
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
    table = types.Table(dbName="d", tableName="t", sd=storage, parameters={})
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
    changing(registry, former, cluster)._note(table, [pending], registry)


def test_a_primary_again_is_no_longer_noted_as_a_former_one(
    tmp_path: Path, registry: ClusterRegistry
) -> None:
    """By the note, its files would be removed once no metadata names the directory: a dropped partition's."""

    def noted() -> dict[str, list[Kind]]:
        return {cluster.name: [note.kind for note in notes_of(cluster)] for cluster in registry}

    note(registry, "C1", "C2", placed(tmp_path, "C1", "C2"))
    assert noted() == {"C1": [Kind.FORMER_PRIMARY], "C2": []}
    note(registry, "C2", "C1", placed(tmp_path, "C2", "C1"))
    assert noted() == {"C1": [], "C2": [Kind.FORMER_PRIMARY]}


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
    # By a note, a later change would remove the files, of which the table is no longer made.
    assert [note for cluster in registry for note in notes_of(cluster)] == []
    assert store.table.sd.location == f"file:{tmp_path}/C1/other"
    assert not store.table.parameters
    store.table.sd.location = f"file:{tmp_path}/C2/there"
    changing(registry, "C1", "C2", store)._move_table(table, [])
    assert store.table.parameters == {"hive.cluster.primary": "C2"}


def test_the_copy_before_the_one_that_becomes_the_primary_is_removed(
    tmp_path: Path, registry: ClusterRegistry
) -> None:
    """It lies where a partition that is dropped and added again would have its directory."""
    pending = placed(tmp_path, "C1", "C2")
    previous = tmp_path / "C2" / "d.db" / "t" / "copy-0"
    previous.mkdir()
    take_note(registry.cluster("C2"), Note(kind=Kind.COPY, directory=f"file:{previous}", table="d.t"))
    made = replace(pending.metadata.secondaries["C2"], former=f"file:{previous}")
    table = cast("types.Table", pending.described)
    table.parameters = write_metadata({}, ClusterMetadata().with_secondary("C2", made))
    store = OneTable(table)
    moved, removed = changing(registry, "C1", "C2", store).run(store.get_table("d", "t"), registry)
    assert (moved, removed) == (["d.t"], [f"file:{previous}"])
    assert not previous.exists()
    assert store.table.sd is not None
    assert store.table.sd.location == made.location
    assert (tmp_path / "C2" / "d.db" / "t" / "copy-1" / "data").is_file()
    assert list(notes_of(registry.cluster("C2"))) == []
    assert changing(registry, "C1", "C2", store).run(store.get_table("d", "t"), registry) == ([], [])
