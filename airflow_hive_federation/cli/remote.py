"""``hive-federation remote``: lists, describes and refreshes remotes."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from airflow_hive_federation.cli.connecting import remotes_for
from airflow_hive_federation.cli.parsers import Subparsers
from airflow_hive_federation.cli.published import published_refresh
from airflow_hive_federation.cli.sql import print_answer
from airflow_hive_federation.model.results import result_json


def add_parser(subparsers: Subparsers) -> None:
    """Add the command to ``hive-federation``."""
    parser = subparsers.add_parser("remote", help="list, describe and refresh remote tables and databases")
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    listing = actions.add_parser("list", help="list the remotes of a database, or of all databases")
    listing.add_argument("database", nargs="?", help="database; all by default")
    describe = actions.add_parser("describe", help="describe a remote, with data from its metastore")
    refresh = actions.add_parser(
        "refresh", help="bring a remote up to date with the table or database it stands for"
    )
    for subparser in (describe, refresh):
        subparser.add_argument("name", help="database.table, or a database")
    describe.add_argument(
        "--extended", action="store_true", help="show location, formats and parameters as well"
    )
    refresh.add_argument(
        "--whole", action="store_true", help="compare all objects, not only those that events name"
    )
    refresh.add_argument(
        "--on-dropped",
        choices=["drop", "keep", "fail"],
        help="action for links whose remote table no longer exists",
    )
    for subparser in (listing, describe, refresh):
        subparser.add_argument(
            "--metastore",
            default="hive_federation_default",
            help="URI(s) of the local metastore, or the id of an Airflow connection "
            "(default: hive_federation_default)",
        )
        subparser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    """Run the command and return its exit code."""
    from airflow_hive_federation.remotes.describe import show_remotes
    from airflow_hive_federation.remotes.refresh import OnDropped
    from airflow_hive_federation.remotes.statement import Kind, parse_name

    with remotes_for(args.metastore) as remotes:
        if args.action == "list":
            answer = show_remotes(remotes.listed(args.database))
        else:
            kind = Kind.TABLE if "." in args.name else Kind.DATABASE
            name = parse_name(kind, args.name)
            if args.action == "refresh":
                on_dropped = OnDropped(args.on_dropped) if args.on_dropped else None
                with published_refresh(args.metastore, args.name) as publish:
                    report = remotes.refresh(kind, name, on_dropped=on_dropped, whole=args.whole)
                    publish(remotes, report)
                _print_report(result_json(report), as_json=args.json)
                return 0
            answer = remotes.describe(kind, name, extended=args.extended)
    if args.json:
        print(json.dumps(result_json(answer), indent=1))
    else:
        print_answer(answer)
    return 0


def _print_report(report: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(report, indent=1))
        return
    counts = [f"{len(report[name])} {name}" for name in ("created", "altered", "dropped")]
    parts = [f"{report[f'partitions_{name}']} {name}" for name in ("added", "altered", "dropped")]
    print(f"{report['remote']}: tables: {', '.join(counts)}; partitions: {', '.join(parts)}")
    for name, reason in report["skipped"].items():
        print(f"{name}: left out: {reason}", file=sys.stderr)
