"""Changes of the primary that are killed at each of their steps, and then repeated or given up."""

from __future__ import annotations

import copy
import itertools
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from airflow_hive_federation.clusters import notes
from airflow_hive_federation.clusters.copies.copying import _dropped
from airflow_hive_federation.clusters.former import remove_former_primaries
from airflow_hive_federation.clusters.metadata import (
    ClusterMetadata,
    Secondary,
    read_metadata,
    source_mark,
    write_metadata,
)
from airflow_hive_federation.clusters.notes import Kind, Note, notes_of, take_note
from airflow_hive_federation.clusters.primary import _Change
from airflow_hive_federation.clusters.sweeping import sweep_cluster
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.storage.listing import list_files
from tests.support.one_table import OneTable
from tests.support.two_clusters import two_clusters

Described = types.Table | types.Partition


class Killed(BaseException):
    """The process was killed here."""


class Site:
    """The table ``d.t`` in C1 with copies in C2; partitioned by ``p``, or not.

    :param kind: the kind of the notes of the copies; those of former primaries were moved back and forth.
    """

    def __init__(self, root: Path, kind: Kind, *, partitioned: bool) -> None:
        self.root = root
        self.registry = two_clusters(root / "C1", root / "C2")
        self.parts = ("p=a", "p=b") if partitioned else ("",)
        table = types.Table(
            dbName="d",
            tableName="t",
            createTime=1,
            sd=types.StorageDescriptor(location=f"file:{root}/C1/d.db/t"),
            parameters={},
            partitionKeys=[types.FieldSchema(name="p", type="string")] if partitioned else [],
        )
        self.store = OneTable(table)
        for part in self.parts:
            home, copied = root / "C1" / "d.db" / "t" / part, self.copy_of(part)
            for place in (home, copied):
                place.mkdir(parents=True)
                (place / "data").write_text(part, encoding="utf-8")
                os.utime(place / "data", (10, 10))
            described: Described = table
            if part:
                storage = types.StorageDescriptor(location=f"file:{home}")
                described = types.Partition(
                    dbName="d", tableName="t", values=[part[2:]], createTime=1, sd=storage
                )
                self.store.partitions.append(described)
            made = Secondary(
                location=f"file:{copied}", source=source_mark(described, list_files(f"file:{home}"))
            )
            described.parameters = write_metadata({}, ClusterMetadata().with_secondary("C2", made))
            files = {file.path: (file.size_bytes, file.modified_ns) for file in list_files(f"file:{copied}")}
            note = Note.of(table, kind, f"file:{copied}", files=files if kind is not Kind.COPY else None)
            take_note(self.registry.cluster("C2"), replace(note, taken_s=10.0))

    def copy_of(self, part: str) -> Path:
        return self.root / "C2" / "d.db" / "t.copies" / part / "copy-1"

    def change(self) -> None:
        """Change the primary to C2, as the operator does."""
        change = _Change(
            client=self.store.client,
            transaction=cast("Any", SimpleNamespace(check=lambda: None)),
            place=self.registry.cluster("C2"),
            former="C1",
            keep_former=True,
            options=None,
        )
        table = self.store.get_table("d", "t")
        if read_metadata(table.parameters, "d.t").primary != "C2":
            change.run(table, self.registry)
        remove_former_primaries(
            self.store.client, self.registry, "d.t", change.place, older_than_s=0.0, options=None
        )

    def state(self) -> tuple[Any, ...]:
        """Return the metastore's objects, the notes and the files."""
        taken = [
            replace(note, taken_s=0.0, files=None) for cluster in self.registry for note in notes_of(cluster)
        ]
        files = sorted(path.relative_to(self.root) for path in self.root.rglob("data"))
        return copy.deepcopy(self.store.table), copy.deepcopy(self.store.partitions), taken, files


def killed_before(site: Site, step: int, run: Callable[[], object]) -> bool:
    """Run until a step that changes a note or the metastore; return whether it was killed there."""
    steps = itertools.count()

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        def counting(*args: Any, **settings: Any) -> Any:
            if next(steps) == step:
                raise Killed
            return function(*args, **settings)

        return counting

    with pytest.MonkeyPatch.context() as patch:
        for name in ("write_atomically", "remove_file"):
            patch.setattr(notes, name, counted(getattr(notes, name)))
        for name in ("alter_table", "alter_partitions"):
            patch.setattr(site.store, name, counted(getattr(site.store, name)))
        try:
            run()
        except Killed:
            return True
    return False


CASES = pytest.mark.parametrize(
    ("kind", "partitioned"),
    [(Kind.COPY, False), (Kind.COPY, True), (Kind.FORMER_PRIMARY, False), (Kind.FORMER_PRIMARY, True)],
)


@CASES
def test_a_change_that_was_killed_at_any_step_ends_the_same(
    tmp_path: Path, kind: Kind, partitioned: bool
) -> None:
    undisturbed: tuple[Any, ...] = ()
    steps = 0
    for step in itertools.count(-1):
        shutil.rmtree(tmp_path / "site", ignore_errors=True)
        site = Site(tmp_path / "site", kind, partitioned=partitioned)
        killed = killed_before(site, step, site.change)
        if step >= 0 and not killed:
            break
        site.change()
        undisturbed = undisturbed or site.state()
        assert site.state() == undisturbed, f"killed before step {step}"
        steps += 1
    assert steps >= 5
    # The directories of the primary have no notes, those of the former one have.
    assert {note.kind for note in undisturbed[2]} == {Kind.FORMER_PRIMARY}
    assert all("/C1/" in note.directory for note in undisturbed[2])


@CASES
def test_the_copies_of_a_change_that_was_killed_at_any_step_and_given_up_are_swept(
    tmp_path: Path, kind: Kind, partitioned: bool
) -> None:
    """Those that have become directories of the primary stay, also if a user drops the partition."""
    outcomes = set()
    for step in itertools.count():
        shutil.rmtree(tmp_path / "site", ignore_errors=True)
        site = Site(tmp_path / "site", kind, partitioned=partitioned)
        store, place = site.store, site.registry.cluster("C2")
        if not killed_before(site, step, site.change):
            break
        objects: dict[str, Described] = dict(zip(site.parts, store.partitions or [store.table], strict=True))
        moved = [part for part, item in objects.items() if item.sd and "/C2/" in str(item.sd.location)]
        # Hive leaves the files of an external partition that is dropped.
        store.partitions = [item for part, item in objects.items() if part and part not in moved]
        table = store.get_table("d", "t")
        dropped = _dropped(store.client, place, table, None, None, options=None)
        assert len(dropped.copied) == len(site.parts) - len(moved)
        swept = sweep_cluster(store.client, site.registry, "C2", former_older_than_s=-60.0)
        assert len(swept.removed) == len(dropped.copied), f"killed before step {step}"
        assert [part for part in site.parts if (site.copy_of(part) / "data").is_file()] == moved
        outcomes.add(len(moved))
    assert outcomes == {0, len(site.parts)}
