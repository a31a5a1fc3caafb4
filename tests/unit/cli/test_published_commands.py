"""Commands publish state where the environment names a directory, and nowhere else."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_hive_federation.cli import published as commands
from airflow_hive_federation.cli.main import main
from airflow_hive_federation.cli.published import CommandState
from airflow_hive_federation.cli.replicate import _Work
from airflow_hive_federation.cli.story import Story
from airflow_hive_federation.compaction import queue, requests
from airflow_hive_federation.compaction.queue import QueueLook
from airflow_hive_federation.compaction.worker import CompactionReport
from airflow_hive_federation.errors import ReplicationError
from airflow_hive_federation.metastore import MetastoreClient
from airflow_hive_federation.progress.cycle_events import CycleFailed, CycleFollowed, FollowEnded, LagSeen
from airflow_hive_federation.progress.events import TransactionsEnded, TransactionsOpen
from airflow_hive_federation.progress.observers import Observer, unobserved
from airflow_hive_federation.published import directory as state
from airflow_hive_federation.published.directory import REPLICATION, StateDirectory, key_of
from airflow_hive_federation.published.work import COMPACTED, COMPACTION, INGEST, INGESTED
from airflow_hive_federation.replication import failover
from airflow_hive_federation.replication.dump import drain
from airflow_hive_federation.replication.groups import cycle as groups_cycle
from airflow_hive_federation.replication.groups import status as groups_status
from airflow_hive_federation.replication.policy import ReplicationPolicy

POLICY = """
name = "shop"
source = "thrift://127.0.0.1:1"
target = "thrift://127.0.0.1:1"
source_database = "shop"
dump_root = "/dumps"
"""


@pytest.fixture
def policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path / "home"))
    (path := tmp_path / "shop.toml").write_text(POLICY, encoding="utf-8")
    return str(path)


def test_a_failing_status_is_published(policy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__HIVE_FEDERATION__STATE_URI", f"file:{tmp_path / 'state'}")
    assert main(["replicate", "status", policy]) != 0
    place = StateDirectory(f"file:{tmp_path / 'state'}")
    (key,) = place.keys(REPLICATION)
    cycles = place.read(REPLICATION, key, state.CYCLES)
    assert cycles is not None
    (failed,) = cycles.cycles
    assert failed.error.startswith("MetastoreUnreachableError: ")
    assert failed.by.command == "replicate status"


FOLLOWED = CycleFollowed(
    database="shop",
    cycle="increment",
    event_id=7,
    events=1,
    transactions=1,
    tables=1,
    files=1,
    size_bytes=1,
    seconds=0.2,
    lag_s=0.3,
)
SEEN = LagSeen(database="shop", events=0, seconds=0.0)
ENDED = FollowEnded(database="shop", event_id=7, cycles=4)


def test_a_follower_publishes_cycles_now_and_then_and_the_last_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__HIVE_FEDERATION__STATE_URI", f"file:{tmp_path / 'state'}")
    clock, published, seen = [100.0], [], []
    monkeypatch.setattr(commands.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(CommandState, "cycle", lambda *_: published.append(clock[0]))
    policy = ReplicationPolicy(name="shop", source_database="shop", dump_root="/dumps")
    nobody: Any = None
    observe = CommandState(policy=policy, command="replicate follow").following(nobody, nobody, seen.append)
    for at_s, event in (
        (100.0, SEEN),
        (101.0, FOLLOWED),
        (102.0, FOLLOWED),
        (103.0, SEEN),
        (111.5, SEEN),
        (130.0, SEEN),
        (131.0, FOLLOWED),
        (132.0, FOLLOWED),
        (133.0, ENDED),
    ):
        clock[0] = at_s
        observe(event)
    assert published == [101.0, 111.5, 131.0, 133.0]
    assert len(seen) == 9
    observe(CycleFailed(database="shop", error="Away. Remedy: Start it.", failures=1, pause_s=1.0))
    place = StateDirectory(f"file:{tmp_path / 'state'}")
    (key,) = place.keys(REPLICATION)
    cycles = place.read(REPLICATION, key, state.CYCLES)
    assert cycles is not None
    assert [(cycle.error, cycle.remedy) for cycle in cycles.cycles] == [("Away.", "Start it.")]


def test_a_follower_is_observed_alone_without_a_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AIRFLOW__HIVE_FEDERATION__STATE_URI", raising=False)
    policy = ReplicationPolicy(name="shop", source_database="shop", dump_root="/dumps")
    nobody: Any = None
    state = CommandState(policy=policy, command="c")
    assert state.following(nobody, nobody, unobserved) is unobserved
    assert state.waiting(unobserved) is unobserved


@pytest.mark.parametrize("action", ["run", "failover"])
def test_a_command_waits_with_an_observer_that_publishes(
    action: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__HIVE_FEDERATION__STATE_URI", f"file:{tmp_path / 'state'}")

    def waits(*_: object, observer: Observer, **__: object) -> None:
        observer(TransactionsOpen(database="shop", transactions=(5,)))

    client = SimpleNamespace(client=lambda: nullcontext(SimpleNamespace()))
    monkeypatch.setattr(drain, "begin_drain", lambda *_: SimpleNamespace(event_id=7))
    monkeypatch.setattr(drain, "drain", waits)
    monkeypatch.setattr(failover, "is_switched", lambda *_: False)
    monkeypatch.setattr(failover, "start_failover", waits)
    policy = ReplicationPolicy(name="shop", source_database="shop", dump_root="/dumps")
    work = _Work(
        source=client, target=client, policy=policy, spark=None, story=Story(), command=f"replicate {action}"
    )  # type: ignore[arg-type]
    if action == "run":
        work._drain()
    else:
        # It ends at the increment, for there is no metastore.
        with pytest.raises(AttributeError):
            work.fail_over()
    place = StateDirectory(f"file:{tmp_path / 'state'}")
    (key,) = place.keys(REPLICATION)
    position = place.read(REPLICATION, key, state.POSITION)
    assert position is not None
    assert (position.by.command, position.running) == (
        f"replicate {action}",
        "shop: 1 transaction still open: 5",
    )


def test_a_command_publishes_its_wait_for_open_transactions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__HIVE_FEDERATION__STATE_URI", f"file:{tmp_path / 'state'}")
    place, seen = StateDirectory(f"file:{tmp_path / 'state'}"), []
    policy = ReplicationPolicy(name="shop", source_database="shop", dump_root="/dumps")
    observe = CommandState(policy=policy, command="replicate run").waiting(seen.append)

    def running() -> str:
        (key,) = place.keys(REPLICATION)
        position = place.read(REPLICATION, key, state.POSITION)
        assert position is not None
        assert position.by.command == "replicate run"
        return position.running

    observe(TransactionsEnded(database="shop"))
    assert not place.keys(REPLICATION)
    observe(TransactionsOpen(database="shop", transactions=(5,)))
    assert "shop" in running()
    observe(TransactionsEnded(database="shop"))
    assert running() == ""
    assert len(seen) == 3


def test_nothing_is_published_without_a_directory(
    policy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AIRFLOW__HIVE_FEDERATION__STATE_URI", raising=False)
    assert main(["replicate", "status", policy]) != 0
    assert not (tmp_path / "home").exists()


GROUP = """
name = "together"
source = "thrift://127.0.0.1:1"
target = "thrift://127.0.0.1:1"
dump_root = "/dumps"

[[policies]]
source_database = "orders"

[[policies]]
source_database = "items"
"""


@pytest.mark.parametrize("action", ["status", "run", "verify"])
def test_a_failing_command_of_a_group_is_a_failure_of_each_member(
    action: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("AIRFLOW__HIVE_FEDERATION__STATE_URI", f"file:{tmp_path / 'state'}")
    (path := tmp_path / "group.toml").write_text(GROUP, encoding="utf-8")
    assert main(["replicate", action, str(path)]) != 0
    place = StateDirectory(f"file:{tmp_path / 'state'}")
    found = {}
    for key in place.keys(REPLICATION):
        cycles = place.read(REPLICATION, key, state.CYCLES)
        assert cycles is not None
        found[cycles.policy.source_database] = cycles.cycles[-1]
    assert set(found) == {"orders", "items"}
    for failed in found.values():
        assert "MetastoreUnreachableError" in failed.error
        assert failed.by.command == f"replicate {action}"


def test_a_cycle_of_a_group_publishes_its_wait_for_each_member(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("AIRFLOW__HIVE_FEDERATION__STATE_URI", f"file:{tmp_path / 'state'}")
    (path := tmp_path / "group.toml").write_text(GROUP, encoding="utf-8")

    def waits(*_: object, observer: Observer, **__: object) -> None:
        observer(TransactionsOpen(database="together", transactions=(5,)))

    monkeypatch.setattr(groups_cycle, "run_group_cycle", waits)
    # There is no metastore, so the command fails after its wait.
    assert main(["replicate", "run", str(path)]) != 0
    place = StateDirectory(f"file:{tmp_path / 'state'}")
    found = [place.read(REPLICATION, key, state.POSITION) for key in place.keys(REPLICATION)]
    assert len(found) == 2
    assert all(position and "1 transaction still open: 5" in position.running for position in found)


@pytest.mark.parametrize(("options", "whole"), [([], False), (["--verify-whole"], True)])
def test_a_cycle_of_a_group_verifies_as_much_as_it_is_asked_to(
    options: list[str], whole: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("AIRFLOW__HIVE_FEDERATION__STATE_URI", f"file:{tmp_path / 'state'}")
    (path := tmp_path / "group.toml").write_text(GROUP, encoding="utf-8")
    asked: list[bool] = []

    def verify(*_: object, whole: bool, **__: object) -> list[object]:
        asked.append(whole)
        raise ReplicationError("There is no replica here.")

    monkeypatch.setattr(groups_cycle, "run_group_cycle", lambda *_, **__: None)
    monkeypatch.setattr(CommandState, "cycle", lambda *_: None)
    monkeypatch.setattr(groups_status, "verify_group", verify)
    assert main(["replicate", "run", str(path), *options]) != 0
    assert asked == [whole]


def test_a_failing_ingest_is_published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__HIVE_FEDERATION__STATE_URI", f"file:{tmp_path / 'state'}")
    (path := tmp_path / "a.csv").write_text("1\n", encoding="utf-8")
    metastore = "thrift://127.0.0.1:1"
    assert main(["ingest", "D.t", str(path), "--metastore", metastore]) != 0
    found = StateDirectory(f"file:{tmp_path / 'state'}").read(
        INGEST, key_of("d.t", metastore, "files"), INGESTED
    )
    assert found is not None
    assert (found.failures, found.by.command) == (1, "ingest")
    assert found.error.startswith("StreamingConnectionError: ")


def test_compactions_are_published_also_those_before_an_interrupt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__HIVE_FEDERATION__STATE_URI", f"file:{tmp_path / 'state'}")
    done = CompactionReport(id=1, table="d.t", partition="", kind="major", state="compacted")
    look = QueueLook(states={"initiated": 1}, waiting=[])
    monkeypatch.setattr(queue, "look_at_queue", lambda _: look)

    def compact(*_: object, on_report: Any, **__: object) -> list[CompactionReport]:
        on_report(done)
        return [done]

    def interrupted(*_: object, on_report: Any, **__: object) -> list[CompactionReport]:
        on_report(done)
        raise KeyboardInterrupt

    metastore, place = "thrift://127.0.0.1:1", StateDirectory(f"file:{tmp_path / 'state'}")
    monkeypatch.setattr(requests, "compact_table", compact)
    monkeypatch.setattr(MetastoreClient, "__enter__", lambda client: client)
    assert main(["compact", "d.t", "--metastore", metastore]) == 0
    monkeypatch.setattr(requests, "compact_table", interrupted)
    assert main(["compact", "d.t", "--metastore", metastore]) == 130
    found = place.read(COMPACTION, key_of(metastore), COMPACTED)
    assert found is not None
    assert ([each.table for each in found.finished], found.states) == (["d.t", "d.t"], {"initiated": 1})
    assert found.by.command == "compact"


def test_commands_that_publish_nothing_do_not_import_airflow() -> None:
    """Airflow takes seconds to import."""
    code = """
import sys
from airflow_hive_federation.cli.main import main
near = ["--metastore", "thrift://127.0.0.1:1"]
absent = ["--clusters", "/absent.json", *near]
for command in (
    ["cluster", "drop-copy", "d.t", "C2", *absent],
    ["route", "SELECT 1", *absent],
    ["ingest", "d.t", "/absent.csv", *near],
    ["compact", "d.t", *near],
):
    assert main(command) == 1
    assert "airflow" not in sys.modules, command
"""
    environment = {name: value for name, value in os.environ.items() if name != commands.STATE_VARIABLE}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
