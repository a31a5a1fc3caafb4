"""Small plans are copied without Spark, with the records, the fence and the roots of the Spark job."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from airflow_hive_federation.errors import (
    CycleLostError,
    DumpCorruptError,
    SourceNotAllowedError,
    SparkJobError,
)
from airflow_hive_federation.hooks.small_copies import small_here
from airflow_hive_federation.model.files import CopyItem
from airflow_hive_federation.progress.events import Event, FilesProcessed
from airflow_hive_federation.progress.observers import Observer, unobserved
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.storage.fence import raise_fence, write_ticket
from airflow_hive_federation.storage.plan_files import read_outcomes, write_bound_plan

if TYPE_CHECKING:
    from airflow_hive_federation.hooks.spark import SparkPipelineHook


class Small:
    """A plan of two files of five bytes, and the plans that went to Spark."""

    def __init__(self, root: Path) -> None:
        self.root, self.outcomes = root, f"file:{root}/dump/load/outcomes"
        self.to_spark: list[str] = []
        (root / "source").mkdir()
        for name in "ab":
            (root / "source" / name).write_text(f"row {name}", encoding="utf-8")
        self.items = [
            CopyItem(source=f"file:{root}/source/{name}", target=f"file:{root}/target/{name}", size_bytes=5)
            for name in "ab"
        ]
        self.plan, _ = write_bound_plan(f"file:{root}/dump/load/copy_plan.jsonl", self.items)

    def policy(self, root: str = "source", bandwidth_bytes_per_s: int | None = None) -> ReplicationPolicy:
        return ReplicationPolicy(
            name="p",
            source_database="d",
            dump_root=f"file:{self.root}/dump",
            allowed_source_roots=[f"file:{self.root}/{root}"],
            bandwidth_bytes_per_s=bandwidth_bytes_per_s,
        )

    def copy(
        self,
        *,
        at_most_bytes: int = 10,
        at_most_files: int = 2,
        root: str = "source",
        bandwidth_bytes_per_s: int | None = None,
    ) -> None:
        policy = self.policy(root, bandwidth_bytes_per_s)

        def otherwise(plan: str, _outcomes: str) -> None:
            self.to_spark.append(plan)

        runner = small_here(policy, otherwise, at_most_bytes=at_most_bytes, at_most_files=at_most_files)
        runner(self.plan, self.outcomes)

    def copied(self) -> list[str]:
        return sorted(path.name for path in (self.root / "target").glob("*"))


def hook_of(conn_id: str, observer: Observer = unobserved) -> SparkPipelineHook:
    # It imports Airflow, which a copy does not.
    from airflow_hive_federation.hooks.spark import SparkPipelineHook

    return SparkPipelineHook(conn_id, observer=observer)


@pytest.fixture
def small(tmp_path: Path) -> Small:
    return Small(tmp_path)


def test_a_small_plan_is_copied_here_with_digests(small: Small) -> None:
    small.copy()
    assert (small.copied(), small.to_spark) == (["a", "b"], [])
    digests = {uri: outcome.digest for uri, outcome in read_outcomes(small.outcomes).items()}
    assert digests == {
        f"file:{small.root}/target/{name}": hashlib.sha256(f"row {name}".encode()).hexdigest()
        for name in "ab"
    }


def test_a_plan_that_was_carried_out_in_part_continues(small: Small) -> None:
    small.copy()
    (small.root / "target" / "b").unlink()
    (small.root / "source" / "a").write_text("changed since", encoding="utf-8")
    small.copy()
    assert (small.root / "target" / "a").read_text(encoding="utf-8") == "row a"
    assert (small.root / "target" / "b").read_text(encoding="utf-8") == "row b"


@pytest.mark.parametrize("bound", [{"at_most_bytes": 9}, {"at_most_files": 1}])
def test_a_larger_plan_goes_to_spark(small: Small, bound: dict[str, int]) -> None:
    small.copy(**bound)
    assert (small.copied(), small.to_spark) == ([], [small.plan])


def test_a_slow_plan_goes_to_spark(small: Small) -> None:
    small.items = [replace(item, size_bytes=6) for item in small.items]
    small.plan, _ = write_bound_plan(f"file:{small.root}/dump/load/copy_plan.jsonl", small.items)
    small.copy(at_most_bytes=12, bandwidth_bytes_per_s=1)
    assert (small.copied(), small.to_spark) == ([], [small.plan])


@pytest.mark.parametrize(("host", "here"), [("local[2]", True), ("yarn", False), ("spark://far:7077", False)])
def test_tasks_copy_small_plans_where_spark_would_copy_on_this_machine(
    small: Small, monkeypatch: pytest.MonkeyPatch, host: str, here: bool
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_ENGINE", json.dumps({"conn_type": "spark", "host": host}))
    events: list[Event] = []
    hook = hook_of("engine", events.append)
    monkeypatch.setattr(hook, "submit", lambda *arguments, **_: small.to_spark.append(arguments[0]))
    hook.copy_runner(small.policy())(small.plan, small.outcomes)
    assert (small.copied(), small.to_spark) == ((["a", "b"], []) if here else ([], ["copy-files"]))
    assert [type(event) for event in events] == ([FilesProcessed] if here else [])


def test_a_killed_task_copies_no_more(small: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_ENGINE", json.dumps({"conn_type": "spark", "host": "local"}))
    hook = hook_of("engine")
    hook.on_kill()
    with pytest.raises(SparkJobError, match="killed"):
        hook.copy_runner(small.policy())(small.plan, small.outcomes)
    assert small.copied() == []


def test_a_fenced_copy_publishes_nothing(small: Small) -> None:
    fence = f"file:{small.root}/fence"
    raise_fence(fence, 8)
    write_ticket(f"file:{small.root}/dump/load", fence, 7)
    with pytest.raises(CycleLostError, match="another cycle has begun"):
        small.copy()
    assert small.copied() == []


def test_nothing_is_copied_from_outside_the_roots(small: Small) -> None:
    with pytest.raises(SourceNotAllowedError):
        small.copy(root="elsewhere")
    assert small.copied() == []


def test_a_changed_plan_is_refused(small: Small) -> None:
    path = small.root / "dump" / "load" / "copy_plan.jsonl"
    path.write_text(path.read_text(encoding="utf-8").replace("target/a", "target/c"), encoding="utf-8")
    with pytest.raises(DumpCorruptError):
        small.copy()
    assert small.copied() == []


def test_pyspark_is_not_imported(small: Small) -> None:
    code = (
        "import sys; from tests.unit.airflow.test_small_copies import copy_again; "
        "copy_again(sys.argv[1]); assert not {'pyspark', 'py4j', 'airflow'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", code, str(small.root)], check=True, cwd=Path(__file__).parents[3])
    assert small.copied() == ["a", "b"]


def copy_again(root: str) -> None:
    """Copy the plan of a directory; a new process calls it."""
    made = Small.__new__(Small)
    made.root, made.outcomes, made.to_spark = Path(root), f"file:{root}/dump/load/outcomes", []
    made.plan = f"file:{root}/dump/load/copy_plan.jsonl"
    made.copy()
