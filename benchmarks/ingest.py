"""Streaming ingest: beside Java's hive-streaming, and beside the bare metastore calls.

``python -m benchmarks.ingest`` runs it alone. A million rows of an int and a text of 21 characters go into a
table of 5 buckets in one transaction, from the first row to the end of the commit; Java's client streams the
same records into tables of the same metastore, in turn, in one JVM that has streamed them once before.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa

from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.ingest import (
    ArrowRecordWriter,
    HiveStreamingConnection,
    StrictDelimitedInputWriter,
)
from airflow_hive_federation.metastore import MetastoreClient, MetastoreSettings
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.transactions.locks import TableWrite, WriteKind, lock_components
from benchmarks.contenders import metastores
from benchmarks.hive_streaming import JavaStreaming
from benchmarks.results import Result, beside_limit, faster, table

ROWS = {"full": 1_000_000, "small": 20_000}
BATCH_ROWS, BUCKETS, PARTITIONS, COMMITS = 50_000, 5, 4, 40
_DATABASE = "ingesting"
_ORC = "org.apache.hadoop.hive.ql.io.orc"


@dataclass(frozen=True, kw_only=True)
class Setting:
    """The scale and the repetitions of a measurement, and its directory.

    :param runs: runs of each, in turn; the median counts.
    """

    scale: str
    runs: int
    directory: Path
    say: Callable[[str], None]


def run(setting: Setting) -> Iterator[Result]:
    """Measure ``ingest-arrow``, ``ingest-records``, ``ingest-dynamic`` and ``ingest-commit``."""
    with (
        metastores(setting.directory, "ingesting") as (metastore,),
        JavaStreaming(metastore.uri, setting.directory) as java,
    ):
        times = _Arena(setting, metastore, java).measured()
    count = ROWS[setting.scale]
    for part, how, peer, aim in (
        ("ingest-arrow", "by Arrow batches", "java", 3),
        ("ingest-records", "by single write calls", "java", 1),
        (
            "ingest-dynamic",
            f"by Arrow batches into {PARTITIONS} dynamic partitions",
            "java dynamic",
            3,
        ),
    ):
        yield faster(
            part,
            f"{count:,} rows, {BUCKETS} buckets, {how}",
            ours_s=times[part],
            peer="hive-streaming of Java, warm, by single write calls",
            peer_s=times[peer],
            at_least=aim,
        )
    yield beside_limit(
        "ingest-commit",
        f"{COMMITS} transactions of one record",
        ours_s=times["ingest-commit"],
        peer="the bare metastore calls",
        peer_s=times["bare calls"],
        at_most=1.5,
    )


class _Arena:
    def __init__(self, setting: Setting, metastore: EmbeddedMetastore, java: JavaStreaming) -> None:
        self._setting, self._java = setting, java
        self._settings = MetastoreSettings(uris=(metastore.uri,))
        self._tables = 0
        with MetastoreClient(self._settings) as client:
            client.create_database(types.Database(name=_DATABASE, ownerName="root"))

    def measured(self) -> Mapping[str, float]:
        """Median seconds of each, by name."""
        count = ROWS[self._setting.scale]
        texts = [f"text number {number:09d}" for number in range(count)]
        every_row = pa.RecordBatch.from_pydict(
            {"id": pa.array(np.arange(count, dtype=np.int32)), "msg": texts}
        )
        batches = [every_row.slice(start, BATCH_ROWS) for start in range(0, count, BATCH_ROWS)]
        names = pa.array([f"p{number % PARTITIONS}" for number in range(count)])
        dynamic = [
            batch.append_column("p", names.slice(place * BATCH_ROWS, BATCH_ROWS))
            for place, batch in enumerate(batches)
        ]
        records = [f"{number},{text}".encode() for number, text in enumerate(texts)]
        contenders: dict[str, Callable[[], float]] = {
            "ingest-arrow": lambda: self._by_batches(batches, ["p0"]),
            "ingest-records": lambda: self._by_records(records),
            "ingest-dynamic": lambda: self._by_batches(dynamic, []),
            "java": lambda: self._by_java(count, 0),
            "java dynamic": lambda: self._by_java(count, PARTITIONS),
            "ingest-commit": self._by_commits,
            "bare calls": self._by_bare_calls,
        }
        times: dict[str, list[float]] = {name: [] for name in contenders}
        for number in range(self._setting.runs + 1):
            for name, contender in contenders.items():
                seconds = contender()
                if number:
                    times[name].append(seconds)
                self._setting.say(f"{name} {seconds:.2f} s{'' if number else ' (warming up)'}")
        return {name: median(seconds) for name, seconds in times.items()}

    def _by_batches(self, batches: list[pa.RecordBatch], partition: list[str]) -> float:
        connection = self._connection(ArrowRecordWriter(), partition)
        started = time.perf_counter()
        connection.begin_transaction()
        for batch in batches:
            connection.write_batch(batch)
        connection.commit_transaction()
        seconds = time.perf_counter() - started
        connection.close()
        return seconds

    def _by_records(self, records: list[bytes]) -> float:
        connection = self._connection(StrictDelimitedInputWriter(field_delimiter=","), ["p0"])
        started = time.perf_counter()
        connection.begin_transaction()
        for record in records:
            connection.write(record)
        connection.commit_transaction()
        seconds = time.perf_counter() - started
        connection.close()
        return seconds

    def _by_java(self, count: int, partitions: int) -> float:
        transaction = {"first": 0, "count": count, "partitions": partitions, "abort": False}
        static = [] if partitions else ["p0"]
        return self._java.stream(_DATABASE, self._table(), [transaction], static=static)

    def _by_commits(self) -> float:
        connection = self._connection(StrictDelimitedInputWriter(field_delimiter=","), ["p0"])
        started = time.perf_counter()
        for number in range(COMMITS):
            connection.begin_transaction()
            connection.write(b"%d,text" % number)
            connection.commit_transaction()
        seconds = time.perf_counter() - started
        connection.close()
        return seconds

    def _by_bare_calls(self) -> float:
        name = self._table()
        write = TableWrite(database=_DATABASE, table=name, kind=WriteKind.INSERT, partition="p=p0")
        with MetastoreClient(self._settings) as client:
            described: Any = client.get_table(_DATABASE, name)
            storage = described.sd
            storage.location = f"{storage.location}/p=p0"
            part = types.Partition(dbName=_DATABASE, tableName=name, values=["p0"], sd=storage, parameters={})
            client.add_partitions([part])
            started = time.perf_counter()
            for _ in range(COMMITS):
                (txn_id,) = client.open_txns(1)
                write_id = client.allocate_table_write_ids(_DATABASE, name, [txn_id])[txn_id]
                client.lock(lock_components([write]), txn_id=txn_id)
                delta = f"delta_{write_id:07d}_{write_id:07d}"
                data = types.InsertEventRequestData(
                    replace=False,
                    filesAdded=[f"{storage.location}/{delta}/bucket_00000"],
                    filesAddedChecksum=[""],
                    subDirectoryList=[delta],
                )
                request = types.WriteNotificationLogRequest(
                    txnId=txn_id,
                    writeId=write_id,
                    db=_DATABASE,
                    table=name,
                    fileInfo=data,
                    partitionVals=["p0"],
                )
                client.call("add_write_notification_log", request)
                client.commit_txn(txn_id)
            return time.perf_counter() - started

    def _connection(self, writer: Any, partition: list[str]) -> HiveStreamingConnection:
        return (
            HiveStreamingConnection.new_builder()
            .with_database(_DATABASE)
            .with_table(self._table())
            .with_static_partition_values(partition)
            .with_record_writer(writer)
            .with_conf(self._settings)
            .connect()
        )

    def _table(self) -> str:
        self._tables += 1
        name = f"t{self._tables}"
        fields = [types.FieldSchema(name="id", type="int"), types.FieldSchema(name="msg", type="string")]
        with MetastoreClient(self._settings) as client:
            client.create_table(
                types.Table(
                    dbName=_DATABASE,
                    tableName=name,
                    owner="root",
                    sd=types.StorageDescriptor(
                        cols=fields,
                        inputFormat=f"{_ORC}.OrcInputFormat",
                        outputFormat=f"{_ORC}.OrcOutputFormat",
                        numBuckets=BUCKETS,
                        bucketCols=["id"],
                        sortCols=[],
                        parameters={},
                        serdeInfo=types.SerDeInfo(serializationLib=f"{_ORC}.OrcSerde", parameters={}),
                    ),
                    partitionKeys=[types.FieldSchema(name="p", type="string")],
                    parameters={"transactional": "true", "bucketing_version": "2"},
                    tableType="MANAGED_TABLE",
                )
            )
        return name


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="benchmarks-") as made:
        scale = sys.argv[1] if len(sys.argv) > 1 else "full"
        print(table(list(run(Setting(scale=scale, runs=3, directory=Path(made), say=print)))))
