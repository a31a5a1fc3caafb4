"""``hive-federation route``: prints the cluster that would run a statement, and the reason."""

from __future__ import annotations

import argparse
import json
import sys
import textwrap
from functools import partial
from typing import TYPE_CHECKING

from airflow_hive_federation.cli.cluster import add_common_arguments, opened
from airflow_hive_federation.cli.parsers import Subparsers
from airflow_hive_federation.cli.published import published_routes

if TYPE_CHECKING:
    from airflow_hive_federation.clusters.routing.decision import Decision

#: The characters of a statement in the heading of its explanation.
_SHOWN = 70


def add_parser(subparsers: Subparsers) -> None:
    """Add the command to ``hive-federation``."""
    parser = subparsers.add_parser(
        "route",
        help="show the cluster that would run a statement, and the reason",
        description="Print the cluster that would run each statement; nothing is run. USE and USE CLUSTER "
        "count for the statements after them. The exit status is 1 if no cluster can run a statement.",
    )
    parser.add_argument("sql", help="statements, with semicolons between them; - reads standard input")
    parser.add_argument("--cluster", help="the session's cluster, as USE CLUSTER sets it")
    parser.add_argument("--database", default="default", help="the session's database (default: default)")
    parser.add_argument(
        "--explain",
        action="store_true",
        help="show the location of each table, and the clusters that were tried",
    )
    parser.add_argument(
        "--policy",
        choices=["strict", "default"],
        default="strict",
        help="statements whose tables are not known for certain: an error, or the default cluster",
    )
    parser.add_argument(
        "--no-file-check",
        action="store_true",
        help="believe the metastore, and do not list the files of copies",
    )
    add_common_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Run the command; return 1 if no cluster can run a statement."""
    from airflow_hive_federation.clusters.catalog import clusters_of
    from airflow_hive_federation.clusters.routing.explain import as_json, in_words
    from airflow_hive_federation.clusters.routing.route import Policy, failure
    from airflow_hive_federation.clusters.running import LiveRouter, first_session, statements_of
    from airflow_hive_federation.metastore import MetastorePool

    script = sys.stdin.read() if args.sql == "-" else args.sql
    with opened(args) as (client, registry, end):
        router = LiveRouter(
            client=client,
            registry=registry,
            policy=Policy(args.policy),
            check_files=not args.no_file_check,
            options=end.storage_options,
            pool=partial(MetastorePool, end.settings),
        )
        session = first_session(registry, database=args.database, cluster=args.cluster)
        decisions: list[tuple[str, Decision]] = []
        with published_routes(router, args.metastore) as publish:
            for text, decision in router.decisions(script, session):
                decisions.append((text, decision))
                refused = decision.cluster is None
                publish(decision, failure(decision, clusters_of(registry)).message if refused else "")
    count = len(statements_of(script))
    if args.json:
        print(json.dumps([{"sql": text, **as_json(decision)} for text, decision in decisions], indent=1))
    else:
        for number, (text, decision) in enumerate(decisions, start=1):
            if args.explain and count > 1:
                print(f"Statement {number} of {count}: {textwrap.shorten(text, _SHOWN, placeholder=' …')}")
            print(in_words(decision) if args.explain else decision.cluster or f"none: {decision.reason}")
    # A refusal ends the decisions.
    if not decisions or (last := decisions[-1][1]).cluster is not None:
        return 0
    number = len(decisions)
    after = f"; the {count - number} after it are not routed" if number < count else ""
    which = f"statement {number} of {count} is refused{after}. " if count > 1 else ""
    remedy = failure(last, clusters_of(registry)).remedy
    print(f"hive-federation route: {which}{remedy}", file=sys.stderr)
    return 1
