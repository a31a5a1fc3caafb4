"""The target compacts a replica: loads request what an initiator would, and Hive reads the result."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from airflow_hive_federation.compaction.plan import CompactionKind
from airflow_hive_federation.compaction.requests import compact_table
from airflow_hive_federation.compaction.runners import in_threads
from airflow_hive_federation.compaction.worker import CompactionReport, CompactionWorker
from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.embedded.sql import HiveSql
from airflow_hive_federation.errors import TargetChangedError
from airflow_hive_federation.ingest import HiveStreamingConnection, StrictDelimitedInputWriter
from airflow_hive_federation.metastore import MetastoreClient, MetastoreSettings
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.waiting import PollPolicy, wait_until
from tests.support.incrementing import cycles

DATABASE = "compacted_replica"
#: The cleaner looks every second, and waits for readers.
SOON = PollPolicy(first_s=0.1, longest_s=0.5, timeout_s=120)


@pytest.mark.slow
def test_the_target_compacts_its_replica(
    source: EmbeddedMetastore,
    target: EmbeddedMetastore,
    hive_sql_source: HiveSql,
    hive_sql_target: HiveSql,
    tmp_path: Path,
) -> None:
    hives = (hive_sql_source, hive_sql_target)
    with cycles(source, target, hives, tmp_path, source_database=DATABASE) as run:
        run.write(
            f"CREATE DATABASE {DATABASE}",
            f"CREATE TABLE {DATABASE}.t (id int) PARTITIONED BY (p int) STORED AS ORC "
            "TBLPROPERTIES ('transactional'='true')",
        )
        run.bootstrap()
        stream(source, first=0, last=10)
        run.cycle()
        name = f"{run.policy.target_database}.t"
        replica = target.warehouse / f"{run.policy.target_database}.db" / "t" / "p=1"
        assert directories(replica, "delta_*") == 11
        (compacted,) = serve(target)
        assert (compacted.table, compacted.partition, compacted.kind) == (name, "p=1", "major")
        assert compacted.state == "compacted"
        assert requested_at_s(target, run.policy.target_database) == pytest.approx(time.time(), abs=600)
        assert wait_until(lambda: directories(replica, "delta_*") == 0, SOON)
        # Increments go on from the target's own base.
        stream(source, first=11, last=11)
        run.cycle()
        run.assert_equal("SELECT * FROM {db}.t")
        serve(target)
        # The source merges rows that the target's base has with one that it lacks.
        stream(source, first=12, last=12)
        compact(source, CompactionKind.MINOR)
        with pytest.raises(TargetChangedError, match="would show rows twice"):
            run.cycle()
        # A base that the source's compaction made is copied, and what it replaces goes to the cleaner.
        compact(source, CompactionKind.MAJOR)
        stream(source, first=13, last=13)
        run.cycle()
        serve(target)
        assert wait_until(lambda: directories(replica, "*") <= 2, SOON)
        run.assert_equal("SELECT * FROM {db}.t")
        assert len(run.rows("SELECT id FROM {db}.t")[1]) == 14


def compact(source: EmbeddedMetastore, kind: CompactionKind) -> None:
    """Compact the source's table."""
    settings = MetastoreSettings(uris=(source.uri,))
    (report,) = compact_table(settings, f"{DATABASE}.t", kind, in_threads(1))
    assert report.state == "compacted"


def stream(source: EmbeddedMetastore, *, first: int, last: int) -> None:
    """Commit rows with these numbers, one by one."""
    connection = (
        HiveStreamingConnection.new_builder()
        .with_database(DATABASE)
        .with_table("t")
        .with_static_partition_values(["1"])
        .with_record_writer(StrictDelimitedInputWriter(field_delimiter=","))
        .with_conf(MetastoreSettings(uris=(source.uri,)))
        .connect()
    )
    with connection:
        for number in range(first, last + 1):
            with connection.transaction():
                connection.write(str(number).encode())


def serve(target: EmbeddedMetastore) -> list[CompactionReport]:
    """Serve the requests of the target's queue for the replica."""
    worker = CompactionWorker(MetastoreSettings(uris=(target.uri,)), in_threads(1))
    reports = worker.serve(until_empty=True)
    return [report for report in reports if report.table.startswith(DATABASE)]


def requested_at_s(target: EmbeddedMetastore, database: str) -> float:
    """Return the time of a compaction's request, from which loads know whether the next one can wait."""
    with MetastoreClient(MetastoreSettings(uris=(target.uri,))) as client:
        answer = client.call("show_compact", types.ShowCompactRequest(dbName=database))
    (entry,) = answer.compacts
    return float(entry.enqueueTime / 1000)


def directories(partition: Path, pattern: str) -> int:
    return len([*partition.glob(pattern)])
