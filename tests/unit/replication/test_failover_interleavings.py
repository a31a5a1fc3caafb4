"""Every interleaving of a failover's steps leaves one writable side at most.

The functions are the real ones, down to the client's calls; the two metastores are models: databases with
parameters, locks with heartbeats. Each operation runs in a thread of its own and stands still before each of
its calls until it is its turn. An operation that is interrupted there is either slow (its heartbeats go on)
or suspended (they do not, and the clock goes on). Real metastores are in ``test_failover.py``.
"""

from __future__ import annotations

import itertools
import logging
import os
import random
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_hive_federation.errors import (
    CycleLostError,
    FailoverError,
    HiveFederationError,
    MetastoreUnreachableError,
)
from airflow_hive_federation.metastore import MetastoreClient, MetastorePool, MetastoreSettings
from airflow_hive_federation.progress.observers import unobserved
from airflow_hive_federation.replication import cycle, failover, take_over
from airflow_hive_federation.replication.format.manifest import FinishedLoad, Manifest
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.replication.replica import cycle_lock, markers
from airflow_hive_federation.transactions.heartbeat import Heartbeat
from tests.support.dumps import manifest
from tests.support.metastore_model import Server
from tests.support.observing import at_steps

POLICY = ReplicationPolicy(
    name="p", source_database="s", target_database="t", dump_root="file:/dumps", external_base=None
)
SEED = int(os.environ.get("HIVE_FEDERATION_INTERLEAVINGS_SEED", random.SystemRandom().randrange(1 << 32)))
RANDOM_RUNS = int(os.environ.get("HIVE_FEDERATION_INTERLEAVINGS", "150"))

REPLICA = {markers.POLICY: "p", markers.LAST_ID: "7", markers.CHECKPOINT: "d0", markers.READ_ONLY: "true"}
MARKED = {markers.FAILOVER: "SOURCE", markers.READ_ONLY: "true"}
DEMOTED = {**MARKED, markers.POLICY: "p.reversed", markers.LAST_ID: "9", markers.CHECKPOINT: "d1"}
#: What the operations may meet: parameters of the source's and of the target's database.
BEGINNINGS: Mapping[str, tuple[Mapping[str, str], Mapping[str, str]]] = {
    "replicated": ({}, REPLICA),
    "started": (MARKED, REPLICA),
    "switch killed half-way": (DEMOTED, REPLICA),
    "switched": ({**DEMOTED, markers.FAILOVER: ""}, {}),
    "taken over": (MARKED, {}),
}


@dataclass
class Actor:
    """An operation on its way."""

    name: str
    thread: threading.Thread
    turn: threading.Semaphore
    suspended: bool = False
    ended: bool = False
    outcome: str = ""
    steps: int = 0


class World:
    """Two servers, a clock, and who does what in which order."""

    def __init__(self, beginning: str) -> None:
        source, target = BEGINNINGS[beginning]
        self.source, self.target = Server("source", "s", source), Server("target", "t", target)
        self.now_s = 1000.0
        self.actors: list[Actor] = []
        self.hearts: dict[Heartbeat, Actor | None] = {}
        self.trace: list[str] = []
        self._by_thread: dict[int, Actor] = {}
        self._back = threading.Semaphore(0)
        self._beating = False

    # -- the schedule ----------------------------------------------------------------------------------

    def begin(self, name: str) -> Actor:
        """An operation that has not taken a step yet."""

        def run() -> None:
            self._by_thread[threading.get_ident()] = actor
            actor.turn.acquire()
            try:
                OPERATIONS[name](self)
                actor.outcome = "done"
            except HiveFederationError as error:
                actor.outcome = type(error).__name__
            finally:
                actor.ended = True
                self._back.release()

        actor = Actor(
            name=name, thread=threading.Thread(target=run, daemon=True), turn=threading.Semaphore(0)
        )
        self.actors.append(actor)
        actor.thread.start()
        return actor

    def advance(self, actor: Actor, steps: int = 1 << 30) -> None:
        """Let an operation take so many steps, or all; nobody else takes one meanwhile."""
        for _ in range(steps):
            if actor.ended:
                break
            actor.turn.release()
            assert self._back.acquire(timeout=60), "an operation hangs"
            self.judge()

    def end(self) -> None:
        """Let everybody end, so that no thread is left."""
        for actor in self.actors:
            self.advance(actor)

    def step(self, name: str) -> None:
        """Stop an operation until it is its turn."""
        actor = self._by_thread.get(threading.get_ident())
        if actor is None or self._beating:
            return
        actor.steps += 1
        self._back.release()
        actor.turn.acquire()
        self.trace.append(f"{actor.name}: {name}")

    def judge(self) -> None:
        both = self.source.is_writable and self.target.is_writable
        assert not both, "two writable sides:\n" + "\n".join(self.trace)

    # -- what the functions are given ------------------------------------------------------------------

    def connected(self, client: MetastoreClient) -> Any:
        server = self.source if client.settings.uris[0] == "thrift://source:1" else self.target
        self.step(server.uri)
        if not server.is_up:
            raise MetastoreUnreachableError(f"{server.uri} is down")
        return SimpleNamespace(
            endpoint=server.uri,
            exchange=lambda method, *args: self.exchange(server, method, *args),
            close=lambda: None,
        )

    def exchange(self, server: Server, method: str, *args: Any) -> Any:
        actor = self._by_thread.get(threading.get_ident())
        if actor is not None and not actor.suspended:
            # Slow, not suspended: it may be so between the guard and the call, too.
            self.step(method)
        return server.exchange(method, *args)

    def sleep(self, seconds: float) -> None:
        """Time goes on, and with it the heartbeats of all that are not suspended."""
        self.now_s += seconds
        self._beating = True
        try:
            for heart, actor in list(self.hearts.items()):
                # (One that is in the middle of a heartbeat of its own is slow at that.)
                if actor is not None and not actor.suspended and not heart._connection.locked():
                    heart.send()
        finally:
            self._beating = False

    def started(self, heart: Heartbeat) -> Heartbeat:
        # A step that waits to try again waits by this world's clock.
        heart._stopped = SimpleNamespace(wait=self.sleep, is_set=lambda: False)  # type: ignore[assignment]
        self.hearts[heart] = self._by_thread.get(threading.get_ident())
        return heart

    def stopped(self, heart: Heartbeat) -> None:
        self.hearts.pop(heart, None)

    @contextmanager
    def pools(self) -> Iterator[tuple[MetastorePool, MetastorePool]]:
        with (
            MetastorePool(MetastoreSettings(uris=("thrift://source:1",)), 8) as source,
            MetastorePool(MetastoreSettings(uris=("thrift://target:1",)), 8) as target,
        ):
            yield source, target


def start(world: World) -> None:
    with world.pools() as (source, target):
        failover.start_failover(source, target, POLICY, observer=unobserved)


def roll_back(world: World) -> None:
    with world.pools() as (source, target):
        failover.roll_back_failover(source, target, POLICY, observer=unobserved)


def switch(world: World) -> None:
    with world.pools() as (source, target):
        failover.switch_roles(source, target, POLICY, observer=unobserved)


def taking_over(world: World) -> None:
    with world.pools() as (source, target):
        take_over.take_over(source, target, POLICY, observer=unobserved)


def cycling(world: World) -> None:
    with world.pools() as (_, target):
        cycle.load_idle(target, POLICY, 8, observer=unobserved)


def outage(world: World) -> None:
    """The source does not answer for a while. One that nobody had closed is not let come back: two sides may
    be written then, whatever is done; the documentation explains it."""
    world.step("the source goes down")
    world.source.is_up = False
    world.step("the source comes back")
    world.source.is_up = markers.READ_ONLY in world.source.parameters


OPERATIONS: Mapping[str, Callable[[World], None]] = {
    "start": start,
    "roll back": roll_back,
    "switch": switch,
    "take over": taking_over,
    "cycle": cycling,
    "outage": outage,
}


class Baseline:
    """The dump that a switch writes."""

    def __init__(self, uri: str, *_: Any) -> None:
        self.uri = uri

    def manifest(self) -> Manifest:
        return manifest(event_id=9)

    def finish_load(self, _acknowledgement: FinishedLoad) -> None:
        """Nothing is written."""


@pytest.fixture
def make_world(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], World]]:
    """Makes worlds that the functions act in, one at a time."""
    now: list[World] = []
    logging.disable(logging.WARNING)  # thousands of lost locks

    def stand_in(module: Any, **named: Any) -> None:
        for name, value in named.items():
            monkeypatch.setattr(module, name, value)

    def position(client: Any, policy: ReplicationPolicy) -> Any:
        return SimpleNamespace(last_id=7, dump=failover.loaded_dump(client, policy))

    def unready(_source: Any, target: MetastorePool, policy: ReplicationPolicy, **_: Any) -> Any:
        with target.client() as client:
            failover.loaded_dump(client, policy)
        return SimpleNamespace(idle=True)

    def connected(client: MetastoreClient) -> Any:
        return now[-1].connected(client)

    def stopped(heart: Heartbeat) -> None:
        now[-1].stopped(heart)

    def sleep(seconds: float) -> None:
        now[-1].sleep(seconds)

    stand_in(MetastoreClient, _connected=connected)
    stand_in(Heartbeat, start=lambda heart, **_: now[-1].started(heart), stop=stopped)
    stand_in(
        cycle_lock,
        boot_time_s=lambda: now[-1].now_s,
        time=SimpleNamespace(sleep=sleep),
        metastore_id=lambda _: "t",
        claim_dumps=lambda *_: None,
        read_fence=lambda *_: 0,
        raise_fence=lambda *_: None,
    )
    # What a failover compares and writes down has tests of its own; here only who may write matters.
    stand_in(
        failover,
        begin_drain=lambda *_: SimpleNamespace(transactions=()),
        has_drained=lambda *_, **__: False,
        abort_remaining=lambda *_, **__: None,
        reverse_policy=lambda _source, policy: policy.reversed(),
        dump_next_increment=unready,
        dump_bootstrap=lambda *_, **__: SimpleNamespace(dump="d1", lease=0),
        end_lease=lambda *_: None,
        DumpDirectory=Baseline,
        find_layout=lambda *_: None,
        TableIndex=lambda *_: None,
        metadata_differences=lambda *_: [],
    )
    stand_in(
        take_over,
        unfinished_loads=lambda *_: (),
        _remove_invisible=lambda *_: 0,
        Replay=lambda *_: SimpleNamespace(sweep=lambda _: None),
    )
    stand_in(
        cycle,
        read_position=position,
        DumpDirectory=Baseline,
        TableIndex=lambda *_: SimpleNamespace(skipped={}),
    )

    def make(beginning: str) -> World:
        # The ones before are forgotten: there are tens of thousands, and each keeps its trace.
        now[:] = [World(beginning)]
        return now[-1]

    yield make
    logging.disable(logging.NOTSET)


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
    for first, second in itertools.permutations(OPERATIONS, 2):
        for place in range(count_steps(make_world, beginning, first) + 1):
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
