"""A process that streams large records, and prints the memory that it took."""

from __future__ import annotations

import sys

import numpy as np
import pyarrow as pa

from airflow_hive_federation.ingest import HiveStreamingConnection, StrictDelimitedInputWriter
from airflow_hive_federation.ingest.builder import StreamingConnectionBuilder
from airflow_hive_federation.metastore import MetastoreSettings
from tests.support.process_memory import peak_memory_bytes

PARTITIONS, ROWS, BATCH_ROWS = 4_000, 1_000_000, 100_000
RECORD_BYTES = 100_000_000


def partitions(builder: StreamingConnectionBuilder) -> None:
    """Write to all partitions in every batch, with a buffer that holds a few batches."""
    with builder.with_buffer_bytes(16 << 20).connect() as connection, connection.transaction():
        for first in range(0, ROWS, BATCH_ROWS):
            ids = np.arange(first, first + BATCH_ROWS, dtype=np.int32)
            texts = pa.array([f"text {number}" for number in ids.tolist()])
            keys = pa.array(ids % PARTITIONS)
            connection.write_batch(pa.RecordBatch.from_pydict({"id": ids, "msg": texts, "p": keys}))
        connection.commit_transaction()


def record(builder: StreamingConnectionBuilder) -> None:
    """Write one very long record, and short ones around it."""
    long = b"2," + b"x" * (RECORD_BYTES - 5) + b"end"
    with builder.connect() as connection, connection.transaction():
        for record in (b"1,short", long, b"3,short"):
            connection.write(record)


def main(kind: str, uri: str, database: str, table: str) -> None:
    """Stream, and print by how many bytes the process has grown."""
    builder = (
        HiveStreamingConnection.new_builder()
        .with_database(database)
        .with_table(table)
        .with_record_writer(StrictDelimitedInputWriter(field_delimiter=","))
        .with_conf(MetastoreSettings(uris=(uri,)))
    )
    before = peak_memory_bytes()
    {"partitions": partitions, "record": record}[kind](builder)
    print(peak_memory_bytes() - before)


if __name__ == "__main__":
    main(*sys.argv[1:])
