"""``hive-federation cluster advise``: prints the copies that past statements would have needed."""

from __future__ import annotations

import argparse
import json
import re
import sys
from typing import TYPE_CHECKING

from airflow_hive_federation.cli.parsers import Subparsers

if TYPE_CHECKING:
    from airflow_hive_federation.cli.connecting import End
    from airflow_hive_federation.clusters.advising import AdviceOfHistory
    from airflow_hive_federation.clusters.registry import ClusterRegistry
    from airflow_hive_federation.metastore import MetastoreClient

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(?:([KMGTPE])(i?))?B?", re.IGNORECASE)
_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5, "E": 6}


def add_parser(actions: Subparsers) -> argparse.ArgumentParser:
    """Add the action to ``hive-federation cluster``; return its parser."""
    parser: argparse.ArgumentParser = actions.add_parser(
        "advise",
        help="list copies that would save bytes between clusters, by past statements",
        description="Read the statements that RoutedSqlOperator recorded, and print the copies that would "
        "save more bytes between clusters than they take. Nothing is copied.",
    )
    parser.add_argument("--days", type=_days, default=7, help="look at the last DAYS days (default: 7)")
    parser.add_argument(
        "--budget",
        type=size_bytes,
        metavar="SIZE",
        help="copy at most so much in such a time: 10TB, 500GiB, or bytes (default: no limit)",
    )
    parser.add_argument("--svg", metavar="FILE", help="write a picture, too; - is standard output")
    parser.add_argument(
        "--history",
        metavar="DIRECTORY",
        help="URI or path of the history (default: _hive_federation/history below the root of the default "
        "cluster)",
    )
    return parser


def run(args: argparse.Namespace, client: MetastoreClient, registry: ClusterRegistry, end: End) -> int:
    """Print the advice and return the exit code."""
    from airflow_hive_federation.clusters.advice_report import as_json
    from airflow_hive_federation.clusters.advice_svg import as_svg
    from airflow_hive_federation.clusters.advising import advise_from_history

    result = advise_from_history(
        client,
        registry,
        directory=args.history,
        days=args.days,
        budget_bytes=args.budget,
        options=end.storage_options,
    )
    if args.svg == "-":
        print(as_svg(result.advice), end="")
    elif args.json:
        print(json.dumps({"history": result.directory, **as_json(result.advice)}, indent=1))
    else:
        print(_text(result, registry))
    if args.svg not in {None, "-"}:
        from airflow_hive_federation.storage.filesystem import canonical
        from airflow_hive_federation.storage.publishing import write_atomically

        # For a name without a directory, the temporary file would otherwise lie in the root of the file
        # system.
        write_atomically(canonical(args.svg), [as_svg(result.advice).encode()], end.storage_options)
    for line in result.damaged:
        print(f"left out: {line}", file=sys.stderr)
    return 0


def size_bytes(text: str) -> int:
    """Return the number of bytes in ``10TB`` (powers of 1000), ``10TiB`` (powers of 1024) or ``10``.

    :raises argparse.ArgumentTypeError: the text is no size.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no size: write 10TB, 500GiB, or a number of bytes")
    base = 1024 if match[3] else 1000
    return int(float(match[1]) * base ** _POWERS[(match[2] or "").upper()])


def _days(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of days: write 1 or more")
    return int(text)


def _text(history: AdviceOfHistory, registry: ClusterRegistry) -> str:
    from airflow_hive_federation.clusters.advice_report import in_words

    if len(registry.clusters) == 1:
        only = registry.default_cluster().name
        return f"{only} is the only cluster: every statement runs there, without copies."
    if not history.advice.runs:
        days = "the last day" if history.advice.days == 1 else f"the last {history.advice.days} days"
        return (
            f"No statement of {days} is recorded in {history.directory}.\n"
            "RoutedSqlOperator records the statements that it routes, and those that no cluster can run."
        )
    return in_words(history.advice)
