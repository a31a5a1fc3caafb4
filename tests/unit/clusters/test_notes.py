"""Notes of directories, and removals by them."""

from __future__ import annotations

import json
import stat
import time
from dataclasses import replace
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
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.storage.empty_directories import remove_empty_directory
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
        (Kind.PLAN, ("_hive_federation", "1", "inner")),
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


@pytest.mark.parametrize(
    "change",
    [
        {"directory": "file://elsewhere/x"},
        {"directory": None},
        {"kind": None},
        {"kind": "other"},
        {"other": 1},
        {"table": 1},
        {"partition": 1},
        {"taken_s": "x"},
        {"created_s": "x"},
        {"table_id": "x"},
        {"partition_created_s": "x"},
        {"dropped_s": "x"},
        {"files": ["a"]},
        {"files": {"a": "12"}},
        {"files": {"a": [1, "x"]}},
        None,
    ],
)
def test_a_note_with_a_field_of_another_type_is_damaged(
    cluster: Cluster, change: dict[str, Any] | None
) -> None:
    note = Note(kind=Kind.FORMER_PRIMARY, directory=f"{cluster.root}/d.db/t", table="d.t", files={})
    take_note(cluster, note)
    path = place(cluster, "_hive_federation", "notes", note_name(cluster, note))
    document = json.loads(path.read_text(encoding="utf-8"))
    fields = {key: value for key, value in {**document, **(change or {})}.items() if change or key != "kind"}
    path.write_text(json.dumps(fields), encoding="utf-8")
    read, damaged = read_notes(cluster)
    assert (read, [item.uri for item in damaged]) == ([], [f"file:{path}"])


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


@pytest.mark.parametrize(
    ("noted", "table", "is_of", "is_of_namer"),
    [
        ((5, 7), ("t", 5, 7), True, True),
        ((5, 7), ("u", 5, 7), True, True),
        ((5, 7), ("t", 6, 7), False, False),
        ((5, 7), ("t", 5, 8), False, False),
        ((5, 7), ("t", None, 7), False, False),
        # Before Hive 4, metastores send no ids.
        ((5, 0), ("t", 5, 7), True, True),
        ((5, 0), ("u", 5, 7), False, False),
        ((5, 7), ("t", 5, None), True, True),
        ((5, 7), ("u", 5, None), False, False),
        # Earlier versions noted no identity; the note is of the tenth second.
        ((0, 0), ("t", 5, 7), False, True),
        ((0, 0), ("t", 10, 7), False, True),
        ((0, 0), ("t", 11, 7), False, False),
        ((0, 0), ("u", 5, 7), False, False),
        ((0, 0), ("t", 0, 7), False, False),
        ((0, 7), ("t", 0, 7), False, False),
        ((0, 0), ("t", None, None), False, False),
    ],
)
def test_a_note_is_of_the_table_of_its_identity(
    noted: tuple[int, int], table: tuple[str, int | None, int | None], is_of: bool, is_of_namer: bool
) -> None:
    created_s, table_id = noted
    note = Note(
        kind=Kind.COPY, directory="file:/x", table="d.t", taken_s=10.0, created_s=created_s, table_id=table_id
    )
    name, create_time, number = table
    described = types.Table(dbName="d", tableName=name, createTime=create_time, id=number)
    assert (note.is_of(described), note.is_of_namer(described)) == (is_of, is_of_namer)


def test_a_note_has_its_time_and_only_its_owner_reads_it(cluster: Cluster) -> None:
    """The names of tables and files are not for every user of a mounted store."""
    note = Note(kind=Kind.COPY, directory=f"{cluster.root}/d.db/t/copy-1", table="d.t")
    before = time.time()
    take_note(cluster, note)
    (path,) = place(cluster, "_hive_federation", "notes").iterdir()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    (taken,) = notes_of(cluster)
    assert before <= taken.taken_s <= time.time()
    take_note(cluster, replace(note, taken_s=10.0))
    assert notes_of(cluster) == [replace(note, taken_s=10.0)]
    # The files of other programs, and those that are still being written, are no notes.
    (path.parent / "README").touch()
    assert notes_of(cluster) == [replace(note, taken_s=10.0)]


def test_files_that_are_not_those_of_the_note_are_foreign(cluster: Cluster) -> None:
    home = place(cluster, "d.db", "t")
    note = Note(kind=Kind.FORMER_PRIMARY, directory=f"file:{home}", table="d.t", files={})
    assert foreign_files(note) == []
    copy = home / f"copy-{'0' * 24}"
    copy.mkdir(parents=True)
    for file in (home / "data", home / "later", home / "_hidden", copy / "data"):
        file.write_text("x", encoding="utf-8")
    sizes = {file.path: [file.size_bytes, file.modified_ns] for file in list_files(note.directory)}
    assert foreign_files(note) == ["data", "later"]
    size, modified_ns = sizes["data"]
    assert foreign_files(replace(note, files={"data": [size, modified_ns]})) == ["later"]
    assert foreign_files(replace(note, files={**sizes, "data": [size, modified_ns + 1]})) == ["data"]
    assert foreign_files(replace(note, files={**sizes, "data": [size + 1, modified_ns]})) == ["data"]


def test_a_former_primary_of_noted_files_goes_with_its_directory(cluster: Cluster) -> None:
    home = place(cluster, "d.db", "t")
    home.mkdir(parents=True)
    (home / "data").touch()
    files = {file.path: (file.size_bytes, file.modified_ns) for file in list_files(f"file:{home}")}
    note = Note(kind=Kind.FORMER_PRIMARY, directory=f"file:{home}", table="d.t", files=files)
    take_note(cluster, note)
    assert remove_noted(cluster, note)
    assert (home.exists(), notes_of(cluster)) == (False, [])
    assert not remove_noted(cluster, note)


class _Store:
    """A store that fails as no local directory does for the superuser.

    :param failing: the call that fails.
    """

    protocol = "gs"

    def __init__(self, failing: str, error: OSError, *, exists: bool = True) -> None:
        self.failing, self.error, self.has_directory = failing, error, exists

    def exists(self, path: str) -> bool:
        self._fail("exists")
        return self.has_directory

    def rm(self, path: str, *, recursive: bool) -> None:
        self._fail("rm")

    def rmdir(self, path: str) -> None:
        self._fail("rmdir")

    def _fail(self, call: str) -> None:
        if call == self.failing:
            raise self.error


@pytest.mark.parametrize("failing", ["exists", "rm"])
def test_a_directory_that_cannot_be_removed_keeps_its_note(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    note = Note(kind=Kind.COPY, directory=f"{cluster.root}/d.db/t/copy-1", table="d.t")
    take_note(cluster, note)
    with monkeypatch.context() as patched:
        store = _Store(failing, PermissionError(13, "Permission denied"))
        patched.setattr("airflow_hive_federation.clusters.notes.open_filesystem", lambda *_: (store, "x"))
        with pytest.raises(StorageError, match="copy-1"):
            remove_noted(cluster, note)
    assert [kept.directory for kept in notes_of(cluster)] == [note.directory]


def test_an_empty_directory_may_be_removed_by_another_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "d"
    directory.mkdir()
    (directory / "data").touch()
    assert not remove_empty_directory(f"file:{directory}")
    (directory / "data").unlink()
    stores = [
        _Store("rmdir", FileNotFoundError(2, "No such file or directory")),
        # Object stores have no empty directories.
        _Store("rmdir", PermissionError(13, "Permission denied"), exists=False),
        _Store("rmdir", PermissionError(13, "Permission denied")),
    ]
    monkeypatch.setattr(
        "airflow_hive_federation.storage.empty_directories.open_filesystem", lambda *_: (stores.pop(0), "x")
    )
    assert [remove_empty_directory(f"file:{directory}") for _ in range(2)] == [True, True]
    with pytest.raises(StorageError):
        remove_empty_directory(f"file:{directory}")
    monkeypatch.undo()
    assert remove_empty_directory(f"file:{directory}")
    assert not directory.exists()
