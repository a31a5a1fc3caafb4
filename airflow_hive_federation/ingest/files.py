"""Ingests files exactly once, from the position of the last run, in transactions of limited size."""

from __future__ import annotations

import bisect
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.ingest.dead_letters import DeadLetter, DeadLetterFile
from airflow_hive_federation.ingest.errors import InvalidColumn, SerializationError
from airflow_hive_federation.ingest.formats.arrow_records import ArrowRecordWriter
from airflow_hive_federation.ingest.formats.delimited import StrictDelimitedInputWriter
from airflow_hive_federation.ingest.formats.json_records import StrictJsonWriter
from airflow_hive_federation.ingest.formats.quoted import QUOTE, Dialect, QuotedInputWriter
from airflow_hive_federation.ingest.formats.regex_records import StrictRegexWriter
from airflow_hive_federation.ingest.formats.writers import (
    MAX_RECORD_BYTES,
    AbstractRecordWriter,
    Malformed,
    check_names,
)
from airflow_hive_federation.ingest.inputs import (
    InputFile,
    OnHeader,
    Position,
    find_inputs,
    parquet_batches,
    quoted_records,
    text_records,
)
from airflow_hive_federation.ingest.places import Places
from airflow_hive_federation.ingest.runs import IngestReport, IngestRun, IngestTarget, Stopped
from airflow_hive_federation.metastore import MetastoreSettings
from airflow_hive_federation.progress.events import RecordsIngested
from airflow_hive_federation.progress.observers import Observer, unobserved
from airflow_hive_federation.storage.options import StorageOptions

Format = Literal["csv", "json", "regex", "parquet"]
#: Records or a batch, the position after them, and for records the number of the first line of each.
_Piece: TypeAlias = tuple[Any, Position, Sequence[int]]


@dataclass(frozen=True, kw_only=True)
class IngestRequest(IngestTarget):
    """A request to ingest files into a table.

    :param inputs: URIs of files, of directories or prefixes, or with ``*`` in the last part.
    :param file_format: ``csv``, ``json`` (one object per line), ``regex`` or ``parquet``.
    :param delimiter: delimiter of the fields of ``csv``.
    :param quote: quote of fields of ``csv`` that may hold delimiters and line feeds; an empty text reads
        fields as Hive's ``LazySimpleSerDe`` does, for which quotes are text.
    :param header: the first line of each ``csv`` file names its columns.
    :param regex: expression whose groups are the columns, for ``regex``.
    :param malformed: ``raise``, or ``null`` to replace unreadable values by null, as Hive's SerDes do.
    :param max_record_bytes: bytes that a record of a text file may have, 128 MiB by default.
    """

    inputs: Sequence[str]
    name: str = "files"
    file_format: Format = "csv"
    delimiter: str = ","
    quote: str = QUOTE
    header: bool = False
    regex: str | None = None
    malformed: Malformed = "raise"
    max_record_bytes: int = MAX_RECORD_BYTES


def ingest_files(
    settings: MetastoreSettings,
    request: IngestRequest,
    *,
    storage_options: StorageOptions | None = None,
    observer: Observer = unobserved,
    stopped: Stopped = lambda: False,
) -> IngestReport:
    """Ingest files that no earlier run of the same name has ingested.

    Files are ingested in the order of their URIs, so a new file needs a URI after those of the earlier files:
    names that begin with a time have this order. An existing file must not change.

    :param observer: receives the progress.
    :param stopped: returns true once the run is to end; its open transaction is aborted then.
    :raises ConfigurationError: the request contradicts itself or lacks a setting; or files come before the
        position of earlier runs, which read another place.
    :raises StreamingException: see :mod:`~airflow_hive_federation.ingest.errors`. Committed records
        stay; the next run continues after them.
    :raises SerializationError: a record is bad; ``uri`` and ``line`` locate it.
    """
    _check(request)
    began = time.monotonic()
    files = find_inputs(request.inputs, storage_options)
    origins = _Origins(may_have_header=request.file_format == "csv" and not request.header)
    writer = _writer(request)
    writer.max_record_bytes = request.max_record_bytes
    builder = request.connection(settings, writer, storage_options)
    if request.dead_letters is not None:
        handler = _Located(origins, DeadLetterFile(request.dead_letters, storage_options))
        builder = builder.with_dead_letters(handler, limit=request.dead_letter_limit)
    with builder.connect() as connection:
        places = Places(request.inputs, files, Position.of(connection.committed_position), request.name)
        unread = places.unread()
        run = IngestRun(
            connection,
            request,
            error_context=origins.error_context,
            on_begin=origins.begin,
            stopped=stopped,
        )
        progress = _Progress(request.table, files, unread, began, observer)
        for file, position in unread:
            pieces = _read(request, position, storage_options, _header_check(request, writer, file.uri))
            _ingest(run, file, pieces, origins, progress, places=places)
        run.finish()
        progress.done(run.committed)
        return run.report(began, files=len(unread))


def _ingest(
    run: IngestRun,
    file: InputFile,
    pieces: Iterator[_Piece],
    origins: _Origins,
    progress: _Progress,
    *,
    places: Places,
) -> None:
    """Write a file's records, and commit whenever the run is due for a commit."""
    for records, position, lines in pieces:
        run.begin()
        if isinstance(records, list):
            origins.add(position.uri, lines)
        run.write(records, places.position(position).to_text())
        if run.is_due():
            run.commit()
        progress.inside(file, position if isinstance(records, list) else None, run.committed)
    places.finish(file.uri)
    run.advance(places.position(Position(uri=file.uri, offset=None)).to_text())
    progress.behind(file, run.committed)


class _Progress:
    """A reporter that passes the progress of a run to an observer.

    :param unread: the files that the run reads, each with the position to begin at.
    :param began_s: the time of the monotonic clock at the beginning.
    :param observer: receives the progress.
    """

    def __init__(
        self,
        table: str,
        files: Sequence[InputFile],
        unread: Sequence[tuple[InputFile, Position]],
        began_s: float,
        observer: Observer,
    ) -> None:
        self._table = table
        self._began_s = began_s
        self._observer = observer
        self._total_bytes = sum(file.size_bytes for file in files)
        left = sum(file.size_bytes for file, _ in unread)
        self._before_bytes = self._total_bytes - left
        self._files = 0

    def inside(self, file: InputFile, position: Position | None, committed: int) -> None:
        """Report a position inside a file."""
        offset = 0 if position is None else position.offset or 0
        self._report(self._before_bytes + min(offset, file.size_bytes), committed)

    def behind(self, file: InputFile, committed: int) -> None:
        """Report a file that was read to its end."""
        self._before_bytes += file.size_bytes
        self._files += 1
        self._report(self._before_bytes, committed)

    def done(self, committed: int) -> None:
        """Report the end of the run, after the last commit."""
        self._report(self._before_bytes, committed)

    def _report(self, done_bytes: int, committed: int) -> None:
        self._observer(
            RecordsIngested(
                table=self._table,
                read_bytes=done_bytes,
                all_bytes=self._total_bytes,
                files=self._files,
                committed=committed,
                seconds=time.monotonic() - self._began_s,
            )
        )


class _Origins:
    """The origins of a transaction's records: the file and the line of each.

    :param may_have_header: the first line of a file may name columns, although the request has no header.
    """

    def __init__(self, *, may_have_header: bool = False) -> None:
        self.may_have_header = may_have_header
        self._firsts: list[int] = []
        self._places: list[tuple[str, Sequence[int]]] = []
        self._count = 0

    def begin(self) -> None:
        self._firsts, self._places, self._count = [], [], 0

    def add(self, uri: str, lines: Sequence[int]) -> None:
        """Add records of a file.

        :param lines: number of the first line of each.
        """
        self._firsts.append(self._count + 1)
        self._places.append((uri, lines))
        self._count += len(lines)

    @property
    def known(self) -> bool:
        """Return true if the records come from lines (those of Parquet do not)."""
        return bool(self._places)

    def of(self, record_number: int) -> tuple[str, int]:
        """Return the file and the line of a record of the transaction."""
        place = bisect.bisect_right(self._firsts, record_number) - 1
        uri, lines = self._places[place]
        return uri, lines[record_number - self._firsts[place]]

    def error_context(self) -> _OriginOfErrors:
        return _OriginOfErrors(self)


class _Located:
    """A handler that adds the file and the line to dead letters."""

    def __init__(self, origins: _Origins, file: DeadLetterFile) -> None:
        self._origins, self._file = origins, file
        self.flush = file.flush

    def __call__(self, letter: DeadLetter) -> None:
        uri, line = self._origins.of(letter.record_number)
        self._file(replace(letter, reason=f"{uri}, line {line}: {letter.reason}"))


class _OriginOfErrors:
    """A context that adds the file and the line of the record to an error."""

    def __init__(self, origins: _Origins) -> None:
        self._origins = origins

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if not isinstance(error, SerializationError) or not self._origins.known:
            return
        if isinstance(number := error.facts.get("record_number"), int):
            uri, line = self._origins.of(number)
            names_columns = line == 1 and self._origins.may_have_header
            header = "If the line names the columns, add --header (header=True). " if names_columns else ""
            raise type(error)(
                f"{uri}, line {line}: {error.message}",
                remedy=f"{header}Correct it and run again: nothing of its transaction is written. Or have "
                "bad records put aside (dead_letters, --dead-letters).",
                **{**error.facts, "uri": uri, "line": line},
            ) from error


def _check(request: IngestRequest) -> None:
    request.check()
    if request.file_format == "regex" and not request.regex:
        raise ConfigurationError("The format regex needs an expression.", remedy="Give regex (--regex).")
    if request.file_format not in {"csv", "json", "regex", "parquet"}:
        raise ConfigurationError(
            f"There is no format {request.file_format!r}.", remedy="Give csv, json, regex or parquet."
        )
    if not request.inputs:
        raise ConfigurationError("There is nothing to ingest.", remedy="Name files, directories or patterns.")


def _writer(request: IngestRequest) -> AbstractRecordWriter:
    if request.file_format == "parquet":
        return ArrowRecordWriter()
    if request.file_format == "json":
        return StrictJsonWriter(malformed=request.malformed)
    if request.file_format == "regex":
        return StrictRegexWriter(request.regex or "", malformed=request.malformed)
    # Each file that is read from its beginning has its header checked then.
    if request.quote:
        dialect = Dialect(request.delimiter, request.quote)
        return QuotedInputWriter(dialect=dialect, malformed=request.malformed)
    return StrictDelimitedInputWriter(field_delimiter=request.delimiter, malformed=request.malformed)


def _names(request: IngestRequest, uri: str, header: bytes) -> list[str]:
    try:
        text = header.decode("utf-8-sig")
        if not request.quote:
            return text.split(request.delimiter)
        fields, _ = Dialect(request.delimiter, request.quote).fields(text, len(text) + 1)
    except ValueError as error:
        raise ConfigurationError(
            f"The header of {uri} cannot be read: {error}.", remedy="Correct the file's first line."
        ) from error
    return [name or "" for name in fields]


def _header_check(request: IngestRequest, writer: AbstractRecordWriter, uri: str) -> OnHeader:
    """Return a function that checks the header of a file against the columns of the table."""

    def check(line: bytes) -> None:
        try:
            check_names(_names(request, uri, line), writer.columns)
        except InvalidColumn as error:
            raise InvalidColumn(
                f"The header of {uri} is not the table's. {error.message}",
                remedy=error.remedy,
                **{**error.facts, "uri": uri},
            ) from error

    return check


def _read(
    request: IngestRequest, start: Position, options: StorageOptions | None, on_header: OnHeader
) -> Iterator[_Piece]:
    if request.file_format == "parquet":
        for batch, position in parquet_batches(start, options):
            yield batch, position, ()
        return
    header, longest = request.header, request.max_record_bytes
    if request.file_format == "csv" and request.quote:
        dialect = Dialect(request.delimiter, request.quote)
        yield from quoted_records(
            start,
            dialect,
            header=header,
            options=options,
            max_record_bytes=longest,
            on_header=on_header,
        )
        return
    for records, position in text_records(
        start, None, header=header, options=options, max_record_bytes=longest, on_header=on_header
    ):
        yield records, position, range(position.line - len(records) + 1, position.line + 1)
