"""Killed at any of its steps, the load of an increment is repeated and ends in the same state.

As in ``test_kills``: the process ends by ``os._exit`` at the step, and nothing of it is cleaned up.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.errors import CycleRunningError, TargetNotOursError
from airflow_hive_federation.replication.cycle_plan import plan_cycle
from airflow_hive_federation.replication.format.directory import DumpDirectory
from airflow_hive_federation.replication.replica.position import read_position
from tests.support.cutting import Cut, cut_at
from tests.support.increment_kills import DATABASE, Case, load
from tests.support.kills import pool, twice
from tests.support.observing import at_steps
from tests.support.small_source import connected

#: How many steps to cut a cycle off at, ``all``, or which: ``2,5,8``.
CUTS = os.environ.get("HIVE_FEDERATION_CUTS", "4")


@pytest.fixture(scope="module")
def case(
    source: EmbeddedMetastore, target: EmbeddedMetastore, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Case]:
    made = Case(source, target, tmp_path_factory.mktemp("increment"))
    yield made
    made.close()


@dataclass(frozen=True, kw_only=True)
class Load:
    """The load of the increment without a kill: its steps, and the state that it ends in."""

    steps: list[str]
    state: dict[str, Any]


@pytest.fixture(scope="module")
def undisturbed(case: Case) -> Load:
    steps: list[str] = []
    case.reset()
    case.load(at_steps(steps.append))
    return Load(steps=steps, state=case.state())


def test_a_load_killed_at_each_of_its_steps_ends_in_the_same_state(case: Case, undisturbed: Load) -> None:
    steps, expected = undisturbed.steps, undisturbed.state
    assert {"replace replaced", "copy", "seed new", "open transactions", "allocate acid"} <= set(steps)
    assert {"drop dropped", "drop seen", "remove files ext", "publish"} <= set(steps)
    assert expected["write_ids"][f"{DATABASE}.acid"] == (7, 1)
    assert sorted(expected["tables"]) == ["acid", "ext", "new", "replaced"]
    assert case.concerned() == ("p=a%3Ab", "p=later", "p=one")
    for names in twice(steps):
        case.reset()
        for name in names:
            case.kill(name)
        case.load()
        assert case.state() == expected, f"killed before {names}"


def test_an_increment_loaded_again_changes_nothing(case: Case) -> None:
    case.reset()
    case.load()
    with connected(case.target) as client:
        before = client.get_current_notification_event_id()
        case.load()
        assert client.get_current_notification_event_id() == before


def test_a_killed_cycle_dumped_anew_ends_in_the_same_state(case: Case, undisturbed: Load) -> None:
    expected = undisturbed.state
    for name in ("allocate acid", "publish"):
        case.reset()
        case.kill(name)
        with pool(case.source.uri) as source, pool(case.target.uri) as target:
            assert case.dump in plan_cycle(source, target, case.policy).unfinished
        again = case.dump_again()
        load(case.source.uri, case.target.uri, case.policy, again)
        assert DumpDirectory(again).manifest().event_id == int(expected["last"])
        assert case.state() == expected, f"killed before {name!r}"
        case.forget(again)


def test_a_load_that_began_after_the_dump_of_another_makes_that_one_out_of_date(
    case: Case, undisturbed: Load
) -> None:
    case.reset()
    first, second = case.dump_again(), case.dump_again()
    case.kill("publish", first)
    with pytest.raises(CycleRunningError, match="has begun to change") as refused:
        load(case.source.uri, case.target.uri, case.policy, second)
    assert refused.value.facts["holder"] == first
    third = case.dump_again()
    load(case.source.uri, case.target.uri, case.policy, third)
    assert case.state() == undisturbed.state
    for dump in (first, third):
        case.forget(dump)


def test_a_cycle_cut_off_at_any_call_ends_in_the_same_state(case: Case) -> None:
    """At any call of a metastore and any change of a file system: of the dump, the copy, or the load."""
    case.reset()
    with cut_at(None) as steps:
        case.cycle()
    expected = case.state()
    count = len(steps.taken)
    assert {"open_txns", "commit_txn", "alter_database"} <= set(steps.taken), steps.taken
    cuts = cuts_of(count)
    print(f"{count} steps, cut at {cuts}")
    for last in cuts:
        case.reset()
        with pytest.raises(Cut), cut_at(last):
            case.cycle()
        case.cycle()
        assert case.state() == expected, f"cut off at step {last}, {steps.taken[last]!r}"


def cuts_of(count: int) -> Sequence[int]:
    if CUTS == "all":  # takes some minutes
        return range(1, count)
    if "," in CUTS:
        return [int(cut) for cut in CUTS.split(",")]
    apart = count // int(CUTS)
    return range(random.SystemRandom().randint(1, apart), count, apart)


def test_another_policy_keeps_out(case: Case) -> None:
    with connected(case.target) as client, pytest.raises(TargetNotOursError):
        read_position(client, replace(case.policy, name="other"))
