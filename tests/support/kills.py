"""The kill harness: a load or a dump that ends by ``os._exit`` at a step."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.metastore import MetastorePool, MetastoreSettings
from airflow_hive_federation.metastore.wire import to_json
from airflow_hive_federation.model.files import CopyItem
from airflow_hive_federation.progress.observers import unobserved
from airflow_hive_federation.replication.dump.bootstrap import dump_bootstrap
from airflow_hive_federation.replication.dump.drain import DrainStart, begin_drain
from airflow_hive_federation.replication.load.load import load_into_target
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.replication.replica import markers
from airflow_hive_federation.replication.replica.external_claims import EXTERNAL_CLAIMS
from airflow_hive_federation.storage.copying import copy_file
from airflow_hive_federation.storage.plan_files import read_plan, write_records
from tests.support.forked_workers import Run
from tests.support.observing import at_steps
from tests.support.small_source import DATABASE, connected

KILLED = 9


def run_copy(plan: str, outcomes: str) -> None:
    """The copy job without Spark, whose own kills have tests of their own."""
    items: list[CopyItem] = list(read_plan(plan))
    write_records(f"{outcomes}/run.jsonl", [copy_file(item) for item in items])


def worker(argv: list[str]) -> None:
    """The process that is killed: ``dump|load SOURCE TARGET POLICY START STEP``, a number or a name."""
    half, source_uri, target_uri, policy_json, start_json, step = argv
    policy = ReplicationPolicy(**json.loads(policy_json))
    start = DrainStart.from_json(json.loads(start_json))
    with pool(source_uri) as source, pool(target_uri) as target:
        if half == "dump":
            dump_bootstrap(source, policy, start, threads=1, observer=exiting_at(int(step)))
        else:
            dump = f"{policy.directory}/{start.dump_name}"
            load_into_target(
                source,
                target,
                policy,
                dump,
                run_copy=run_copy,
                threads=1,
                observer=at_steps(exiting_before(step)),
            )


def exiting_before(step: str) -> Callable[[str], None]:
    """Return a function that ends this process at the call with a step."""

    def compare(name: str) -> None:
        if name == step:
            os._exit(KILLED)

    return compare


def twice(steps: Sequence[str]) -> list[Sequence[str]]:
    """Return the steps to kill a piece of work at, and again at a later one when it is repeated.

    Each step is in one of the pairs, or alone if their number is odd.
    """
    assert len(set(steps)) == len(steps)
    half = (len(steps) + 1) // 2
    return [steps[first::half] for first in range(half)]


def exiting_at(step: int) -> Callable[[object], None]:
    """Return a function that ends this process at a call, counted from 0."""
    remaining = iter(range(step, -1, -1))

    def count_down(_: object) -> None:
        if next(remaining) == 0:
            os._exit(KILLED)

    return count_down


def pool(uri: str) -> MetastorePool:
    return MetastorePool(MetastoreSettings(uris=(uri,)), 2)


class Case:
    """One policy of the small source, with a dump directory of its own."""

    def __init__(self, source: EmbeddedMetastore, target: EmbeddedMetastore, root: Path) -> None:
        self.source, self.target = source, target
        self.policy = ReplicationPolicy(
            name=DATABASE,
            source_database=DATABASE,
            dump_root=f"file:{root}",
            external_base=f"file:{target.external_warehouse}/base",
        )
        self.begin_anew()

    def begin_anew(self) -> None:
        """Let the next dump be of the source's present state."""
        with connected(self.source) as client:
            self.start = begin_drain(client, DATABASE)

    def dump(self) -> str:
        with pool(self.source.uri) as source:
            return dump_bootstrap(source, self.policy, self.start, threads=1).dump

    def load(self, steps: list[str] | None = None) -> None:
        with pool(self.source.uri) as source, pool(self.target.uri) as target:
            load_into_target(
                source,
                target,
                self.policy,
                self.dump(),
                run_copy=run_copy,
                threads=1,
                observer=at_steps(steps.append) if steps is not None else unobserved,
            )

    def kill(self, run: Run, half: str, step: str) -> None:
        """Begin a half in a process of the worker of this module, which ends before a step."""
        arguments = [
            half,
            self.source.uri,
            self.target.uri,
            json.dumps(self.policy.to_json()),
            json.dumps(self.start.to_json()),
            step,
        ]
        assert run(arguments) == KILLED

    def state(self) -> dict[str, Any]:
        """The target as a reader finds it: tables, partitions, write ids, files; no times, no ids."""
        with connected(self.target) as client:
            names = sorted(client.list_tables(DATABASE))
            tables = {name: lasting(to_json(client.get_table(DATABASE, name))) for name in names}
            partitions = [
                lasting(to_json(partition)) for partition in client.iter_partitions(DATABASE, "acid")
            ]
            write_ids = client.get_valid_write_ids([f"{DATABASE}.acid"])
            database = lasting(to_json(client.get_database(DATABASE)))
        roots = (self.target.warehouse / f"{DATABASE}.db", self.target.external_warehouse / "base")
        files = {
            str(path): path.read_bytes()
            for root in roots
            for path in sorted(root.rglob("*"))
            if path.is_file() and path.suffix != ".crc" and path.parent.name != EXTERNAL_CLAIMS
        }
        return {
            "database": database,
            "tables": tables,
            "partitions": sorted(partitions, key=str),
            "write_ids": {name: to_json(ids) for name, ids in write_ids.items()},
            "files": files,
        }

    def drop(self) -> None:
        with connected(self.target) as client:
            client.drop_database(DATABASE, delete_data=True, cascade=True, if_exists=True)


def lasting(values: dict[str, Any]) -> dict[str, Any]:
    """Without what differs between any two loads."""
    kept = {name: value for name, value in values.items() if name not in {"createTime", "id"}}
    parameters = dict(kept.get("parameters", {}))
    passing = (
        "transient_lastDdlTime",
        "hive.repl.ckpt.key",
        "repl.last.id",
        "repl.target.last.id",
        markers.CYCLES,
    )
    for name in passing:
        parameters.pop(name, None)
    return {**kept, "parameters": parameters}
