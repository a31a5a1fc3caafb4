"""Notes of directories, taken in a cluster before the directories are made, and removals by such notes.

A run that is killed leaves directories that no metadata names: copies that were not published, plans, and
statements on their way. A note says whose they are. Nothing is removed that no note says, but for copies that
metadata named: everybody who may alter a table may write its parameters, and only those who may write below
a cluster's root may take notes there.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from airflow_hive_federation.clusters.registry import Cluster
from airflow_hive_federation.errors import StorageError
from airflow_hive_federation.model import bounded_json
from airflow_hive_federation.model.files import FileEntry
from airflow_hive_federation.storage.filesystem import (
    canonical,
    is_below,
    join,
    open_filesystem,
    reading,
    storage_errors,
)
from airflow_hive_federation.storage.listing import has_entries, list_directory, list_files
from airflow_hive_federation.storage.publishing import remove_file, write_atomically

#: Directory below a cluster's root for what is on its way; Hive's readers pass over such names.
STATE = "_hive_federation"
#: Names of directories of copies begin so.
COPY = "copy-"
_NOTES = "notes"


class Kind(StrEnum):
    """The reason why a directory is there."""

    COPY = "copy"
    PLAN = "plan"
    STATEMENT = "statement"
    FORMER_PRIMARY = "former primary"


@dataclass(frozen=True, kw_only=True)
class Note:
    """A directory of a cluster, and whose it is.

    :param directory: its URI.
    :param table: ``database.table``; empty for statements.
    :param files: sizes and modification times of a former primary's files, by path; none else is removed of
        its directory.
    :param taken_s: the moment when the note was taken, in seconds since 1970.
    """

    kind: Kind
    directory: str
    table: str = ""
    files: Mapping[str, Sequence[int]] | None = None
    taken_s: float = 0.0


def state_of(cluster: Cluster) -> str:
    """URI of the directory of a cluster for what is on its way."""
    return join(cluster.root, STATE)


def take_note(cluster: Cluster, note: Note, options: Mapping[str, Any] | None = None) -> None:
    """Write a note, before its directory is made.

    :raises StorageError: it cannot be written.
    """
    text = json.dumps({**asdict(note), "taken_s": note.taken_s or time.time()})
    write_atomically(_uri(cluster, note.directory), [text.encode()], options, private=True)


def forget(cluster: Cluster, directory: str, options: Mapping[str, Any] | None = None) -> None:
    """Remove the note of a directory that is gone, if there is one.

    :raises StorageError: it cannot be removed.
    """
    remove_file(_uri(cluster, directory), options)


def note_of(cluster: Cluster, directory: str, options: Mapping[str, Any] | None = None) -> Note | None:
    """The note of a directory.

    :raises StorageError: it cannot be read.
    """
    name = _name(directory)
    return next((one for one in notes_of(cluster, options, [name])), None)


def notes_of(
    cluster: Cluster, options: Mapping[str, Any] | None = None, names: Sequence[str] | None = None
) -> Iterator[Note]:
    """The notes of a cluster.

    :param names: of files; all of them if ``None``.
    :raises StorageError: one cannot be read, or is no note.
    """
    home = join(state_of(cluster), _NOTES)
    there = list_directory(home, options=options)
    for name in sorted(there if names is None else set(names) & set(there)):
        if not name.endswith(".json"):
            continue
        uri = join(home, name)
        with reading(uri, options) as file:
            text = file.read()
        try:
            found = bounded_json.loads(text)
            note = Note(**{**found, "kind": Kind(found["kind"])})
            ours = _name(note.directory) == name and _is_of(note, cluster)
        except (ValueError, KeyError, TypeError) as error:
            raise StorageError(f"{uri} is no note of a directory.", path=uri) from error
        if not ours:
            raise StorageError(
                f"{uri} is a note of another directory, {note.directory}.",
                remedy="See who writes there, and remove the note.",
                path=uri,
            )
        yield note


def remove_noted(cluster: Cluster, note: Note, options: Mapping[str, Any] | None = None) -> bool:
    """Remove the directory of a note, and the note; return whether there was a directory.

    Of a former primary's directory, the noted files are removed that are as they were.

    :raises StorageError: something cannot be removed.
    """
    filesystem, path = open_filesystem(note.directory, options)
    with storage_errors(note.directory):
        there = bool(filesystem.exists(path))
    if there and note.kind is Kind.FORMER_PRIMARY:
        _remove_files(note, list_files(note.directory, options=options), options)
    elif there:
        with storage_errors(note.directory):
            filesystem.rm(path, recursive=True)
    forget(cluster, note.directory, options)
    return there


def _remove_files(note: Note, listing: Sequence[FileEntry], options: Mapping[str, Any] | None) -> None:
    noted = note.files or {}
    for one in listing:
        if list(noted.get(one.path, ())) == [one.size_bytes, one.modified_ns]:
            remove_file(join(note.directory, one.path), options)
    if not has_entries(note.directory, options=options):
        filesystem, path = open_filesystem(note.directory, options)
        with storage_errors(note.directory):
            # Object stores have no empty directories.
            if filesystem.exists(path):
                filesystem.rmdir(path)


def _is_of(note: Note, cluster: Cluster) -> bool:
    """Return whether a directory lies where such directories are made."""
    inner = canonical(note.directory).removeprefix(canonical(cluster.root)).strip("/").split("/")
    if not is_below(note.directory, cluster.root):
        return False
    if note.kind is Kind.COPY:
        return len(inner) > 2 and inner[-1].startswith(COPY)
    if note.kind is Kind.FORMER_PRIMARY:
        return note.files is not None
    return len(inner) == 2 and inner[0] == STATE and inner[1] != _NOTES


def _uri(cluster: Cluster, directory: str) -> str:
    return join(state_of(cluster), _NOTES, _name(directory))


def _name(directory: str) -> str:
    return f"{hashlib.sha256(canonical(directory).encode('utf-8', 'surrogateescape')).hexdigest()[:32]}.json"
