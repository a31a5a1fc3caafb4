"""Records directories of a cluster in notes before it creates them, and removes directories by such notes.

A killed run leaves directories that no metadata names: unpublished copies, plans, and statements in transit.
A note records the owner of each. Apart from copies that metadata named, only directories with a note are
removed: every user who may alter a table may write its parameters, but only users who may write below a
cluster's root can write notes there.

The note names the table by its name, its id and the time of its creation: if the table is renamed, it keeps
its directories, and a later table of its name has no right to them. Before Hive 4, metastores send no ids, so
that a renamed table has no right to them either.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from enum import StrEnum

from airflow_hive_federation.clusters.registry import Cluster
from airflow_hive_federation.errors import ConfigurationError, FileVanishedError, StorageError
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.model import bounded_json, json_values
from airflow_hive_federation.model.content_marks import visible_files
from airflow_hive_federation.model.files import FileEntry
from airflow_hive_federation.model.json_values import (
    Fields,
    JsonObject,
    flag,
    list_of,
    map_of,
    number,
    one_of,
    or_none,
    whole,
)
from airflow_hive_federation.storage.empty_directories import remove_empty_directory
from airflow_hive_federation.storage.filesystem import (
    canonical,
    is_below,
    join,
    open_filesystem,
    reading,
    storage_errors,
)
from airflow_hive_federation.storage.listing import list_directory, list_files
from airflow_hive_federation.storage.options import StorageOptions
from airflow_hive_federation.storage.publishing import remove_file, write_atomically
from airflow_hive_federation.storage.trees import remove_tree

#: The directory below a cluster's root for data in transit; Hive's readers skip such names.
STATE = "_hive_federation"
#: The prefix of the names of directories with copies; a digest follows.
COPY = "copy-"
_IN_COPY = re.compile(rf"(?:.*/)?{COPY}[0-9a-f]{{24}}/", re.DOTALL)
_NOTES = "notes"
#: The number of notes that are read at the same time.
_THREADS = 16


class Kind(StrEnum):
    """The purpose of a directory."""

    COPY = "copy"
    PLAN = "plan"
    STATEMENT = "statement"
    FORMER_PRIMARY = "former primary"


@dataclass(frozen=True, kw_only=True)
class Note:
    """A directory of a cluster, and its owner.

    :param directory: the URI of the directory.
    :param table: ``database.table``; empty for statements.
    :param files: the sizes and modification times of a former primary's files, by path; only these files are
        removed from its directory.
    :param taken_s: the time of the note, in seconds since 1970. The note of a copy is taken anew before
        metadata stops naming the copy.
    :param created_s: the time of the table's creation, in seconds since 1970; 0 if it is not known.
    :param table_id: the metastore's id of the table; 0 before Hive 4, which has no ids.
    :param partition: the name of the partition that a change of the primary moves from a former primary;
        empty for a table without partitions.
    :param partition_created_s: the time of this partition's creation, in seconds since 1970.
    :param becomes_primary: a change of the primary is making the directory that of the primary, or has made
        it. Such a directory is never removed by the note.
    :param dropped_s: the time, in seconds since 1970 by the metastore's clock, at which the table was dropped
        with all that it owned, by an event of the metastore; 0 without such an event.
    :param primary: the URI of the directory from which a copy was made; empty for transactional tables.
    :param primary_listing: the digest of the paths, sizes and modification times of the files in ``primary``.
    :param content: the digest of the paths and sizes of these files; it is also that of the copy.
    :param only_beside_primary: Hive may have left files of the dropped table in the directory. It is removed
        only while ``primary`` has the same files.
    """

    kind: Kind
    directory: str
    table: str = ""
    files: Mapping[str, Sequence[int]] | None = None
    taken_s: float = 0.0
    created_s: int = 0
    table_id: int = 0
    partition: str = ""
    partition_created_s: int = 0
    becomes_primary: bool = False
    dropped_s: float = 0.0
    primary: str = ""
    primary_listing: str = ""
    content: str = ""
    only_beside_primary: bool = False

    @classmethod
    def of(
        cls,
        table: types.Table,
        kind: Kind,
        directory: str,
        *,
        files: Mapping[str, Sequence[int]] | None = None,
    ) -> Note:
        """Return the note of a table's directory."""
        return cls(
            kind=kind,
            directory=directory,
            table=f"{table.dbName}.{table.tableName}",
            files=files,
            created_s=table.createTime or 0,
            table_id=table.id or 0,
        )

    @classmethod
    def from_json(cls, value: object) -> Note:
        """Read a note; those of earlier versions lack fields.

        :raises ValueError: a field is not known, has another type, or is missing and needed.
        """
        fields = Fields(value)
        fields.refuse_others(_FIELDS)
        return cls(
            kind=fields.needed("kind", one_of(Kind)),
            directory=fields.needed("directory", json_values.text),
            table=fields.optional("table", json_values.text, default=""),
            files=fields.optional("files", _FILES, default=None),
            taken_s=fields.optional("taken_s", number, default=0.0),
            created_s=fields.optional("created_s", whole, default=0),
            table_id=fields.optional("table_id", whole, default=0),
            partition=fields.optional("partition", json_values.text, default=""),
            partition_created_s=fields.optional("partition_created_s", whole, default=0),
            becomes_primary=fields.optional("becomes_primary", flag, default=False),
            dropped_s=fields.optional("dropped_s", number, default=0.0),
            primary=fields.optional("primary", json_values.text, default=""),
            primary_listing=fields.optional("primary_listing", json_values.text, default=""),
            content=fields.optional("content", json_values.text, default=""),
            only_beside_primary=fields.optional("only_beside_primary", flag, default=False),
        )

    def to_json(self) -> JsonObject:
        return asdict(self)

    def is_of(self, table: types.Table) -> bool:
        """Return whether the note is of this table, and not of another one that had its name.

        A table keeps its id, and the time of its creation, when it is renamed.
        """
        if self.created_s == 0 or self.created_s != table.createTime:
            return False
        if self.table_id and table.id:
            return self.table_id == table.id
        return self.table == f"{table.dbName}.{table.tableName}"

    def is_of_namer(self, table: types.Table) -> bool:
        """Return whether the note is of this table, whose metadata names the directory as a copy.

        Notes of earlier versions lack the table's identity: their table existed when they were taken. A later
        table of its name may have its parameters by ``CREATE TABLE ... LIKE``, but was created after that.
        """
        return self.is_of(table) or (
            not self.created_s
            and self.table == f"{table.dbName}.{table.tableName}"
            and 0 < (table.createTime or 0) <= self.taken_s
        )


_FIELDS = frozenset(Note.__dataclass_fields__)
_FILES = or_none(map_of(json_values.text, list_of(whole)))


@dataclass(frozen=True, kw_only=True)
class DamagedNote:
    """A file among the notes of a cluster that is no usable note.

    :param uri: the URI of the file.
    :param reason: a clause about the file.
    :param table: the table that it names, ``database.table``; empty if it names none.
    """

    uri: str
    reason: str
    table: str = ""
    remedy: str = "Find and stop the writer of the note, and remove the note."

    def error(self) -> StorageError:
        """Return the error that names the file."""
        return StorageError(f"{self.uri} {self.reason}.", remedy=self.remedy, path=self.uri)


def state_of(cluster: Cluster) -> str:
    """Return the URI of a cluster's directory for data in transit."""
    return join(cluster.root, STATE)


def uri_of_note(cluster: Cluster, note: Note) -> str:
    """Return the URI of the file that holds a note."""
    return _uri(cluster, note.kind, note.directory)


def take_note(cluster: Cluster, note: Note, options: StorageOptions | None = None) -> None:
    """Write a note, before its directory is created.

    :raises StorageError: the note cannot be written.
    """
    noted = replace(note, taken_s=note.taken_s or time.time())
    text = json.dumps(noted.to_json())
    write_atomically(_uri(cluster, note.kind, note.directory), [text.encode()], options, private=True)


def forget(cluster: Cluster, kind: Kind, directory: str, options: StorageOptions | None = None) -> None:
    """Remove the note of a removed directory, if it exists.

    :raises StorageError: the note cannot be removed.
    """
    remove_file(_uri(cluster, kind, directory), options)


def note_of(
    cluster: Cluster, kind: Kind, directory: str, options: StorageOptions | None = None
) -> Note | None:
    """Return the note of a directory; ``None`` if it has none.

    :raises StorageError: the note cannot be read.
    """
    note = _read(cluster, _name(kind, directory), options)
    if isinstance(note, DamagedNote):
        raise note.error()
    return note


def notes_of(
    cluster: Cluster, options: StorageOptions | None = None, *, kind: Kind | None = None
) -> list[Note]:
    """Return the notes of a cluster.

    :param kind: the kind of the notes; ``None`` means all kinds.
    :raises StorageError: a file cannot be read, or is no note.
    """
    notes, damaged_notes = read_notes(cluster, options, kind=kind)
    for damaged in damaged_notes:
        raise damaged.error()
    return notes


def read_notes(
    cluster: Cluster, options: StorageOptions | None = None, *, kind: Kind | None = None
) -> tuple[list[Note], list[DamagedNote]]:
    """Return the notes of a cluster, and the files among them that are no notes.

    :param kind: the kind of the notes; ``None`` means all kinds.
    :raises StorageError: a file cannot be read.
    """
    names = [name for name in _names(cluster, options) if kind is None or name.startswith(_prefix(kind))]
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="notes") as threads:
        read = list(threads.map(lambda name: _read(cluster, name, options), names))
    return [note for note in read if isinstance(note, Note)], [
        note for note in read if isinstance(note, DamagedNote)
    ]


def noted(cluster: Cluster, kind: Kind, options: StorageOptions | None = None) -> Callable[[str], bool]:
    """Return a function that returns whether a directory has a note of a kind, by one listing of the notes.

    :raises StorageError: the notes cannot be listed.
    """
    names = frozenset(_names(cluster, options))
    return lambda directory: _name(kind, directory) in names


def _names(cluster: Cluster, options: StorageOptions | None) -> list[str]:
    entries = list_directory(join(state_of(cluster), _NOTES), options=options)
    return sorted(name for name in entries if name.endswith(".json"))


def _read(cluster: Cluster, name: str, options: StorageOptions | None) -> Note | DamagedNote | None:
    """Return the note in a file; ``None`` if its directory was removed after the names were listed."""
    uri = join(state_of(cluster), _NOTES, name)
    try:
        with reading(uri, options) as file:
            text = file.read()
    except FileVanishedError:
        return None
    try:
        note = Note.from_json(bounded_json.loads(text))
        ours = _name(note.kind, note.directory) == name and is_in_place(note, cluster)
    except (ConfigurationError, ValueError):
        return DamagedNote(uri=uri, reason="is not a note of a directory")
    if not ours:
        reason = f"is a note of another directory, {note.directory}"
        return DamagedNote(uri=uri, reason=reason, table=note.table)
    return note


def foreign_files(note: Note, options: StorageOptions | None = None) -> list[str]:
    """Return the files in a former primary's directory that others have written there since its note.

    Later copies to its cluster may lie in directories below it; their files are not those of others.

    :raises StorageError: the directory cannot be listed.
    """
    listing = list_files(note.directory, options=options, missing_ok=True)
    return [
        entry.path
        for entry in visible_files(listing)
        if not _is_noted(note, entry) and not _IN_COPY.match(entry.path)
    ]


def remove_noted(cluster: Cluster, note: Note, options: StorageOptions | None = None) -> bool:
    """Remove the directory of a note, and the note; return whether the directory existed.

    From a former primary's directory, it removes only noted files that have not changed.

    :raises StorageError: the directory, a file or the note cannot be removed.
    """
    filesystem, path = open_filesystem(note.directory, options)
    with storage_errors(note.directory):
        exists = bool(filesystem.exists(path))
    if exists and note.kind is Kind.FORMER_PRIMARY:
        _remove_files(note, list_files(note.directory, options=options), options)
    elif exists:
        with storage_errors(note.directory):
            remove_tree(filesystem, path)
    forget(cluster, note.kind, note.directory, options)
    return exists


def _remove_files(note: Note, listing: Sequence[FileEntry], options: StorageOptions | None) -> None:
    for entry in listing:
        if _is_noted(note, entry):
            remove_file(join(note.directory, entry.path), options)
    remove_empty_directory(note.directory, options)


def _is_noted(note: Note, entry: FileEntry) -> bool:
    return list((note.files or {}).get(entry.path, ())) == [entry.size_bytes, entry.modified_ns]


def is_in_place(note: Note, cluster: Cluster) -> bool:
    """Return whether a directory lies in the place for directories of its kind."""
    inner = canonical(note.directory).removeprefix(canonical(cluster.root)).strip("/").split("/")
    if not is_below(note.directory, cluster.root):
        return False
    if note.kind is Kind.COPY:
        return len(inner) > 2 and inner[-1].startswith(COPY)
    if note.kind is Kind.FORMER_PRIMARY:
        return note.files is not None
    return len(inner) == 2 and inner[0] == STATE and inner[1] != _NOTES


def _uri(cluster: Cluster, kind: Kind, directory: str) -> str:
    return join(state_of(cluster), _NOTES, _name(kind, directory))


def _name(kind: Kind, directory: str) -> str:
    digest = hashlib.sha256(canonical(directory).encode("utf-8", "surrogateescape")).hexdigest()[:32]
    return f"{_prefix(kind)}{digest}.json"


def _prefix(kind: Kind) -> str:
    return f"{kind.value.replace(' ', '-')}-"
