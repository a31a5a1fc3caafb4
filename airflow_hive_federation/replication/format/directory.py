"""Reads and writes a dump: a directory on shared storage that can be inspected, resumed and checked.

::

    <dump_root>/<policy>/<event id>-<moment>/
        _begun.json               the policy, and the event after which increments begin
        database.json             the database
        functions.jsonl           its permanent functions
        tables/<table>.json       table, kind, write ids, constraints, counts
        partitions/<table>.jsonl  its partitions, one per line, column statistics included
        files/<table>.jsonl       the files a reader of the snapshot sees, one per line
        _external_tables_info     the locations of external tables, by the design of replication V2
        _manifest.json            digest of every file above
        _finished_dump            the dump is whole (the name is Hive's)
        load/                     copy plan and outcomes of the load
        _finished_load            the load is published (the name is Hive's)

A writer writes each file under a temporary name of its own, and renames the file once it is on the disk;
``_finished_dump`` comes last. If the store has modes, only the owner of a dump may enter its directory and
read its files.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, NoReturn
from urllib.parse import quote

from airflow_hive_federation.errors import DumpCorruptError, DumpIncompleteError
from airflow_hive_federation.model import bounded_json
from airflow_hive_federation.replication.format import documents
from airflow_hive_federation.replication.format.documents import Check
from airflow_hive_federation.replication.format.files import VisibleFile
from airflow_hive_federation.replication.format.manifest import (
    FORMAT_VERSION,
    MAX_MANIFEST_VALUES,
    Manifest,
    UnknownFormatError,
)
from airflow_hive_federation.storage.filesystem import open_filesystem, storage_errors
from airflow_hive_federation.storage.publishing import PRIVATE_FILE, make_private, publishing

_MANIFEST = "_manifest.json"
_FINISHED_DUMP = "_finished_dump"
_FINISHED_LOAD = "_finished_load"
#: Lines that are parsed together take a third of the time.
_LINES_AT_A_TIME = 1000


class DumpDirectory:
    """Reads and writes one dump.

    :param uri: URI of the directory.
    :param options: storage options (fsspec).
    """

    def __init__(self, uri: str, options: Mapping[str, Any] | None = None) -> None:
        self.uri = uri.rstrip("/")
        self.options = options
        self._filesystem, self._path = open_filesystem(self.uri, options)
        self._digests: dict[str, str] = {}
        self._expected: Mapping[str, str] | None = None
        self._is_private = False

    # -- writing ---------------------------------------------------------------------------------------

    def write_json(self, name: str, value: Any) -> None:
        """Write one JSON document, which becomes part of the manifest."""
        self._write(name, [json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n"])

    def write_lines(self, name: str, values: Iterable[Any]) -> int:
        """Write JSON lines, and return their number."""
        count = 0

        def lines() -> Iterator[str]:
            nonlocal count
            for value in values:
                count += 1
                yield json.dumps(value, sort_keys=True, ensure_ascii=False) + "\n"

        self._write(name, lines())
        return count

    def add_lines(self, name: str, values: Iterable[Any]) -> None:
        """Write JSON lines beside a finished dump, outside of its manifest."""
        self._write(name, (json.dumps(value, sort_keys=True, ensure_ascii=False) + "\n" for value in values))

    def write_text(self, name: str, text: str | Iterable[str]) -> None:
        """Write a text file, given as a whole or in parts, which becomes part of the manifest."""
        self._write(name, [text] if isinstance(text, str) else text)

    def finish_dump(self, manifest: Manifest) -> Manifest:
        """Seal the dump: write the manifest, with the digests of the files, then the acknowledgement.

        :return: the manifest as it was written.
        """
        sealed = replace(manifest, files=self._digests)
        text = json.dumps(sealed.to_json(), indent=1, sort_keys=True, ensure_ascii=False) + "\n"
        self._write(_MANIFEST, [text])
        self._write(_FINISHED_DUMP, [_digest(text) + "\n"])
        return sealed

    def finish_load(self, facts: Mapping[str, Any]) -> None:
        """Acknowledge that the dump is loaded and published."""
        self._write(_FINISHED_LOAD, [json.dumps(facts, sort_keys=True) + "\n"])

    # -- reading ---------------------------------------------------------------------------------------

    @property
    def dump_finished(self) -> bool:
        """Return whether the dump is whole."""
        return self.exists(_FINISHED_DUMP)

    @property
    def loaded_into(self) -> str:
        """Return the database that the dump was loaded into; empty without a readable acknowledgement."""
        try:
            acknowledgement = bounded_json.loads(self._read(_FINISHED_LOAD))
            documents.check_finished_load(acknowledgement)
        except (DumpCorruptError, ValueError):
            return ""
        return str(acknowledgement["database"])

    def exists(self, name: str) -> bool:
        with storage_errors(f"{self.uri}/{name}"):
            return bool(self._filesystem.exists(f"{self._path}/{name}"))

    def manifest(self) -> Manifest:
        """Return the manifest that :meth:`finish_dump` recorded.

        :raises DumpIncompleteError: the dump has no acknowledgement.
        :raises DumpCorruptError: the manifest is not the acknowledged one, or of another format.
        """
        if not self.dump_finished:
            raise DumpIncompleteError(
                f"Dump {self.uri} is not finished: it has no {_FINISHED_DUMP}.",
                remedy="Run the dump again; it goes on where it stopped.",
                dump=self.uri,
            )
        if not self.exists(_MANIFEST):
            raise self._corrupt(_MANIFEST, "it is missing")
        text = self._read(_MANIFEST)
        if _digest(text) != self._read(_FINISHED_DUMP).strip():
            raise self._corrupt(_MANIFEST, "its digest is not the one acknowledged")
        try:
            value: object = bounded_json.loads(text, max_values=MAX_MANIFEST_VALUES)
        except ValueError as error:
            raise self._corrupt(_MANIFEST, f"it is not JSON ({error})") from error
        if not isinstance(value, dict):
            raise self._corrupt(_MANIFEST, "it is no JSON object")
        try:
            manifest = Manifest.from_json(value)
        except UnknownFormatError as error:
            raise DumpCorruptError(
                f"Dump {self.uri} has format {error.version}; this version reads {FORMAT_VERSION}.",
                remedy="Load it with the version that wrote it, or dump again.",
                dump=self.uri,
            ) from error
        except ValueError as error:
            self.refuse(_MANIFEST, str(error))
        self._expected = manifest.files
        return manifest

    def read_json(self, name: str) -> Any:
        """Return one JSON document of the dump, checked against the manifest.

        :raises DumpCorruptError: the document is missing, truncated or changed, or has names or paths that
            lead elsewhere (see :mod:`.documents`).
        """
        self._check(name)
        text = self._read(name)
        try:
            document = bounded_json.loads(text)
        except ValueError as error:
            raise self._corrupt(name, f"it is not JSON ({error})") from error
        self._checked(documents.check_of(name), name, document)
        return document

    def read_text(self, name: str) -> str:
        """Return one text file of the dump, checked against the manifest.

        :raises DumpCorruptError: as :meth:`read_json`.
        """
        self._check(name)
        return self._read(name)

    def read_lines(self, name: str) -> Iterator[Any]:
        """Yield JSON lines of the dump, checked against the manifest.

        :raises DumpCorruptError: as :meth:`read_json`.
        """
        self._check(name)
        yield from self.read_report(name)

    def read_report(self, name: str) -> Iterator[Any]:
        """Yield JSON lines that a later step wrote into the dump's directory, outside of the manifest.

        :raises DumpCorruptError: a line is not JSON, or has names or paths that lead elsewhere.
        """
        check = documents.check_of(name)
        with (
            storage_errors(f"{self.uri}/{name}"),
            self._filesystem.open(f"{self._path}/{name}", "rb") as file,
        ):
            lines, number = iter(file), 0
            while batch := list(islice(lines, _LINES_AT_A_TIME)):
                values = _parsed_together(batch) or self._parsed_singly(name, batch, number)
                for line, value in enumerate(values, number + 1):
                    self._checked(check, name, value, line)
                    yield value
                number += len(batch)

    def refuse(self, name: str, why: str, line: int = 0) -> NoReturn:
        """Refuse a document that matches its digest but has content that no dump has.

        :param name: path inside the dump's directory.
        :param why: the error in its content.
        :param line: number of the line, from 1 on; 0 for the document as a whole.
        :raises DumpCorruptError: always.
        """
        raise DumpCorruptError(
            f"Dump {self.uri}: {name} cannot be used: {f'line {line}: ' if line else ''}{why}.",
            remedy="Find out who wrote it: only Airflow and Spark may write into a dump. Restore the file; "
            "or, if nothing was published from the dump, delete its directory and dump again.",
            dump=self.uri,
            file=name,
            line=line,
        )

    # -- inside ----------------------------------------------------------------------------------------

    def _parsed_singly(self, name: str, lines: Sequence[bytes], before: int) -> Iterator[Any]:
        for number, line in enumerate(lines, before + 1):
            try:
                yield bounded_json.loads(line)
            except ValueError as error:
                raise self._corrupt(name, f"line {number} is not JSON ({error})") from error

    def _checked(self, check: Check | None, name: str, value: Any, line: int = 0) -> None:
        if check is None:
            return
        try:
            check(value)
        except ValueError as error:
            self.refuse(name, str(error), line)

    def _write(self, name: str, chunks: Iterable[str]) -> None:
        uri, digest = f"{self.uri}/{name}", hashlib.sha256()
        self._make_private()
        with publishing(uri, self.options, mode=PRIVATE_FILE) as file, storage_errors(uri):
            for chunk in chunks:
                data = chunk.encode()
                digest.update(data)
                file.write(data)
        self._digests[name] = digest.hexdigest()

    def _make_private(self) -> None:
        if not self._is_private:
            make_private(self.uri, self.options)
            self._is_private = True

    def _read(self, name: str) -> str:
        with storage_errors(f"{self.uri}/{name}"):
            data: bytes = self._filesystem.cat_file(f"{self._path}/{name}")
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise self._corrupt(name, f"it is not UTF-8 text ({error})") from error

    def _check(self, name: str) -> None:
        if self._expected is None:
            self.manifest()
        expected = (self._expected or {}).get(name)
        if expected is None or not self.exists(name):
            raise self._corrupt(name, "it is missing")
        digest = hashlib.sha256()
        with (
            storage_errors(f"{self.uri}/{name}"),
            self._filesystem.open(f"{self._path}/{name}", "rb") as file,
        ):
            while chunk := file.read(1 << 20):
                digest.update(chunk)
        if digest.hexdigest() != expected:
            raise self._corrupt(name, "its digest is not the manifest's: it was truncated or changed")

    def _corrupt(self, name: str, why: str) -> DumpCorruptError:
        return DumpCorruptError(
            f"Dump {self.uri}: {name} cannot be used: {why}.",
            remedy="Delete the dump directory and run the dump again; nothing was published from it.",
            dump=self.uri,
            file=name,
        )


def table_file(folder: str, table: str, suffix: str) -> str:
    """Return the name of a table's file in a dump; characters that file systems do not accept are quoted."""
    return f"{folder}/{quote(table, safe='')}{suffix}"


def dumped_files(directory: DumpDirectory, table: str) -> Iterator[VisibleFile]:
    """Yield the files of one table of a dump."""
    return (VisibleFile(**line) for line in directory.read_lines(table_file("files", table, ".jsonl")))


def _parsed_together(lines: Sequence[bytes]) -> list[Any]:
    """Parse lines of JSON as one array; return an empty list if that array has another number of values."""
    try:
        values: list[Any] = bounded_json.loads(b"[" + b",".join(lines) + b"]")
    except ValueError:
        return []
    return values if len(values) == len(lines) else []


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
