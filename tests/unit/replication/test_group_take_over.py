"""A take-over of a group leaves a load that a later one has overtaken, and ends if it fails otherwise."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_hive_federation.errors import CycleLostError, TargetChangedError
from airflow_hive_federation.progress.events import StepStarting
from airflow_hive_federation.progress.kinds import Step
from airflow_hive_federation.progress.observers import Observer, unobserved
from airflow_hive_federation.replication.format.directory import DumpDirectory
from airflow_hive_federation.replication.format.group_lines import GroupMember
from airflow_hive_federation.replication.group_policy import ReplicationGroup
from airflow_hive_federation.replication.groups import take_over as group_take_over
from airflow_hive_federation.replication.groups.dump import GroupDump
from airflow_hive_federation.replication.overtaken_loads import OvertakenError
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.replication.take_over import TakeOverReport

NAMES = ("a", "b")
COPIED, LATER, LOADED = "7-8-9", "8-9-10", "6-7-8"
POLICIES = [ReplicationPolicy(name=name, source_database=name, dump_root="/dumps") for name in NAMES]
GROUP = ReplicationGroup(name="shop", policies=POLICIES)


class Targets:
    """The targets ``a`` and ``b`` of a group with a load that was copied, and a later one of ``a``.

    :ivar fails_at: the step at which the load fails; ``None`` fails before its first one.
    :ivar acts: the changes of the take-over, in their order.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.fails_at: Step | None = None
        self.error: Exception = TargetChangedError("b.t would show rows twice")
        self.acts: list[str] = []
        members = tuple(
            GroupMember(group="shop", policy=name, dump=f"/dumps/{name}/{COPIED}", event_id=8, idle=False)
            for name in NAMES
        )
        self.dumped = GroupDump(group="shop", dump=f"/dumps/a/{COPIED}", event_id=8, members=members)
        for name, instead in {
            "refuse_living": lambda *_: None,
            "refuse_part": lambda *_: None,
            "loaded_dump": lambda _client, policy: f"/dumps/{policy.name}/{LOADED}",
            "unsettled_loads": self.unsettled,
            "begun_since": lambda dump, _uris: [later("a")] if dump.uri.startswith("/dumps/a/") else [],
            "nothing_more_to_copy": lambda *_: None,
            "_is_let_go": lambda *_: False,
            "_copied_dump": lambda *_: self.dumped,
            "hold_group": self.held,
            "load_group": self.load,
            "make_way": self.make_way,
            "remove_unfinished": self.remove,
            "Replay": lambda *_: SimpleNamespace(sweep=lambda _: self.acts.append("abort")),
            "release": self.release,
        }.items():
            monkeypatch.setattr(group_take_over, name, instead)

    def take_over(self) -> list[TakeOverReport]:
        pool: Any = SimpleNamespace(client=lambda: nullcontext(None))
        return group_take_over.take_over_group(pool, pool, GROUP, observer=unobserved)

    def unsettled(self, policy: ReplicationPolicy, _loaded: str) -> list[DumpDirectory]:
        names = [COPIED, LATER] if policy.name == "a" else [COPIED]
        return [DumpDirectory(f"/dumps/{policy.name}/{name}") for name in names]

    @contextmanager
    def held(self, target: Any, *_: object) -> Iterator[Any]:
        yield SimpleNamespace(target=target, check=lambda: None, prove=lambda: None)

    def load(self, *_: object, observer: Observer, given_up: list[str], **__: object) -> None:
        assert given_up == [later("a")]
        self.acts.append("load")
        if self.fails_at is not None:
            observer(StepStarting(database="shop", step=self.fails_at))
        raise self.error

    def make_way(self, _client: Any, policy: ReplicationPolicy, *_: object, **__: object) -> int:
        self.acts.append(f"make way {policy.name}")
        return 2

    def remove(self, _client: Any, policy: ReplicationPolicy, *_: object, **__: object) -> int:
        self.acts.append(f"remove {policy.name}")
        return 1

    def release(
        self, _source: Any, _client: Any, policy: ReplicationPolicy, *, removed: int, step: Any
    ) -> TakeOverReport:
        self.acts.append(f"release {policy.name}")
        return TakeOverReport(database=policy.target_database, event_id=7, removed=removed)


def later(name: str) -> str:
    return f"/dumps/{name}/{LATER}"


@pytest.fixture
def targets(monkeypatch: pytest.MonkeyPatch) -> Targets:
    return Targets(monkeypatch)


@pytest.mark.parametrize("step", [None, Step.COPY, Step.OPEN_TRANSACTIONS])
def test_a_load_that_a_later_one_has_overtaken_is_left(targets: Targets, step: Step | None) -> None:
    """No database shows anything of it, and a later load has made it impossible to end."""
    targets.fails_at, targets.error = step, OvertakenError("table a.t was dropped")
    reports = targets.take_over()
    assert [(report.database, report.removed) for report in reports] == [("a", 3), ("b", 1)]
    # No file waits for the shared transactions when they are aborted, and no database is written before.
    assert targets.acts == [
        "make way a", "load", "remove a", "remove b", "abort", "release a", "release b",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "step", [Step.END_TRANSACTION, Step.DROP_PARTITIONS, Step.DROP, Step.DESCRIBE, Step.PUBLISH]
)
def test_a_load_that_fails_after_its_switch_ends_the_take_over(targets: Targets, step: Step) -> None:
    """One database would be released with a transaction that another one lacks."""
    targets.fails_at = step
    with pytest.raises(TargetChangedError, match="rows twice"):
        targets.take_over()
    assert targets.acts == ["make way a", "load"]


def test_a_load_beside_another_process_ends_the_take_over(targets: Targets) -> None:
    targets.error = CycleLostError("The lock is lost.", policy="a", holder="", reason="silent")
    with pytest.raises(CycleLostError):
        targets.take_over()
    assert targets.acts == ["make way a", "load"]
