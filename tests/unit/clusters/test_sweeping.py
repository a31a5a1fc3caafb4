"""Directories that a sweep leaves."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_hive_federation.clusters.notes import Kind, Note, take_note
from airflow_hive_federation.clusters.registry import ClusterRegistry
from airflow_hive_federation.clusters.sweeping import SweepReport, sweep_cluster
from airflow_hive_federation.errors import NoSuchLockError
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.storage.listing import list_files
from tests.support.one_table import OneTable
from tests.support.two_clusters import two_clusters


@pytest.fixture
def registry(tmp_path: Path) -> ClusterRegistry:
    return two_clusters(tmp_path / "C1", tmp_path / "C2")


def swept(registry: ClusterRegistry, place: Path, primary: str) -> SweepReport:
    """Sweep C1, in which a directory that no metadata names has the note of a former primary."""
    files = {file.path: (file.size_bytes, file.modified_ns) for file in list_files(f"file:{place}")}
    note = Note(kind=Kind.FORMER_PRIMARY, directory=f"file:{place}", table="d.t", files=files)
    take_note(registry.cluster("C1"), note)
    storage = types.StorageDescriptor(location="file:/elsewhere")
    parameters = {"hive.cluster.primary": primary} if primary else {}
    table = types.Table(dbName="d", tableName="t", sd=storage, parameters=parameters)
    return sweep_cluster(OneTable(table).client, registry, "C1")


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
    for place in places:
        place.mkdir(parents=True)
        take_note(registry.cluster("C1"), Note(kind=Kind.COPY, directory=f"file:{place}", table="d.t"))
    table = types.Table(dbName="d", tableName="t", sd=types.StorageDescriptor(location="file:/elsewhere"))
    with pytest.raises(NoSuchLockError):
        sweep_cluster(OneTable(table, checks=1).client, registry, "C1")
    assert len([place for place in places if place.is_dir()]) == 2
    assert len(sweep_cluster(OneTable(table).client, registry, "C1").removed) == 2
