"""Notes of directories, and removals by them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from airflow_hive_federation.clusters.notes import (
    Kind,
    Note,
    forget,
    note_of,
    notes_of,
    remove_noted,
    state_of,
    take_note,
)
from airflow_hive_federation.clusters.registry import Cluster, read_registry
from airflow_hive_federation.errors import StorageError
from airflow_hive_federation.storage.filesystem import local_path
from airflow_hive_federation.storage.listing import list_files


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    properties = {"C1": {"fileSystem": str(tmp_path / "C1"), "jobTracker": "c1"}}
    document = {"hive.cluster.properties": properties, "hive.default.cluster.name": "C1"}
    return read_registry(document, origin="the test").cluster("C1")


def place(cluster: Cluster, *parts: str) -> Path:
    return Path(str(local_path(cluster.root))).joinpath(*parts)


def test_a_copy_is_removed_with_its_note(cluster: Cluster) -> None:
    home = place(cluster, "d.db", "t", "copy-1")
    note = Note(kind=Kind.COPY, directory=f"file:{home}", table="d.t", taken_s=1.0)
    take_note(cluster, note)
    assert list(notes_of(cluster)) == [note]
    assert list(notes_of(cluster, kind=Kind.PLAN)) == []
    assert note_of(cluster, Kind.COPY, f"file://{home}/") == note
    assert note_of(cluster, Kind.FORMER_PRIMARY, f"file:{home}") is None
    home.mkdir(parents=True)
    (home / "data").touch()
    assert remove_noted(cluster, note)
    assert not home.exists()
    assert list(notes_of(cluster)) == []
    assert not remove_noted(cluster, note)


def test_of_a_former_primary_only_noted_files_go(cluster: Cluster) -> None:
    home = place(cluster, "d.db", "t")
    home.mkdir(parents=True)
    for name in ("kept", "changed", "gone"):
        (home / name).write_text(name, encoding="utf-8")
    files = {file.path: (file.size_bytes, file.modified_ns) for file in list_files(f"file:{home}")}
    note = Note(kind=Kind.FORMER_PRIMARY, directory=f"file:{home}", table="d.t", files=files)
    take_note(cluster, note)
    (noted,) = notes_of(cluster)
    (home / "gone").unlink()
    (home / "changed").write_text("CHANGED", encoding="utf-8")
    (home / "new").touch()
    assert remove_noted(cluster, noted)
    assert sorted(path.name for path in home.iterdir()) == ["changed", "new"]


@pytest.mark.parametrize(
    ("kind", "parts"),
    [
        (Kind.COPY, ("d.db", "t")),
        (Kind.COPY, ("..", "C2", "d.db", "t", "copy-1")),
        (Kind.PLAN, ("d.db", "t")),
        (Kind.STATEMENT, ("_hive_federation", "notes")),
        (Kind.FORMER_PRIMARY, ("d.db", "t")),  # without files
    ],
)
def test_a_note_of_what_is_not_made_there_is_refused(
    cluster: Cluster, kind: Kind, parts: tuple[str, ...]
) -> None:
    directory = place(cluster, *parts).resolve()
    take_note(cluster, Note(kind=kind, directory=f"file:{directory}", table="d.t"))
    with pytest.raises(StorageError, match="is a note of another directory"):
        list(notes_of(cluster))
    forget(cluster, kind, f"file:{directory}")
    assert list(notes_of(cluster)) == []


def test_a_note_that_was_written_by_others_is_refused(cluster: Cluster) -> None:
    take_note(cluster, Note(kind=Kind.COPY, directory=f"{cluster.root}/d.db/t/copy-1", table="d.t"))
    (path,) = Path(str(local_path(state_of(cluster))), "notes").iterdir()
    document = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**document, "directory": f"{cluster.root}/d.db/t/copy-2"}), encoding="utf-8")
    with pytest.raises(StorageError, match="note of another directory"):
        list(notes_of(cluster))
    path.write_text("[]", encoding="utf-8")
    with pytest.raises(StorageError, match="is not a note"):
        list(notes_of(cluster))


def test_one_note_is_read_without_a_listing_of_all(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """A drop of many copies looks for a note of each."""
    note = Note(kind=Kind.COPY, directory=f"{cluster.root}/d.db/t/copy-1", table="d.t", taken_s=1.0)
    take_note(cluster, note)
    monkeypatch.setattr("airflow_hive_federation.clusters.notes.list_directory", pytest.fail)
    assert note_of(cluster, Kind.COPY, note.directory) == note
    assert note_of(cluster, Kind.FORMER_PRIMARY, note.directory) is None


def test_a_note_that_is_forgotten_during_the_reading_is_left_out(cluster: Cluster) -> None:
    """Statements end beside a sweep."""
    notes = [
        Note(kind=Kind.COPY, directory=f"{cluster.root}/d.db/t/copy-{number}", table="d.t", taken_s=1.0)
        for number in range(2)
    ]
    for note in notes:
        take_note(cluster, note)
    reading = notes_of(cluster)
    first = next(reading)
    forget(cluster, Kind.COPY, next(note.directory for note in notes if note != first))
    assert list(reading) == []
