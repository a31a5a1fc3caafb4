"""``hive-federation ingest``: streams files into an ACID table, exactly once."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from airflow_hive_federation.cli.connecting import end_for
from airflow_hive_federation.model.results import result_json

if TYPE_CHECKING:
    from airflow_hive_federation.ingest.files import IngestProgress
    from airflow_hive_federation.ingest.runs import IngestReport

_LINE_SECONDS = 5.0


def add_parser(subparsers: Any) -> None:
    """Add the command to ``hive-federation``."""
    parser = subparsers.add_parser(
        "ingest",
        help="stream files into an ACID table",
        description="Stream files into TABLE. A run takes what earlier runs of the same --name have left.",
    )
    parser.add_argument("table", metavar="TABLE", help="database.table")
    parser.add_argument("inputs", metavar="INPUT", nargs="+", help="files, directories, or patterns with *")
    parser.add_argument("--format", default="csv", choices=["csv", "json", "regex", "parquet"])
    parser.add_argument(
        "--metastore",
        default="hive_federation_default",
        help="URI(s) of the metastore, or the id of an Airflow connection",
    )
    parser.add_argument("--name", default="files", help="name of the position kept with the table")
    parser.add_argument(
        "--delimiter",
        type=_delimiter,
        default=",",
        help=r"between the fields of csv (nothing is quoted); \t, \x01 and their like are understood",
    )
    parser.add_argument("--header", action="store_true", help="each csv file begins with its columns' names")
    parser.add_argument("--regex", help="expression whose groups are the columns")
    parser.add_argument(
        "--partition",
        action="append",
        metavar="VALUE",
        help="of each partition key, for one static partition",
    )
    parser.add_argument("--commit-records", type=int, default=1_000_000, metavar="N")
    parser.add_argument("--commit-bytes", type=int, default=256 << 20, metavar="N")
    parser.add_argument("--commit-interval-s", type=float, default=60.0, metavar="S")
    parser.add_argument(
        "--transaction-batch-size", type=int, default=1, metavar="N", help="transactions that share files"
    )
    parser.add_argument(
        "--malformed",
        default="raise",
        choices=["raise", "null"],
        help="null: store null for values that cannot be read, as Hive's SerDes do",
    )
    parser.add_argument("--dead-letters", metavar="FILE", help="file for bad records, one line of JSON each")
    parser.add_argument("--dead-letter-limit", type=int, metavar="N", help="maximum number of bad records")
    parser.add_argument(
        "--compaction",
        choices=["minor", "major"],
        help="request a compaction of the written table or partitions",
    )
    parser.add_argument("--json", action="store_true", help="print the report as JSON")


def run(args: argparse.Namespace) -> int:
    """Run the command and return its exit code."""
    from airflow_hive_federation.ingest.files import IngestRequest, ingest_files

    end = end_for(args.metastore)
    request = IngestRequest(
        table=args.table,
        inputs=args.inputs,
        file_format=args.format,
        name=args.name,
        delimiter=args.delimiter,
        header=args.header,
        regex=args.regex,
        partition=args.partition or (),
        commit_records=args.commit_records,
        commit_bytes=args.commit_bytes,
        commit_interval_s=args.commit_interval_s,
        transaction_batch_size=args.transaction_batch_size,
        malformed=args.malformed,
        dead_letters=args.dead_letters,
        dead_letter_limit=args.dead_letter_limit,
        compaction=args.compaction,
    )
    with _progress(args) as on_progress:
        report = ingest_files(
            end.settings, request, storage_options=end.storage_options or None, on_progress=on_progress
        )
    print(json.dumps(result_json(report)) if args.json else _described(report))
    return 0


def _delimiter(text: str) -> str:
    """Return the delimiter in a text, which may be a Python escape."""
    if not text.startswith("\\") or len(text) == 1:
        return text
    try:
        return text.encode("ascii").decode("unicode_escape")
    except ValueError as error:
        raise argparse.ArgumentTypeError(rf"{text} is no escape; write \t, \x01 or the character") from error


@contextmanager
def _progress(args: argparse.Namespace) -> Iterator[Callable[[IngestProgress], None] | None]:
    if args.json:
        yield None
    elif sys.stderr.isatty():
        with _bar(args.table) as on_progress:
            yield on_progress
    else:
        yield _lines(args.table)


@contextmanager
def _bar(table: str) -> Iterator[Callable[[IngestProgress], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TextColumn("{task.fields[committed]:,} records committed, {task.fields[rate]:,.0f}/s"),
        TimeRemainingColumn(),
    )
    started = time.monotonic()
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(table, total=None, committed=0, rate=0.0)
        yield lambda progress: bar.update(
            task,
            total=progress.total_bytes,
            completed=progress.done_bytes,
            committed=progress.committed,
            rate=_rate(progress, started),
        )


def _lines(table: str) -> Callable[[IngestProgress], None]:
    """Return a function that prints a line per commit, with some seconds between lines, for non-terminals."""
    started = time.monotonic()
    printed_at = -_LINE_SECONDS

    def print_line(progress: IngestProgress) -> None:
        nonlocal printed_at
        now = time.monotonic() - started
        if not progress.committed or now < printed_at + _LINE_SECONDS:
            return
        printed_at = now
        share = f"{progress.done_bytes / progress.total_bytes:.0%} of {progress.total_bytes:,} bytes"
        rate = f"{_rate(progress, started):,.0f} records/s"
        print(
            f"{table}: {progress.committed:,} records committed, {share}, {rate}", file=sys.stderr, flush=True
        )

    return print_line


def _rate(progress: IngestProgress, started: float) -> float:
    return progress.committed / max(time.monotonic() - started, 1e-3)


def _described(report: IngestReport) -> str:
    from airflow_hive_federation.ingest.inputs import Position

    if not report.files:
        reached = Position.of(report.position)
        behind = f" behind {reached.uri}, which this name has reached" if reached else ""
        return f"{report.table}: nothing to ingest; no file was found{behind}."
    text = (
        f"{report.table}: {report.records:,} records of {report.files:,} files in {report.transactions:,} "
        f"transactions, {report.seconds:.1f} s"
    )
    if report.created_partitions:
        text += f"; {report.created_partitions:,} partitions created"
    return text + (f"; {report.dead_letters:,} bad records put aside" if report.dead_letters else "")
