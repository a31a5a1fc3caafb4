"""Directories of copies that are removed, and those that are left."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_hive_federation.clusters.copies.copying import _dropped, _remove_former
from airflow_hive_federation.clusters.copies.objects import CopyObject
from airflow_hive_federation.clusters.metadata import (
    ClusterMetadata,
    Secondary,
    read_metadata,
    source_mark,
    write_metadata,
)
from airflow_hive_federation.clusters.notes import Kind, Note, notes_of, take_note
from airflow_hive_federation.clusters.registry import Cluster
from airflow_hive_federation.metastore.idl import types
from tests.support.one_table import OneTable


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    """The cluster C2, with two directories of copies of ``d.t``, both noted."""
    made = Cluster(name="C2", root=f"file:{tmp_path}/C2", spark_conn_id="c2")
    for place in places(tmp_path):
        place.mkdir(parents=True)
        (place / "data").write_text("x", encoding="utf-8")
        take_note(made, Note(kind=Kind.COPY, directory=f"file:{place}", table="d.t"))
    return made


def places(tmp_path: Path) -> list[Path]:
    return [tmp_path / "C2" / "d.db" / "t" / name for name in ("copy-1", "copy-2")]


def table_at(location: str, *, copy: str, former: str) -> types.Table:
    table = types.Table(dbName="d", tableName="t", sd=types.StorageDescriptor(location=location))
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
    report = _dropped(store.client, cluster, store.get_table("d", "t"), None, None, options=None)
    assert read_metadata(store.table.parameters, "d.t").secondaries == {}
    left = [place for number, place in enumerate(both) if number == serving]
    assert [place for place in both if (place / "data").is_file()] == left
    assert report.removed == [f"file:{place}" for place in both if place not in left]
    # Nor does a later sweep remove it.
    assert list(notes_of(cluster)) == []


def test_a_previous_copy_that_is_the_primary_is_left(cluster: Cluster, tmp_path: Path) -> None:
    first, second = places(tmp_path)
    table = table_at(f"file:{first}", copy=f"file:{second}", former=f"file:{first}")
    metadata = read_metadata(table.parameters, "d.t")
    item = CopyObject(partition="", described=table, metadata=metadata, files=[], mark=source_mark(table, []))
    assert _remove_former([item], cluster, table, None) == []
    assert (first / "data").is_file()
