"""``hive-federation ingest``: streams files into an ACID table, exactly once."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

from airflow_hive_federation.cli.connecting import end_for
from airflow_hive_federation.cli.parsers import Subparsers, count, seconds
from airflow_hive_federation.cli.published import ingest_state
from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.model.results import result_json
from airflow_hive_federation.progress.events import Event, RecordsIngested
from airflow_hive_federation.progress.observers import Observer, unobserved
from airflow_hive_federation.progress.quantities import duration, several
from airflow_hive_federation.progress.words import beside_bar, words

if TYPE_CHECKING:
    from airflow_hive_federation.ingest.runs import IngestReport

_LINE_SECONDS = 5.0


def add_parser(subparsers: Subparsers) -> None:
    """Add the command to ``hive-federation``."""
    parser = subparsers.add_parser(
        "ingest",
        help="stream files into an ACID table",
        description="Stream files into TABLE. A run takes what earlier runs of the same --name have left.",
    )
    parser.add_argument("table", metavar="TABLE", help="database.table")
    parser.add_argument("inputs", metavar="INPUT", nargs="+", help="files, directories, or patterns with *")
    parser.add_argument(
        "--format",
        default="csv",
        choices=["csv", "json", "regex", "parquet"],
        help="format of the files (default: csv)",
    )
    parser.add_argument(
        "--metastore",
        default="hive_federation_default",
        help="URI(s) of the metastore, or the id of an Airflow connection (default: hive_federation_default)",
    )
    parser.add_argument(
        "--name", default="files", help="name of the position kept with the table (default: files)"
    )
    parser.add_argument(
        "--delimiter",
        type=_delimiter,
        help=r"between the fields of csv; \t, \x01 and their like are understood (default: ,)",
    )
    parser.add_argument(
        "--quote",
        metavar="CHAR",
        help="begins and ends fields of csv that may hold delimiters and line feeds; '' for files in which "
        'quotes are text, as Hive reads them (default: ")',
    )
    parser.add_argument("--header", action="store_true", help="each csv file begins with its columns' names")
    parser.add_argument("--regex", help="expression whose groups are the columns")
    parser.add_argument(
        "--partition",
        action="append",
        metavar="VALUE",
        help="value of a partition key, for one static partition; once per key, in their order",
    )
    parser.add_argument(
        "--commit-records",
        type=count,
        default=1_000_000,
        metavar="N",
        help="commit after this number of records (default: 1000000)",
    )
    parser.add_argument(
        "--commit-bytes",
        type=count,
        default=256 << 20,
        metavar="N",
        help="commit after this number of bytes of input (default: 268435456)",
    )
    parser.add_argument(
        "--commit-interval-s",
        type=seconds,
        default=60.0,
        metavar="S",
        help="commit after this number of seconds (default: 60)",
    )
    parser.add_argument(
        "--transaction-batch-size",
        type=count,
        default=1,
        metavar="N",
        help="transactions that share files (default: 1)",
    )
    parser.add_argument(
        "--malformed",
        default="raise",
        choices=["raise", "null"],
        help="null: store null for values that cannot be read, as Hive's SerDes do (default: raise)",
    )
    parser.add_argument("--dead-letters", metavar="FILE", help="file for bad records, one line of JSON each")
    parser.add_argument("--dead-letter-limit", type=_limit, metavar="N", help="maximum number of bad records")
    parser.add_argument(
        "--compaction",
        choices=["minor", "major"],
        help="request a compaction of the written table or partitions",
    )
    parser.add_argument("--json", action="store_true", help="print the report as JSON")


def run(args: argparse.Namespace) -> int:
    """Run the command and return its exit code."""
    from airflow_hive_federation.ingest.files import IngestRequest, ingest_files
    from airflow_hive_federation.ingest.formats.quoted import QUOTE

    _refuse_options_of_others(args)
    end = end_for(args.metastore)
    request = IngestRequest(
        table=args.table,
        inputs=[_whole(uri) for uri in args.inputs],
        file_format=args.format,
        name=args.name,
        delimiter="," if args.delimiter is None else args.delimiter,
        quote=QUOTE if args.quote is None else args.quote,
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
    state = ingest_state(args.metastore, args.table)
    with state or nullcontext(), _observer(args) as observer:
        report = ingest_files(
            end.settings, request, storage_options=end.storage_options or None, observer=observer
        )
    if state is not None:
        state.ended(report)
    print(json.dumps(result_json(report)) if args.json else _described(report, args.name))
    return 0


def _whole(uri: str) -> str:
    """Return a local path from the root on: the position of a run must mean the same in every directory."""
    return uri if ":" in uri.partition("/")[0] else os.path.abspath(uri)  # noqa: PTH100 - a pattern, too


def _limit(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text} is not a number of records of 0 or more")
    return int(text)


def _refuse_options_of_others(args: argparse.Namespace) -> None:
    """Refuse options that would have no effect.

    :raises ConfigurationError: an option is for another format, or needs another option.
    """
    of_formats = {
        "csv": {"--delimiter": args.delimiter, "--quote": args.quote, "--header": args.header or None},
        "regex": {"--regex": args.regex},
    }
    for file_format, options in of_formats.items():
        given = [option for option, value in options.items() if value is not None]
        if given and file_format != args.format:
            raise ConfigurationError(
                f"{given[0]} is for {file_format}, and the format is {args.format}.",
                remedy=f"Leave {given[0]} out, or give --format {file_format}.",
            )
    if args.dead_letter_limit is not None and args.dead_letters is None:
        raise ConfigurationError(
            "--dead-letter-limit limits the bad records of --dead-letters.", remedy="Add --dead-letters FILE."
        )


def _delimiter(text: str) -> str:
    """Return the delimiter in a text, which may be a Python escape."""
    if not text.startswith("\\") or len(text) == 1:
        return text
    try:
        return text.encode("ascii").decode("unicode_escape")
    except ValueError as error:
        message = rf"{text} is not an escape; write \t, \x01 or the character"
        raise argparse.ArgumentTypeError(message) from error


@contextmanager
def _observer(args: argparse.Namespace) -> Iterator[Observer]:
    if args.json:
        yield unobserved
    elif sys.stderr.isatty():
        with _bar() as observer:
            yield observer
    else:
        yield _lines()


@contextmanager
def _bar() -> Iterator[Observer]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        BarColumn(),
        TextColumn("{task.fields[progress]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None, progress="")

        def show(event: Event) -> None:
            if isinstance(event, RecordsIngested):
                bar.update(
                    task,
                    total=event.all_bytes,
                    completed=event.read_bytes,
                    progress=beside_bar(event),
                )

        yield show


def _lines() -> Observer:
    """Return an observer that prints the records committed, with some seconds between lines."""
    printed_at = -_LINE_SECONDS

    def print_line(event: Event) -> None:
        nonlocal printed_at
        if not isinstance(event, RecordsIngested):
            return
        if event.committed and event.seconds >= printed_at + _LINE_SECONDS:
            printed_at = event.seconds
            print(words(event), file=sys.stderr, flush=True)

    return print_line


def _described(report: IngestReport, name: str) -> str:
    from airflow_hive_federation.ingest.inputs import Position

    if not report.files:
        reached = Position.of(report.position)
        if reached is None:
            return f"{report.table}: nothing to ingest; no file was found."
        if reached.places is not None:
            return f"{report.table}: nothing to ingest; runs of --name {name} have taken all files."
        return (
            f"{report.table}: nothing to ingest; no file comes after {reached.uri}, which --name {name} has "
            "reached. Files of another place need another name."
        )
    text = (
        f"{report.table}: {several(report.records, 'record')} of {several(report.files, 'file')} in "
        f"{several(report.transactions, 'transaction')}, {duration(report.seconds)}"
    )
    if report.created_partitions:
        text += f"; {several(report.created_partitions, 'partition')} created"
    return text + (f"; {several(report.dead_letters, 'bad record')} put aside" if report.dead_letters else "")
