"""Notes of directories, and removals by them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_hive_federation.clusters.notes import (
    Kind,
    Note,
    foreign_files,
    forget,
    note_of,
    notes_of,
    read_notes,
    remove_noted,
    state_of,
    take_note,
)
from airflow_hive_federation.clusters.registry import Cluster, read_registry
from airflow_hive_federation.errors import StorageError
from airflow_hive_federation.storage.filesystem import local_path
from airflow_hive_federation.storage.listing import list_directory, list_files


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


def test_a_note_that_is_forgotten_during_the_reading_is_left_out(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Statements end beside a sweep."""
    notes = [
        Note(kind=Kind.COPY, directory=f"{cluster.root}/d.db/t/copy-{number}", table="d.t", taken_s=1.0)
        for number in range(2)
    ]
    for note in notes:
        take_note(cluster, note)

    def forgotten_after(uri: str, **settings: Any) -> dict[str, int]:
        entries = list_directory(uri, **settings)
        forget(cluster, Kind.COPY, notes[0].directory)
        return entries

    monkeypatch.setattr("airflow_hive_federation.clusters.notes.list_directory", forgotten_after)
    assert notes_of(cluster) == notes[1:]


FIELDS = st.sampled_from([None, 0, 1.5, "", "copy", "d.t", "file:/x", "file://elsewhere/x", [], {}, {"a": 1}])
DOCUMENTS = st.one_of(
    st.binary(max_size=20),
    st.recursive(st.none() | st.integers() | st.text(max_size=5), st.lists, max_leaves=5).map(
        lambda value: json.dumps(value).encode()
    ),
    st.dictionaries(
        st.sampled_from(
            ["kind", "directory", "table", "files", "taken_s", "created_s", "partition", "other"]
        ),
        FIELDS,
    ),
)


@pytest.fixture(scope="module")
def two_notes(tmp_path_factory: pytest.TempPathFactory) -> tuple[Cluster, Path, bytes, Note]:
    """A cluster with two notes: the file of the first one and its text, and the second one."""
    cluster = Cluster(name="C1", root=f"file:{tmp_path_factory.mktemp('C1')}", spark_conn_id="c1")
    first, second = (
        Note(kind=Kind.COPY, directory=f"{cluster.root}/d.db/t/copy-{number}", table="d.t", taken_s=1.0)
        for number in range(2)
    )
    take_note(cluster, first)
    take_note(cluster, second)
    path = Path(str(local_path(state_of(cluster))), "notes", note_name(cluster, first))
    return cluster, path, path.read_bytes(), second


@given(document=DOCUMENTS)
def test_whatever_a_file_among_the_notes_holds_the_others_are_read(
    two_notes: tuple[Cluster, Path, bytes, Note], document: bytes | dict[str, Any]
) -> None:
    """Another program has written the file."""
    cluster, path, text, other = two_notes
    if isinstance(document, dict):
        document = json.dumps({**json.loads(text), **document}).encode()
    path.write_bytes(document)
    read, damaged = read_notes(cluster)
    assert other in read
    assert [item.uri for item in damaged] == ([f"file:{path}"] if len(read) == 1 else [])
    # A note that was read may be used like every other.
    for note in read:
        foreign_files(note)


def note_name(cluster: Cluster, note: Note) -> str:
    """Return the name of a note's file."""
    before = list_directory(f"{state_of(cluster)}/notes")
    forget(cluster, note.kind, note.directory)
    (name,) = before.keys() - list_directory(f"{state_of(cluster)}/notes").keys()
    take_note(cluster, note)
    return str(name)


def test_a_damaged_note_is_named_with_the_table_that_it_names(cluster: Cluster) -> None:
    notes = [
        Note(kind=Kind.COPY, directory=f"{cluster.root}/d.db/t/copy-{number}", table="d.t")
        for number in range(3)
    ]
    for note in notes:
        take_note(cluster, note)
    home = Path(str(local_path(state_of(cluster))), "notes")
    paths = [home / note_name(cluster, note) for note in notes]
    paths[0].write_bytes(paths[1].read_bytes())
    paths[2].write_bytes(b"[]")
    read, damaged = read_notes(cluster)
    assert [note.directory for note in read] == [notes[1].directory]
    assert {item.uri: (item.table, item.reason) for item in damaged} == {
        f"file:{paths[0]}": ("d.t", f"is a note of another directory, {notes[1].directory}"),
        f"file:{paths[2]}": ("", "is not a note of a directory"),
    }
    for note in (notes[0], notes[2]):
        with pytest.raises(StorageError, match=r"note of a(nother)? directory") as caught:
            note_of(cluster, Kind.COPY, note.directory)
        assert "remove the note" in str(caught.value.remedy)
