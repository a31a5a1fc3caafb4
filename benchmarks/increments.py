"""An increment of many small commits: beside Hive's own replication, and beside the bare calls."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.metastore import MetastoreClient, MetastorePool
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.replication.cycle import dump_next_increment, load_dump, load_idle
from airflow_hive_federation.replication.load.replay import Replay
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.spark.job import run_job
from benchmarks.bootstrap import Setting
from benchmarks.contenders import (
    STOCK_FILES,
    Clock,
    HiveRepl,
    Ours,
    Timing,
    client_settings,
    metastores,
    spark_session,
)
from benchmarks.results import Result, beside_limit, faster, seconds
from benchmarks.source_database import Scale, make_database

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DATABASE = "commits"
TABLES = 10
_STOCK_AIM = 20.0
_FAST_AIM = 8.0
#: At least 0.65 of the rate of the bare calls.
_CALLS_AIM = 1 / 0.65
_EVENTS_PER_SECOND = 500
_IDLE_AIM_S = 2.0
#: With ten times as many commits, one may cost so much more.
_LINEAR_AIM = 1.25


@dataclass(frozen=True, kw_only=True)
class _Commits:
    """Small commits, one row in one table each; three events a commit."""

    count: int

    @property
    def events(self) -> int:
        return 3 * self.count

    def __str__(self) -> str:
        return f"an increment of {self.count:,} commits over {TABLES} ACID tables, {self.events:,} events"


def run(setting: Setting, parts: Sequence[str]) -> Iterator[Result]:
    """Measure the chosen parts: ``increments`` and ``increments-limit``, ``-10x``, ``-idle``."""
    commits = _Commits(count=1000 if setting.scale == "full" else 50)
    with ExitStack() as stack:
        source, target = stack.enter_context(metastores(setting.directory, "source", "target"))
        spark, started_s = stack.enter_context(spark_session())
        setting.say(f"Spark's start, not counted below: {started_s:.1f} s")
        with MetastoreClient(client_settings(source)) as client:
            make_database(
                client, source.warehouse, DATABASE, Scale(tables=TABLES, partitions=1, file_bytes=65)
            )
        ours = [
            stack.enter_context(_Ours(source, target, spark, setting.directory / f"ours{number}"))
            for number in range(setting.runs)
        ]
        rivals: list[_Rival] = []
        if "increments" in parts:
            rivals = list(_rivals(stack, source, target, setting))
        for bootstrap in (*(replica.bootstrap for replica in ours), *(rival.bootstrap for rival in rivals)):
            bootstrap()
        if {"increments", "increments-limit"} & {*parts}:
            setting.say(f"Making {commits.count} commits")
            with MetastoreClient(client_settings(source)) as client:
                commit(client, source.warehouse, commits.count)
            yield from _increments(setting, commits, ours, rivals, target)
        if "increments-10x" in parts:
            yield _ten_times(setting, commits, ours[0], source)
        if "increments-idle" in parts:
            yield _idle(setting, ours[0], source)


def _increments(
    setting: Setting,
    commits: _Commits,
    ours: Sequence[_Ours],
    rivals: Sequence[_Rival],
    target: EmbeddedMetastore,
) -> Iterator[Result]:
    timings, calls = [], []
    for number, replica in enumerate(ours):
        timings.append(replica.cycle())
        setting.say(f"run {number + 1}, ours: {timings[-1]}")
        calls.append(_bare_calls(target, f"bare{number}", commits.count))
        setting.say(f"run {number + 1}, the bare calls: {calls[-1]}")
    ours_s = median(timing.total_s for timing in timings)
    for rival in rivals:
        timing = rival.cycle()
        setting.say(f"{rival.hive.name}: {timing}")
        aim = _STOCK_AIM if rival.stock else _FAST_AIM
        yield faster(
            "increments",
            str(commits),
            ours_s=ours_s,
            peer=rival.hive.name,
            peer_s=timing.total_s,
            at_least=aim,
        )
    yield beside_limit(
        "increments-limit",
        str(commits),
        ours_s=ours_s,
        peer="bare metastore calls, batched",
        peer_s=median(call.total_s for call in calls),
        at_most=_CALLS_AIM,
    )
    at_most_s = commits.events / _EVENTS_PER_SECOND
    yield seconds(
        "increments-limit",
        str(commits),
        ours_s=ours_s,
        peer=f"{_EVENTS_PER_SECOND} events per second",
        peer_s=at_most_s,
        at_most_s=at_most_s,
    )


def _ten_times(setting: Setting, commits: _Commits, ours: _Ours, source: EmbeddedMetastore) -> Result:
    many = _Commits(count=10 * commits.count)
    ours.cycle()
    taken = []
    for step in (commits, many):
        setting.say(f"Making {step.count:,} commits")
        with MetastoreClient(client_settings(source)) as client:
            commit(client, source.warehouse, step.count)
        taken.append(ours.cycle())
        setting.say(f"{step.count:,} commits: {taken[-1]}")
    return beside_limit(
        "increments-10x",
        f"a tenth of {many}, beside {commits.count:,}: is the cost linear?",
        ours_s=taken[1].total_s / 10,
        peer="ours, a tenth of the commits",
        peer_s=taken[0].total_s,
        at_most=_LINEAR_AIM,
    )


def _idle(setting: Setting, ours: _Ours, source: EmbeddedMetastore) -> Result:
    ours.cycle()
    taken = []
    with MetastoreClient(client_settings(source)) as client:
        for number in range(setting.runs):
            # An event that is none of the policy's business.
            client.create_database(types.Database(name=f"other{number}"))
            taken.append(ours.cycle())
            setting.say(f"idle cycle: {taken[-1]}")
    clock = Clock()
    with MetastoreClient(client_settings(source)) as client:
        list(client.iter_notification_events(client.get_current_notification_event_id() - 1))
    return seconds(
        "increments-idle",
        f"a cycle of {TABLES} tables with nothing to do",
        ours_s=median(timing.total_s for timing in taken),
        peer="asking for the last event",
        peer_s=clock.timing_of("ask").total_s,
        at_most_s=_IDLE_AIM_S,
    )


class _Ours:
    """Dump and load of an increment; a Spark session is there, for the copy job."""

    def __init__(
        self, source: EmbeddedMetastore, target: EmbeddedMetastore, spark: SparkSession, directory: Path
    ) -> None:
        self._pools = (MetastorePool(client_settings(source), 4), MetastorePool(client_settings(target), 4))
        self._whole = Ours(source, target, spark)
        self._spark = spark
        self._directory = directory
        self._policy = ReplicationPolicy(
            name=directory.name,
            source_database=DATABASE,
            target_database=directory.name,
            dump_root=f"file:{directory}",
            allowed_source_roots=["file:/"],
        )

    def bootstrap(self) -> None:
        self._directory.mkdir()
        self._whole.bootstrap(DATABASE, self._directory.name, self._directory)

    def cycle(self) -> Timing:
        source, target = self._pools
        clock = Clock()

        def copy(plan: str, outcomes: str) -> None:
            clock.lap("load")
            places = ["--plan", plan, "--outcomes", outcomes, "--source-root", "file:/"]
            run_job(self._spark, "copy-files", places)
            clock.lap("copy")

        dumped = dump_next_increment(source, target, self._policy)
        clock.lap("dump")
        if dumped.idle:
            load_idle(target, self._policy, dumped.event_id)
        else:
            load_dump(source, target, self._policy, dumped.dump, run_copy=copy)
        clock.lap("load")
        return clock.timing()

    def __enter__(self) -> _Ours:
        self._whole.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._whole.__exit__(None, None, None)
        for pool in self._pools:
            pool.close()


@dataclass(frozen=True, kw_only=True)
class _Rival:
    hive: HiveRepl
    stock: bool
    directory: Path
    say: Callable[[str], None]

    def bootstrap(self) -> None:
        self.directory.mkdir()
        self.cycle()

    def cycle(self) -> Timing:
        return self.hive.bootstrap(DATABASE, self.directory.name, self.directory)


def _rivals(
    stack: ExitStack, source: EmbeddedMetastore, target: EmbeddedMetastore, setting: Setting
) -> Iterator[_Rival]:
    """Hive, fast and stock; stock forks in the target's metastore too."""
    (stock_target,) = stack.enter_context(metastores(setting.directory, "stock", settings=STOCK_FILES))
    for stock in (False, True):
        hive = HiveRepl(source, stock_target if stock else target, stock=stock)
        yield _Rival(
            hive=stack.enter_context(hive),
            stock=stock,
            directory=setting.directory / f"hive{int(stock)}",
            say=setting.say,
        )


def commit(client: MetastoreClient, warehouse: Path, count: int) -> None:
    """Commit one row at a time to the tables in turn, as writers do in a metastore."""
    tables = sorted(client.list_tables(DATABASE))
    for number in range(count):
        commit_row(client, warehouse, tables[number % len(tables)])


def commit_row(client: MetastoreClient, warehouse: Path, name: str, *, database: str = DATABASE) -> int:
    """Commit one row to a table; return its write id."""
    (day,) = {Path(path).name for path in (warehouse / f"{database}.db" / name).iterdir()}
    (txn_id,) = client.open_txns(1)
    write_id = client.allocate_table_write_ids(database, name, [txn_id])[txn_id]
    place = warehouse / f"{database}.db" / name / day
    delta = place / f"delta_{write_id:07}_{write_id:07}_0000"
    # (Its rows have the first write id: nobody counts them.)
    shutil.copytree(place / "delta_0000001_0000001_0000", delta)
    client.call("add_write_notification_log", _notification(database, name, day, txn_id, write_id, delta))
    client.commit_txn(txn_id)
    return write_id


def _notification(
    database: str, name: str, day: str, txn_id: int, write_id: int, delta: Path
) -> types.WriteNotificationLogRequest:
    files = [f"file:{path}" for path in sorted(delta.iterdir())]
    return types.WriteNotificationLogRequest(
        txnId=txn_id,
        writeId=write_id,
        db=database,
        table=name,
        fileInfo=types.InsertEventRequestData(
            replace=False,
            filesAdded=files,
            filesAddedChecksum=["" for _ in files],
            subDirectoryList=[delta.name for _ in files],
        ),
        partitionVals=[day.partition("=")[2]],
    )


def _bare_calls(target: EmbeddedMetastore, database: str, count: int) -> Timing:
    """Time the fewest calls a load can make: it opens and allocates in batches, and commits one by one."""
    policy = ReplicationPolicy(name=database, source_database=database, dump_root="file:/nowhere")
    with MetastoreClient(client_settings(target)) as client:
        make_database(client, target.warehouse, database, Scale(tables=TABLES, partitions=1, file_bytes=65))
        replay = Replay(client, policy)
        writes: dict[str, list[tuple[int, int]]] = {}
        for number in range(count):
            pairs = writes.setdefault(f"t{number % TABLES:03}", [])
            pairs.append((10**9 + number, len(pairs) + 2))
        clock = Clock()
        replay.open(writes)
        replay.allocate(writes)
        for number in range(count):
            replay.end(10**9 + number)
        return clock.timing_of("calls")
