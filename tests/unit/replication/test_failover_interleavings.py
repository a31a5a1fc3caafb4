"""Every interleaving of a failover's steps leaves one writable side at most.

The functions are the real ones, down to the client's calls; the two metastores are models: databases with
parameters, locks with heartbeats. Each operation runs in a thread of its own and stands still before each of
its calls until it is its turn. An operation that is interrupted there is either slow (its heartbeats go on)
or suspended (they do not, and the clock goes on). Real metastores are in ``test_failover.py``.
"""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_hive_federation.errors import (
    CycleLostError,
    FailoverError,
)
from airflow_hive_federation.progress.observers import unobserved
from airflow_hive_federation.replication import failover
from airflow_hive_federation.replication.replica import cycle_lock, markers
from tests.support.failover_world import (
    BEGINNINGS,
    DEMOTED,
    MARKED,
    OPERATIONS,
    POLICY,
    Actor,
    World,
    worlds,
)
from tests.support.observing import at_steps

SEED = int(os.environ.get("HIVE_FEDERATION_INTERLEAVINGS_SEED", random.SystemRandom().randrange(1 << 32)))
RANDOM_RUNS = int(os.environ.get("HIVE_FEDERATION_INTERLEAVINGS", "150"))
#: No operation of the model has as many steps.
LONGEST = 500


@pytest.fixture
def make_world(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], World]]:
    yield from worlds(monkeypatch)


def count_steps(make_world: Callable[[str], World], beginning: str, operation: str) -> int:
    world = make_world(beginning)
    actor = world.begin(operation)
    world.advance(actor)
    return actor.steps


@pytest.mark.parametrize("beginning", BEGINNINGS)
@pytest.mark.parametrize("suspended", [False, True], ids=["slow", "suspended"])
def test_one_operation_inside_another(
    make_world: Callable[[str], World], beginning: str, suspended: bool
) -> None:
    """Each is interrupted at each of its steps by each of the others, which runs to its end."""
    steps = {name: count_steps(make_world, beginning, name) for name in OPERATIONS}
    for first, second in itertools.permutations(OPERATIONS, 2):
        for place in range(steps[first] + 1):
            world = make_world(beginning)
            outer, inner = world.begin(first), world.begin(second)
            outer.suspended = suspended
            world.advance(outer, place)
            world.advance(inner)
            if suspended:
                world.now_s += 60.0
            world.end()


def test_three_operations_in_any_order(make_world: Callable[[str], World]) -> None:
    print(f"seed {SEED}")
    chance = random.Random(SEED)
    for _ in range(RANDOM_RUNS):
        world = make_world(chance.choice([*BEGINNINGS]))
        names = [chance.choice([*OPERATIONS]) for _ in range(4)]
        actors = [world.begin(name) for name in names]
        for actor in actors:
            actor.suspended = chance.random() < 0.5
        while waiting := [actor for actor in actors if not actor.ended]:
            actor = chance.choice(waiting)
            if actor.suspended and chance.random() < 0.3:
                world.now_s += 60.0
            world.advance(actor, chance.randrange(1, 30))


def test_a_failover_that_nobody_disturbs(make_world: Callable[[str], World]) -> None:
    """The model lets the real functions come to their ends, or the others would prove nothing."""
    world = make_world("replicated")
    assert outcomes(world, ["cycle", "start", "cycle", "roll back"]) == ["done"] * 4
    assert (world.source.is_writable, world.target.is_writable) == (True, False)
    assert outcomes(world, ["start", "switch", "roll back", "cycle"])[-4:] == [
        "done",
        "done",
        "FailoverError",
        "TargetNotOursError",
    ]
    assert (world.source.is_writable, world.target.is_writable) == (False, True)


@pytest.mark.parametrize("operation", ["start", "roll back"])
def test_a_replica_of_another_policy_is_neither_closed_nor_opened(
    make_world: Callable[[str], World], operation: str
) -> None:
    world = make_world("replicated" if operation == "start" else "started")
    world.source.parameters = before = {**world.source.parameters, markers.POLICY: "another"}
    assert outcomes(world, [operation]) == ["FailoverError"]
    assert world.source.parameters == before


def test_a_start_that_is_rolled_back_while_it_waits_aborts_nothing(
    make_world: Callable[[str], World], monkeypatch: pytest.MonkeyPatch
) -> None:
    world, aborted = make_world("replicated"), list[Any]()

    def rolled_back(*_: Any, **__: Any) -> bool:
        world.source.parameters = {}
        return False

    monkeypatch.setattr(failover, "has_drained", rolled_back)
    monkeypatch.setattr(failover, "abort_remaining", lambda _client, start, **_: aborted.append(start))
    assert outcomes(world, ["start"]) == ["FailoverError"]
    assert aborted == []


@pytest.mark.parametrize("moment", ["check", "source becomes target"])
def test_a_source_that_was_written_to_is_not_switched(
    make_world: Callable[[str], World], moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the baseline was written, or while it was."""
    world, steps = make_world("started"), [""]
    written = SimpleNamespace(idle=False, lease=0, events=1, tables=1, transactions=1)
    monkeypatch.setattr(
        failover,
        "dump_next_increment",
        lambda *_, **__: written if steps[-1] == moment else SimpleNamespace(idle=True),
    )
    with world.pools() as (source, target), pytest.raises(FailoverError, match="changed since the last"):
        failover.switch_roles(source, target, POLICY, observer=at_steps(steps.append))
    assert steps[-1] == moment
    assert world.source.parameters == MARKED


@pytest.mark.parametrize("moment", ["check", "source becomes target"])
def test_a_source_that_is_opened_is_not_switched(make_world: Callable[[str], World], moment: str) -> None:
    """By hand, in the middle of a switch: its writers may be back."""
    world, steps = make_world("started"), [""]

    def step(name: str) -> None:
        steps.append(name)
        if name == moment:
            world.source.parameters = {}

    with world.pools() as (source, target), pytest.raises(FailoverError, match="was not started, or was"):
        failover.switch_roles(source, target, POLICY, observer=at_steps(step))
    assert steps[-1] == moment
    assert world.source.parameters == {}


@pytest.mark.parametrize(("operation", "beginning"), [("start", "replicated"), ("roll back", "started")])
def test_a_cycle_that_loses_the_lock_in_its_last_call_fails(
    make_world: Callable[[str], World], operation: str, beginning: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another one may have acted on what was there before."""
    world = make_world(beginning)
    alter = world.source.alter_database

    def taken_over(name: str, database: Any) -> None:
        alter(name, database)
        world.source.locks.clear()

    monkeypatch.setattr(world.source, "alter_database", taken_over)
    assert outcomes(world, [operation]) == ["CycleLostError"]


@pytest.mark.parametrize(
    ("moment", "side", "source_policy"),
    [
        ("source becomes target", "target", None),
        ("target becomes source", "source", "p.reversed"),
        ("end failover", "target", "p.reversed"),
    ],
)
def test_a_switch_goes_on_with_both_locks_only(
    make_world: Callable[[str], World], moment: str, side: str, source_policy: str | None
) -> None:
    """A call to one side is guarded by the lock of that side; the other lock counts, too."""
    world, steps = make_world("started"), [""]

    def step(name: str) -> None:
        steps.append(name)
        if name == moment:
            getattr(world, side).locks.clear()

    with world.pools() as (source, target), pytest.raises(CycleLostError):
        failover.switch_roles(source, target, POLICY, observer=at_steps(step))
    assert steps[-1] == moment
    assert world.source.parameters.get(markers.POLICY) == source_policy
    assert not world.source.is_writable
    assert world.target.is_writable is (moment == "end failover")


def test_the_epoch_of_a_target_decides_who_may_write(make_world: Callable[[str], World]) -> None:
    world = make_world("replicated")
    with world.pools() as (_, target), cycle_lock.CycleLock(target, POLICY, fences=False) as lock:
        # Before anything is done: a predecessor that wakes up finds it.
        assert world.target.parameters[markers.EPOCH] == str(lock.epoch)
        lock.prove()
        world.target.parameters[markers.EPOCH] = str(lock.epoch + 1)
        with pytest.raises(CycleLostError, match=f"at epoch {lock.epoch + 1}"):
            lock.prove()
        # For good, whatever the target shows afterwards.
        world.target.parameters[markers.EPOCH] = str(lock.epoch)
        for ask in (lock.prove, lock.check):
            with pytest.raises(CycleLostError):
                ask()


def test_a_take_over_that_loses_the_lock_in_its_last_call_fails(
    make_world: Callable[[str], World], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world("started")
    world.source.is_up = False
    alter = world.target.alter_database

    def taken_over(name: str, database: Any) -> None:
        alter(name, database)
        if markers.POLICY not in world.target.parameters:
            world.target.locks.clear()

    monkeypatch.setattr(world.target, "alter_database", taken_over)
    assert outcomes(world, ["take over"]) == ["CycleLostError"]


def test_a_target_that_does_not_answer_stops_a_roll_back(make_world: Callable[[str], World]) -> None:
    """It may have been let go meanwhile, and be written."""
    world = make_world("started")
    world.target.is_up = False
    assert outcomes(world, ["roll back"]) == ["MetastoreUnreachableError"]
    assert not world.source.is_writable
    with world.pools() as (source, target):
        failover.roll_back_failover(source, target, POLICY, target_lost=True, observer=unobserved)
    assert world.source.is_writable


@pytest.mark.parametrize("altered", [{}, {**DEMOTED, markers.POLICY: "another"}], ids=["opened", "another's"])
def test_a_source_that_is_altered_during_a_switch_keeps_the_target_closed(
    make_world: Callable[[str], World], altered: Mapping[str, str]
) -> None:
    """A person sets it by hand: no lock prevents that."""
    world = make_world("started")

    def alter(step: str) -> None:
        if step == "target becomes source":
            world.source.parameters = dict(altered)

    with world.pools() as (source, target), pytest.raises(FailoverError, match="is no replica any more"):
        failover.switch_roles(source, target, POLICY, observer=at_steps(alter))
    assert not world.target.is_writable


def test_a_source_that_comes_back_after_a_take_over_is_not_opened(
    make_world: Callable[[str], World],
) -> None:
    world = make_world("started")
    world.source.is_up = False
    assert outcomes(world, ["take over"]) == ["done"]
    world.source.is_up = True
    assert outcomes(world, ["roll back"]) == ["FailoverError"]
    assert (world.source.is_writable, world.target.is_writable) == (False, True)


def test_a_source_that_comes_back_during_a_take_over_is_not_opened_beside_it(
    make_world: Callable[[str], World],
) -> None:
    """A take-over that has read the source for the last time, and a roll-back that has read the target."""

    def interrupted(place: int) -> tuple[World, Actor]:
        world = make_world("started")
        world.source.is_up = False
        actor = world.begin("take over")
        world.advance(actor, place)
        world.source.is_up = True
        return world, actor

    for place in itertools.count(1):
        world, actor = interrupted(place)
        world.end()
        if actor.outcome == "done":  # it has read for the last time
            break
        assert place < LONGEST, actor.outcome
    for back in range(count_steps(make_world, "started", "roll back")):
        world, actor = interrupted(place)
        opening = world.begin("roll back")
        world.advance(opening, back)
        world.advance(actor)
        world.end()


def outcomes(world: World, names: Sequence[str]) -> list[str]:
    for name in names:
        world.advance(world.begin(name))
    return [actor.outcome for actor in world.actors][-len(names) :]
