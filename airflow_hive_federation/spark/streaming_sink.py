"""Writes Spark rows into an ACID table exactly once, from a DataFrame or from Structured Streaming.

>>> sink = HiveStreamingSink(settings, "sales.orders", name="orders")  # doctest: +SKIP
>>> stream.writeStream.foreachBatch(sink).option("checkpointLocation", "…").start()  # doctest: +SKIP

One micro-batch is one transaction, to which all of Spark's tasks write. The transaction commits the number of
the batch with its rows, so the sink recognises and skips batches that Spark repeats after a restart.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.ingest.errors import TransactionError
from airflow_hive_federation.ingest.position import (
    check_key,
    committed_position,
    ensure_position,
    movers,
    take_over,
)
from airflow_hive_federation.metastore.client import MetastoreClient
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.metastore.settings import MetastoreSettings
from airflow_hive_federation.model import bounded_json
from airflow_hive_federation.model.json_values import reader_of
from airflow_hive_federation.storage.options import StorageOptions
from airflow_hive_federation.tables.write.statements import WriteResult, append
from airflow_hive_federation.transactions.locks import granted
from airflow_hive_federation.transactions.positions import WAITING, fence
from airflow_hive_federation.transactions.transaction import Transaction

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

log = logging.getLogger(__name__)

# Local property that Spark sets in a query's thread (StreamExecution.QUERY_ID_KEY); its value is part of the
# query's checkpoint.
_QUERY_ID = "sql.streaming.queryId"


@dataclass(frozen=True, kw_only=True)
class StreamPosition:
    """The last committed micro-batch.

    :param query: the id of the streaming query, which its checkpoint holds.
    :param batch: the number of the micro-batch.
    """

    query: str
    batch: int


_POSITION = reader_of(StreamPosition)


class HiveStreamingSink:
    """Writes micro-batches into a table; pass it to ``foreachBatch``.

    :param settings: settings of the metastore client.
    :param table: ``database.table`` of a transactional table.
    :param name: name of the query's position, which the table keeps. Two queries into one table need two
        names.
    :param partition: static values of partition keys; the rows hold the values of the other keys.
    :param storage_options: options of the table's store.
    """

    def __init__(
        self,
        settings: MetastoreSettings,
        table: str,
        *,
        name: str,
        partition: Mapping[str, object] | None = None,
        storage_options: StorageOptions | None = None,
    ) -> None:
        self._settings, self._table = settings, table
        self._key = check_key(f"_meta.spark.{name}")
        self._partition, self._storage_options = partition, storage_options

    def __call__(self, rows: DataFrame, batch_id: int) -> None:
        """Write a micro-batch, unless it was committed before.

        :raises ConfigurationError: the position belongs to another query (another checkpoint).
        :raises HiveFederationError: the write failed, and none of its rows are visible.
        """
        query_id = rows.sparkSession.sparkContext.getLocalProperty(_QUERY_ID) or ""

        def advance(before: str | None) -> str | None:
            if before is not None and self._has(self._position(before), query_id, batch_id):
                log.info("%s: batch %d was committed before", self._table, batch_id)
                return None
            return json.dumps(asdict(StreamPosition(query=query_id, batch=batch_id)))

        write_frame(
            rows,
            self._settings,
            self._table,
            key=self._key,
            advance=advance,
            partition=self._partition,
            storage_options=self._storage_options,
        )

    def committed(self) -> StreamPosition | None:
        """Return the last committed micro-batch; ``None`` if none was committed."""
        database, _, table = self._table.partition(".")
        with MetastoreClient(self._settings) as client:
            text = committed_position(client, database, table, self._key)
        return None if text is None else self._position(text)

    def _position(self, text: str) -> StreamPosition:
        try:
            return _POSITION(bounded_json.loads(text))
        except ValueError as error:
            raise ConfigurationError(
                f"{self._table}: {self._key} is not the position of a query: {text[:200]!r}.",
                remedy="The parameter was changed: set it back, or give the query another name.",
            ) from error

    def _has(self, before: StreamPosition, query_id: str, batch_id: int) -> bool:
        if before.query != query_id:
            raise ConfigurationError(
                f"{self._table}: {self._key} is the position of query {before.query}, not of {query_id}.",
                remedy="Go on from that query's checkpoint, or give the new query another name.",
            )
        return batch_id <= before.batch


def write_frame(
    rows: DataFrame,
    settings: MetastoreSettings,
    table: str,
    *,
    key: str,
    advance: Callable[[str | None], str | None],
    partition: Mapping[str, object] | None = None,
    storage_options: StorageOptions | None = None,
) -> WriteResult | None:
    """Append rows and move a position in one transaction.

    :param rows: the rows to append.
    :param settings: settings of the metastore client.
    :param table: ``database.table``.
    :param key: table parameter (``_meta…``) that keeps the position.
    :param advance: receives the last committed position; returns the next one, or ``None`` if the rows were
        written before.
    :param partition: static values of partition keys; the rows hold the values of the other keys.
    :param storage_options: options of the table's store.
    :return: ``None`` if no rows were written.
    :raises TransactionError: another process is moving the position.
    :raises HiveFederationError: see :func:`~airflow_hive_federation.tables.write.statements.append`.
    """
    database, _, name = table.partition(".")
    with _PositioningClient(settings) as client:
        ensure_position(client, database, name, key)
        take_over(client, database, name, key)
        with Transaction(client) as transaction:
            _hold(client, transaction, database, name, key)
            transaction.own_positions.add(key)
            position = advance(committed_position(client, database, name, key))
            if position is None:
                transaction.abort()
                return None
            client.key_value = types.CommitTxnKeyValue(
                tableId=client.get_table(database, name).id, key=key, value=position
            )
            return append(
                rows.sparkSession,
                client,
                table,
                rows,
                partition=partition,
                transaction=transaction,
                storage_options=storage_options,
            )


def _hold(client: MetastoreClient, transaction: Transaction, database: str, table: str, key: str) -> None:
    """Take the fence of a position; wait for a process that alters the table, but for none that moves it."""
    lock = client.lock([fence(database, table, key)], txn_id=transaction.id)
    if lock.state == types.LockState.ACQUIRED:
        return
    others = {*movers(client, database, table, key)} - {transaction.id}
    if others or not granted(client, lock, WAITING, txn_id=transaction.id):
        raise TransactionError(
            f"{database}.{table}: another process is moving {key}.",
            remedy="Let one process move a position at a time.",
        )


class _PositioningClient(MetastoreClient):
    """A metastore client that sets a position with each commit."""

    key_value: types.CommitTxnKeyValue | None = None

    def commit_txn(self, txn_id: int, **rest: Any) -> None:
        super().commit_txn(txn_id, **{"key_value": self.key_value, **rest})
