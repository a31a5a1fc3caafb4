"""Histories by the hundred: ``make torture ARGS="--seeds 100 --operations 200"``.

Each history has a seed, which is printed; a failure prints its operations too, and ``--first SEED --seeds 1``
repeats it. With ``--source hive3``, the source is a metastore of Hive 3.1 with its own SQL. With
``--routes``, it runs :mod:`tests.support.route_torture` instead.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.errors import HiveFederationError
from tests.conftest import local_spark
from tests.support.history_operations import MORE_OPERATIONS
from tests.support.history_runs import HistoryError, Servers, run_history
from tests.support.hive_3_histories import HIVE_3, Hive3, hive_3_sql
from tests.support.hive_3_metastore import hive_3_metastore
from tests.support.hive_beside_cleaner import HiveBesideCleaner


def main(argv: list[str]) -> int:
    """Run histories until one fails; 1 if one did."""
    parser = argparse.ArgumentParser(prog="make torture")
    parser.add_argument("--seeds", type=int, default=20, help="how many histories")
    parser.add_argument("--first", type=int, default=0, help="the first seed; by the clock if there is none")
    parser.add_argument("--operations", type=int, default=100, help="operations of each history")
    parser.add_argument(
        "--cuts",
        type=float,
        default=0.3,
        help="share of the cycles that are cut off at some step, and run again",
    )
    parser.add_argument(
        "--amid",
        type=float,
        default=0.2,
        help="share of the cycles while whose dump is written something happens on the source",
    )
    parser.add_argument(
        "--compactions",
        type=float,
        default=0.2,
        help="probability that a table of the target is compacted before a cycle",
    )
    parser.add_argument(
        "--source", choices=tuple(_SOURCES), default="hive4", help="the version of Hive of the source"
    )
    parser.add_argument("--keep-going", action="store_true", help="run the other seeds after a failure too")
    parser.add_argument(
        "--routes", type=int, help="instead, route that number of random cases beside a model"
    )
    parser.add_argument("--processes", type=int, default=2, help="processes of --routes")
    options = parser.parse_args(argv)
    if options.routes:
        from tests.support.route_torture import run_routes

        return run_routes(options.first, options.routes, options.processes)
    first, failed = options.first or int(time.time()) % 10**8, []
    with (
        tempfile.TemporaryDirectory(prefix="torture-") as root,
        _SOURCES[options.source](Path(root)) as (servers, logs),
    ):
        for seed in range(first, first + options.seeds):
            began = time.monotonic()
            try:
                place = Path(root) / str(seed)
                done = run_history(
                    replace(
                        servers,
                        kind=replace(servers.kind, operations=MORE_OPERATIONS, after_cut=servers.kind.amid),
                    ),
                    seed,
                    options.operations,
                    place,
                    cuts=options.cuts,
                    amid=options.amid,
                    compactions=options.compactions,
                    progress=_Progress(seed, options.operations),
                )
            except (HistoryError, HiveFederationError) as error:
                # Of the latter, the history could not be removed.
                traceback.print_exception(error)
                failed.append(seed)
                _keep_logs(seed, logs)
                if not options.keep_going:
                    break
            else:
                seconds = time.monotonic() - began
                print(
                    f"seed {seed}: {done.cycles} cycles, {len(done.refused)} refused, {seconds:.0f} s",
                    flush=True,
                )
                for text in done.refused:
                    print(f"  {text[:300]}")
    print(f"failed: {', '.join(map(str, failed))}" if failed else "no seed failed")
    return 1 if failed else 0


#: The servers of histories, and their logs by name.
_Started = tuple[Servers, Mapping[str, Path]]


@contextmanager
def _from_hive_4(root: Path) -> Iterator[_Started]:
    with (
        EmbeddedMetastore.start("torture-source") as source,
        EmbeddedMetastore.start("torture-target") as target,
        HiveBesideCleaner(source) as source_sql,
        HiveBesideCleaner(target) as target_sql,
        local_spark() as spark,
    ):
        logs = {metastore.name: metastore.log_path for metastore in (source, target)}
        yield Servers(source, target, source_sql, target_sql, spark), logs


@contextmanager
def _from_hive_3(root: Path) -> Iterator[_Started]:
    home = root / "hive-3"
    home.mkdir()
    with (
        hive_3_metastore(home) as uri,
        hive_3_sql(uri, root / "hive-3-sql") as source_sql,
        EmbeddedMetastore.start("torture-target") as target,
        HiveBesideCleaner(target) as target_sql,
        local_spark() as spark,
    ):
        source = Hive3(uri, root / "external")
        logs = {"source": home / "log", "source-sql": root / "hive-3-sql" / "log", "target": target.log_path}
        yield Servers(source, target, source_sql, target_sql, spark, HIVE_3), logs


_SOURCES = {"hive4": _from_hive_4, "hive3": _from_hive_3}


class _Progress:
    """Prints one line per minute."""

    def __init__(self, seed: int, operations: int) -> None:
        self._seed, self._operations = seed, operations
        self._began = self._shown_at = time.monotonic()

    def __call__(self, operations: int, cycles: int) -> None:
        now = time.monotonic()
        if now - self._shown_at >= 60:
            self._shown_at = now
            print(
                f"seed {self._seed}: {operations} of {self._operations} operations, {cycles} cycles, "
                f"{now - self._began:.0f} s",
                flush=True,
            )


def _keep_logs(seed: int, logs: Mapping[str, Path]) -> None:
    """The servers' logs, cleaner and all, outlive them."""
    kept = Path("build") / "torture" / str(seed)
    kept.mkdir(parents=True, exist_ok=True)
    for name, log in logs.items():
        shutil.copy(log, kept / f"{name}.log")
    print(f"the servers' logs: {kept}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
