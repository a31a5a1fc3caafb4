"""Lists the files to ingest in order, and reads each from any position."""

from __future__ import annotations

import fnmatch
import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from airflow_hive_federation.errors import ConfigurationError, FileVanishedError, StorageError
from airflow_hive_federation.ingest.formats.quoted import Dialect, RecordJoiner
from airflow_hive_federation.ingest.formats.record_bounds import check_open_record
from airflow_hive_federation.ingest.formats.writers import MAX_RECORD_BYTES
from airflow_hive_federation.model import bounded_json
from airflow_hive_federation.model.json_values import map_of, reader_of, text
from airflow_hive_federation.runtime.arguments import texts
from airflow_hive_federation.storage.filesystem import canonical, open_filesystem, reading, storage_errors
from airflow_hive_federation.storage.listing import file_size, is_there, list_children, list_files
from airflow_hive_federation.storage.options import StorageOptions

#: Takes the line of a file that names the columns.
OnHeader = Callable[[bytes], None]

_CHUNK_BYTES = 4 << 20
_ROWS = 50_000
#: Begins the names of files and directories that are left out, as in Hive, unless they are named.
HIDDEN = (".", "_")


@dataclass(frozen=True, kw_only=True)
class InputFile:
    """A file to ingest.

    :param size_bytes: length of the file when it was listed.
    """

    uri: str
    size_bytes: int


@dataclass(frozen=True, kw_only=True)
class Position:
    """A position in the input: the files before ``uri`` were read whole, and ``uri`` up to ``offset``.

    If runs read several places, the files before ``uri`` were read in its places only.

    :param uri: URI of the file.
    :param offset: bytes of a text file, rows of a Parquet file; ``None`` for the whole file.
    :param line: number of lines of a text file before ``offset``.
    :param place: of several places, the one whose file is read up to ``offset``.
    :param floor: of several places, files of others up to this URI may have been read.
    :param places: the last file that was read of each of several places, below the place's directory; an
        empty text for none. See :mod:`~airflow_hive_federation.ingest.places`.
    """

    uri: str
    offset: int | None
    line: int = 0
    place: str | None = None
    floor: str | None = None
    places: Mapping[str, str] | None = None

    def to_text(self) -> str:
        """Return the position as the value of a table parameter."""
        value: dict[str, object] = {"uri": self.uri, "offset": self.offset, "line": self.line}
        value |= {name: text for name in ("place", "floor") if (text := getattr(self, name)) is not None}
        if self.places is not None:
            value["places"] = dict(self.places)
        return json.dumps(value, ensure_ascii=False)

    @classmethod
    def of(cls, text: str | None) -> Position | None:
        """Parse a position that :meth:`to_text` wrote.

        :raises ConfigurationError: another program has used the key.
        """
        if not text:
            return None
        try:
            position = _POSITION(bounded_json.loads(text))
        except ValueError as error:
            raise ConfigurationError(
                f"The committed position is none of files: {text!r}.", remedy="Use another position key."
            ) from error
        return replace(position, uri=canonical(position.uri))


_POSITION = reader_of(Position, readers={"place": text, "floor": text, "places": map_of(text, text)})


def find_inputs(uris: Sequence[str], options: StorageOptions | None = None) -> list[InputFile]:
    """List the input files that the URIs name.

    A URI names a file, a directory or prefix of files, or a pattern with ``*`` in its last part.

    Hidden files (``.x``, ``_x``) are left out, as in Hive, unless they are named, or the pattern begins so.
    The files are sorted by URI, whatever the order of the arguments, because the next run needs the same
    order. URIs are canonical: that run may have another spelling (``/x``, ``file:///x``) of the same files.

    :raises FileVanishedError: a named file or directory does not exist.
    :raises ConfigurationError: the URIs are no list of texts.
    """
    files: dict[str, InputFile] = {}
    for uri in texts("inputs", uris):
        for file in _matching_files(canonical(uri), options):
            files[file.uri] = file
    return [files[uri] for uri in sorted(files)]


def text_records(
    start: Position,
    delimiter: bytes | None,
    *,
    header: bool,
    options: StorageOptions | None = None,
    max_record_bytes: int = MAX_RECORD_BYTES,
    on_header: OnHeader = lambda _: None,
) -> Iterator[tuple[list[bytes], Position]]:
    """Read records of a text file, many at a time, with the position after them.

    :param start: position to begin at; in a compressed file (``.gz``, ``.bz2``, ``.zst``, ``.lz4``) its
        offset counts decompressed bytes.
    :param header: the first line is not a record.
    :param max_record_bytes: bytes that a record may have.
    :param on_header: takes the first line, if it is not a record.
    :raises SerializationError: a line is longer than that.
    """
    end = delimiter or b"\n"
    offset, line, rest = start.offset or 0, start.line, b""
    with storage_errors(start.uri), _opened(start.uri, options) as file:
        _skip(file, offset)
        while True:
            chunk = file.read(_CHUNK_BYTES)
            *records, rest = (rest + chunk).split(end) if chunk else [rest, b""]
            if not chunk and records == [b""]:
                return
            offset += sum(map(len, records)) + len(records) * len(end)
            line += len(records)
            if delimiter is None:
                records = [record[:-1] if record.endswith(b"\r") else record for record in records]
            if header and line == len(records) and records:
                on_header(records[0])
                records = records[1:]
            yield records, Position(uri=start.uri, offset=offset, line=line)
            check_open_record((rest,), max_record_bytes, f"{start.uri}, line {line + 1}")
            if not chunk:
                return


def quoted_records(
    start: Position,
    dialect: Dialect,
    *,
    header: bool,
    options: StorageOptions | None = None,
    max_record_bytes: int = MAX_RECORD_BYTES,
    on_header: OnHeader = lambda _: None,
) -> Iterator[tuple[list[bytes], Position, Sequence[int]]]:
    """Read records of quoted CSV, many at a time, with the position after them and the first line of each.

    The parameters are those of :func:`text_records`.

    :raises SerializationError: a record is longer than ``max_record_bytes``.
    """
    joiner, last = RecordJoiner(dialect, start.line), start
    pieces = text_records(start, b"\n", header=False, options=options, max_record_bytes=max_record_bytes)
    for lines, last in pieces:
        records, firsts = joiner.join(lines)
        unended = joiner.open
        check_open_record(unended, max_record_bytes, f"{start.uri}, line {last.line - len(unended) + 1}")
        if records:
            offset = (last.offset or 0) - sum(map(len, unended)) - len(unended)
            position = Position(uri=start.uri, offset=offset, line=last.line - len(unended))
            skipped = int(header and firsts[0] == 1)
            if skipped:
                on_header(records[0])
            yield records[skipped:], position, firsts[skipped:]
    records, firsts = joiner.rest()
    if records:
        yield records, last, firsts


def parquet_batches(
    start: Position, options: StorageOptions | None = None
) -> Iterator[tuple[pa.RecordBatch, Position]]:
    """Read rows of a Parquet file, many at a time, with the position after them.

    :raises ConfigurationError: the file is not a Parquet file.
    """
    import pyarrow.parquet as pq

    seen, begin = 0, start.offset or 0
    with reading(start.uri, options) as file:
        try:
            for batch in pq.ParquetFile(file).iter_batches(_ROWS):
                seen += batch.num_rows
                if seen > begin:
                    unread = batch.slice(max(0, batch.num_rows - (seen - begin)))
                    yield unread, Position(uri=start.uri, offset=seen)
        except pa.ArrowInvalid as error:
            raise ConfigurationError(
                f"{start.uri} cannot be read as Parquet: {error}.",
                remedy="Name Parquet files, or give the format of the others.",
            ) from error


def _matching_files(uri: str, options: StorageOptions | None) -> Iterator[InputFile]:
    folder, _, name = uri.rpartition("/")
    if "*" in name:
        entries, directories = list_children(folder, options=options)
        if not (entries or directories or is_there(folder, options=options)):
            raise FileVanishedError(f"{folder} does not exist.", remedy="Check its name.", path=folder)
        for entry in entries:
            hidden = entry.path.startswith(HIDDEN) and not name.startswith(HIDDEN)
            if fnmatch.fnmatchcase(entry.path, name) and not hidden:
                yield InputFile(uri=f"{folder}/{entry.path}", size_bytes=entry.size_bytes)
        return
    filesystem, path = open_filesystem(uri, options)
    with storage_errors(uri):
        is_file = filesystem.isfile(path)
    if is_file:
        yield InputFile(uri=uri, size_bytes=file_size(uri, options=options))
        return
    try:
        entries = list_files(uri, options=options)
    except FileVanishedError as error:
        if filesystem.exists(path):
            # The error names a directory below.
            raise
        raise FileVanishedError(f"{uri} does not exist.", remedy="Check its name.", path=uri) from error
    root = uri.rstrip("/")
    for entry in entries:
        if not any(part.startswith(HIDDEN) for part in entry.path.split("/")):
            yield InputFile(uri=f"{root}/{entry.path}", size_bytes=entry.size_bytes)


@contextmanager
def _opened(uri: str, options: StorageOptions | None) -> Iterator[Any]:
    with reading(uri, options) as raw:
        codec = pa.Codec.detect(uri).name if _is_compressed(uri) else None
        if codec is None:
            yield raw
        else:
            with _decompression(uri), pa.CompressedInputStream(pa.PythonFile(raw, "r"), codec) as stream:
                yield stream


@contextmanager
def _decompression(uri: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno is not None:
            raise
        raise StorageError(
            f"{uri} cannot be decompressed: {error}.",
            remedy="It is damaged or incomplete: provide the whole file, and run again.",
            path=uri,
        ) from error


def _is_compressed(uri: str) -> bool:
    return uri.lower().endswith((".gz", ".bz2", ".zst", ".lz4"))


def _skip(file: Any, offset: int) -> None:
    if not offset:
        return
    if not isinstance(file, pa.CompressedInputStream):
        file.seek(offset, io.SEEK_SET)
        return
    while offset:
        offset -= len(file.read(min(offset, _CHUNK_BYTES))) or offset
