"""``python -m benchmarks [IDS…]``: measure, show, append to ``build/bench.json``."""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_hive_federation.embedded.database import DERBY, KINDS
from benchmarks import contenders, machine, results

if TYPE_CHECKING:
    from benchmarks.bootstrap import Setting

REMOTES = ("remote-create", "remote-refresh", "federation", "tunnel")
BOOTSTRAPS = ("bootstrap", "bootstrap-limit", "bootstrap-10x")
ACID_READS = ("acid-read", "acid-read-deletes")
INCREMENTS = ("increments", "increments-limit", "increments-10x", "increments-idle")
HADOOP = ("hadoop-bootstrap", "hadoop-increment", "hadoop-external")
INGESTS = ("ingest-arrow", "ingest-records", "ingest-dynamic", "ingest-commit")
IDS = (
    "import",
    *ACID_READS,
    "acid-write",
    "compaction",
    *INGESTS,
    *REMOTES,
    *BOOTSTRAPS,
    *INCREMENTS,
    "increment-one-partition",
    "replicate-follow",
    "external",
    *HADOOP,
    "durability",
    "dump-check",
    "regex-batches",
    "grpc-services",
    "gateway",
    "grpc",
    "routing",
)
#: Parts that run only if they are named, because they take long.
BY_NAME = ("replicate-follow-hour", "replicate-dag")
#: Parts without metastores, or whose metastores do not come from ``contenders.metastores``.
ON_DERBY_ONLY = (
    "import",
    "compaction",
    *REMOTES,
    # On PostgreSQL in any case.
    *HADOOP,
    "durability",
    "dump-check",
    "regex-batches",
    "grpc-services",
    "gateway",
    "grpc",
    "routing",
)
ON_ANY_DATABASE = tuple(part for part in IDS if part not in ON_DERBY_ONLY)
_BUILD = Path(__file__).resolve().parent.parent / "build"


def main(argv: Sequence[str]) -> int:
    """Run the chosen parts; 1 if one of them missed its aim."""
    args = _parser().parse_args(argv)
    unknown = sorted(set(args.ids) - {*IDS, *BY_NAME})
    if unknown:
        print(f"No such part: {', '.join(unknown)}. Parts: {', '.join((*IDS, *BY_NAME))}.", file=sys.stderr)
        return 2
    parts = args.ids or (IDS if args.database == DERBY else ON_ANY_DATABASE)
    if args.database != DERBY and (others := [part for part in parts if part in ON_DERBY_ONLY]):
        print(
            f"These parts run on {DERBY} only: {', '.join(others)}. On {args.database} run: "
            f"{', '.join(ON_ANY_DATABASE)}.",
            file=sys.stderr,
        )
        return 2
    contenders.keep_metastores_in(args.database)
    say = _Teller()
    say(machine.description())
    # Kept apart: a quick run's ratios prove nothing about the aims.
    path = args.output or _BUILD / ("bench.json" if args.scale == "full" else f"bench-{args.scale}.json")
    measured: list[results.Result] = []
    on = "" if args.database == DERBY else f", metastores on {args.database}"
    for unnamed in chain(*(part(args, parts, say) for part in (_measure, _repeated, _gateways))):
        result = replace(unnamed, work=f"{unnamed.work}{on}")
        measured.append(result)
        results.append(path, [result])
        print(results.table([result]).splitlines()[1], flush=True)
    print(f"\n{results.table(measured)}\n\nAppended to {path}")
    return int(any(not result.reached for result in measured))


def _measure(args: argparse.Namespace, parts: Sequence[str], say: _Teller) -> Iterator[results.Result]:
    if "import" in parts:
        from benchmarks import imports

        yield imports.run(max(3, args.runs))
    reads = [part for part in parts if part in ACID_READS]
    if reads:
        from benchmarks import acid_read

        with tempfile.TemporaryDirectory(prefix="benchmarks-", dir=args.directory) as directory:
            yield from acid_read.run(
                acid_read.Setting(scale=args.scale, runs=args.runs, directory=Path(directory), say=say), reads
            )
    if "acid-write" in parts:
        from benchmarks import acid_write

        with tempfile.TemporaryDirectory(prefix="benchmarks-", dir=args.directory) as directory:
            yield from acid_write.run(
                acid_write.Setting(scale=args.scale, runs=args.runs, directory=Path(directory), say=say)
            )
    if "compaction" in parts:
        from benchmarks import compaction

        yield compaction.run(args.runs, say, rows=compaction.ROWS if args.scale == "full" else 1000)
    remotes = [part for part in parts if part in REMOTES]
    if remotes:
        from benchmarks import remotes as of_remotes

        with tempfile.TemporaryDirectory(prefix="benchmarks-", dir=args.directory) as directory:
            tables = 1000 if args.scale == "full" else 20
            remote = of_remotes.Setting(tables=tables, directory=Path(directory), say=say)
            yield from of_remotes.run(remote, remotes)
    if any(part in INGESTS for part in parts):
        from benchmarks import ingest

        with tempfile.TemporaryDirectory(prefix="benchmarks-", dir=args.directory) as directory:
            streaming = ingest.Setting(scale=args.scale, runs=args.runs, directory=Path(directory), say=say)
            yield from (result for result in ingest.run(streaming) if result.id in parts)
    bootstraps = [part for part in parts if part in BOOTSTRAPS]
    if bootstraps:
        from benchmarks import bootstrap

        with tempfile.TemporaryDirectory(prefix="benchmarks-", dir=args.directory) as directory:
            whole = bootstrap.Setting(scale=args.scale, runs=args.runs, directory=Path(directory), say=say)
            yield from bootstrap.run(whole, bootstraps)
    increments = [part for part in parts if part in INCREMENTS]
    if increments:
        from benchmarks import increments as of_increments

        with _setting(args, say) as bench:
            yield from of_increments.run(bench, increments)
    yield from _later_parts(args, parts, say)


def _later_parts(args: argparse.Namespace, parts: Sequence[str], say: _Teller) -> Iterator[results.Result]:
    if "increment-one-partition" in parts:
        from benchmarks import one_partition

        with _setting(args, say) as bench:
            yield from one_partition.run(bench)
    if "replicate-follow" in parts:
        from benchmarks import following

        with _setting(args, say) as bench:
            yield from following.run(bench)
    if "replicate-follow-hour" in parts:
        from benchmarks import following

        with _setting(args, say) as bench:
            yield from following.run_hour(bench)
    if "replicate-dag" in parts:
        from benchmarks import by_dag

        with _setting(args, say) as bench:
            yield from by_dag.run(bench)
    if "external" in parts:
        from benchmarks import external

        with _setting(args, say) as bench:
            yield from external.run(bench)
    if any(part in HADOOP for part in parts):
        from benchmarks import hadoop

        with _setting(args, say) as bench:
            yield from hadoop.run(bench, parts)
    if "durability" in parts:
        from benchmarks import durability

        with tempfile.TemporaryDirectory(prefix="benchmarks-", dir=args.directory) as directory:
            yield from durability.run(
                durability.Setting(scale=args.scale, runs=args.runs, directory=Path(directory), say=say)
            )
    if "gateway" in parts:
        from benchmarks import gateway
        from benchmarks.remotes import Setting as Federated

        with tempfile.TemporaryDirectory(prefix="benchmarks-", dir=args.directory) as directory:
            yield from gateway.run(Federated(tables=0, directory=Path(directory), say=say))
    if "grpc-services" in parts:
        from benchmarks import grpc_services

        yield from grpc_services.run(say)


@contextmanager
def _setting(args: argparse.Namespace, say: _Teller) -> Iterator[Setting]:
    """Make a directory for a part, and remove it when the part has ended."""
    from benchmarks.bootstrap import Setting

    with tempfile.TemporaryDirectory(prefix="benchmarks-", dir=args.directory) as directory:
        yield Setting(scale=args.scale, runs=args.runs, directory=Path(directory), say=say)


def _repeated(args: argparse.Namespace, parts: Sequence[str], say: _Teller) -> Iterator[results.Result]:
    if not {"dump-check", "regex-batches"}.intersection(parts):
        return
    from benchmarks import repeated_work

    with tempfile.TemporaryDirectory(prefix="benchmarks-", dir=args.directory) as directory:
        setting = repeated_work.Setting(scale=args.scale, runs=args.runs, directory=Path(directory), say=say)
        if "dump-check" in parts:
            yield repeated_work.dump_check(setting)
        if "regex-batches" in parts:
            yield from repeated_work.regex_batches(setting)


def _gateways(args: argparse.Namespace, parts: Sequence[str], say: _Teller) -> Iterator[results.Result]:
    if "grpc" in parts:
        from benchmarks import grpc_calls

        yield grpc_calls.run(1000 if args.scale == "full" else 100, say)
    if "routing" in parts:
        from benchmarks import routing

        yield from routing.run(max(3, args.runs), partitions=100_000 if args.scale == "full" else 1000)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="Measure ours beside the peers."
    )
    parser.add_argument(
        "ids",
        nargs="*",
        metavar="ID",
        help=f"parts to measure (default: {', '.join(IDS)}; by name only: {', '.join(BY_NAME)})",
    )
    parser.add_argument(
        "--scale", choices=("full", "small"), default="full", help="small: to try the harness"
    )
    parser.add_argument("--runs", type=int, default=3, help="interleaved runs of each; the median counts")
    parser.add_argument(
        "--database", choices=KINDS, default=DERBY, help="where the metastores keep their data"
    )
    parser.add_argument(
        "--directory", type=Path, help="work below this directory (default: the temporary one)"
    )
    parser.add_argument("--output", type=Path, help="append the results here")
    return parser


class _Teller:
    """Says what is being done on standard error, with the seconds since the start."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    def __call__(self, text: str) -> None:
        print(f"[{time.monotonic() - self._began:6.1f} s] {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    # Without it, a benchmark that is killed leaves the processes that it has started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    sys.exit(main(sys.argv[1:]))
