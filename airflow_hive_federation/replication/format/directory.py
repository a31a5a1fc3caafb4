"""Reads and writes a dump: a directory on shared storage that can be inspected, resumed and checked.

::

    <dump_root>/<policy>/<event id>-<moment>/
        _begun.json               the policy, and the event after which increments begin
        database.json             the database
        functions.jsonl           its permanent functions
        tables/<table>.json       table, kind, write ids, constraints, counts
        partitions/<table>.jsonl  its partitions, one per line, column statistics included
        files/<table>.jsonl       the files a reader of the snapshot sees, one per line
        partition_states/<table>.jsonl  names of all its partitions, size and digest of their directories
        _external_tables_info     the locations of external tables, by the design of replication V2
        _manifest.json            digest of every file above
        _finished_dump            the dump is whole (the name is Hive's)
        load/                     copy plan and outcomes of the load
        _finished_load            the load is published (the name is Hive's)

The dump of an increment may describe only the partitions that its cycle concerned, and name the earlier dumps
that describe the others: this class reads all of them as one (see :mod:`.layers`).

A writer writes each file under a temporary name of its own, and renames the file once it is on the disk;
``_finished_dump`` comes last. If the store has modes, only the owner of a dump may enter its directory and
read its files.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import NoReturn, TypeVar

from airflow_hive_federation.errors import DumpCorruptError, DumpIncompleteError
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.metastore.wire import to_json
from airflow_hive_federation.model import bounded_json
from airflow_hive_federation.model.json_values import Reader
from airflow_hive_federation.replication.format.files import CopiedFile, PlacedTime, VisibleFile
from airflow_hive_federation.replication.format.layers import layers
from airflow_hive_federation.replication.format.manifest import (
    FORMAT_VERSION,
    MAX_MANIFEST_VALUES,
    FinishedLoad,
    Manifest,
    TableEntry,
    UnknownFormatError,
)
from airflow_hive_federation.replication.format.tables import (
    EndedTransaction,
    PartitionLine,
    PartitionTotals,
    TableDocument,
    read_database,
    read_function,
    read_write,
    table_file,
)
from airflow_hive_federation.storage.digests import digest_file
from airflow_hive_federation.storage.filesystem import open_filesystem, storage_errors
from airflow_hive_federation.storage.options import StorageOptions
from airflow_hive_federation.storage.publishing import PRIVATE_FILE, make_private, publishing

T = TypeVar("T")

_DATABASE = "database.json"
_FUNCTIONS = "functions.jsonl"
_ENDS = "ends.jsonl"
_MANIFEST = "_manifest.json"
_FINISHED_DUMP = "_finished_dump"
FINISHED_LOAD = "_finished_load"
#: Lines that are parsed together take a third of the time.
_LINES_AT_A_TIME = 1000


class DumpDirectory:
    """Reads and writes one dump.

    :param uri: URI of the directory.
    :param options: storage options (fsspec).
    """

    def __init__(self, uri: str, options: StorageOptions | None = None) -> None:
        self.uri = uri.rstrip("/")
        self.options = options
        self._filesystem, self._path = open_filesystem(self.uri, options)
        self._digests: dict[str, str] = {}
        self._expected: Mapping[str, str] | None = None
        self._entries: Mapping[str, TableEntry] = {}
        self._is_private = False

    # -- writing ---------------------------------------------------------------------------------------

    def write_database(self, database: types.Database) -> None:
        """Write the database itself."""
        self.write_json(_DATABASE, to_json(database))

    def write_functions(self, functions: Iterable[types.Function]) -> None:
        """Write the permanent functions of the database."""
        self.write_lines(_FUNCTIONS, map(to_json, functions))

    def write_table(self, document: TableDocument) -> None:
        """Write the document of a table."""
        self.write_json(table_file("tables", document.name, ".json"), document.to_json())

    def write_partitions(self, table: str, lines: Iterable[PartitionLine]) -> None:
        """Write the partitions of a table."""
        self.write_lines(table_file("partitions", table, ".jsonl"), (line.to_json() for line in lines))

    def write_files(self, table: str, files: Iterable[VisibleFile]) -> int:
        """Write the files of a table, and return their number."""
        return self.write_lines(table_file("files", table, ".jsonl"), (file.to_json() for file in files))

    def write_totals(self, table: str, totals: Iterable[PartitionTotals]) -> None:
        """Write the names of all partitions of a table, with the number and size of their files."""
        self.write_lines(PartitionTotals.file_of(table), totals)

    def write_ends(self, ends: Iterable[EndedTransaction]) -> int:
        """Write the transactions that ended, in the source's order, and return their number."""
        return self.write_lines(_ENDS, ends)

    def write_writes(self, table: str, writes: Iterable[tuple[int, int]]) -> None:
        """Write a table's pairs of transaction and write id."""
        self.write_lines(table_file("writes", table, ".jsonl"), writes)

    def add_digests(self, table: str, files: Iterable[CopiedFile]) -> None:
        """Record the digests of all files of a table, beside the finished dump."""
        self.add_lines(_digests_file(table), (file.to_json() for file in files))

    def add_placed(self, table: str, files: Iterable[PlacedTime]) -> None:
        """Record the times of the files of a table without transactions, beside the finished dump."""
        self.add_lines(_placed_file(table), (file.to_json() for file in files))

    def write_json(self, name: str, value: object) -> None:
        """Write one JSON document, which becomes part of the manifest."""
        self._write(name, [json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n"])

    def write_lines(self, name: str, values: Iterable[object]) -> int:
        """Write JSON lines, and return their number."""
        count = 0

        def lines() -> Iterator[str]:
            nonlocal count
            for value in values:
                count += 1
                yield json.dumps(value, sort_keys=True, ensure_ascii=False) + "\n"

        self._write(name, lines())
        return count

    def add_lines(self, name: str, values: Iterable[object]) -> None:
        """Write JSON lines beside a finished dump, outside of its manifest."""
        self._write(name, (json.dumps(value, sort_keys=True, ensure_ascii=False) + "\n" for value in values))

    def write_text(self, name: str, text: str | Iterable[str]) -> None:
        """Write a text file, given as a whole or in parts, which becomes part of the manifest."""
        self._write(name, [text] if isinstance(text, str) else text)

    def finish_dump(self, manifest: Manifest) -> Manifest:
        """Seal the dump: write the manifest, with the digests of the files, then the acknowledgement.

        :return: the manifest as it was written.
        """
        sealed = replace(manifest, files={**self._digests})
        text = json.dumps(sealed.to_json(), indent=1, sort_keys=True, ensure_ascii=False) + "\n"
        self._write(_MANIFEST, [text])
        self._write(_FINISHED_DUMP, [_digest(text) + "\n"])
        return sealed

    def finish_load(self, acknowledgement: FinishedLoad) -> None:
        """Acknowledge that the dump is loaded and published."""
        self._write(FINISHED_LOAD, [json.dumps(acknowledgement.to_json(), sort_keys=True) + "\n"])

    # -- reading ---------------------------------------------------------------------------------------

    @property
    def dump_finished(self) -> bool:
        """Return whether the dump is whole."""
        return self.exists(_FINISHED_DUMP)

    @property
    def loaded_into(self) -> str:
        """Return the database that the dump was loaded into; empty without a readable acknowledgement."""
        try:
            return FinishedLoad.from_json(bounded_json.loads(self._read(FINISHED_LOAD))).database
        except (DumpCorruptError, ValueError):
            return ""

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
                f"Dump {self.uri} has format {error.version}; this version reads {FORMAT_VERSION} "
                "and before.",
                remedy="Load it with the version that wrote it, or dump again.",
                dump=self.uri,
            ) from error
        except ValueError as error:
            self.refuse(_MANIFEST, str(error))
        # The digests come last: other threads of a dump take the entries for read once the digests are.
        self._entries = {entry.name: entry for entry in manifest.tables}
        self._expected = manifest.files
        return manifest

    def database(self) -> types.Database:
        """Return the database.

        :raises DumpCorruptError: as :meth:`read_json`.
        """
        return self.read_json(_DATABASE, read_database)

    def functions(self) -> Iterator[types.Function]:
        """Yield the permanent functions of the database.

        :raises DumpCorruptError: as :meth:`read_lines`.
        """
        return self.read_lines(_FUNCTIONS, read_function)

    def table(self, name: str) -> TableDocument:
        """Return the document of a table.

        :raises DumpCorruptError: as :meth:`read_json`.
        """
        return self.read_json(table_file("tables", name, ".json"), TableDocument.of_table(name))

    def partitions(
        self, table: str, *, sealed: bool = True, only: Collection[str] | None = None
    ) -> Iterator[PartitionLine]:
        """Yield the partitions of a table.

        :param sealed: check them against the manifest, which a dump that is being written lacks.
        :param only: names of wanted partitions, among those that the dump's cycle concerned.
        :raises DumpCorruptError: as :meth:`read_lines`, and if a dump that describes others is gone.
        """
        name, read = table_file("partitions", table, ".jsonl"), PartitionLine.from_json
        if not sealed:
            return self.read_report(name, read)
        return self._of_partitions(table, name, read, lambda line: line.name, only)

    def files(
        self, table: str, *, sealed: bool = True, only: Collection[str] | None = None
    ) -> Iterator[VisibleFile]:
        """Yield the files of a table; see :meth:`partitions`."""
        name, read = table_file("files", table, ".jsonl"), VisibleFile.from_json
        if not sealed:
            return self.read_report(name, read)
        return self._of_partitions(table, name, read, lambda file: file.partition, only)

    def totals(self, table: str) -> dict[str, PartitionTotals] | None:
        """Return the totals of all partitions of a table by name; ``None`` if the dump does not have them.

        :raises DumpCorruptError: as :meth:`read_lines`.
        """
        name = PartitionTotals.file_of(table)
        self.entry(table)
        if name not in (self._expected or {}):
            return None
        return {line.name: line for line in self.read_lines(name, PartitionTotals.from_json)}

    def partition_names(self, table: str) -> list[str]:
        """Return the names of all partitions of a table.

        :raises DumpCorruptError: as :meth:`partitions`.
        """
        totals = self.totals(table)
        return [line.name for line in self.partitions(table)] if totals is None else list(totals)

    def entry(self, table: str) -> TableEntry | None:
        """Return the entry of a table in the manifest; ``None`` without one."""
        if self._expected is None:
            self.manifest()
        return self._entries.get(table)

    def ends(self) -> Iterator[EndedTransaction]:
        """Yield the transactions that ended, in the source's order.

        :raises DumpCorruptError: as :meth:`read_lines`.
        """
        return self.read_lines(_ENDS, EndedTransaction.from_json)

    def writes(self, table: str) -> Iterator[tuple[int, int]]:
        """Yield a table's pairs of transaction and write id.

        :raises DumpCorruptError: as :meth:`read_lines`.
        """
        return self.read_lines(table_file("writes", table, ".jsonl"), read_write)

    def digests(self, table: str) -> dict[str, str] | None:
        """Return the digests that the dump's load recorded of a table's files; ``None`` without a record.

        An increment copies only the new files. Because it keeps the digests of the older files beside those
        of the new ones, a verification of the table needs no earlier dump.

        :raises DumpCorruptError: as :meth:`read_report`.
        """
        name = _digests_file(table)
        if not self.exists(name):
            return None
        return {file.uri: file.digest for file in self.read_report(name, CopiedFile.from_json)}

    def placed_times(self, table: str) -> dict[str, int]:
        """Return the modification times that files of a table had when they were placed, by canonical URI.

        :raises DumpCorruptError: as :meth:`read_report`.
        """
        name = _placed_file(table)
        if not self.exists(name):
            return {}
        return {file.uri: file.modified_ns for file in self.read_report(name, PlacedTime.from_json)}

    def read_json(self, name: str, read: Reader[T]) -> T:
        """Return one JSON document of the dump, checked against the manifest.

        :param read: makes the document of its JSON value.
        :raises DumpCorruptError: the document is missing, truncated or changed, or has names or paths that
            lead elsewhere (see :mod:`.values`).
        """
        self._check(name)
        text = self._read(name)
        try:
            value: object = bounded_json.loads(text)
        except ValueError as error:
            raise self._corrupt(name, f"it is not JSON ({error})") from error
        try:
            return read(value)
        except ValueError as error:
            self.refuse(name, str(error))

    def read_text(self, name: str) -> str:
        """Return one text file of the dump, checked against the manifest.

        :raises DumpCorruptError: as :meth:`read_json`.
        """
        self._check(name)
        return self._read(name)

    def read_lines(self, name: str, read: Reader[T]) -> Iterator[T]:
        """Yield JSON lines of the dump, checked against the manifest.

        :param read: makes a line of its JSON value.
        :raises DumpCorruptError: as :meth:`read_json`.
        """
        self._check(name)
        yield from self.read_report(name, read)

    def read_report(self, name: str, read: Reader[T]) -> Iterator[T]:
        """Yield JSON lines that a later step wrote into the dump's directory, outside of the manifest.

        :param read: makes a line of its JSON value.
        :raises DumpCorruptError: a line is not JSON, or has names or paths that lead elsewhere.
        """
        with (
            storage_errors(f"{self.uri}/{name}"),
            self._filesystem.open(f"{self._path}/{name}", "rb") as file,
        ):
            lines, number = iter(file), 0
            while batch := list(islice(lines, _LINES_AT_A_TIME)):
                values = _parsed_together(batch) or self._parsed_singly(name, batch, number)
                for line, value in enumerate(values, number + 1):
                    try:
                        made = read(value)
                    except ValueError as error:
                        self.refuse(name, str(error), line)
                    yield made
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

    def _of_partitions(
        self,
        table: str,
        name: str,
        read: Reader[T],
        partition_of: Callable[[T], str],
        only: Collection[str] | None,
    ) -> Iterator[T]:
        if only is not None:
            yield from (line for line in self.read_lines(name, read) if partition_of(line) in only)
            return
        for dump, described in layers(self, table):
            yield from (line for line in dump.read_lines(name, read) if partition_of(line) not in described)

    def _parsed_singly(self, name: str, lines: Sequence[bytes], before: int) -> Iterator[object]:
        for number, line in enumerate(lines, before + 1):
            try:
                yield bounded_json.loads(line)
            except ValueError as error:
                raise self._corrupt(name, f"line {number} is not JSON ({error})") from error

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
        if digest_file(f"{self.uri}/{name}", options=self.options).digest != expected:
            raise self._corrupt(name, "its digest is not the manifest's: it was truncated or changed")

    def _corrupt(self, name: str, why: str) -> DumpCorruptError:
        return DumpCorruptError(
            f"Dump {self.uri}: {name} cannot be used: {why}.",
            remedy="Delete the dump directory and run the dump again; nothing was published from it.",
            dump=self.uri,
            file=name,
        )


def _digests_file(table: str) -> str:
    return table_file("load/digests", table, ".jsonl")


def _placed_file(table: str) -> str:
    return table_file("load/placed", table, ".jsonl")


def _parsed_together(lines: Sequence[bytes]) -> list[object]:
    """Parse lines of JSON as one array; return an empty list if that array has another number of values."""
    try:
        values = bounded_json.loads(b"[" + b",".join(lines) + b"]")
    except ValueError:
        return []
    return values if isinstance(values, list) and len(values) == len(lines) else []


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
