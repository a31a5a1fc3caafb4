"""A follower brings each commit of its source, survives its end at any moment, and waits for what is away."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from airflow_hive_federation.cli.replicate import policy_text
from airflow_hive_federation.errors import TargetChangedError
from airflow_hive_federation.progress.cycle_events import CycleFailed
from airflow_hive_federation.progress.events import Event, StepStarting
from airflow_hive_federation.progress.observers import Observer
from airflow_hive_federation.replication.follow import FollowSummary
from airflow_hive_federation.replication.replica import cycle_lock
from airflow_hive_federation.replication.replica.cycle_lock import CycleLock
from airflow_hive_federation.waiting import StopRequest
from tests.support.following import followed, once
from tests.support.forked_workers import forking
from tests.support.increment_site import DATABASE, Site, site
from tests.support.kills import KILLED, pool
from tests.support.small_source import connected, make_table

__all__ = ["site"]


def run(made: Site, **settings: Any) -> FollowSummary:
    return followed(made.source.uri, made.target.uri, made.policy, **settings)


def all_of(*observers: Observer) -> Observer:
    def observe(event: Event) -> None:
        for observer in observers:
            observer(event)

    return observe


def files(warehouse: Path) -> dict[str, str]:
    """The files of the ACID table, by their paths below it."""
    root = warehouse / f"{DATABASE}.db" / "acid"
    return {
        str(path.relative_to(root)): path.read_text(encoding="utf-8")
        for path in root.rglob("bucket_*")
        if not path.name.endswith(".crc")
    }


def assert_equal(made: Site) -> None:
    first, second = made.high_watermarks()
    assert first == second
    assert files(made.target.warehouse) == files(made.source.warehouse)


def test_the_command_bootstraps_brings_each_commit_and_ends_at_a_signal(site: Site, tmp_path: Path) -> None:
    with commanded(site, tmp_path) as command:
        assert command.stdout
        assert command.stderr
        bootstrap = json.loads(command.stdout.readline())
        assert (bootstrap["cycle"], bootstrap["files"]) == ("bootstrap", 5)
        site.commit()
        increment = json.loads(command.stdout.readline())
        assert (increment["cycle"], increment["files"], increment["transactions"]) == ("increment", 2, 1)
        assert increment["size_bytes"] == len("p=one 3") + len("p=a%3Ab 3")
        assert str(increment["event_id"]) == site.last_id()
        assert_equal(site)
        announced = next(line for line in command.stderr if "Metrics are at" in line)
        with urlopen(announced.split()[-1]) as answer:
            metrics = answer.read().decode()
        assert f'hive_federation_cycles_total{{database="{DATABASE}"}} 2\n' in metrics
        assert f'hive_federation_event_id{{database="{DATABASE}"}} {site.last_id()}\n' in metrics
        assert f'hive_federation_lag_events{{database="{DATABASE}"}} 0\n' in metrics
        command.send_signal(signal.SIGTERM)
        assert command.wait(60) == 0
        lines = command.stderr.read()
    assert "after 2 cycles" in lines
    assert "Traceback" not in lines


@contextmanager
def commanded(made: Site, directory: Path) -> Iterator[subprocess.Popen[str]]:
    """The command in a process of its own."""
    policy = directory / "policy.toml"
    policy.write_text(policy_text(made.policy, made.source.uri, made.target.uri), encoding="utf-8")
    program = [sys.executable, "-m", "airflow_hive_federation.cli.main", "replicate", "follow", str(policy)]
    options = ["--json", "--metrics-port", "0", "--look-every", "0.1"]
    with subprocess.Popen(
        [*program, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def test_a_stopped_follower_ends_before_its_next_step_and_another_one_continues(site: Site) -> None:
    site.bootstrap()
    site.commit()
    stop, steps = StopRequest(), []

    def stop_at_copy(event: Event) -> None:
        if isinstance(event, StepStarting):
            steps.append(event.name)
            if event.name == "copy":
                stop.make()

    before = site.last_id()
    assert run(site, stop=stop, observer=stop_at_copy).cycles == 0
    assert (steps[-1], site.last_id()) == ("copy", before)
    assert run(site, cycles=1).cycles == 1
    assert_equal(site)


def test_a_killed_follower_is_continued_by_the_next_one(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    # The lock of a process that is known to be gone lasts for three heartbeats.
    monkeypatch.setattr(cycle_lock, "_BEAT_S", 0.5)
    site.bootstrap()
    with forking("tests.support.following") as killed:
        for step in ("allocate acid", "publish"):
            site.commit()
            before = site.last_id()
            arguments = [site.source.uri, site.target.uri, json.dumps(site.policy.to_json()), step]
            assert killed(arguments) == KILLED
            assert site.last_id() == before
            site.commit()
            assert str(run(site, cycles=1).event_id) == site.last_id()
            assert_equal(site)


def test_a_follower_waits_for_another_cycle_and_ends_at_an_error_that_none_can_mend(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cycle_lock, "_BEAT_S", 0.2)
    site.bootstrap()
    site.commit()
    events: list[Event] = []
    with ExitStack() as other:
        other.enter_context(another_cycle(site))
        observer = all_of(events.append, once(CycleFailed, other.close))
        assert run(site, cycles=1, observer=observer).cycles == 1
    failures = [event for event in events if isinstance(event, CycleFailed)]
    assert failures[0].failures == 1
    assert failures[0].pause_s == 0.1
    assert "Another cycle works on target database" in failures[0].error
    assert_equal(site)
    # No further cycle mends this.
    with connected(site.target) as client:
        make_table(client, DATABASE, "of_somebody_else")
    with pytest.raises(TargetChangedError, match="of_somebody_else"):
        run(site)


@contextmanager
def another_cycle(made: Site) -> Iterator[None]:
    with pool(made.target.uri) as target, CycleLock(target, made.policy):
        yield
