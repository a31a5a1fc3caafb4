"""Bootstrap of a database: beside Hive's own replication, stock and fast, and beside the limit."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.metastore import MetastoreClient, MetastoreSettings
from benchmarks.contenders import (
    STOCK_FILES,
    Contender,
    HiveRepl,
    Limit,
    Ours,
    Timing,
    drop_target,
    metastores,
    spark_session,
)
from benchmarks.results import Result, beside_limit, faster
from benchmarks.source_database import Scale, make_database

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCALES = {
    "full": Scale(tables=20, partitions=50, file_bytes=220_000),
    "small": Scale(tables=4, partitions=10, file_bytes=50_000),
}
_WARM_UP = Scale(tables=4, partitions=10, file_bytes=20_000)

_STOCK_AIM = 5.0
_FAST_AIM = 1.5
_LIMIT_AIM = 1.5
#: Ten times the partitions may cost at most so many times as much a partition.
_LINEAR_AIM = 1.25


@dataclass(frozen=True, kw_only=True)
class Setting:
    """The scale and the repetitions of a measurement, and its directory.

    :param runs: interleaved runs of each contender; the median counts.
    """

    scale: str
    runs: int
    directory: Path
    say: Callable[[str], None]

    @property
    def size(self) -> Scale:
        return SCALES[self.scale]


def run(setting: Setting, parts: Sequence[str]) -> Iterator[Result]:
    """Measure the chosen parts: ``bootstrap``, ``bootstrap-limit``, ``bootstrap-10x``."""
    with ExitStack() as stack:
        source, target = stack.enter_context(metastores(setting.directory, "source", "target"))
        spark, started_s = stack.enter_context(spark_session())
        setting.say(f"Spark's start, not counted below: {started_s:.1f} s")
        ours = stack.enter_context(Ours(source, target, spark))
        arena = _Arena(setting, source)
        arena.fill("warm", _WARM_UP)
        arena.fill("bench", setting.size)
        with ExitStack() as fast:
            rivals: list[Contender] = []
            if "bootstrap" in parts or "bootstrap-10x" in parts:
                rivals.append(fast.enter_context(HiveRepl(source, target, stock=False)))
            limit = [Limit(source, target)] if "bootstrap-limit" in parts else []
            timings = arena.interleave([*rivals, ours, *limit], target, setting.runs)
            yield from _beside_fast_and_limit(setting, timings, parts)
            if "bootstrap-10x" in parts:
                yield from _ten_times(arena, [*rivals, ours], target, timings)
        if "bootstrap" in parts:
            yield from _beside_stock(arena, stack, spark)


class _Arena:
    """The source database, and rounds in which every contender has its turn."""

    def __init__(self, setting: Setting, source: EmbeddedMetastore) -> None:
        self.setting = setting
        self.source = source
        self._turns = 0

    def fill(self, database: str, scale: Scale) -> None:
        self.setting.say(f"Making database {database}: {scale}")
        settings = MetastoreSettings(uris=(self.source.uri,))
        with MetastoreClient(settings) as client:
            make_database(client, self.source.warehouse, database, scale)

    def interleave(
        self, contenders: Sequence[Contender], target: EmbeddedMetastore, runs: int
    ) -> dict[str, list[Timing]]:
        """Let each bootstrap the small database once, uncounted, then the large one in turn with the others.

        So that no one has cold code or a busy minute of the machine for itself.
        """
        for contender in contenders:
            self._turn(contender, target, "warm")
        return self.rounds(contenders, target, runs, "bench")

    def rounds(
        self, contenders: Sequence[Contender], target: EmbeddedMetastore, runs: int, database: str
    ) -> dict[str, list[Timing]]:
        """Let each bootstrap a database in turn."""
        timings: defaultdict[str, list[Timing]] = defaultdict(list)
        for number in range(runs):
            for contender in contenders:
                timing = self._turn(contender, target, database)
                timings[contender.name].append(timing)
                self.setting.say(f"{database}, run {number + 1}, {contender.name}: {timing}")
        return dict(timings)

    def _turn(self, contender: Contender, target: EmbeddedMetastore, database: str) -> Timing:
        self._turns += 1
        directory = self.setting.directory / f"dump{self._turns}"
        directory.mkdir()
        # The writes of the contender before are on the disk before the clock starts.
        os.sync()
        replica = f"replica{self._turns}"
        timing = contender.bootstrap(database, replica, directory)
        drop_target(target, replica)
        return timing


def _beside_fast_and_limit(
    setting: Setting, timings: dict[str, list[Timing]], parts: Sequence[str]
) -> Iterator[Result]:
    ours_s = _median(timings["ours"])
    work = f"bootstrap of {setting.size}"
    if "bootstrap" in parts:
        fast_s = _median(timings["hive-repl, fast form"])
        yield faster(
            "bootstrap", work, ours_s=ours_s, peer="hive-repl, fast form", peer_s=fast_s, at_least=_FAST_AIM
        )
    if "bootstrap-limit" in parts:
        yield beside_limit(
            "bootstrap-limit",
            work,
            ours_s=ours_s,
            peer=Limit.name,
            peer_s=_median(timings[Limit.name]),
            at_most=_LIMIT_AIM,
        )


def _ten_times(
    arena: _Arena, contenders: Sequence[Contender], target: EmbeddedMetastore, once: dict[str, list[Timing]]
) -> Iterator[Result]:
    """The same with ten times the partitions: beside Hive, and each beside itself, a tenth of the time."""
    scale = arena.setting.size.times_partitions(10)
    arena.fill("bench10", scale)
    timings = arena.rounds(contenders, target, 1, "bench10")
    fast = "hive-repl, fast form"
    ours_s, fast_s = _median(timings["ours"]), _median(timings[fast])
    for name in (fast, "ours"):
        small_ms = _median(once[name]) / arena.setting.size.all_partitions * 1000
        large_ms = _median(timings[name]) / scale.all_partitions * 1000
        arena.setting.say(f"{name}: {small_ms:.2f} ms a partition, with ten times as many {large_ms:.2f} ms")
    work = f"bootstrap of {scale}"
    yield faster("bootstrap-10x", work, ours_s=ours_s, peer=fast, peer_s=fast_s, at_least=_FAST_AIM)
    yield beside_limit(
        "bootstrap-10x",
        f"a tenth of the {work}, beside the {arena.setting.size}: is the cost linear?",
        ours_s=ours_s / 10,
        peer="ours, a tenth of the partitions",
        peer_s=_median(once["ours"]),
        at_most=_LINEAR_AIM,
    )


def _beside_stock(arena: _Arena, stack: ExitStack, spark: SparkSession) -> Iterator[Result]:
    """Stock Hive forks for every file, in the engine and in the target's metastore, which ours uses too."""
    (target,) = stack.enter_context(metastores(arena.setting.directory, "stock", settings=STOCK_FILES))
    with HiveRepl(arena.source, target, stock=True) as stock, Ours(arena.source, target, spark) as ours:
        timings = arena.interleave([stock, ours], target, max(1, arena.setting.runs - 1))
    yield faster(
        "bootstrap",
        f"bootstrap of {arena.setting.size}",
        ours_s=_median(timings["ours"]),
        peer="hive-repl",
        peer_s=_median(timings["hive-repl"]),
        at_least=_STOCK_AIM,
    )


def _median(timings: Sequence[Timing]) -> float:
    return median(timing.total_s for timing in timings)
