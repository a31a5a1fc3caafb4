"""Killed at its steps, a repair is run again and ends in the same state, as in ``test_kills``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.metastore.wire import to_json
from airflow_hive_federation.progress.observers import Observer, unobserved
from airflow_hive_federation.replication.dump.bootstrap import dump_bootstrap
from airflow_hive_federation.replication.dump.drain import begin_drain
from airflow_hive_federation.replication.load.load import load_into_target
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.replication.repair import RepairReport, repair_replica
from airflow_hive_federation.replication.replica import cycle_lock
from airflow_hive_federation.replication.replica.external_claims import EXTERNAL_CLAIMS
from airflow_hive_federation.storage.digests import FileToDigest, digest_file
from airflow_hive_federation.storage.filesystem import local_path
from airflow_hive_federation.storage.plan_files import read_records, write_records
from tests.support.forked_workers import Run, forking
from tests.support.incrementing import run_copy
from tests.support.kills import KILLED, exiting_at, lasting, pool
from tests.support.observing import at_steps
from tests.support.small_source import add_partition, commit_files, connected, make_small_source, make_table

DATABASE = "rep_killed"


def run_verify(plan: str, results: str) -> None:
    """The verification job without Spark: digests; these files have no rows."""
    digests = [
        digest_file(file.uri, size_bytes=file.size_bytes)
        for file in read_records(f"{plan}/files.jsonl", FileToDigest)
    ]
    write_records(f"{results}/digests/run.jsonl", digests)
    Path(local_path(f"{results}/rows.jsonl") or "").touch()


def repair(
    source: str, target: str, policy: ReplicationPolicy, observer: Observer = unobserved
) -> RepairReport:
    with pool(source) as source_pool, pool(target) as target_pool:
        return repair_replica(
            source_pool, target_pool, policy, run_copy=run_copy, run_verify=run_verify, observer=observer
        )


def worker(argv: list[str]) -> None:
    """The process that is killed: ``SOURCE TARGET POLICY STEP``."""
    source, target, policy, step = argv
    repair(source, target, ReplicationPolicy(**json.loads(policy)), at_steps(exiting_at(int(step))))


class Case:
    """A published target that is damaged, and damaged again."""

    def __init__(self, source: EmbeddedMetastore, target: EmbeddedMetastore, root: Path) -> None:
        self.source, self.target = source, target
        make_small_source(source, DATABASE)
        self.policy = ReplicationPolicy(
            name=DATABASE,
            source_database=DATABASE,
            dump_root=f"file:{root}",
            external_base=f"file:{target.external_warehouse}/rep_base",
        )
        with connected(source) as client:
            make_table(client, DATABASE, "written")
            start = begin_drain(client, DATABASE)
        with pool(source.uri) as source_pool, pool(target.uri) as target_pool:
            dump = dump_bootstrap(source_pool, self.policy, start).dump
            load_into_target(source_pool, target_pool, self.policy, dump, run_copy=run_copy)

    def damage(self) -> None:
        with connected(self.target) as client:
            table: Any = client.get_table(DATABASE, "acid")
            table.sd.cols[1].name = "renamed"
            client.alter_table(DATABASE, "acid", table)
            client.drop_partitions(DATABASE, "acid", ["p=one"], delete_data=True)
            add_partition(client, DATABASE, "surplus")
            commit_files(client, DATABASE, "written")
            make_table(client, DATABASE, "surplus")
            (partition,) = list(client.iter_partitions(DATABASE, "acid", names=["p=a%3Ab"]))
            location = Path(local_path(partition.sd.location) or "")  # type: ignore[union-attr,arg-type]
            external: Any = client.get_table(DATABASE, "ext")
            client.drop_table(DATABASE, "seen", delete_data=False)
        next(location.glob("delta_*/bucket_*")).write_text("damaged", encoding="utf-8")
        (Path(local_path(external.sd.location) or "") / "data").unlink()

    def kill(self, run: Run, step: int) -> None:
        arguments = [self.source.uri, self.target.uri, json.dumps(self.policy.to_json()), str(step)]
        assert run(arguments) == KILLED

    def repair(self, observer: Observer = unobserved) -> RepairReport:
        return repair(self.source.uri, self.target.uri, self.policy, observer)

    def state(self) -> dict[str, Any]:
        roots = (self.target.warehouse / f"{DATABASE}.db", self.target.external_warehouse / "rep_base")
        with connected(self.target) as client:
            names = sorted(client.list_tables(DATABASE))
            valid_ids = client.get_valid_write_ids([f"{DATABASE}.{name}" for name in names])
            return {
                "tables": {name: lasting(to_json(client.get_table(DATABASE, name))) for name in names},
                "partitions": [
                    _described(to_json(partition)) for partition in client.iter_partitions(DATABASE, "acid")
                ],
                "write_ids": {name: ids.writeIdHighWaterMark for name, ids in valid_ids.items()},
                "files": {
                    str(path): path.read_bytes()
                    for root in roots
                    for path in sorted(root.rglob("*"))
                    if path.is_file() and path.suffix != ".crc" and path.parent.name != EXTERNAL_CLAIMS
                },
            }


def _described(partition: dict[str, Any]) -> dict[str, Any]:
    """Without what the metastore counts by itself, at some calls, and nobody claims to be true."""
    kept = lasting(partition)
    assert "COLUMN_STATS_ACCURATE" not in kept["parameters"]
    for name in ("totalSize", "numFiles", "numFilesErasureCoded"):
        kept["parameters"].pop(name, None)
    return kept


def test_a_repair_killed_at_its_steps_ends_in_the_same_state(
    source: EmbeddedMetastore,
    target: EmbeddedMetastore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cycle_lock, "_BEAT_S", 0.1)  # the dead one's lock is taken over sooner
    case = Case(source, target, tmp_path)
    undamaged = case.state()
    case.damage()
    steps: list[str] = []
    assert case.repair(at_steps(steps.append)).report.differences == []
    expected = case.state()
    for field in ("tables", "write_ids", "files"):
        assert expected[field] == undamaged[field]
    assert {
        "replace written",
        "copy",
        "shape acid",
        "drop partitions acid",
        "drop surplus",
        "publish",
    } <= set(steps)
    # Some of them: the load of an increment, which this is, has a test that takes them all.
    with forking(__name__) as run:
        for name in ("replace written", "copy", "shape acid", "drop surplus", "publish"):
            case.damage()
            case.kill(run, steps.index(name))
            assert case.repair().report.differences == [], f"killed before {name!r}"
            assert case.state() == expected, f"killed before {name!r}"
