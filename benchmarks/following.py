"""The time from a commit on the source until readers of the target see it: a follower beside Hive's own.

Writers commit one row at a time, at a constant rate. The follower is the command, in a process of its own.
Hive dumps and loads without a pause, which is more often than any schedule. An hour beside other work on the
source shows whether the lag or the follower's memory grows. Both sides are compacted every five minutes,
Hive's default, because each cycle lists the directories of the tables that have changed.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Protocol, TypeVar

import psutil

from airflow_hive_federation.cli.replicate import policy_text
from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.ingest import HiveStreamingConnection, StrictDelimitedInputWriter
from airflow_hive_federation.metastore import MetastoreClient
from airflow_hive_federation.replication.policy import ReplicationPolicy
from benchmarks.bootstrap import Setting
from benchmarks.contenders import HiveRepl, client_settings, metastores
from benchmarks.increments import DATABASE, TABLES, commit_row
from benchmarks.results import Result, beside_limit, faster, seconds
from benchmarks.source_database import Scale, make_database

_PART = "replicate-follow"
_HOUR_PART = "replicate-follow-hour"
_PER_S = 2.0
_AIM_S = 5.0
#: The last tenth of an hour may be so much slower than the first one.
_GROWTH_AIM = 1.5
#: Other work on the source during the hour: commits into a database that no policy selects, and readers.
_OTHER_DATABASE, _OTHER_PER_S = "others", 2.0
_READERS, _READS_PER_S = 4, 5.0
_LOOK_S = 0.05
Value_co = TypeVar("Value_co", covariant=True)
#: Hive's default; embedded metastores look every other second.
_INITIATOR = {"hive.compactor.check.interval": "300s"}
#: Longest wait for the last commits.
_PATIENCE_S = 120.0


def run(setting: Setting) -> Iterator[Result]:
    """Measure the median and the 99th percentile of both."""
    for_s = 120.0 if setting.scale == "full" else 15.0
    work = f"{_PER_S:g} commits of one row per second into {TABLES} ACID tables for {for_s / 60:g} minutes"
    with ExitStack() as stack:
        source, target = stack.enter_context(metastores(setting.directory, "source", "target"))
        with MetastoreClient(client_settings(source)) as client:
            scale = Scale(tables=TABLES, partitions=1, file_bytes=65)
            make_database(client, source.warehouse, DATABASE, scale)
        with _follower(source, target, setting) as process:
            before_s = _processor_s(process)
            ours = _lags(source, target, "followed", for_s)
            setting.say(f"processor time of the follower: {_processor_s(process) - before_s:.1f} s")
        setting.say(f"the follower: {described(ours)}")
        with HiveRepl(source, target, stock=False) as hive, _repeated(hive, setting.directory):
            peers = _lags(source, target, "repl", for_s)
        setting.say(f"{hive.name}: {described(peers)}")
    peer = f"{hive.name}, without a pause"
    yield faster(
        _PART,
        f"median of {work}",
        ours_s=percentile(ours, 50),
        peer=peer,
        peer_s=percentile(peers, 50),
        at_least=None,
    )
    yield seconds(
        _PART,
        f"99th percentile of {work}",
        ours_s=percentile(ours, 99),
        peer=peer,
        peer_s=percentile(peers, 99),
        at_most_s=_AIM_S,
    )


def run_hour(setting: Setting) -> Iterator[Result]:
    """Measure the 99th percentile of an hour beside other work, and of its last tenth beside its first."""
    for_s = 3600.0 if setting.scale == "full" else 60.0
    work = (
        f"{_PER_S:g} commits of one row per second into {TABLES} ACID tables for {for_s / 60:g} minutes, "
        f"{_OTHER_PER_S:g} per second into another database, {_READERS * _READS_PER_S:g} reads per second, "
        "and compaction on both sides"
    )
    with ExitStack() as stack:
        source, target = stack.enter_context(
            metastores(setting.directory, "source", "target", settings=_INITIATOR)
        )
        with MetastoreClient(client_settings(source)) as client:
            scale = Scale(tables=TABLES, partitions=1, file_bytes=65)
            for database in (DATABASE, _OTHER_DATABASE):
                make_database(client, source.warehouse, database, scale)
        process = stack.enter_context(_follower(source, target, setting))
        for site in (source, target):
            stack.enter_context(_compaction(site, setting))
        before_s, before = _processor_s(process), process.memory_info().rss
        with _other_work(source):
            lags = commits(source, target, "followed", for_s, by=_streams)
        setting.say(f"the follower: {described([commit.lag_s for commit in lags])}")
        setting.say(
            f"processor time of the follower: {_processor_s(process) - before_s:.1f} s; memory: "
            f"{before / 2**20:.0f} MiB at first, {process.memory_info().rss / 2**20:.0f} MiB at the end"
        )
    tenths = [_tenth(lags, number, for_s) for number in range(10)]
    setting.say("99th percentiles of the tenths: " + ", ".join(f"{tenth:.2f} s" for tenth in tenths))
    yield seconds(
        _HOUR_PART,
        f"99th percentile of {work}",
        ours_s=percentile([commit.lag_s for commit in lags], 99),
        peer="the aim",
        peer_s=_AIM_S,
        at_most_s=_AIM_S,
    )
    yield beside_limit(
        _HOUR_PART,
        "99th percentile of the last tenth of these minutes",
        ours_s=tenths[-1],
        peer="that of the first tenth",
        peer_s=tenths[0],
        at_most=_GROWTH_AIM,
    )


class Steps(Protocol[Value_co]):
    """Repeats a step with one connection to a metastore."""

    def __call__(self, source: EmbeddedMetastore) -> AbstractContextManager[Callable[[str], Value_co]]:
        """Connect; the function that is yielded takes the name of a table."""
        ...


@contextmanager
def _compaction(site: EmbeddedMetastore, setting: Setting) -> Iterator[None]:
    """Compact what the metastore's initiator asks for, in a process of its own, until the block ends.

    :raises RuntimeError: if the worker has ended before.
    """
    command = [sys.executable, "-m", "airflow_hive_federation.cli.main", "compact", "worker"]
    path = setting.directory / f"{site.directory.name}-compactions.jsonl"
    with (
        path.open("w", encoding="utf-8") as output,
        subprocess.Popen([*command, "--metastore", site.uri, "--json"], stdout=output) as process,
    ):
        try:
            yield
            if process.poll() is not None:
                raise RuntimeError(f"The compaction worker of {site.uri} ended with {process.returncode}.")
        finally:
            process.terminate()
    compactions = len(path.read_text(encoding="utf-8").splitlines())
    setting.say(f"{compactions} compactions on the {site.directory.name}")


@contextmanager
def _other_work(source: EmbeddedMetastore) -> Iterator[None]:
    """Commit into another database, and read definitions, until the block ends."""
    ended = threading.Event()
    failures: list[Exception] = []

    def repeat(per_s: float, steps: Steps[object]) -> None:
        try:
            with steps(source) as step:
                number = 0
                while not ended.wait(1 / per_s):
                    step(f"t{number % TABLES:03}")
                    number += 1
        except Exception as error:  # noqa: BLE001 - raised below, in the thread that measures
            failures.append(error)

    others = partial(_streams, database=_OTHER_DATABASE)
    threads = [threading.Thread(target=repeat, args=(_OTHER_PER_S, others))]
    threads += [threading.Thread(target=repeat, args=(_READS_PER_S, _reads)) for _ in range(_READERS)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        for thread in threads:
            thread.join()
    for failure in failures:
        raise failure


@contextmanager
def _follower(
    source: EmbeddedMetastore, target: EmbeddedMetastore, setting: Setting
) -> Iterator[psutil.Process]:
    """Follow in a process of its own, once it has bootstrapped the target."""
    policy = ReplicationPolicy(
        name="followed",
        source_database=DATABASE,
        target_database="followed",
        dump_root=f"file:{setting.directory}/dumps",
        allowed_source_roots=["file:/"],
    )
    path = setting.directory / "policy.toml"
    path.write_text(policy_text(policy, source.uri, target.uri), encoding="utf-8")
    command = [sys.executable, "-m", "airflow_hive_federation.cli.main", "replicate", "follow", str(path)]
    # Into a file: nobody reads a pipe meanwhile, and a full one would stop the follower.
    cycles = setting.directory / "cycles.jsonl"
    with (
        cycles.open("w", encoding="utf-8") as output,
        subprocess.Popen([*command, "--json"], stdout=output) as process,
    ):
        try:
            _until(lambda: bool(_ended_cycles(cycles)) or process.poll() is not None, _PATIENCE_S)
            assert [cycle["cycle"] for cycle in _ended_cycles(cycles)][:1] == ["bootstrap"]
            yield psutil.Process(process.pid)
        finally:
            process.terminate()
    cycles_s = [cycle["seconds"] for cycle in _ended_cycles(cycles)[1:]]
    setting.say(f"{len(cycles_s)} cycles, median {median(cycles_s):.2f} s, longest {max(cycles_s):.2f} s")


def _ended_cycles(path: Path) -> list[dict[str, Any]]:
    """The cycles that the follower has reported, in order; a line that is being written is left out."""
    return [
        json.loads(line)
        for line in path.read_text(encoding="utf-8").splitlines(keepends=True)
        if line[-1] == "\n"
    ]


def _processor_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


@contextmanager
def _repeated(hive: HiveRepl, directory: Path) -> Iterator[None]:
    """Dump and load in a thread until the block ends; the first time before it begins."""
    (place := directory / "repl").mkdir()
    hive.bootstrap(DATABASE, "repl", place)
    ended = threading.Event()

    def cycle() -> None:
        while not ended.is_set():
            hive.bootstrap(DATABASE, "repl", place)

    thread = threading.Thread(target=cycle)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@dataclass(frozen=True)
class Seen:
    """A commit that readers of the target see.

    :param committed_s: time of the commit, in seconds after the first one.
    :param lag_s: seconds from the commit until its write id is valid on the target.
    """

    committed_s: float
    lag_s: float


def _tenth(commits: Sequence[Seen], number: int, for_s: float) -> float:
    """The 99th percentile of the commits of a tenth of the time."""
    first_s, end_s = for_s * number / 10, for_s * (number + 1) / 10
    return percentile([seen.lag_s for seen in commits if first_s <= seen.committed_s < end_s], 99)


def _lags(source: EmbeddedMetastore, target: EmbeddedMetastore, database: str, for_s: float) -> list[float]:
    return [seen.lag_s for seen in commits(source, target, database, for_s)]


def commits(
    source: EmbeddedMetastore,
    target: EmbeddedMetastore,
    database: str,
    for_s: float,
    *,
    per_s: float = _PER_S,
    by: Steps[int] | None = None,
) -> list[Seen]:
    """Commit for a while, until readers of the target see every commit.

    :param database: the database of the target.
    :param for_s: seconds of the commits.
    :param per_s: commits per second.
    :param by: commits one row to a table, and returns its write id; by default, with the fewest calls.
    """
    waiting: defaultdict[str, dict[int, float]] = defaultdict(dict)
    seen: list[Seen] = []
    lock, written = threading.Lock(), threading.Event()
    began_s = time.monotonic()

    def write() -> None:
        with (by or _copies)(source) as commit:
            for number in range(int(for_s * per_s)):
                time.sleep(max(0.0, began_s + number / per_s - time.monotonic()))
                name = f"t{number % TABLES:03}"
                write_id = commit(name)
                with lock:
                    waiting[name][write_id] = time.monotonic()
        written.set()

    writer = threading.Thread(target=write)
    writer.start()
    with MetastoreClient(client_settings(target)) as client:

        def done() -> bool:
            # Asked for first: a commit may come after the look at the target.
            ended = written.is_set()
            return _see(client, database, waiting, seen, lock, began_s) and ended

        _until(done, for_s)
    writer.join()
    return seen


@contextmanager
def _copies(source: EmbeddedMetastore) -> Iterator[Callable[[str], int]]:
    """Commit copies of one row, with the fewest calls."""
    with MetastoreClient(client_settings(source)) as client:
        yield partial(commit_row, client, source.warehouse)


@contextmanager
def _streams(source: EmbeddedMetastore, database: str = DATABASE) -> Iterator[Callable[[str], int]]:
    """Stream a row per commit, as Hive's streaming API does: with locks, so that the initiator counts it."""
    with ExitStack() as stack:
        connections = {
            name: stack.enter_context(_connection(source, database, name))
            for name in (f"t{number:03}" for number in range(TABLES))
        }

        def commit(name: str) -> int:
            connection = connections[name]
            with connection.transaction():
                connection.write(b"1,item,1.5,streamed")
                write_id = connection.current_write_id
            assert write_id is not None
            return write_id

        yield commit


def _connection(source: EmbeddedMetastore, database: str, name: str) -> HiveStreamingConnection:
    (day,) = {path.name for path in (source.warehouse / f"{database}.db" / name).iterdir()}
    return (
        HiveStreamingConnection.new_builder()
        .with_database(database)
        .with_table(name)
        .with_static_partition_values([day.partition("=")[2]])
        .with_record_writer(StrictDelimitedInputWriter(field_delimiter=","))
        .with_conf(client_settings(source))
        .connect()
    )


@contextmanager
def _reads(source: EmbeddedMetastore) -> Iterator[Callable[[str], object]]:
    with MetastoreClient(client_settings(source)) as client:
        yield partial(client.get_table, DATABASE)


def _see(
    client: MetastoreClient,
    database: str,
    waiting: defaultdict[str, dict[int, float]],
    seen: list[Seen],
    lock: threading.Lock,
    began_s: float,
) -> bool:
    """Note the commits that readers of the target see now; return whether none waits."""
    with lock:
        names = {f"{database}.{name}": name for name, commits in waiting.items() if commits}
    if not names:
        return True
    valid = client.get_valid_write_ids(list(names))
    now_s = time.monotonic()
    with lock:
        for full, name in names.items():
            ids = valid[full]
            unseen = set(ids.invalidWriteIds or ())
            for write_id in [*waiting[name]]:
                if write_id <= (ids.writeIdHighWaterMark or 0) and write_id not in unseen:
                    committed_s = waiting[name].pop(write_id)
                    seen.append(Seen(committed_s - began_s, now_s - committed_s))
        return not any(waiting.values())


def _until(done: Callable[[], bool], for_s: float) -> None:
    end_s = time.monotonic() + for_s + _PATIENCE_S
    while not done():
        if time.monotonic() > end_s:
            raise TimeoutError(
                "The follower has neither bootstrapped the target nor brought the last commits to it."
            )
        time.sleep(_LOOK_S)


def percentile(values: Sequence[float], percent: int) -> float:
    """Return the smallest value that so many percent of the values do not exceed."""
    ordered = sorted(values)
    return ordered[math.ceil(len(ordered) * percent / 100) - 1]


def described(lags: Sequence[float]) -> str:
    """Return the number of the lags and their percentiles, in words."""
    points = ", ".join(f"p{percent} {percentile(lags, percent):.2f} s" for percent in (50, 90, 99, 100))
    return f"{len(lags)} commits, {points}"
