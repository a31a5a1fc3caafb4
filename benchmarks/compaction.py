"""Major compaction: ours beside Hive's own worker, on equal tables.

``python -m benchmarks.compaction`` runs it alone. Both compact tables of 20 deltas with 200,000 rows each, of
which a later delete delta deletes every tenth, and take turns. Hive's time is that of its queue, from the
moment its worker took the request to the commit: the start of its JVM is left out, and a small table warms it
up.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa
from pyarrow import orc

from airflow_hive_federation.compaction.plan import CompactionKind
from airflow_hive_federation.compaction.requests import (
    compact_table,
    queue_entry,
    request_compaction,
)
from airflow_hive_federation.compaction.runners import in_threads
from airflow_hive_federation.compaction.worker import CompactionReport
from airflow_hive_federation.embedded.configuration import site_xml, sql_settings
from airflow_hive_federation.embedded.jars import sql_jars
from airflow_hive_federation.embedded.jvm import clean_environment, java_command, launcher_classes
from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.metastore import MetastoreClient, MetastoreSettings
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.runtime.java import find_java
from benchmarks import results

DATABASE = "compaction"
DELTAS, ROWS = 20, 200_000
_BUCKET = 0x20000000
#: In these states a request leaves the worker (``did not initiate`` is of requests that Hive made).
_DONE_STATES = frozenset({"ready for cleaning", "succeeded", "failed", "refused", "did not initiate"})
_ORC = "org.apache.hadoop.hive.ql.io.orc"
_COLUMNS = {"id": "int", "name": "string"}
_WORKER = """
import java.util.concurrent.atomic.AtomicBoolean
import org.apache.hadoop.hive.conf.HiveConf
def conf = new HiveConf()
conf.set('hive.compactor.worker.threads', '1')
conf.set('hive.compactor.worker.sleep.time', '200ms')
conf.set('hive.compactor.worker.max.sleep.time', '200ms')
// Otherwise its local job is looked at every five seconds.
conf.set('mapreduce.client.completion.pollinterval', '50')
conf.set('mapreduce.client.progressmonitor.pollinterval', '50')
def type = Class.forName('org.apache.hadoop.hive.ql.txn.compactor.Worker')
def worker = type.getDeclaredConstructor().newInstance()
worker.conf = conf
worker.name = 'hives'
worker.init(new AtomicBoolean(false))
worker.start()
worker.join()
"""


def run(runs: int, say: Callable[[str], None], deltas: int = DELTAS, rows: int = ROWS) -> results.Result:
    """Measure; medians of ``runs`` of each, in turns.

    :param say: receives one line per step.
    :param deltas: of each table.
    :param rows: of each delta.
    """
    with EmbeddedMetastore.start("compaction-benchmark") as metastore:
        settings = MetastoreSettings(uris=(metastore.uri,))
        with MetastoreClient(settings) as client, _hives_worker(metastore):
            client.create_database(types.Database(name=DATABASE, ownerName="root"))
            say("both warm up")
            _by_hive(client, make_table(client, metastore.warehouse, "warm", 2, 1000))
            _by_us(settings, make_table(client, metastore.warehouse, "warm_too", 2, 1000))
            ours, hives = [], []
            for number in range(runs):
                table = make_table(client, metastore.warehouse, f"ours_{number}", deltas, rows)
                report = _by_us(settings, table)
                ours.append(report.seconds)
                say(f"ours {report.seconds:.2f} s, {report.size_bytes:,} bytes")
                hives.append(
                    _by_hive(client, make_table(client, metastore.warehouse, f"hives_{number}", deltas, rows))
                )
                say(f"Hive's {hives[-1]:.2f} s")
    work = f"major compaction of {deltas} x {rows:,} rows, 10 % deleted"
    return results.faster(
        "compaction", work, ours_s=median(ours), peer="Hive's worker", peer_s=median(hives), at_least=5
    )


def _by_us(settings: MetastoreSettings, table: str) -> CompactionReport:
    (report,) = compact_table(settings, table, CompactionKind.MAJOR, in_threads())
    if report.state != "compacted":
        raise SystemExit(f"{table}: {report.message}")
    return report


def _by_hive(client: MetastoreClient, table: str) -> float:
    """Seconds that Hive's worker takes."""
    (request,) = request_compaction(client, table, CompactionKind.MAJOR)
    while (entry := queue_entry(client, request.id)).state not in _DONE_STATES or not entry.commitTime:
        if entry.state in {"failed", "refused"}:
            raise SystemExit(f"{table}: {entry.errorMessage}")
        time.sleep(0.1)
    return (int(entry.commitTime) - int(entry.start or 0)) / 1000


def make_table(
    client: MetastoreClient, warehouse: Path, name: str, deltas: int, rows: int, *, deleted: bool = True
) -> str:
    """Make a table of deltas.

    :param rows: of each delta.
    :param deleted: add a delete delta that deletes every tenth row.
    :return: ``database.table``.
    """
    client.create_table(
        types.Table(
            dbName=DATABASE,
            tableName=name,
            owner="root",
            sd=types.StorageDescriptor(
                cols=[types.FieldSchema(name=column, type=kind) for column, kind in _COLUMNS.items()],
                inputFormat=f"{_ORC}.OrcInputFormat",
                outputFormat=f"{_ORC}.OrcOutputFormat",
                numBuckets=-1,
                serdeInfo=types.SerDeInfo(serializationLib=f"{_ORC}.OrcSerde", parameters={}),
                bucketCols=[],
                sortCols=[],
                parameters={},
            ),
            partitionKeys=[],
            parameters={
                "transactional": "true",
                "transactional_properties": "default",
                "bucketing_version": "2",
                "no_auto_compaction": "true",
            },
            tableType="MANAGED_TABLE",
        )
    )
    txns = client.open_txns(deltas + 1)
    client.allocate_table_write_ids(DATABASE, name, txns)
    location = warehouse / f"{DATABASE}.db" / name
    for directory, table in events(deltas, rows):
        if directory.startswith("delete_delta") and not deleted:
            continue
        bucket = location / directory / "bucket_00000_0"
        bucket.parent.mkdir(parents=True)
        orc.write_table(table, bucket, compression="zlib", row_index_stride=10_000)
        (bucket.parent / "_orc_acid_version").write_bytes(b"2")
    for txn in txns:
        client.commit_txn(txn)
    # Or writing it to the disk would be part of what is measured next.
    os.sync()
    return f"{DATABASE}.{name}"


def events(deltas: int, rows: int) -> Iterator[tuple[str, pa.Table]]:
    """Yield the directories of a table and what is in each, the delete delta last."""
    chance = np.random.default_rng(1)
    row_type = pa.struct([("id", pa.int32()), ("name", pa.string())])
    ids = np.arange(rows)
    for write_id in range(1, deltas + 1):
        names = [f"name of {number:013d}" for number in chance.integers(0, 10**12, rows)]
        row = pa.StructArray.from_arrays(
            [pa.array(ids + write_id * rows, pa.int32()), pa.array(names)], fields=list(row_type)
        )
        inserted = np.full(rows, write_id)
        yield f"delta_{write_id:07d}_{write_id:07d}_0000", _table_of(0, inserted, ids, inserted, row)
    inserted = np.repeat(np.arange(1, deltas + 1), rows // 10)
    gone = np.tile(np.arange(0, rows, 10), deltas)
    last = deltas + 1
    current = np.full(len(gone), last)
    yield (
        f"delete_delta_{last:07d}_{last:07d}_0000",
        _table_of(2, inserted, gone, current, pa.nulls(len(gone), row_type)),
    )


def _table_of(
    operation: int,
    write_ids: np.ndarray[tuple[int], np.dtype[np.int64]],
    row_ids: np.ndarray[tuple[int], np.dtype[np.int64]],
    current: np.ndarray[tuple[int], np.dtype[np.int64]],
    row: pa.Array,
) -> pa.Table:
    return pa.table(
        {
            "operation": np.full(len(row), operation, np.int32),
            "originalTransaction": write_ids,
            "bucket": np.full(len(row), _BUCKET, np.int32),
            "rowId": row_ids,
            "currentTransaction": current,
            "row": row,
        }
    )


class _hives_worker:  # noqa: N801 - a context manager
    """Hive's own worker in a JVM, serving the queue while the block runs."""

    def __init__(self, metastore: EmbeddedMetastore) -> None:
        self._metastore = metastore

    def __enter__(self) -> None:
        directory = self._metastore.directory
        conf = directory / "worker-conf"
        conf.mkdir()
        theirs = self._metastore
        settings = sql_settings(directory, theirs.uri, theirs.jdbc_url, password=theirs.jdbc_password)
        (conf / "hive-site.xml").write_bytes(site_xml(settings).encode())
        script = directory / "worker.groovy"
        script.write_text(_WORKER, encoding="utf-8")
        java = find_java()
        jars = sql_jars(java)
        command = java_command(
            java,
            "groovy.ui.GroovyMain",
            [str(script)],
            class_path=[conf, launcher_classes(java, jars), *jars],
            argument_file=directory / "worker.args",
        )
        with (directory / "worker.log").open("wb") as log:
            self._process = subprocess.Popen(
                command, cwd=directory, env=clean_environment(), stdout=log, stderr=log
            )

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()


def main() -> int:
    """Run alone; 1 if the aim is missed."""
    result = run(3, lambda text: print(text, flush=True))
    print(results.table([result]))
    return int(not result.reached)


if __name__ == "__main__":
    sys.exit(main())
