"""Writes the records of a source from the last run's position on, in transactions of limited size."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import pyarrow as pa

from airflow_hive_federation.compaction.plan import CompactionKind
from airflow_hive_federation.errors import ConfigurationError, StreamingTransactionError
from airflow_hive_federation.ingest.builder import StreamingConnectionBuilder
from airflow_hive_federation.ingest.connection import HiveStreamingConnection
from airflow_hive_federation.ingest.formats.writers import AbstractRecordWriter
from airflow_hive_federation.ingest.states import ConnectionState
from airflow_hive_federation.metastore import MetastoreSettings
from airflow_hive_federation.storage.options import StorageOptions

#: Returns true once a run is to end.
Stopped: TypeAlias = Callable[[], bool]

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,100}\Z")


@dataclass(frozen=True, kw_only=True)
class IngestTarget:
    """The table that a run ingests into, and the size of its transactions.

    :param table: ``database.table``.
    :param name: names the position that is kept with the table. Two inputs of one table need two names.
    :param partition: values of the one partition to write to; if empty, the records' last fields name it.
    :param commit_records: a commit follows this many records,
    :param commit_bytes: or this many bytes of input,
    :param commit_interval_s: or this many seconds, whichever comes first.
    :param dead_letters: URI of a file for bad records; without it the first bad record fails the run.
    :param dead_letter_limit: the most bad records per run.
    :param compaction: kind of the compaction that the run requests in the end for the partitions it wrote to;
        ``None`` leaves that to the metastore's initiator.
    """

    table: str
    name: str
    partition: Sequence[str | None] = ()
    commit_records: int = 1_000_000
    commit_bytes: int = 256 << 20
    commit_interval_s: float = 60.0
    transaction_batch_size: int = 1
    dead_letters: str | None = None
    dead_letter_limit: int | None = None
    compaction: Literal["minor", "major"] | None = None

    @property
    def position_key(self) -> str:
        """Return the key of the table parameter that keeps the position."""
        return f"_meta.ingest.{self.name}"

    def check(self) -> None:
        """Check the names of the table and the position, and the bounds of a transaction.

        :raises ConfigurationError: a name is invalid, or a bound is not above zero.
        """
        database, dot, table = self.table.partition(".")
        if not (database and dot and table):
            raise ConfigurationError(f"{self.table!r} names no table.", remedy="Write database.table.")
        if not _NAME.match(self.name):
            raise ConfigurationError(
                f"{self.name!r} cannot name a position.", remedy="Use letters, digits and ._- only."
            )
        for bound in ("commit_records", "commit_bytes", "commit_interval_s", "transaction_batch_size"):
            value = getattr(self, bound)
            if value <= 0:
                raise ConfigurationError(f"{bound} is {value}.", remedy="Give a number above zero.")

    def connection(
        self,
        settings: MetastoreSettings,
        writer: AbstractRecordWriter,
        storage_options: StorageOptions | None,
    ) -> StreamingConnectionBuilder[HiveStreamingConnection]:
        """Return the builder of a run's connection."""
        database, _, table = self.table.partition(".")
        return (
            HiveStreamingConnection.new_builder()
            .with_database(database)
            .with_table(table)
            .with_record_writer(writer)
            .with_conf(settings)
            .with_static_partition_values(self.partition)
            .with_agent_info(f"ingest {self.name}")
            .with_transaction_batch_size(self.transaction_batch_size)
            .with_position_key(self.position_key)
            .with_storage_options(storage_options)
        )


@dataclass(frozen=True, kw_only=True)
class IngestReport:
    """The result of a run.

    :param files: number of files that were read to their end.
    :param records: number of committed records.
    :param position: the last committed position of any run.
    """

    table: str
    files: int = 0
    records: int = 0
    dead_letters: int = 0
    transactions: int = 0
    created_partitions: int = 0
    position: str | None = None
    seconds: float = field(default=0.0, compare=False)


class IngestRun:
    """A run that writes the records of a source and commits them with the source's position.

    ``pending`` and ``committed`` count the records of the source, bad ones included.

    :param error_context: returns a context manager that raises the errors about records, with their origin.
    :param on_begin: is called after a transaction has begun.
    :param stopped: returns true once the run is to end; it is asked before each write and commit.
    """

    def __init__(
        self,
        connection: HiveStreamingConnection,
        target: IngestTarget,
        *,
        error_context: Callable[[], AbstractContextManager[None]] = nullcontext,
        on_begin: Callable[[], None] = lambda: None,
        stopped: Stopped = lambda: False,
    ) -> None:
        self._connection, self._target = connection, target
        self._error_context, self._on_begin, self._stopped = error_context, on_begin, stopped
        self._position = connection.committed_position
        self._pending_bytes = 0
        self._began = time.monotonic()
        self.pending = self.committed = 0

    def begin(self) -> None:
        """Begin a transaction if none is open.

        :raises TransactionError: the run is to end; the open transaction ends with the connection.
        """
        if self._stopped():
            raise StreamingTransactionError(
                f"The ingest into {self._target.table} was stopped: its open transaction is aborted.",
                remedy="Run it again; it begins at the last committed position.",
            )
        if self._connection.state is not ConnectionState.OPEN:
            self._connection.begin_transaction()
            self._on_begin()
            self._began = time.monotonic()

    def write(
        self, records: list[bytes] | pa.RecordBatch, position: str, *, count: int | None = None
    ) -> None:
        """Write records.

        :param position: position of the source after the records.
        :param count: number of the source's records, bad ones included; by default the number of ``records``.
        """
        self.begin()
        with self._error_context():
            if isinstance(records, list):
                self._connection.write_records(records)
                record_count, size_bytes = len(records), sum(map(len, records))
            else:
                self._connection.write_batch(records)
                record_count, size_bytes = records.num_rows, records.nbytes
        self.pending += record_count if count is None else count
        self._pending_bytes += size_bytes
        self._position = position

    def advance(self, position: str) -> None:
        """Move the position without a record; the next commit stores it."""
        self._position = position

    def is_due(self) -> bool:
        """Return true if the open transaction has reached one of its bounds."""
        target = self._target
        return self._connection.state is ConnectionState.OPEN and (
            self.pending >= target.commit_records
            or self._pending_bytes >= target.commit_bytes
            or time.monotonic() - self._began >= target.commit_interval_s
        )

    def commit(self) -> None:
        """Commit the written records together with the position."""
        if self._position == self._connection.committed_position and not self.pending:
            return
        self.begin()
        with self._error_context():
            self._connection.commit_transaction(key=self._target.position_key, value=self._position)
        self.committed += self.pending
        self.pending = self._pending_bytes = 0

    def finish(self) -> None:
        """Commit the remaining records and request the compaction of the partitions that were written to.

        :raises TransactionError: the metastore refuses; committed records stay.
        """
        self.commit()
        if self._target.compaction is not None:
            self._connection.request_compaction(CompactionKind(self._target.compaction))

    def report(self, began: float, *, files: int = 0, dead_letters: int = 0) -> IngestReport:
        """Return the report of the run.

        :param dead_letters: number of bad records that the connection did not count.
        :param began: ``time.monotonic()`` at the beginning of the run.
        """
        stats = self._connection.stats
        return IngestReport(
            table=self._target.table,
            files=files,
            records=self.committed - stats.dead_letters - dead_letters,
            dead_letters=stats.dead_letters + dead_letters,
            transactions=stats.committed_transactions,
            created_partitions=stats.created_partitions,
            position=self._connection.committed_position,
            seconds=time.monotonic() - began,
        )
