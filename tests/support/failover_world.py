"""A source and a target whose owners act at the same time, one step after the other."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_hive_federation.errors import (
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

POLICY = ReplicationPolicy(
    name="p", source_database="s", target_database="t", dump_root="file:/dumps", external_base=None
)


SOURCE, TARGET = (MetastoreSettings(uris=(f"thrift://{side}:1",)) for side in ("source", "target"))

REPLICA = {markers.POLICY: "p", markers.LAST_ID: "7", markers.CHECKPOINT: "d0", markers.READ_ONLY: "true"}
MARKED = {markers.FAILOVER: "SOURCE", markers.READ_ONLY: "true"}


DEMOTED = {**MARKED, markers.POLICY: "p.reversed", markers.LAST_ID: "9", markers.CHECKPOINT: "d1"}


#: States that the operations may find: parameters of the source's and of the target's database.
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
    turn: threading.Lock
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
        self._back = _baton()
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

        actor = Actor(name=name, thread=threading.Thread(target=run, daemon=True), turn=_baton())
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
        server = self.source if client.settings.uris == SOURCE.uris else self.target
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
            MetastorePool(SOURCE, 8) as source,
            MetastorePool(TARGET, 8) as target,
        ):
            yield source, target


def _baton() -> threading.Lock:
    """A lock that one thread takes and another one gives back; a semaphore costs several times as much."""
    lock = threading.Lock()
    lock.acquire()
    return lock


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


def worlds(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], World]]:
    """Yield a function that makes worlds in which the functions act, one at a time."""
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
    # Comparisons and records of a failover have tests of their own; here only the right to write matters.
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
        unsettled_loads=lambda *_: [],
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
