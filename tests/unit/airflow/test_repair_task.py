"""A repair updates the assets of the tables that it, or a failed repair before it, has changed."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_hive_federation.hooks.compat import AirflowFailException
from airflow_hive_federation.metastore import MetastoreSettings
from airflow_hive_federation.operators.lineage import REPLICATED
from airflow_hive_federation.operators.replication import RepairReplicaOperator
from airflow_hive_federation.progress.cycle_events import TableCopied
from airflow_hive_federation.progress.observers import Observer
from airflow_hive_federation.replication import repair
from airflow_hive_federation.replication.format.directory import DumpDirectory
from airflow_hive_federation.replication.format.kinds import DumpKind, TableKind, TableWork
from airflow_hive_federation.replication.format.manifest import RepairPlan, TableEntry
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.replication.replica.differences import Difference
from airflow_hive_federation.replication.verify.report import VerificationReport, write_report
from airflow_hive_federation.waiting import Departure
from tests.support.dumps import manifest

WRONG = Difference(table="wrong", what="location", expected="a", found="b")
DAMAGED = Difference(table="damaged", what="location", expected="a", found="b")


class Replica:
    """A target whose verifications find what the test lists; each round also brings rows of ``orders``."""

    def __init__(self, folder: Path) -> None:
        self.policy = ReplicationPolicy(
            name="p", source_database="shop", target_database="copy", dump_root=folder.as_uri()
        )
        self.loaded = ""
        self.found: list[list[Difference]] = []
        self.departs_at = ""
        self.finish("wrong", kind=DumpKind.BOOTSTRAP)
        self.loaded = self.uri(0)
        self.updated: list[tuple[str, dict[str, object]]] = []

    def uri(self, number: int) -> str:
        return f"{self.policy.directory}/{number}-0-0"

    def finish(self, *tables: str, **fields: Any) -> str:
        number = 0 if not self.loaded else int(self.loaded.rpartition("/")[2].partition("-")[0]) + 1
        fields = {"kind": DumpKind.INCREMENT, "previous": self.loaded, **fields}
        entries = [TableEntry(name=name, kind=TableKind.MANAGED, work=TableWork.CONTINUE) for name in tables]
        DumpDirectory(self.uri(number)).finish_dump(manifest(*entries, **fields))
        return self.uri(number)

    def loaded_dump(self, *_: object) -> str:
        return self.loaded

    def verify(self, *_: object, **__: object) -> VerificationReport:
        report = VerificationReport(database="copy", event_id=9, tables=[], differences=self.found.pop(0))
        write_report(DumpDirectory(self.loaded), report)
        return report

    def dump(self, *_: object, repair_plan: RepairPlan, observer: Observer) -> Any:
        return SimpleNamespace(
            dump=self.finish("orders", *sorted(repair_plan.tables), repair_plan=repair_plan)
        )

    def load(self, *arguments: Any, run_copy: object, observer: Observer) -> None:
        if arguments[-1] == self.departs_at:
            raise Departure("The job works on its cluster.")
        observer(TableCopied(table="copy.orders", files=1, size_bytes=5))
        self.loaded = arguments[-1]

    def task(self) -> RepairReplicaOperator:
        end: Any = {
            name: SimpleNamespace(
                settings=MetastoreSettings(uris=(f"thrift://{name}:9083",)),
                pool=lambda *_: nullcontext(SimpleNamespace(client=nullcontext)),
            )
            for name in ("one", "two")
        }
        task: Any = RepairReplicaOperator(
            task_id="repair", policy=self.policy, source_conn_id="one", target_conn_id="two"
        )
        task.ends = lambda: (end["one"], end["two"], self.policy)
        task.spark = lambda _: SimpleNamespace(
            copy_runner=lambda _: None, verify_runner=lambda _: None, arrive=lambda: None
        )
        # Publications have tests of their own.
        task.publish_cycle = task.publish_verification = lambda *_, **__: None
        return task

    def assets(self, task: RepairReplicaOperator | None = None, *, tries: int = 1) -> list[str]:
        """The tables whose assets the task updates, if it succeeds."""
        self.updated = []
        alias = SimpleNamespace(add=lambda asset, extra: self.updated.append((asset.uri, extra)))

        class Events:
            def __getitem__(self, given: object) -> Any:
                assert given == REPLICATED
                return alias

        context: Any = {"outlet_events": Events(), "ti": SimpleNamespace(try_number=tries)}
        (task or self.task()).execute(context)
        return [uri.rpartition("/")[2] for uri, _ in self.updated]


@pytest.fixture
def replica(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Replica:
    replica = Replica(tmp_path)
    for name, double in (
        ("loaded_dump", replica.loaded_dump),
        ("verify_replica", replica.verify),
        ("dump_next_increment", replica.dump),
        ("load_dump", replica.load),
    ):
        monkeypatch.setattr(repair, name, double)
    return replica


def test_all_rounds_update_the_assets_of_their_tables(replica: Replica) -> None:
    """They have repaired tables, and have brought rows, which no later cycle finds again."""
    replica.found = [[WRONG], [DAMAGED], []]
    task = replica.task()
    assert task.outlets == [REPLICATED]
    assert sorted(replica.assets(task)) == ["damaged", "orders", "wrong"]
    assert replica.updated[0] == (
        "hive://two:9083/copy/orders",
        {"event_id": 9, "policy": "p", "source": "shop"},
    )
    assert task.lineage is not None
    outputs = {dataset.table: dataset.size_bytes for dataset in task.lineage.outputs}
    assert outputs == {"orders": 10, "wrong": None, "damaged": None}
    assert sorted(dataset.name for dataset in task.lineage.inputs) == [
        "shop.damaged",
        "shop.orders",
        "shop.wrong",
    ]
    # Nothing differs: a second repair does nothing.
    replica.found = [[]]
    assert replica.assets() == []


def test_rounds_before_a_departure_update_their_assets(replica: Replica) -> None:
    replica.found = [[WRONG], [DAMAGED], []]
    replica.departs_at = replica.uri(2)
    pool: Any = SimpleNamespace(client=nullcontext)
    nothing: Any = None
    with pytest.raises(Departure) as left:
        repair.repair_replica(pool, pool, replica.policy, run_copy=nothing, run_verify=nothing)
    replica.departs_at = ""
    task = replica.task()
    task._progress = json.loads(json.dumps(left.value.progress))
    assert sorted(replica.assets(task)) == ["damaged", "orders", "wrong"]


def test_a_repair_that_failed_is_announced_by_the_next_one(replica: Replica) -> None:
    """Airflow updates no assets when a task fails."""
    replica.found = [[WRONG], [WRONG, DAMAGED], [WRONG, DAMAGED], [DAMAGED]]
    with pytest.raises(AirflowFailException, match="VerificationError"):
        replica.assets()
    assert replica.loaded == replica.uri(3)
    replica.found = [[]]
    assert sorted(replica.assets()) == ["damaged", "orders", "wrong"]


def test_a_repair_that_was_killed_at_its_end_is_announced_by_its_next_try(replica: Replica) -> None:
    replica.found = [[WRONG], []]
    replica.assets()
    replica.found = [[], []]
    assert replica.assets(tries=2) == ["orders", "wrong"]
    # A cycle has followed, whose own task announces its changes.
    replica.loaded = replica.finish("orders")
    assert replica.assets(tries=2) == []
