"""Commands publish state where the environment names a directory, and nowhere else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from airflow_hive_federation.cli import published as commands
from airflow_hive_federation.cli.main import main
from airflow_hive_federation.cli.published import CommandState
from airflow_hive_federation.progress.cycle_events import CycleFailed, CycleFollowed, FollowEnded, LagSeen
from airflow_hive_federation.progress.observers import unobserved
from airflow_hive_federation.published import directory as state
from airflow_hive_federation.published.directory import REPLICATION, StateDirectory
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
    assert CommandState(policy=policy, command="c").following(nobody, nobody, unobserved) is unobserved


def test_nothing_is_published_without_a_directory(
    policy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AIRFLOW__HIVE_FEDERATION__STATE_URI", raising=False)
    assert main(["replicate", "status", policy]) != 0
    assert not (tmp_path / "home").exists()
