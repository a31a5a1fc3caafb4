"""Both sides of a small replica are read without Spark, where Spark would read them on this machine."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from airflow_hive_federation.errors import FileVanishedError, SparkJobError
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.model.files import FileEntry
from airflow_hive_federation.progress.observers import unobserved
from airflow_hive_federation.replication.format.job_records import PlannedDirectory, SidePlan, SideRows
from airflow_hive_federation.replication.format.kinds import TableKind
from airflow_hive_federation.spark import verify_replica
from airflow_hive_federation.spark.verify_replica import verify_small_plan
from airflow_hive_federation.storage.digests import FileDigest, FileToDigest
from airflow_hive_federation.storage.plan_files import read_record_parts, write_records

if TYPE_CHECKING:
    from airflow_hive_federation.hooks.spark import SparkPipelineHook

TEXT = "org.apache.hadoop.mapred.TextInputFormat"
AVRO = "org.apache.hadoop.hive.ql.io.avro.AvroContainerInputFormat"


class Replica:
    """A table of text with two rows on both sides, and the plan of its verification."""

    def __init__(self, root: Path) -> None:
        self.root, self.results = root, f"file:{root}/results"
        for side in ("source", "target"):
            (root / side).mkdir()
            (root / side / "000000_0").write_text("1\n2\n", encoding="utf-8")
        self.plan = f"file:{root}/plan"
        self.write()

    def write(self, *, input_format: str = TEXT, row_digests: bool = False) -> None:
        lines = [self._side(side, input_format, row_digests) for side in ("source", "target")]
        (self.root / "plan").mkdir(exist_ok=True)
        (self.root / "plan/tables.jsonl").write_text(
            "".join(f"{json.dumps(line.to_json())}\n" for line in lines), encoding="utf-8"
        )
        to_digest = [FileToDigest(uri=f"file:{self.root}/target/000000_0", size_bytes=4)]
        write_records(f"{self.plan}/files.jsonl", to_digest)

    def _side(self, side: str, input_format: str, row_digests: bool) -> SidePlan:
        serde = types.SerDeInfo(
            serializationLib="org.apache.hadoop.hive.serde2.lazy.LazySimpleSerDe", parameters={}
        )
        storage = types.StorageDescriptor(
            cols=[types.FieldSchema(name="id", type="int")],
            location=f"file:{self.root}/{side}",
            inputFormat=input_format,
            serdeInfo=serde,
        )
        return SidePlan(
            side=side,
            kind=TableKind.EXTERNAL,
            table=types.Table(dbName="d", tableName="t", sd=storage, parameters={}),
            write_ids=None,
            storages=(),
            directories=(
                PlannedDirectory(
                    location=storage.location,
                    storage=None,
                    files=(FileEntry(path="000000_0", size_bytes=4),),
                ),
            ),
            row_digests=row_digests,
        )

    def rows(self) -> list[SideRows]:
        lines = (self.root / "results/rows.jsonl").read_text(encoding="utf-8").splitlines()
        return [SideRows.from_json(json.loads(line)) for line in lines]


@pytest.fixture
def replica(tmp_path: Path) -> Replica:
    return Replica(tmp_path)


def hook_of(conn_id: str, host: str, monkeypatch: pytest.MonkeyPatch) -> tuple[SparkPipelineHook, list[str]]:
    # It imports Airflow, which a verification does not.
    from airflow_hive_federation.hooks.spark import SparkPipelineHook

    monkeypatch.setenv(f"AIRFLOW_CONN_{conn_id.upper()}", json.dumps({"conn_type": "spark", "host": host}))
    hook, jobs = SparkPipelineHook(conn_id, observer=unobserved), list[str]()

    def submit(job: str, _arguments: Sequence[str], **_: object) -> dict[str, object]:
        jobs.append(job)
        return {"results": "file:/from/spark"}

    monkeypatch.setattr(hook, "submit", submit)
    return hook, jobs


@pytest.mark.parametrize(("host", "here"), [("local[2]", True), ("yarn", False), ("spark://far:7077", False)])
def test_tasks_read_small_replicas_where_spark_would_read_on_this_machine(
    replica: Replica, monkeypatch: pytest.MonkeyPatch, host: str, here: bool
) -> None:
    hook, jobs = hook_of("engine", host, monkeypatch)
    read = hook.verify_runner()(replica.plan, replica.results)
    assert (read, jobs) == ((replica.results, []) if here else ("file:/from/spark", ["verify-replica"]))
    if here:
        assert replica.rows() == [
            SideRows(table="t", side="source", rows=2),
            SideRows(table="t", side="target", rows=2),
        ]
        digests = {
            record.uri: record.digest
            for record in read_record_parts(f"{replica.results}/digests", FileDigest)
        }
        uri = f"file:{replica.root}/target/000000_0"
        assert digests == {uri: hashlib.sha256(b"1\n2\n").hexdigest()}


def test_a_killed_task_reads_no_more(replica: Replica, monkeypatch: pytest.MonkeyPatch) -> None:
    hook, jobs = hook_of("engine", "local", monkeypatch)
    hook.on_kill()
    monkeypatch.setattr(verify_replica, "_count_here", lambda *_: pytest.fail("a table is counted"))
    with pytest.raises(SparkJobError, match="killed"):
        hook.verify_runner()(replica.plan, replica.results)
    assert jobs == []
    assert not (replica.root / "results").exists()


@pytest.mark.parametrize("bound", ["SMALL_BYTES", "SMALL_FILES"])
def test_a_larger_replica_is_left_to_spark(
    replica: Replica, monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    monkeypatch.setattr(verify_replica, bound, {"SMALL_BYTES": 7, "SMALL_FILES": 1}[bound])
    assert not verify_small_plan(replica.plan, replica.results)
    monkeypatch.setattr(verify_replica, bound, {"SMALL_BYTES": 8, "SMALL_FILES": 2}[bound])
    assert verify_small_plan(replica.plan, replica.results)


def test_digests_of_rows_are_left_to_spark(replica: Replica) -> None:
    replica.write(row_digests=True)
    assert not verify_small_plan(replica.plan, replica.results)


def test_a_file_that_is_gone_is_left_to_spark(replica: Replica) -> None:
    """The job decides whether it is gone from the source, whose rows then are not compared."""
    (replica.root / "source/000000_0").unlink()
    assert not verify_small_plan(replica.plan, replica.results)
    assert not (replica.root / "results").exists()


def test_a_file_that_goes_before_its_digest_is_an_error(replica: Replica) -> None:
    uri = f"file:{replica.root}/elsewhere/000000_0"
    write_records(f"{replica.plan}/files.jsonl", [FileToDigest(uri=uri, size_bytes=4)])
    with pytest.raises(FileVanishedError):
        verify_small_plan(replica.plan, replica.results)
    assert not (replica.root / "results/rows.jsonl").exists()


def test_rows_of_an_unknown_format_are_not_counted(replica: Replica) -> None:
    replica.write(input_format=AVRO)
    assert verify_small_plan(replica.plan, replica.results)
    for side in replica.rows():
        assert side.rows is None
        assert side.not_counted
        assert side.not_counted.startswith("rows are not compared, digests of files are: d.t is in a format")
