"""Reads and writes the published documents below a directory on any store that the package knows."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar, cast
from urllib.parse import quote

from airflow_hive_federation.errors import FileVanishedError, StorageError
from airflow_hive_federation.published import documents
from airflow_hive_federation.published.documents import (
    PolicyCycles,
    PolicyName,
    PolicyPosition,
    PolicyTables,
    PolicyVerification,
    VerifiedTables,
    versioned,
)
from airflow_hive_federation.storage.options import StorageOptions

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

D = TypeVar("D", bound="DataclassInstance")

#: Folder of the documents about replication policies.
REPLICATION = "replication"
_SUFFIX = ".json"
#: Longest part of a name in the name of a file; the digest behind it distinguishes names.
_SHOWN = 60


@dataclass(frozen=True)
class Subject(Generic[D]):
    """A kind of document: the end of its file's name, and its reader."""

    name: str
    read: Callable[[object], D] = field(hash=False)


POSITION: Subject[PolicyPosition] = Subject("position", documents.read_position)
TABLES: Subject[PolicyTables] = Subject("tables", documents.read_tables)
CYCLES: Subject[PolicyCycles] = Subject("cycles", documents.read_cycles)
VERIFICATION: Subject[PolicyVerification] = Subject("verification", documents.read_verification)
VERIFIED: Subject[VerifiedTables] = Subject("verified", documents.read_verified)


def key_of(*names: str) -> str:
    """Return the key of an object: a name for files and URLs that no other object has.

    :param names: the names of the object, which may have any characters.
    """
    digest = hashlib.sha256(json.dumps(names).encode()).hexdigest()[:16]
    # A percent sign would be escaped again in a URL.
    quoted = quote(names[0], safe="", errors="replace")[:_SHOWN]
    shown = "".join(sign if sign.isalnum() or sign == "-" else "_" for sign in quoted)
    return f"{shown}-{digest}"


def policy_key(policy: PolicyName) -> str:
    """Return the key of a replication policy: two targets of one name have different ones."""
    return key_of(policy.name, policy.target_database)


class StateDirectory:
    """The directory of the published documents.

    :param uri: its URI.
    :param options: storage options (fsspec).
    """

    def __init__(self, uri: str, options: StorageOptions | None = None) -> None:
        self.uri = uri
        self._options = options

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.uri!r})"

    def write(self, folder: str, key: str, subject: Subject[D], document: D) -> None:
        """Replace a document, completely or not at all.

        :raises StorageError: it cannot be written.
        """
        from airflow_hive_federation.storage.publishing import write_atomically

        content = json.dumps(versioned(document), separators=(",", ":")).encode()
        write_atomically(self._file(folder, key, subject.name), [content], self._options)

    def read(self, folder: str, key: str, subject: Subject[D]) -> D | None:
        """Return a document; ``None`` if nobody has published it.

        :raises StorageError: it cannot be read, or is no document of a version that this package knows.
        """
        from airflow_hive_federation.storage.filesystem import reading

        uri = self._file(folder, key, subject.name)
        try:
            with reading(uri, self._options) as file:
                content = file.read()
        except FileVanishedError:
            return None
        try:
            document = _documents.parsed(uri, subject, content)
        except ValueError as error:
            raise StorageError(
                f"The published state {uri} cannot be read: {error}.",
                remedy="Install the same version of the package in Airflow's API server as in its workers, "
                "or remove the file: the next publication makes it anew.",
                path=uri,
            ) from error
        return document

    def readable(self, folder: str, key: str, subject: Subject[D]) -> D | None:
        """Return a document; ``None`` if nobody has published it, or if its content cannot be read."""
        try:
            return self.read(folder, key, subject)
        except StorageError as error:
            if isinstance(error.__cause__, ValueError):
                return None
            raise

    def remove(self, folder: str, key: str) -> None:
        """Remove all documents of an object, because a person says so.

        :raises StorageError: a document cannot be removed.
        """
        from airflow_hive_federation.storage.filesystem import join
        from airflow_hive_federation.storage.listing import list_directory
        from airflow_hive_federation.storage.publishing import remove_file

        place = join(self.uri, folder)
        for name in list_directory(place, options=self._options):
            if name.removesuffix(_SUFFIX).rpartition(".")[0] == key:
                remove_file(join(place, name), self._options)

    def keys(self, folder: str) -> Collection[str]:
        """Return the keys of the objects of a folder, in their order.

        :raises StorageError: the folder cannot be listed.
        """
        from airflow_hive_federation.storage.filesystem import join
        from airflow_hive_federation.storage.listing import list_directory

        names = list_directory(join(self.uri, folder), options=self._options)
        found = (name.removesuffix(_SUFFIX).rpartition(".")[0] for name in names if name.endswith(_SUFFIX))
        return sorted({key for key in found if key and not key.startswith(".")})

    def _file(self, folder: str, key: str, subject: str) -> str:
        from airflow_hive_federation.storage.filesystem import join_below

        return join_below(self.uri, folder, f"{key}.{subject}{_SUFFIX}")


#: The most bytes of documents that a process keeps parsed.
_KEPT_BYTES = 16 << 20


class _ParsedDocuments:
    """The parsed documents of a process, by URI: the page asks for the same ones again and again.

    :param most_bytes: the most bytes of documents that are kept; those that were read last stay.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._kept: dict[str, tuple[bytes, int, object]] = {}
        self._size_bytes = 0
        self._lock = threading.Lock()

    def parsed(self, uri: str, subject: Subject[D], content: bytes) -> D:
        """Parse a document, unless it is kept.

        :raises ValueError: it is no such document.
        """
        digest = hashlib.sha256(content).digest()
        with self._lock:
            kept = self._kept.get(uri)
        if kept is not None and kept[0] == digest:
            return cast("D", kept[2])
        document = subject.read(json.loads(content))
        with self._lock:
            self._forget(uri)
            self._kept[uri] = (digest, len(content), document)
            self._size_bytes += len(content)
            while self._size_bytes > self._most_bytes and len(self._kept) > 1:
                self._forget(next(iter(self._kept)))
        return document

    def _forget(self, uri: str) -> None:
        if (kept := self._kept.pop(uri, None)) is not None:
            self._size_bytes -= kept[1]


_documents = _ParsedDocuments(_KEPT_BYTES)
