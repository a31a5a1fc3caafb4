"""Ingest files: exactly once, from where the last run stopped, in transactions of a good size."""

from __future__ import annotations

import bisect
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.ingest.arrow_records import ArrowRecordWriter
from airflow_hive_federation.ingest.connection import HiveStreamingConnection
from airflow_hive_federation.ingest.dead_letters import DeadLetter, DeadLetterFile
from airflow_hive_federation.ingest.delimited import StrictDelimitedInputWriter
from airflow_hive_federation.ingest.errors import SerializationError
from airflow_hive_federation.ingest.inputs import (
    InputFile,
    Position,
    find_inputs,
    first_line,
    parquet_batches,
    remaining,
    text_records,
)
from airflow_hive_federation.ingest.json_records import StrictJsonWriter
from airflow_hive_federation.ingest.regex_records import StrictRegexWriter
from airflow_hive_federation.ingest.states import ConnectionState
from airflow_hive_federation.ingest.writers import AbstractRecordWriter, Malformed
from airflow_hive_federation.metastore import MetastoreSettings

Format = Literal["csv", "json", "regex", "parquet"]
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,100}\Z")


@dataclass(frozen=True, kw_only=True)
class IngestRequest:
    """Which files to ingest into which table, and how.

    :param table: ``database.table``.
    :param inputs: URIs of files, of directories or prefixes, or with ``*`` in the last part.
    :param file_format: ``csv`` (delimited, not quoted), ``json`` (an object a line), ``regex``, ``parquet``.
    :param name: names the position that is kept with the table. Two inputs of one table need two names.
    :param delimiter: of the fields of ``csv``.
    :param header: the first line of each ``csv`` file names its columns.
    :param regex: expression whose groups are the columns, for ``regex``.
    :param partition: values of the one partition to write to; without, they are the records' last fields.
    :param commit_records: commit after so many records,
    :param commit_bytes: or so many bytes of input,
    :param commit_seconds: or so many seconds, whatever comes first.
    :param malformed: ``raise``, or ``null`` to make nulls of what cannot be read, as Hive's SerDes do.
    :param dead_letters: file of this machine that takes bad records; without, the first one fails the run.
    :param dead_letter_limit: bad records at most in a run.
    """

    table: str
    inputs: Sequence[str]
    file_format: Format = "csv"
    name: str = "files"
    delimiter: str = ","
    header: bool = False
    regex: str | None = None
    partition: Sequence[str | None] = ()
    commit_records: int = 1_000_000
    commit_bytes: int = 256 << 20
    commit_seconds: float = 60.0
    transaction_batch_size: int = 1
    malformed: Malformed = "raise"
    dead_letters: str | None = None
    dead_letter_limit: int | None = None

    @property
    def position_key(self) -> str:
        """The table parameter that keeps the position."""
        return f"_meta.ingest.{self.name}"


@dataclass(frozen=True, kw_only=True)
class IngestProgress:
    """How far a run is.

    :param done_bytes: of the files, as they lie in their store.
    :param committed: records that can be read.
    """

    done_bytes: int
    total_bytes: int
    files: int
    committed: int


@dataclass(frozen=True, kw_only=True)
class IngestReport:
    """What a run did.

    :param files: files that were finished.
    :param records: records that were committed.
    :param position: the position that was committed last, in any run.
    """

    table: str
    files: int = 0
    records: int = 0
    dead_letters: int = 0
    transactions: int = 0
    created_partitions: int = 0
    position: str | None = None
    seconds: float = field(default=0.0, compare=False)

    def to_json(self) -> dict[str, Any]:
        """Make it fit for XCom and JSON."""
        return asdict(self)


def ingest_files(
    settings: MetastoreSettings,
    request: IngestRequest,
    *,
    storage_options: Mapping[str, Any] | None = None,
    on_progress: Callable[[IngestProgress], None] | None = None,
) -> IngestReport:
    """Ingest files that no earlier run of the same name has ingested.

    Files are taken in the order of their URIs, and one that appears later has to come later in it: names that
    begin with a time do. A file must not change once it is there.

    :raises ConfigurationError: the request does not make sense.
    :raises StreamingException: see :mod:`~airflow_hive_federation.ingest.errors`. What was committed stays;
        the next run goes on behind it.
    :raises SerializationError: a bad record; ``uri`` and ``line`` say where it is.
    """
    _check(request)
    began = time.monotonic()
    files = find_inputs(request.inputs, storage_options)
    origins = _Origins()
    builder = (
        HiveStreamingConnection.new_builder()
        .with_database(request.table.partition(".")[0])
        .with_table(request.table.partition(".")[2])
        .with_record_writer(_writer(request, files, storage_options))
        .with_conf(settings)
        .with_static_partition_values(request.partition)
        .with_agent_info(f"ingest {request.name}")
        .with_transaction_batch_size(request.transaction_batch_size)
        .with_position_key(request.position_key)
        .with_storage_options(storage_options)
    )
    if request.dead_letters is not None:
        takes = origins.located(DeadLetterFile(request.dead_letters))
        builder = builder.with_dead_letters(takes, limit=request.dead_letter_limit)
    with builder.connect() as connection:
        run = _Run(connection, request, files, origins, on_progress)
        for file, start in remaining(files, Position.of(connection.committed_position)):
            run.file(file, _read(request, start, storage_options))
        run.commit()
        return replace(run.report(), seconds=time.monotonic() - began)


class _Run:
    def __init__(
        self,
        connection: HiveStreamingConnection,
        request: IngestRequest,
        files: Sequence[InputFile],
        origins: _Origins,
        on_progress: Callable[[IngestProgress], None] | None,
    ) -> None:
        self._connection, self._request, self._origins = connection, request, origins
        self._tell = on_progress or (lambda _progress: None)
        self._total_bytes = sum(file.size_bytes for file in files)
        self._done_bytes = 0
        self._files = 0
        self._records = 0
        self._position: Position | None = None
        self._pending = self._pending_bytes = 0
        self._since = 0.0
        position = Position.of(connection.committed_position)
        left = {file.uri for file, _ in remaining(files, position)}
        self._done_bytes = sum(file.size_bytes for file in files if file.uri not in left)

    def file(self, file: InputFile, pieces: Iterator[tuple[Any, Position]]) -> None:
        """Write a file's records, and commit as often as it is time to."""
        before = self._done_bytes
        for records, position in pieces:
            self._write(records, position)
            share = (position.offset or 0) if self._request.file_format != "parquet" else 0
            self._done_bytes = before + min(share, file.size_bytes)
            if self._is_due():
                self.commit()
            self._progress()
        self._done_bytes = before + file.size_bytes
        self._files += 1
        self._position = Position(uri=file.uri, offset=None)
        self._progress()

    def commit(self) -> None:
        """Commit what was written, and the position with it."""
        if self._position is None:
            return
        connection, key = self._connection, self._request.position_key
        if connection.state is not ConnectionState.OPEN:
            if self._position.to_text() == connection.committed_position:
                return
            self._begin()
        with self._origins.told():
            connection.commit_transaction(key=key, value=self._position.to_text())
        self._records += self._pending
        self._pending = self._pending_bytes = 0

    def report(self) -> IngestReport:
        stats = self._connection.stats
        return IngestReport(
            table=self._request.table,
            files=self._files,
            records=self._records - stats.dead_letters,
            dead_letters=stats.dead_letters,
            transactions=stats.committed_transactions,
            created_partitions=stats.created_partitions,
            position=self._connection.committed_position,
        )

    def _begin(self) -> None:
        self._connection.begin_transaction()
        self._origins.begin()
        self._since = time.monotonic()

    def _write(self, records: Any, position: Position) -> None:
        if self._connection.state is not ConnectionState.OPEN:
            self._begin()
        with self._origins.told():
            if isinstance(records, list):
                self._origins.add(position, len(records))
                self._connection.write_records(records)
                count, size_bytes = len(records), sum(map(len, records))
            else:
                self._connection.write_batch(records)
                count, size_bytes = records.num_rows, records.nbytes
        self._pending += count
        self._pending_bytes += size_bytes
        self._position = position

    def _is_due(self) -> bool:
        request = self._request
        return (
            self._pending >= request.commit_records
            or self._pending_bytes >= request.commit_bytes
            or time.monotonic() - self._since >= request.commit_seconds
        )

    def _progress(self) -> None:
        self._tell(
            IngestProgress(
                done_bytes=self._done_bytes,
                total_bytes=self._total_bytes,
                files=self._files,
                committed=self._records,
            )
        )


class _Origins:
    """Which line of which file a record of the transaction is."""

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._places: list[tuple[str, int]] = []
        self._count = 0

    def begin(self) -> None:
        self._firsts, self._places, self._count = [], [], 0

    def add(self, behind: Position, count: int) -> None:
        """Note records that end before a position."""
        self._firsts.append(self._count + 1)
        self._places.append((behind.uri, behind.line - count + 1))
        self._count += count

    @property
    def known(self) -> bool:
        """Whether records come from lines (those of Parquet do not)."""
        return bool(self._places)

    def of(self, record_number: int) -> tuple[str, int]:
        """Return file and line of a record of the transaction."""
        place = bisect.bisect_right(self._firsts, record_number) - 1
        uri, line = self._places[place]
        return uri, line + record_number - self._firsts[place]

    def located(self, handler: DeadLetterFile) -> Callable[[DeadLetter], None]:
        """Let dead letters say where they come from."""

        def take(letter: DeadLetter) -> None:
            uri, line = self.of(letter.record_number)
            handler(replace(letter, reason=f"{uri}, line {line}: {letter.reason}"))

        return take

    def told(self) -> _Told:
        return _Told(self)


class _Told:
    """Lets an error about a record say where it comes from."""

    def __init__(self, origins: _Origins) -> None:
        self._origins = origins

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, SerializationError) and "record_number" in error.facts and self._origins.known:
            uri, line = self._origins.of(error.facts["record_number"])
            raise type(error)(
                f"{uri}, line {line}: {error.message}",
                remedy=error.remedy,
                **{**error.facts, "uri": uri, "line": line},
            ) from error


def _check(request: IngestRequest) -> None:
    database, dot, table = request.table.partition(".")
    if not (database and dot and table):
        raise ConfigurationError(f"{request.table!r} names no table.", remedy="Write database.table.")
    if not _NAME.match(request.name):
        raise ConfigurationError(
            f"{request.name!r} cannot name a position.", remedy="Use letters, digits and ._- only."
        )
    if request.file_format == "regex" and not request.regex:
        raise ConfigurationError("The format regex needs an expression.")
    if request.file_format not in {"csv", "json", "regex", "parquet"}:
        raise ConfigurationError(
            f"There is no format {request.file_format!r}.", remedy="csv, json, regex or parquet."
        )
    if not request.inputs:
        raise ConfigurationError("There is nothing to ingest.", remedy="Name files, directories or patterns.")


def _writer(
    request: IngestRequest, files: Sequence[InputFile], options: Mapping[str, Any] | None
) -> AbstractRecordWriter:
    if request.file_format == "parquet":
        return ArrowRecordWriter()
    if request.file_format == "json":
        return StrictJsonWriter(malformed=request.malformed)
    if request.file_format == "regex":
        return StrictRegexWriter(request.regex or "", malformed=request.malformed)
    columns = None
    if request.header and files:
        columns = first_line(files[-1].uri, None, options).split(request.delimiter)
    return StrictDelimitedInputWriter(
        field_delimiter=request.delimiter, columns=columns, malformed=request.malformed
    )


def _read(
    request: IngestRequest, start: Position, options: Mapping[str, Any] | None
) -> Iterator[tuple[Any, Position]]:
    if request.file_format == "parquet":
        return parquet_batches(start, options)
    return text_records(start, None, header=request.header, options=options)
