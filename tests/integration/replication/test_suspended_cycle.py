"""Two cycles, of which the first is suspended at one of its steps and wakes up when the second has ended."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, Sequence

import pytest

from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.errors import CycleRunningError, OutcomeUnknownError
from airflow_hive_federation.replication.cycle import dump_next_increment, load_dump
from airflow_hive_federation.replication.replica import markers
from tests.support.increment_kills import Case
from tests.support.incrementing import run_copy
from tests.support.kills import pool
from tests.support.small_source import connected
from tests.support.suspending import FAST, suspendable

pytestmark = pytest.mark.slow

#: At how many of a cycle's steps to suspend it, ``all`` (an hour), or at which: ``12,57``.
SUSPENSIONS = os.environ.get("HIVE_FEDERATION_SUSPENSIONS", "2")
BEGIN = int(os.environ.get("HIVE_FEDERATION_SUSPENSIONS_FIRST", random.SystemRandom().randrange(1000)))
DATABASE = "suspended"


@pytest.fixture
def case(
    source: EmbeddedMetastore,
    target: EmbeddedMetastore,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Case]:
    for module, name, value in FAST:
        monkeypatch.setattr(module, name, value)
    made = Case(source, target, tmp_path_factory.mktemp("suspended"), DATABASE)
    yield made
    made.close()


def test_a_suspended_cycle_changes_nothing_when_it_wakes_up(case: Case) -> None:
    with suspendable(case.source.uri, case.target.uri, case.policy) as first:
        undisturbed = first.run(-1)
        assert undisturbed["outcome"] == "loaded"
        expected, steps = case.state(), undisturbed["steps"]
        assert {"alter_database", "commit_txn"} <= set(steps), steps
        # What comes after the publication is not the target's.
        published = max(place for place, step in enumerate(steps) if step.startswith("alter_database"))
        chosen = suspensions(steps, published)
        print(f"published by step {published} of {len(steps)}; suspended at {chosen} (from {BEGIN})")
        for step in chosen:
            case.reset()
            stopped = first.run(step)
            assert "suspended" in stopped, stopped
            second(case)
            record = cycles(case)
            woken = first.resume()
            where = f"suspended at step {step}, {stopped['suspended']!r}"
            assert woken["outcome"].startswith("CycleLostError: "), f"{where}: {woken['outcome']}"
            assert cycles(case) == record, f"{where}: published twice"
            assert case.state() == expected, where


def second(case: Case) -> None:
    """The successor: finds the lock taken, waits, takes it over, and dumps anew."""
    with pool(case.source.uri) as source, pool(case.target.uri) as target:
        dumped = dump_next_increment(source, target, case.policy)
        try:
            load_dump(source, target, case.policy, dumped.dump, run_copy=run_copy)
        except (CycleRunningError, OutcomeUnknownError):
            # The metastore may carry out a heartbeat that it received before after the first look; and on a
            # busy machine a call may take longer than the lock's deadline, a fourth of the real one.
            load_dump(source, target, case.policy, dumped.dump, run_copy=run_copy)


def cycles(case: Case) -> tuple[str, str]:
    """Return the target's records of its cycles."""
    with connected(case.target) as client:
        parameters = client.get_database(DATABASE).parameters or {}
    return parameters[markers.CYCLES], parameters[markers.EPOCH]


def suspensions(steps: Sequence[str], published: int) -> Sequence[int]:
    """Steps to suspend at, from the moment on that the lock is held."""
    first = steps.index("lock") + 1
    if SUSPENSIONS == "all":
        return range(first, published + 1)
    if "," in SUSPENSIONS:
        return [int(step) for step in SUSPENSIONS.split(",")]
    others = [first + (BEGIN + place * 211) % (published - first) for place in range(int(SUSPENSIONS) - 1)]
    return [published, *others]
