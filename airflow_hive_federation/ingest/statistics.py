"""Counts the records, transactions and partitions of a streaming connection."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class ConnectionStats:
    """Counters of a connection: those of Hive's ``ConnectionStats`` and a few more.

    :param records_written: rows passed to the files, those of aborted transactions included.
    :param records_size_bytes: bytes of the records before they were parsed.
    :param created_partitions: partitions that did not exist before.
    :param total_partitions: partitions that were written to.
    :param auto_flush_count: number of times that a full buffer was written before a commit.
    :param dead_letters: bad records that were put aside.
    """

    records_written: int = 0
    records_size_bytes: int = 0
    committed_transactions: int = 0
    aborted_transactions: int = 0
    transaction_batches: int = 0
    created_partitions: int = 0
    total_partitions: int = 0
    auto_flush_count: int = 0
    dead_letters: int = 0
