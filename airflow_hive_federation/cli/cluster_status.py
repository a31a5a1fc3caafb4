"""``hive-federation cluster status``: prints the clusters of tables, and the copies that are stale."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from airflow_hive_federation.cli.parsers import Subparsers
from airflow_hive_federation.cli.published import cluster_state
from airflow_hive_federation.cli.tables import print_table
from airflow_hive_federation.model.results import result_json
from airflow_hive_federation.progress.quantities import several, size

if TYPE_CHECKING:
    from airflow_hive_federation.clusters.look import CopyLook, TableLook
    from airflow_hive_federation.clusters.registry import ClusterRegistry
    from airflow_hive_federation.metastore import MetastoreClient


def add_parser(actions: Subparsers) -> argparse.ArgumentParser:
    """Add the action to ``hive-federation cluster``; return its parser."""
    parser: argparse.ArgumentParser = actions.add_parser(
        "status",
        help="list the clusters of tables, and the copies that are stale",
        description="Print the primary cluster of each table, and its copies in secondary clusters. A copy "
        "is stale if the metastore shows a change of its primary; files are not compared.",
    )
    parser.add_argument(
        "--database", action="append", metavar="NAME", help="tables of this database; may be repeated"
    )
    parser.add_argument("--stale", action="store_true", help="print only tables with stale copies")
    return parser


def run(args: argparse.Namespace, client: MetastoreClient, registry: ClusterRegistry) -> int:
    """Print the tables and return the exit code."""
    from airflow_hive_federation.clusters.look import look_at_clusters

    shown: list[TableLook] = []
    state = cluster_state(args.metastore, "cluster status")

    def looked_at(database: str, looks: Sequence[TableLook]) -> None:
        state.looked_at_all(database, looks)
        shown.extend(look for look in looks if not args.stale or any(copy.stale for copy in look.copies))

    status = look_at_clusters(client, registry, args.database, looked_at=looked_at)
    if args.json:
        print(json.dumps([result_json(look) for look in shown], indent=1))
        return 0
    if shown:
        rows = ((look.table, look.primary, _copies(look)) for look in shown)
        print_table(("Table", "Primary", "Copies"), rows, whole=True)
    counts = f"{status.copies:,} with copies, {status.stale:,} of these stale"
    print(f"{several(status.tables, 'table')}: {counts}")
    for name, reason in status.problems.items():
        print(f"{name}: {reason}", file=sys.stderr)
    return 0


def _copies(look: TableLook) -> str:
    return "; ".join(f"{copy.cluster}: {_copy(copy, look.partitions)}" for copy in look.copies)


def _copy(copy: CopyLook, partitions: int | None) -> str:
    sized = "" if copy.stale_bytes is None else f" ({size(copy.stale_bytes)})"
    if partitions is None:
        return f"stale{sized}" if copy.stale else "current"
    stale = f", {copy.stale:,} stale{sized}" if copy.stale else ""
    return f"{copy.objects:,} of {several(partitions, 'partition')}{stale}"
