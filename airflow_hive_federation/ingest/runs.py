"""Ingest runs: a source read from where the last run stopped, in transactions of a good size."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import pyarrow as pa

from airflow_hive_federation.compaction.plan import CompactionKind
from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.ingest.builder import StreamingConnectionBuilder
from airflow_hive_federation.ingest.connection import HiveStreamingConnection
from airflow_hive_federation.ingest.formats.writers import AbstractRecordWriter
from airflow_hive_federation.ingest.states import ConnectionState
from airflow_hive_federation.metastore import MetastoreSettings

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,100}\Z")


@dataclass(frozen=True, kw_only=True)
class IngestTarget:
    """Which table to ingest into, and in transactions of what size.

    :param table: ``database.table``.
    :param name: names the position that is kept with the table. Two inputs of one table need two names.
    :param partition: values of the one partition to write to; without, they are the records' last fields.
    :param commit_records: commit after so many records,
    :param commit_bytes: or so many bytes of input,
    :param commit_seconds: or so many seconds, whatever comes first.
    :param dead_letters: URI of a file that takes bad records; without, the first one fails the run.
    :param dead_letter_limit: bad records at most in a run.
    :param compaction: the compaction to ask for, in the end, of what was written to; ``None`` leaves that to
        the metastore's initiator.
    """

    table: str
    name: str
    partition: Sequence[str | None] = ()
    commit_records: int = 1_000_000
    commit_bytes: int = 256 << 20
    commit_seconds: float = 60.0
    transaction_batch_size: int = 1
    dead_letters: str | None = None
    dead_letter_limit: int | None = None
    compaction: Literal["minor", "major"] | None = None

    @property
    def position_key(self) -> str:
        """The table parameter that keeps the position."""
        return f"_meta.ingest.{self.name}"

    def check(self) -> None:
        """Make sure that it names a table and a position, and that its bounds can be kept.

        :raises ConfigurationError: it does not, or they cannot.
        """
        database, dot, table = self.table.partition(".")
        if not (database and dot and table):
            raise ConfigurationError(f"{self.table!r} names no table.", remedy="Write database.table.")
        if not _NAME.match(self.name):
            raise ConfigurationError(
                f"{self.name!r} cannot name a position.", remedy="Use letters, digits and ._- only."
            )
        for bound in ("commit_records", "commit_bytes", "commit_seconds", "transaction_batch_size"):
            value = getattr(self, bound)
            if value <= 0:
                raise ConfigurationError(f"{bound} is {value}.", remedy="Give a number above zero.")

    def connection(
        self,
        settings: MetastoreSettings,
        writer: AbstractRecordWriter,
        storage_options: Mapping[str, Any] | None,
    ) -> StreamingConnectionBuilder:
        """Describe the connection of a run."""
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


class IngestRun:
    """Writes what a source gives, and commits it with the source's position.

    ``pending`` and ``committed`` count the records given by the source, bad ones included.

    :param told: what errors about records are raised through.
    :param on_begin: called when a transaction has begun.
    """

    def __init__(
        self,
        connection: HiveStreamingConnection,
        target: IngestTarget,
        *,
        told: Callable[[], AbstractContextManager[None]] = nullcontext,
        on_begin: Callable[[], None] = lambda: None,
    ) -> None:
        self._connection, self._target = connection, target
        self._told, self._on_begin = told, on_begin
        self._position = connection.committed_position
        self._pending_bytes = 0
        self._began = time.monotonic()
        self.pending = self.committed = 0

    def begin(self) -> None:
        """Begin a transaction, if there is none."""
        if self._connection.state is not ConnectionState.OPEN:
            self._connection.begin_transaction()
            self._on_begin()
            self._began = time.monotonic()

    def write(
        self, records: list[bytes] | pa.RecordBatch, position: str, *, count: int | None = None
    ) -> None:
        """Write records.

        :param position: the one behind them.
        :param count: how many the source gave, bad ones included, if that is not how many there are.
        """
        self.begin()
        with self._told():
            if isinstance(records, list):
                self._connection.write_records(records)
                found, size_bytes = len(records), sum(map(len, records))
            else:
                self._connection.write_batch(records)
                found, size_bytes = records.num_rows, records.nbytes
        self.pending += found if count is None else count
        self._pending_bytes += size_bytes
        self._position = position

    def advance(self, position: str) -> None:
        """Move the position without a record; the next commit keeps it."""
        self._position = position

    def is_due(self) -> bool:
        """Whether it is time to commit."""
        target = self._target
        return self._connection.state is ConnectionState.OPEN and (
            self.pending >= target.commit_records
            or self._pending_bytes >= target.commit_bytes
            or time.monotonic() - self._began >= target.commit_seconds
        )

    def commit(self) -> None:
        """Commit what was written, and the position with it."""
        if self._position == self._connection.committed_position and not self.pending:
            return
        self.begin()
        with self._told():
            self._connection.commit_transaction(key=self._target.position_key, value=self._position)
        self.committed += self.pending
        self.pending = self._pending_bytes = 0

    def finish(self) -> None:
        """Commit what is left, and ask for the compaction of what was written to.

        :raises TransactionError: the metastore refuses; what was committed stays.
        """
        self.commit()
        if self._target.compaction is not None:
            self._connection.request_compaction(CompactionKind(self._target.compaction))

    def report(self, began: float, *, files: int = 0, dead_letters: int = 0) -> IngestReport:
        """Say what was done.

        :param dead_letters: bad records that the connection knows nothing of.
        :param began: ``time.monotonic()`` of the run's begin.
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
