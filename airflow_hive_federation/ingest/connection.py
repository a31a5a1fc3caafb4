"""Streams records into one Hive table through a connection like Hive's: a commit makes the records visible.

One thread uses a transaction: the thread that begins it also writes its records and ends it. Another thread
may call ``close`` and ``abort_transaction`` as long as no other call is under way.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Self

import pyarrow as pa

from airflow_hive_federation.compaction.plan import CompactionKind
from airflow_hive_federation.compaction.requests import CompactionRequested, request_compaction
from airflow_hive_federation.errors import HiveFederationError
from airflow_hive_federation.ingest.batch import BatchSettings, TransactionBatch
from airflow_hive_federation.ingest.builder import StreamingConnectionBuilder
from airflow_hive_federation.ingest.dead_letters import BadRecords
from airflow_hive_federation.ingest.description import Description, described_table
from airflow_hive_federation.ingest.errors import (
    HeartBeatFailure,
    InvalidConnection,
    InvalidTransactionState,
    SerializationError,
    StreamingException,
    StreamingIOFailure,
    TransactionError,
    io_errors,
    metastore_errors,
)
from airflow_hive_federation.ingest.formats.arrow_records import conforming_batch
from airflow_hive_federation.ingest.formats.not_null import refuse_nulls, without_nulls
from airflow_hive_federation.ingest.formats.record_bounds import parse_bounded
from airflow_hive_federation.ingest.formats.streams import records_of
from airflow_hive_federation.ingest.formats.writers import AbstractRecordWriter
from airflow_hive_federation.ingest.partitions import Partitions, partition_values
from airflow_hive_federation.ingest.position import (
    check_keeps_positions,
    check_key,
    committed_position,
    ensure_position,
    take_over,
)
from airflow_hive_federation.ingest.states import Call, ConnectionState, Outcome, after
from airflow_hive_federation.ingest.statistics import ConnectionStats
from airflow_hive_federation.metastore import MetastoreClient
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.model.types import Column
from airflow_hive_federation.transactions.positions import fence
from airflow_hive_federation.transactions.transaction import heartbeat_interval_s

log = logging.getLogger(__name__)

_PARSE_RECORDS = 100_000
_PARSE_BYTES = 16 << 20


class HiveStreamingConnection:
    """A connection that streams records into one table; :meth:`new_builder` makes it."""

    def __init__(self, description: Description) -> None:
        self._description = description
        if description.settings is None or description.writer is None:
            raise InvalidConnection("The connection is not described.", remedy="Use new_builder().")
        self._writer: AbstractRecordWriter = description.writer
        self._client = MetastoreClient(description.settings)
        self._state = ConnectionState.READY
        self._inside = threading.Lock()
        self._thread = 0
        self._records: list[bytes] = []
        self._records_bytes = 0
        self._parsed = 0
        self._batch: TransactionBatch | None = None
        self._position: str | None = None
        self._bad = BadRecords(description.dead_letters, description.dead_letter_limit)
        self.stats = ConnectionStats()
        try:
            self._connect()
        except BaseException:
            self._client.close()
            raise

    @classmethod
    def new_builder(cls) -> StreamingConnectionBuilder[Self]:
        """Return a builder of connections."""
        return StreamingConnectionBuilder(cls)

    @property
    def state(self) -> ConnectionState:
        """Return the state of the connection."""
        return self._state

    @property
    def record_columns(self) -> tuple[Column, ...]:
        """Return the columns of the records: the table's, then the keys of dynamic partitions."""
        return self._columns

    @property
    def committed_position(self) -> str | None:
        """Return the last committed position under the key of ``with_position_key``."""
        return self._position

    @property
    def current_txn_id(self) -> int | None:
        """Return the id of the present transaction."""
        return None if self._batch is None else self._batch.txn_id

    @property
    def current_write_id(self) -> int | None:
        """Return the write id of the present transaction."""
        return None if self._batch is None or not self._batch.write_ids else self._batch.write_id

    @property
    def remaining_transactions(self) -> int:
        """Return the number of transactions of the batch that were not begun yet."""
        return 0 if self._batch is None else self._batch.remaining

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            self.close()
        except StreamingException as failure:
            if error is None:
                raise
            error.add_note(f"The streaming connection could not be closed: {failure}")

    @contextmanager
    def transaction(self) -> Iterator[Self]:
        """Begin a transaction, commit it at the end of the block, and abort it if the block raises."""
        self.begin_transaction()
        try:
            yield self
            if self._state is ConnectionState.OPEN:
                self.commit_transaction()
        except BaseException as error:
            if self._state is ConnectionState.OPEN:
                try:
                    self.abort_transaction()
                except StreamingException as failure:
                    error.add_note(f"The transaction could not be aborted: {failure}")
            raise

    def begin_transaction(self) -> None:
        """Begin the next transaction, and open another batch if the present one is used up.

        Another batch is opened, too, if a statement has overwritten what the present one writes to, or has
        removed its files.

        :raises InvalidTransactionState: a transaction is open, or the connection is closed or has failed.
        :raises TransactionError: the metastore does not open the transaction or does not grant its lock.
        """
        with self._entered(Call.BEGIN):
            self._roll_over()
            self._thread = threading.get_ident()
            self._parsed = 0
            try:
                self._current().begin()
                if self._current().is_outdated:
                    self._close_batch(open_too=True)
                    self._roll_over()
                    self._current().begin()
                self._check_position()
            except BaseException as error:
                # Without a thread, the next `write` looks at the state, and is refused.
                self._thread = 0
                if isinstance(error, StreamingException):
                    self._move(Outcome.NOT_BEGUN)
                    if self._batch is not None:
                        self._batch.abort()
                    self._move(Outcome.ABORTED)
                raise
            self._move(Call.BEGIN)

    def write(self, data: bytes | str | Any) -> None:
        """Write one record, or all records of a stream.

        Records are parsed many at a time. A later ``write``, or the commit, therefore reports a bad record
        with its number; the other records are written.

        :param data: a record, or an object with ``read(size)`` whose records end with the writer's line
            delimiter.
        :raises SerializationError: a record cannot be parsed. The transaction stays open.
        :raises StreamingIOFailure: rows cannot be written. The connection can only be closed.
        """
        if data.__class__ is not bytes or self._thread != threading.get_ident():
            self._write_other(data)
            return
        self._records.append(data)
        self._records_bytes += len(data)
        if len(self._records) >= _PARSE_RECORDS or self._records_bytes >= _PARSE_BYTES:
            with self._entered(Call.WRITE):
                self._parse()

    def write_records(self, records: Sequence[bytes]) -> None:
        """Write many records as :meth:`write` writes one.

        :raises SerializationError: a record cannot be parsed. The transaction stays open.
        :raises StreamingIOFailure: rows cannot be written. The connection can only be closed.
        """
        with self._entered(Call.WRITE):
            self._take(list(records))

    def write_batch(self, batch: pa.RecordBatch | pa.Table) -> None:
        """Write the rows of an Arrow batch, whose columns match the table's columns by name.

        The keys of dynamic partitions are columns of the batch too.

        :raises InvalidColumn: the columns are not the table's.
        :raises SerializationError: a value does not fit its column. No row of the batch is written.
        :raises StreamingIOFailure: rows cannot be written. The connection can only be closed.
        """
        with self._entered(Call.WRITE):
            self._parse()
            pieces = batch.to_batches() if isinstance(batch, pa.Table) else [batch]
            conforming = [conforming_batch(piece, self._columns) for piece in pieces]
            for rows in conforming:
                refuse_nulls(rows, self.layout.not_null)
            for rows, piece in zip(conforming, pieces, strict=True):
                self._current().insert(rows)
                self.stats.records_written += rows.num_rows
                self.stats.records_size_bytes += piece.nbytes

    def flush(self) -> None:
        """Parse the buffered records and write their rows, which readers see after the commit.

        :raises SerializationError: a record cannot be parsed.
        :raises StreamingIOFailure: rows cannot be written.
        """
        with self._entered(Call.WRITE):
            self._parse()
            self._current().flush()

    def commit_transaction(
        self, partitions: Collection[str] | None = None, key: str | None = None, value: str | None = None
    ) -> None:
        """Make the transaction's records visible.

        The caller may repeat the call while the transaction lives, if no metastore has answered.

        :param partitions: names (``day=2026-01-01``) of partitions to create even if they stay empty.
        :param key: table parameter to set in the same step (``_meta…``).
        :param value: value of that parameter, for instance the position of the input.
        :raises SerializationError: a buffered record cannot be parsed. The transaction stays open, and a
            second commit commits the other records.
        :raises HeartBeatFailure: the metastore has aborted the transaction or forgotten it.
        :raises TransactionError: the metastore refuses the commit.
        :raises ConfigurationError: the metastore is older than Hive 4, and would not set the parameter.
        :raises ConnectionError: no metastore answers; nothing is known to be lost.
        """
        if (key is None) != (value is None):
            raise InvalidTransactionState("A key and its value go together.", remedy="Give both, or neither.")
        with self._entered(Call.COMMIT):
            key_value = None
            if key is not None:
                self._check_sets_parameters()
                key_value = types.CommitTxnKeyValue(tableId=self._table.id, key=check_key(key), value=value)
            self._parse()
            with io_errors("Dead letters"):
                self._bad.flush()
            batch = self._current()
            batch.commit([partition_values(name) for name in partitions or ()], key_value)
            self._move(Call.COMMIT)
            self.stats.committed_transactions += 1
            if key is not None and key == self._description.position_key:
                self._position = value
            self._count()
        if batch.remaining == 0:
            self._finish_used_up()

    def abort_transaction(self) -> None:
        """Drop the transaction's records; the call has no effect on a connection that has failed.

        :raises TransactionError: the metastore cannot be reached; it aborts the transaction itself when the
            heartbeats are missing.
        """
        with self._entered(Call.ABORT):
            if self._state is ConnectionState.FAILED:
                return
            # A transaction whose abort fails is one that has failed.
            self._move(Outcome.LOST)
            self._current().abort()
            self._move(Outcome.ABORTED)
            self.stats.aborted_transactions += 1
            self._count()

    def request_compaction(self, kind: CompactionKind) -> list[CompactionRequested]:
        """Request a compaction of the partitions that were written to, as the metastore's initiator does.

        :return: one request per partition; the workers of the compaction queue carry them out.
        :raises InvalidTransactionState: a transaction is open, or the connection is closed or has failed.
        :raises TransactionError: the metastore refuses the request.
        """
        with (
            self._entered(Call.COMPACT),
            metastore_errors(TransactionError, f"Compaction of {self.layout.name}"),
        ):
            if not self._partitions.met:
                return []
            return request_compaction(self._client, self.layout.name, kind, partitions=self._partitions.names)

    def close(self) -> None:
        """Abort the open transactions and end the connection; a second call has no effect.

        :raises StreamingException: files or transactions could not be ended; the connection is closed all the
            same.
        """
        with self._entered(Call.CLOSE):
            if self._state is ConnectionState.CLOSED:
                return
            was_open = self._state in {ConnectionState.OPEN, ConnectionState.FAILED}
            if self._state is ConnectionState.OPEN:
                self.stats.aborted_transactions += 1
            self._move(Call.CLOSE)
            try:
                self._close_batch(open_too=was_open)
                with io_errors("Dead letters"):
                    self._bad.flush()
            finally:
                self._client.close()
                log.info("closed streaming connection of %s: %s", self._description.agent_info, self.stats)

    def _connect(self) -> None:
        description = self._description
        self._table, self.layout, static = described_table(self._client, description)
        dynamic = bool(self.layout.partition_keys) and not static
        self._columns = (*self.layout.columns, *(self.layout.partition_keys if dynamic else ()))
        self._writer.bind(self._columns)
        self._partitions = Partitions(
            self._client, self._table, self.layout, dynamic=dynamic, position_key=description.position_key
        )
        with metastore_errors(TransactionError, f"Connecting to {self.layout.name}"):
            if description.position_key is not None:
                database, table = description.database, description.table
                position_args = (self._client, database, table, description.position_key)
                ensure_position(*position_args, lock_policy=description.lock_policy)
                take_over(*position_args)
                self._position = committed_position(*position_args)
            interval_s = heartbeat_interval_s(self._client)
        self._batch_settings = BatchSettings(
            layout=self.layout,
            static=None if dynamic else static,
            size=description.batch_size,
            agent_info=description.agent_info,
            optimized=description.optimized,
            compression="uncompressed" if description.optimized else self.layout.compression,
            buffer_bytes=description.buffer_bytes,
            heartbeat_interval_s=interval_s,
            storage_options=description.storage_options,
            fence=fence(description.database, description.table, description.position_key)
            if description.position_key
            else None,
            lock_policy=description.lock_policy,
            at=description.at,
            on_lost=self._note_lost,
        )

    @contextmanager
    def _entered(self, call: Call) -> Iterator[None]:
        """Admit one thread, check that the call is legal, and change the state if an error requires it."""
        if not self._inside.acquire(blocking=False):
            raise InvalidTransactionState(
                f"{call}: another thread is inside the connection.",
                remedy="Use a connection for each thread.",
                state=str(self._state),
            )
        try:
            after(self._state, call)
            if call in {Call.WRITE, Call.COMMIT}:
                self._current().check()
            if call in {Call.WRITE, Call.COMMIT} and self._thread != threading.get_ident():
                raise InvalidTransactionState(
                    f"{call}: another thread has begun this transaction.",
                    remedy="Use a connection for each thread.",
                    state=str(self._state),
                )
            yield
        except (StreamingIOFailure, HeartBeatFailure):
            self._move(Outcome.LOST)
            raise
        finally:
            self._inside.release()

    def _check_sets_parameters(self) -> None:
        # A connection with a position has checked it.
        if self._description.position_key is None:
            with metastore_errors(TransactionError, f"Commit of a parameter of {self.layout.name}"):
                check_keeps_positions(self._client, self.layout.database, self.layout.table)

    def _check_position(self) -> None:
        """Check, while holding the lock, that no other process has moved the position."""
        key = self._description.position_key
        if key is None:
            return
        with metastore_errors(TransactionError, f"Position {key}"):
            position = committed_position(
                self._client, self._description.database, self._description.table, key
            )
        if position != self._position:
            raise TransactionError(
                f"{self.layout.name}: another process moved {key} from {self._position!r} to {position!r}.",
                remedy="Let one process move a position at a time; connect again to go on from there.",
            )

    def _move(self, event: Call | Outcome) -> None:
        """Change the state; records and the thread belong to an open transaction only."""
        self._state = after(self._state, event)
        if self._state is not ConnectionState.OPEN:
            self._thread = 0
            self._drop_records()
            self._bad.forget()

    def _write_other(self, data: object) -> None:
        with self._entered(Call.WRITE):
            if isinstance(data, str):
                self._take([data.encode()])
            elif isinstance(data, bytes | bytearray | memoryview):
                self._take([bytes(data)])
            elif hasattr(data, "read"):
                longest = self._writer.max_record_bytes
                for records in records_of(data, self._writer.line_delimiter, longest):
                    self._take(records)
            else:
                raise SerializationError(
                    f"A {type(data).__name__} is not a record.", remedy="Write bytes, str, or a stream."
                )

    def _take(self, records: list[bytes]) -> None:
        self._records += records
        self._records_bytes += sum(map(len, records))
        if len(self._records) >= _PARSE_RECORDS or self._records_bytes >= _PARSE_BYTES:
            self._parse()

    def _parse(self) -> None:
        if self._records:
            records, size_bytes = self._records, self._records_bytes
            parsed = without_nulls(parse_bounded(self._writer, records), self.layout.not_null, len(records))
            # Inserting rows may raise an error after which the caller repeats the commit.
            self._bad.add(records, parsed.bad, self._parsed)
            self._drop_records()
            self._parsed += len(records)
            self.stats.records_written += parsed.rows.num_rows
            self.stats.records_size_bytes += size_bytes
            self._current().insert(parsed.rows)
        try:
            with io_errors("Dead letters"):
                self._bad.settle()
        finally:
            self.stats.dead_letters = self._bad.count

    def _drop_records(self) -> None:
        self._records, self._records_bytes = [], 0

    def _roll_over(self) -> None:
        if self._batch is not None and (self._batch.remaining == 0 or self._batch.is_outdated):
            self._close_batch()
        if self._batch is None:
            self._batch = TransactionBatch(self._client, self._batch_settings, self._partitions)
            self.stats.transaction_batches += 1

    def _close_batch(self, *, open_too: bool = False) -> None:
        batch, self._batch = self._batch, None
        if batch is None:
            return
        self.stats.auto_flush_count += batch.auto_flushes
        try:
            batch.close(open_too=open_too)
        except HiveFederationError as error:
            raise StreamingIOFailure(
                f"A transaction batch of {self.layout.name} could not be ended: {error.message}",
                remedy="Send the records that are not committed again.",
            ) from error

    def _finish_used_up(self) -> None:
        try:
            self._close_batch()
        except StreamingIOFailure as error:
            # The transaction is committed, and the caller would take an error for a failed commit.
            log.warning("%s", error)

    def _note_lost(self, txn_ids: Collection[int]) -> None:
        """Make the next ``write`` check for lost transactions; the heartbeats call this."""
        batch = self._batch
        if batch is not None and batch.txn_id in txn_ids:
            self._thread = 0

    def _current(self) -> TransactionBatch:
        if self._batch is None:
            raise InvalidTransactionState("No transaction was begun.", state=str(self._state))
        return self._batch

    def _count(self) -> None:
        self.stats.created_partitions = self._partitions.created
        self.stats.total_partitions = self._partitions.met if self.layout.partition_keys else 0
