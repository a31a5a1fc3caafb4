"""The target compacts a replica: loads request what an initiator would, and Hive reads the result."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from airflow_hive_federation.compaction.merge import MergeOutcome
from airflow_hive_federation.compaction.plan import BucketMerge, CompactionKind
from airflow_hive_federation.compaction.requests import compact_table
from airflow_hive_federation.compaction.runners import in_threads
from airflow_hive_federation.compaction.worker import CompactionReport, CompactionWorker
from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.embedded.sql import HiveSql
from airflow_hive_federation.errors import HiveFederationError, TargetChangedError
from airflow_hive_federation.ingest import HiveStreamingConnection, StrictDelimitedInputWriter
from airflow_hive_federation.metastore import MetastoreClient, MetastoreSettings
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.waiting import PollPolicy, wait_until
from tests.support.incrementing import Cycles, cycles

DATABASE, OTHER, MEANWHILE = "compacted_replica", "compacted_on_both_sides", "compacted_meanwhile"
#: The cleaner looks every second, and waits for readers.
SOON = PollPolicy(first_s=0.1, longest_s=0.5, timeout_s=120)

Opened = Callable[[str], AbstractContextManager[Cycles]]


@pytest.fixture
def opened(
    source: EmbeddedMetastore,
    target: EmbeddedMetastore,
    hive_sql_source: HiveSql,
    hive_sql_target: HiveSql,
    tmp_path: Path,
) -> Opened:
    """Begin the cycles of a database, judged by Hive on both sides."""
    hives = (hive_sql_source, hive_sql_target)
    return lambda database: cycles(source, target, hives, tmp_path, source_database=database)


@pytest.mark.slow
def test_the_target_compacts_its_replica(
    source: EmbeddedMetastore, target: EmbeddedMetastore, opened: Opened
) -> None:
    with opened(DATABASE) as run:
        run.write(
            f"CREATE DATABASE {DATABASE}",
            f"CREATE TABLE {DATABASE}.t (id int) PARTITIONED BY (p int) STORED AS ORC "
            "TBLPROPERTIES ('transactional'='true')",
        )
        run.bootstrap()
        stream(source, DATABASE, first=0, last=10)
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
        stream(source, DATABASE, first=11, last=11)
        run.cycle()
        run.assert_equal("SELECT * FROM {db}.t")
        serve(target)
        # A base that the source's compaction made is copied, and what it replaces goes to the cleaner.
        compact(source, f"{DATABASE}.t", CompactionKind.MAJOR)
        stream(source, DATABASE, first=12, last=12)
        run.cycle()
        serve(target)
        assert wait_until(lambda: directories(replica, "*") <= 2, SOON)
        run.assert_equal("SELECT * FROM {db}.t")
        assert len(run.rows("SELECT id FROM {db}.t")[1]) == 13


@pytest.mark.slow
def test_results_of_both_sides_that_overlap_show_no_row_twice(
    source: EmbeddedMetastore, target: EmbeddedMetastore, opened: Opened
) -> None:
    with opened(OTHER) as run:
        run.write(
            f"CREATE DATABASE {OTHER}",
            f"CREATE TABLE {OTHER}.t (id int) PARTITIONED BY (p int) STORED AS ORC "
            "TBLPROPERTIES ('transactional'='true', 'no_auto_compaction'='true')",
        )
        stream(source, OTHER, first=0, last=1)
        run.bootstrap()
        compact(target, f"{run.policy.target_database}.t", CompactionKind.MAJOR)
        # The source merges these rows with one that the target lacks.
        stream(source, OTHER, first=2, last=2)
        compact(source, f"{OTHER}.t", CompactionKind.MINOR)
        merged = source.warehouse / f"{OTHER}.db" / "t" / "p=1"
        assert wait_until(lambda: directories(merged, "*") == 1, SOON)
        with pytest.raises(TargetChangedError, match="would show rows twice"):
            run.cycle()
        # A metastore compacts no delta that is alone.
        stream(source, OTHER, first=3, last=3)
        compact(source, f"{OTHER}.t", CompactionKind.MAJOR)
        run.cycle()
        run.assert_equal("SELECT * FROM {db}.t")
        assert sorted(run.rows("SELECT id FROM {db}.t")[1]) == [("0",), ("1",), ("2",), ("3",)]


@pytest.mark.slow
def test_a_compaction_of_the_target_that_runs_while_a_load_places_one_of_the_source(
    source: EmbeddedMetastore, target: EmbeddedMetastore, opened: Opened
) -> None:
    """The worker has listed the partition before the source's result comes there, and ends after that."""
    with opened(MEANWHILE) as run:
        run.write(
            f"CREATE DATABASE {MEANWHILE}",
            f"CREATE TABLE {MEANWHILE}.t (id int) PARTITIONED BY (p int) STORED AS ORC "
            "TBLPROPERTIES ('transactional'='true', 'no_auto_compaction'='true')",
        )
        stream(source, MEANWHILE, first=0, last=1)
        run.bootstrap()

        def merge_beside_a_cycle(
            merges: Sequence[BucketMerge],
        ) -> Sequence[MergeOutcome | HiveFederationError]:
            stream(source, MEANWHILE, first=2, last=2)
            compact(source, f"{MEANWHILE}.t", CompactionKind.MINOR)
            run.cycle()
            return in_threads(1)(merges)

        table = f"{run.policy.target_database}.t"
        settings = MetastoreSettings(uris=(target.uri,))
        (report,) = compact_table(settings, table, CompactionKind.MAJOR, merge_beside_a_cycle)
        assert sorted(run.rows("SELECT id FROM {db}.t")[1]) == [("0",), ("1",), ("2",)]
        run.assert_equal("SELECT * FROM {db}.t")
        assert (report.state, report.retryable) == ("failed", True)


def compact(metastore: EmbeddedMetastore, table: str, kind: CompactionKind) -> None:
    """Compact a table."""
    (report,) = compact_table(MetastoreSettings(uris=(metastore.uri,)), table, kind, in_threads(1))
    assert report.state == "compacted", report.message


def stream(source: EmbeddedMetastore, database: str, *, first: int, last: int) -> None:
    """Commit rows with these numbers, one by one."""
    connection = (
        HiveStreamingConnection.new_builder()
        .with_database(database)
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
