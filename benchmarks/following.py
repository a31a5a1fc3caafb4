"""The time from a commit on the source until readers of the target see it: a follower beside Hive's own.

Writers commit one row at a time, at a constant rate. The follower is the command, in a process of its own.
Hive dumps and loads without a pause, which is more often than any schedule.
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
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median

import psutil

from airflow_hive_federation.cli.replicate import policy_text
from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.metastore import MetastoreClient
from airflow_hive_federation.replication.policy import ReplicationPolicy
from benchmarks.bootstrap import Setting
from benchmarks.contenders import HiveRepl, client_settings, metastores
from benchmarks.increments import DATABASE, TABLES, commit_row
from benchmarks.results import Result, faster, seconds
from benchmarks.source_database import Scale, make_database

_PART = "replicate-follow"
_PER_S = 2.0
_AIM_S = 5.0
_LOOK_S = 0.05
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
        setting.say(f"the follower: {_described(ours)}")
        with HiveRepl(source, target, stock=False) as hive, _repeated(hive, setting.directory):
            peers = _lags(source, target, "repl", for_s)
        setting.say(f"{hive.name}: {_described(peers)}")
    peer = f"{hive.name}, without a pause"
    yield faster(
        _PART,
        f"median of {work}",
        ours_s=_percentile(ours, 50),
        peer=peer,
        peer_s=_percentile(peers, 50),
        at_least=None,
    )
    yield seconds(
        _PART,
        f"99th percentile of {work}",
        ours_s=_percentile(ours, 99),
        peer=peer,
        peer_s=_percentile(peers, 99),
        at_most_s=_AIM_S,
    )


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
    with subprocess.Popen([*command, "--json"], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            assert json.loads(process.stdout.readline())["cycle"] == "bootstrap"
            yield psutil.Process(process.pid)
        finally:
            process.terminate()
        cycles_s = [json.loads(line)["seconds"] for line in process.stdout]
    setting.say(f"{len(cycles_s)} cycles, median {median(cycles_s):.2f} s, longest {max(cycles_s):.2f} s")


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


def _lags(source: EmbeddedMetastore, target: EmbeddedMetastore, database: str, for_s: float) -> list[float]:
    """Commit for a while; return the seconds from each commit until its write id is valid on the target."""
    waiting: defaultdict[str, dict[int, float]] = defaultdict(dict)
    lags: list[float] = []
    lock, written = threading.Lock(), threading.Event()

    def write() -> None:
        began_s = time.monotonic()
        with MetastoreClient(client_settings(source)) as client:
            for number in range(int(for_s * _PER_S)):
                time.sleep(max(0.0, began_s + number / _PER_S - time.monotonic()))
                name = f"t{number % TABLES:03}"
                write_id = commit_row(client, source.warehouse, name)
                with lock:
                    waiting[name][write_id] = time.monotonic()
        written.set()

    writer = threading.Thread(target=write)
    writer.start()
    with MetastoreClient(client_settings(target)) as client:
        _until(lambda: _see(client, database, waiting, lags, lock) and written.is_set(), for_s)
    writer.join()
    return lags


def _see(
    client: MetastoreClient,
    database: str,
    waiting: defaultdict[str, dict[int, float]],
    lags: list[float],
    lock: threading.Lock,
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
                    lags.append(now_s - waiting[name].pop(write_id))
        return not any(waiting.values())


def _until(done: Callable[[], bool], for_s: float) -> None:
    end_s = time.monotonic() + for_s + _PATIENCE_S
    while not done():
        if time.monotonic() > end_s:
            raise TimeoutError("The last commits did not reach the target.")
        time.sleep(_LOOK_S)


def _percentile(values: Sequence[float], percent: int) -> float:
    ordered = sorted(values)
    return ordered[math.ceil(len(ordered) * percent / 100) - 1]


def _described(lags: Sequence[float]) -> str:
    points = ", ".join(f"p{percent} {_percentile(lags, percent):.2f} s" for percent in (50, 90, 99, 100))
    return f"{len(lags)} commits, {points}"
