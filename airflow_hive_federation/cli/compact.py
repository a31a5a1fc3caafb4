"""``hive-federation compact``: compacts a table now, or serves the metastore's compaction queue."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING

from airflow_hive_federation.cli.connecting import settings_for
from airflow_hive_federation.cli.parsers import Subparsers, count, seconds
from airflow_hive_federation.cli.published import compaction_state
from airflow_hive_federation.cli.story import Story
from airflow_hive_federation.cli.tables import print_table
from airflow_hive_federation.errors import ConfigurationError, SparkJobError
from airflow_hive_federation.progress.quantities import duration, several, size
from airflow_hive_federation.storage.options import StorageOptions

if TYPE_CHECKING:
    from airflow_hive_federation.compaction.worker import CompactionReport, MergeRunner


#: The files that each kind of compaction needs (``plan_compaction``).
_ENOUGH = {
    "major": "A major compaction needs files without write ids, or more than one base or delta.",
    "minor": "A minor compaction needs more deltas than one insert and one delete delta.",
}


def add_parser(subparsers: Subparsers) -> None:
    """Add the command to ``hive-federation``."""
    parser = subparsers.add_parser(
        "compact",
        help="compact an ACID table, or serve the compaction queue",
        description="Compact TABLE now; TABLE `worker` serves the metastore's compaction queue.",
    )
    parser.add_argument("table", metavar="TABLE|worker", help="database.table, or: worker")
    parser.add_argument(
        "--metastore",
        default="hive_federation_default",
        help="URI(s) of the metastore, or the id of an Airflow connection (default: hive_federation_default)",
    )
    parser.add_argument(
        "--kind",
        default="major",
        choices=["major", "minor"],
        help="major: merge all files; minor: merge deltas (default: major)",
    )
    parser.add_argument(
        "--partition",
        action="append",
        metavar="NAME",
        help="day=2026-01-01/hour=7; several times for more (default: all)",
    )
    parser.add_argument(
        "--compression",
        choices=["zlib", "zstd", "snappy", "lz4", "uncompressed"],
        help="compression of ORC files (default: each table's own)",
    )
    parser.add_argument(
        "--threads", type=count, metavar="N", help="bucket files side by side (default: one per core)"
    )
    parser.add_argument(
        "--spark-conn-id", help="merge by Spark jobs over this Airflow connection (default: here)"
    )
    parser.add_argument("--pool-name", help="worker: pool to serve; by default, the requests that name none")
    parser.add_argument(
        "--timeout-s", type=seconds, metavar="S", help="worker: take no further request after S seconds"
    )
    parser.add_argument("--max-compactions", type=count, metavar="N", help="worker: end after N requests")
    parser.add_argument("--until-empty", action="store_true", help="worker: end when the queue is empty")
    parser.add_argument("--json", action="store_true", help="print a line of JSON per request")
    parser.add_argument(
        "--verbose", action="store_true", help="print the log of spark-submit, too, on stderr"
    )


def run(args: argparse.Namespace) -> int:
    """Run the command; return 1 if a compaction failed, or was refused although TABLE may need it."""
    serves = args.table == "worker"
    _refuse_options_of_others(args, serves)
    with _folded_logs(args) as story:
        reports = _serve(args, story) if serves else _compact(args, story)
    if not args.json:
        nothing = "no request was waiting" if serves else f"{args.table} has no partitions"
        _print_table(reports, nothing=nothing)
    bad_states = {"failed"} if serves else {"failed", "refused"}
    return int(any(report.state in bad_states and not report.unneeded for report in reports))


def _refuse_options_of_others(args: argparse.Namespace, serves: bool) -> None:
    """Refuse options that would have no effect.

    :raises ConfigurationError: an option is for TABLE, and the worker runs, or the other way round.
    """
    of_tables = {"--partition": args.partition}
    of_workers = {
        "--pool-name": args.pool_name,
        "--timeout-s": args.timeout_s,
        "--max-compactions": args.max_compactions,
        "--until-empty": args.until_empty,
    }
    for option, value in (of_tables if serves else of_workers).items():
        if value not in (None, False):
            kind = "a table, and the worker compacts all" if serves else "the worker, and TABLE is a table"
            raise ConfigurationError(f"{option} is for {kind}.", remedy=f"Leave {option} out.")


@contextmanager
def _folded_logs(args: argparse.Namespace) -> Iterator[Story]:
    """Show only warnings of Airflow's and spark-submit's log, unless all of it is asked for."""
    story = Story()
    if args.spark_conn_id is None:
        yield story
        return
    from airflow_hive_federation.cli.airflow_logs import logging_to

    try:
        with logging_to(story, verbose=args.verbose):
            yield story
    except SparkJobError as error:
        if type(error) is SparkJobError and not args.verbose:
            error.remedy = "Run it again with --verbose, which prints the log of spark-submit."
        raise


def _compact(args: argparse.Namespace, story: Story) -> list[CompactionReport]:
    from airflow_hive_federation.compaction.plan import CompactionKind
    from airflow_hive_federation.compaction.requests import compact_table

    with _reporting(args, "compact") as on_report:
        return compact_table(
            settings_for(args.metastore),
            args.table,
            CompactionKind.of(args.kind),
            _runner(args, story),
            partitions=args.partition,
            storage_options=_storage_options(args),
            on_report=on_report,
        )


def _serve(args: argparse.Namespace, story: Story) -> list[CompactionReport]:
    from airflow_hive_federation.compaction.requests import revoke_dead_workers
    from airflow_hive_federation.compaction.worker import CompactionWorker
    from airflow_hive_federation.metastore import MetastoreClient

    settings = settings_for(args.metastore)
    with MetastoreClient(settings) as client:
        revoke_dead_workers(client)
    worker = CompactionWorker(
        settings,
        _runner(args, story),
        pool_name=args.pool_name,
        batch_size=16,
        storage_options=_storage_options(args),
    )
    with _reporting(args, "compact worker") as on_report:
        return worker.serve(
            timeout_s=args.timeout_s,
            max_compactions=args.max_compactions,
            until_empty=args.until_empty,
            on_report=on_report,
        )


@contextmanager
def _reporting(args: argparse.Namespace, command: str) -> Iterator[Callable[[CompactionReport], None]]:
    """Yield a function that prints a report; publish the reports, and at the end the queue."""
    from airflow_hive_federation.metastore import MetastoreClient

    state = compaction_state(args.metastore, command, lambda: MetastoreClient(settings_for(args.metastore)))

    def on_report(report: CompactionReport) -> None:
        _print_report(args, report)
        if state is not None:
            state.served(report)

    try:
        yield on_report
    except BaseException:
        if state is not None and state.has_unpublished:
            state.publish()
        raise
    if state is not None:
        state.publish()


def _runner(args: argparse.Namespace, story: Story) -> MergeRunner:
    options = _storage_options(args)
    if args.spark_conn_id is None:
        from airflow_hive_federation.compaction.runners import in_threads

        return in_threads(args.threads, options=options, compression=args.compression)
    from airflow_hive_federation.hooks.spark import SparkPipelineHook
    from airflow_hive_federation.spark.compact import by_spark

    hook = SparkPipelineHook(args.spark_conn_id, storage_options=options, observer=story.observe)
    hook.check_connection()
    return by_spark(
        lambda job, arguments, report_uri: hook.submit(job, arguments, report_uri=report_uri),
        options=options,
        compression=args.compression,
    )


def _storage_options(args: argparse.Namespace) -> StorageOptions:
    if "://" in args.metastore:
        return {}
    from airflow_hive_federation.hooks.metastore import HiveMetastoreHook

    return HiveMetastoreHook(args.metastore).storage_options


def _print_report(args: argparse.Namespace, report: CompactionReport) -> None:
    if args.json:
        print(json.dumps(asdict(report)), flush=True)
        return
    name = f"{report.table} {report.partition}".strip()
    if report.unneeded:
        print(f"{name}: nothing to compact. {_ENOUGH[report.kind]}", file=sys.stderr, flush=True)
        return
    amounts = (several(report.rows, "row"), size(report.size_bytes), duration(report.seconds))
    text = report.message or ", ".join(amounts)
    print(f"{name}: {report.state}. {text}", file=sys.stderr, flush=True)


def _print_table(reports: Sequence[CompactionReport], *, nothing: str) -> None:
    """Print the reports; if there are none, print the reason ``nothing``."""
    if not reports:
        print(f"Nothing was compacted: {nothing}.")
        return
    print_table(
        ("Table", "Partition", "Kind", "State", "Rows", "Size", "Time", "Directories"),
        (
            (
                report.table,
                report.partition,
                report.kind,
                "unneeded" if report.unneeded else report.state,
                f"{report.rows:,}",
                size(report.size_bytes),
                duration(report.seconds),
                ", ".join(report.directories),
            )
            for report in reports
        ),
        numbers=("Rows", "Size", "Time"),
        whole=True,
    )
