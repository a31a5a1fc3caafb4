"""Reads the transactions and write ids of either side as its readers see them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.model.write_ids import ValidTxns, ValidWriteIds
from airflow_hive_federation.replication.metadata.definitions import table_kind

if TYPE_CHECKING:
    from airflow_hive_federation.metastore import MetastoreClient


def readable_write_ids(
    client: MetastoreClient, tables: Iterable[types.Table], transactions: ValidTxns
) -> dict[str, ValidWriteIds]:
    """Return the valid write ids of all ACID tables among ``tables`` at one moment, by table name."""
    names = [f"{table.dbName}.{table.tableName}" for table in tables if table_kind(table).transactional]
    answers = client.get_valid_write_ids(names, valid_txn_list=transactions.text()) if names else {}
    return {
        full_name.partition(".")[2]: ValidWriteIds.of(
            full_name,
            high_watermark=answer.writeIdHighWaterMark or 0,
            invalid_ids=answer.invalidWriteIds or (),
            aborted_bits=answer.abortedBits or b"",
        )
        for full_name, answer in answers.items()
    }


def valid_transactions(answer: types.GetOpenTxnsResponse) -> ValidTxns:
    """Convert a ``GetOpenTxnsResponse`` to the list of transactions that a reader may see."""
    return ValidTxns.of(
        high_watermark=answer.txn_high_water_mark,
        invalid_ids=answer.open_txns or (),
        aborted_bits=answer.abortedBits or b"",
    )
