"""A plan names the loads that were begun on the target and not published."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_hive_federation.errors import NoSuchObjectError
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.replication import cycle_plan
from airflow_hive_federation.replication.format.directory import DumpDirectory
from airflow_hive_federation.replication.format.kinds import DumpKind
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.replication.replica import markers
from airflow_hive_federation.storage.plan_files import write_plan
from tests.support.dumps import manifest


class Target:
    """A metastore with the policy's database, or without it."""

    def __init__(self, parameters: dict[str, str] | None) -> None:
        self.parameters = parameters

    def get_database(self, name: str) -> Any:
        if self.parameters is None:
            raise NoSuchObjectError(f"There is no database {name}.", remedy="Create it.")
        return SimpleNamespace(parameters=self.parameters)

    def call(self, *_: Any) -> Any:
        return types.MaxAllocatedTableWriteIdResponse(maxWriteId=0)

    def list_tables(self, _: str) -> list[str]:
        return []


@pytest.fixture
def policy(tmp_path: Path) -> ReplicationPolicy:
    return ReplicationPolicy(name="p", source_database="d", dump_root=f"file:{tmp_path}")


def begun(policy: ReplicationPolicy, name: str, previous: str) -> str:
    dump = DumpDirectory(f"{policy.directory}/{name}")
    dump.finish_dump(manifest(kind=DumpKind.INCREMENT, previous=previous))
    write_plan(f"{dump.uri}/load/copy_plan.jsonl", [])
    return dump.uri


def test_increments_from_where_the_target_stands_are_unfinished(policy: ReplicationPolicy) -> None:
    loaded = begun(policy, "7-8", previous="file:/dumps/p/6-7")
    killed = begun(policy, "8-9", previous=loaded)
    parameters = {markers.POLICY: "p", markers.LAST_ID: "7", markers.CHECKPOINT: loaded}
    target: Any = Target(parameters)
    assert cycle_plan._unfinished(target, policy) == [killed]
    parameters[markers.CHECKPOINT] = killed
    assert cycle_plan._unfinished(target, policy) == []


def test_a_bootstrap_that_the_target_was_reserved_for_is_unfinished(policy: ReplicationPolicy) -> None:
    begun(policy, "7-8", previous="file:/dumps/p/6-7")
    reserved: Any = Target({markers.POLICY: "p", markers.CHECKPOINT: "file:/dumps/p/9-9"})
    assert cycle_plan._unfinished(reserved, policy) == ["file:/dumps/p/9-9"]
    marked: Any = Target({markers.POLICY: "p"})
    assert cycle_plan._unfinished(marked, policy) == []
    absent: Any = Target(None)
    assert cycle_plan._unfinished(absent, policy) == []
