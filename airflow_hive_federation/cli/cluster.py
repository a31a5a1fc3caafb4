"""``hive-federation cluster``: assigns tables to clusters, and copies, moves and drops copies of tables."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from airflow_hive_federation.cli import cluster_advise, cluster_status
from airflow_hive_federation.cli.airflow_logs import collected_errors, logging_to
from airflow_hive_federation.cli.connecting import end_for
from airflow_hive_federation.cli.parsers import Subparsers
from airflow_hive_federation.cli.published import ClusterState, cluster_state
from airflow_hive_federation.cli.story import Story
from airflow_hive_federation.errors import ConfigurationError, SparkJobError
from airflow_hive_federation.model.results import result_json
from airflow_hive_federation.progress.events import Event, TablesProcessed
from airflow_hive_federation.progress.observers import Observer, unobserved
from airflow_hive_federation.progress.quantities import several, size

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from airflow_hive_federation.cli.connecting import End
    from airflow_hive_federation.clusters.copies.copying import RunCopy
    from airflow_hive_federation.clusters.registry import ClusterRegistry
    from airflow_hive_federation.hooks.published_clusters import ClusterStatePublished
    from airflow_hive_federation.metastore import MetastoreClient


def add_parser(subparsers: Subparsers) -> None:
    """Add the command to ``hive-federation``."""
    parser = subparsers.add_parser(
        "cluster",
        help="put tables into clusters of one metastore, and copy them",
        description="A cluster is a site with storage and a Spark; a table is written in its primary cluster "
        "and may have copies in secondary ones. hive-federation route prints where a statement runs.",
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    assign = _action(actions, "assign", "make a cluster the primary of all tables that have none")
    assign.add_argument("cluster", nargs="?", help="the primary; the default cluster if left out")
    assign.add_argument(
        "--database", action="append", metavar="NAME", help="tables of this database; may be repeated"
    )
    assign.add_argument("--undo", action="store_true", help="take the cluster's tables out of it instead")
    assign.add_argument("--dry-run", action="store_true", help="write nothing; print what would be changed")
    copy = _action(actions, "copy", "copy a table, or partitions of it, to a secondary cluster")
    drop = _action(actions, "drop-copy", "drop copies in a secondary cluster; the primary stays")
    move = _action(actions, "move-copy", "move copies from one secondary cluster to another")
    for subparser in (copy, move):
        subparser.add_argument(
            "--spark-conn-id",
            metavar="ID",
            help="Airflow connection of the Spark that copies (default: the cluster's jobTracker)",
        )
        subparser.add_argument(
            "--verbose", action="store_true", help="print the log of spark-submit, too, on stderr"
        )
    for subparser in (copy, drop, move):
        subparser.add_argument("table", help="database.table")
        if subparser is move:
            subparser.add_argument("from_cluster", metavar="from", help="the secondary cluster that has them")
        subparser.add_argument(
            "cluster", metavar="to" if subparser is move else None, help="the secondary cluster"
        )
        subparser.add_argument(
            "--partition",
            action="append",
            metavar="NAME",
            help="this partition, such as day=2026-01-01; may be repeated (default: all)",
        )
        subparser.add_argument(
            "--where", metavar="CONDITION", help="partitions by a condition: \"day >= '2026-01-01'\""
        )
        subparser.add_argument(
            "--at-once",
            action="store_true",
            help="remove dropped and replaced copies now, although statements that were planned before may "
            "read them (default: cluster sweep removes them after a day)",
        )
    primary = _action(actions, "set-primary", "make a cluster with fresh copies a table's primary")
    primary.add_argument("table", help="database.table")
    primary.add_argument("cluster", help="the secondary cluster that becomes the primary")
    primary.add_argument(
        "--drop-former",
        action="store_true",
        help="remove the former primary after a day, instead of keeping it as a copy",
    )
    sweep = _action(actions, "sweep", "remove dropped copies, and what killed runs have left in a cluster")
    sweep.add_argument("cluster", help="the cluster to sweep")
    sweep.add_argument("--table", metavar="NAME", help="only directories of this table, database.table")
    sweep.add_argument(
        "--statement-days",
        default="7",
        metavar="DAYS",
        help="remove statements that are older than DAYS days (default: 7)",
    )
    sweep.add_argument(
        "--former-days",
        default="1",
        metavar="DAYS",
        help="remove former primaries, and dropped or replaced copies, after DAYS days, for until then "
        "statements may read them (default: 1)",
    )
    status, advise = cluster_status.add_parser(actions), cluster_advise.add_parser(actions)
    for subparser in (assign, copy, drop, move, primary, status, sweep, advise):
        add_common_arguments(subparser)


def _action(actions: Subparsers, name: str, does: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = actions.add_parser(
        name, help=does, description=f"{does[0].upper()}{does[1:]}."
    )
    return parser


def add_common_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that all commands about clusters share."""
    parser.add_argument(
        "--metastore",
        default="hive_federation_default",
        metavar="URI",
        help="URI(s) of the metastore, or the id of an Airflow connection (default: %(default)s)",
    )
    parser.add_argument(
        "--clusters",
        default="metastore",
        metavar="WHERE",
        help="the registry of clusters: path of a JSON file (with a / or .json), name of an Airflow "
        "variable, or 'metastore' for the metastore's own configuration (default: %(default)s)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    """Run the command and return its exit code."""
    actions = {
        "assign": _assign,
        "move-copy": _move,
        "set-primary": _set_primary,
        "status": _status,
        "sweep": _sweep,
        "advise": _advise,
    }
    return actions.get(args.action, _copy)(args)


def _status(args: argparse.Namespace) -> int:
    with opened(args) as (client, registry, _):
        return cluster_status.run(args, client, registry)


def _advise(args: argparse.Namespace) -> int:
    with opened(args) as (client, registry, end):
        return cluster_advise.run(args, client, registry, end)


def _move(args: argparse.Namespace) -> int:
    from airflow_hive_federation.clusters.moving import move_copies

    with (
        _state(args) as state,
        opened(args) as (client, registry, end),
        _copy_runner(args, registry, end) as run_copy,
    ):
        report = move_copies(
            client,
            registry,
            args.table,
            args.from_cluster,
            args.cluster,
            run_copy=run_copy,
            partitions=args.partition,
            where=args.where,
            at_once=args.at_once,
            options=end.storage_options,
        )
        state.looked(client, registry, args.table)
    _print_waiting(report.left, registry)
    files = f"{several(report.files, 'file')}, {size(report.size_bytes)} copied"
    route = f"from {report.from_cluster} to {report.to_cluster}"
    return _print(args, report, f"{report.table}: {_copies(len(report.moved))} moved {route} ({files})")


def _set_primary(args: argparse.Namespace) -> int:
    from airflow_hive_federation.clusters.primary import change_primary

    with _state(args) as state, opened(args) as (client, registry, end):
        report = change_primary(
            client,
            registry,
            args.table,
            args.cluster,
            keep_former=not args.drop_former,
            options=end.storage_options,
        )
        state.looked(client, registry, args.table)
    _print_left(report.left)
    removed = several(len(report.removed), "directory", "directories")
    counts = f"{several(len(report.moved), 'location')} changed, {removed} removed"
    return _print(args, report, f"{report.table}: primary {report.cluster} ({counts})")


def _sweep(args: argparse.Namespace) -> int:
    from airflow_hive_federation.clusters.sweeping import days_in_seconds, sweep_cluster

    with opened(args) as (client, registry, end):
        report = sweep_cluster(
            client,
            registry,
            args.cluster,
            table=args.table,
            statements_older_than_s=days_in_seconds(args.statement_days),
            former_older_than_s=days_in_seconds(args.former_days),
            options=end.storage_options,
        )
    _print_left(report.left)
    removed = several(len(report.removed), "directory", "directories")
    counts = f"{removed} removed, {report.used} in use, {len(report.left)} left"
    return _print(args, report, f"{report.cluster}: {counts}")


def _print_left(left: dict[str, str]) -> None:
    for directory, reason in sorted(left.items()):
        print(f"{directory}: left as it is: {reason}", file=sys.stderr)


def _print_waiting(left: list[str], registry: ClusterRegistry) -> None:
    """Print how many directories each cluster keeps, with the command that removes them."""
    places = [cluster.name for uri in left if (cluster := registry.cluster_at(uri))]
    for name, number in sorted(Counter(places).items()):
        stays, them = ("stays", "it") if number == 1 else ("stay", "them")
        directories = several(number, "directory", "directories")
        print(
            f"{directories} in cluster {name} {stays} for statements that were planned before; a "
            f"day from now, `hive-federation cluster sweep {name}` removes {them}.",
            file=sys.stderr,
        )


def _print(args: argparse.Namespace, report: DataclassInstance, line: str) -> int:
    print(json.dumps(result_json(report), indent=1) if args.json else line)
    return 0


@contextmanager
def _copy_runner(args: argparse.Namespace, registry: ClusterRegistry, end: End) -> Iterator[RunCopy]:
    """Yield the copy job of the cluster that receives the copies; it reports its progress on stderr."""
    from airflow_hive_federation.hooks.spark import SparkPipelineHook

    cluster, story = registry.cluster(args.cluster), Story()
    conn_id = args.spark_conn_id or cluster.spark_conn_id
    hook = SparkPipelineHook(conn_id, storage_options=end.storage_options, observer=story.observe)
    run_copy = hook.copy_runner()

    def run(plan: str, outcomes: str) -> None:
        story.stage(f"Copying {args.table} to {cluster.name}, by the Spark of {conn_id}")
        try:
            run_copy(plan, outcomes)
        except SparkJobError as error:
            if type(error) is SparkJobError and not args.verbose:
                error.remedy = "Run it again with --verbose, which prints the log of spark-submit."
            raise

    with logging_to(story, verbose=args.verbose):
        yield run


def _copy(args: argparse.Namespace) -> int:
    from airflow_hive_federation.clusters.copies.copying import copy_to_cluster, drop_copies

    with _state(args) as state, opened(args) as (client, registry, end):
        chosen: dict[str, Any] = {
            "partitions": args.partition,
            "where": args.where,
            "at_once": args.at_once,
            "options": end.storage_options,
        }
        if args.action == "drop-copy":
            report = drop_copies(client, registry, args.table, args.cluster, **chosen)
        else:
            with _copy_runner(args, registry, end) as run_copy:
                report = copy_to_cluster(client, registry, args.table, args.cluster, run_copy, **chosen)
        state.looked(client, registry, args.table)
    _print_waiting(report.left, registry)
    copies = _copies(len(report.copied))
    if args.action == "drop-copy":
        removed = several(len(report.removed), "directory", "directories")
        line = f"{copies} dropped in {report.cluster}, {removed} removed"
    else:
        files = f"{several(report.files, 'file')}, {size(report.size_bytes)}"
        line = f"{copies} made in {report.cluster} ({files}), {len(report.current)} already current"
    return _print(args, report, f"{report.table}: {line}")


def _copies(number: int) -> str:
    return several(number, "copy", "copies")


def _assign(args: argparse.Namespace) -> int:
    from airflow_hive_federation.clusters.assignment import assign_tables

    with opened(args) as (client, registry, _), _bar() as observer:
        report = assign_tables(
            client,
            registry,
            cluster=args.cluster,
            databases=args.database,
            undo=args.undo,
            dry_run=args.dry_run,
            observer=observer,
        )
        _state(args).assigned(report, registry)
    if args.json:
        print(json.dumps(result_json(report), indent=1))
        return 0
    done = "taken out of" if report.undo else "assigned to"
    would = " would be" if report.dry_run else ""
    changed = several(len(report.changed), "table")
    print(f"{changed}{would} {done} {report.cluster}; {report.unchanged} unchanged")
    for name in report.changed if report.dry_run else ():
        print(f"  {name}")
    for name, cluster in sorted(report.elsewhere.items()):
        print(f"{name}: stays in cluster {cluster}", file=sys.stderr)
    for name, reason in sorted(report.skipped.items()):
        print(f"{name}: left as it is: {reason}", file=sys.stderr)
    return 0


def _state(args: argparse.Namespace) -> ClusterState | ClusterStatePublished:
    return cluster_state(args.metastore, f"cluster {args.action}", getattr(args, "table", None) or "")


@contextmanager
def opened(args: argparse.Namespace) -> Iterator[tuple[MetastoreClient, ClusterRegistry, End]]:
    """Open the metastore, the registry and the connection that the arguments name.

    :raises ConfigurationError: the connection, variable or file does not exist, or holds no registry.
    """
    from airflow_hive_federation.metastore import MetastoreClient

    end = end_for(args.metastore)
    with MetastoreClient(end.settings) as client:
        yield client, _registry(args.clusters, client, end), end


def _registry(origin: str, client: MetastoreClient, end: End) -> ClusterRegistry:
    from airflow_hive_federation.hooks.clusters import find_registry, is_variable

    if not is_variable(origin):
        return find_registry(origin, client, end.storage_options)
    from airflow_hive_federation.hooks.compat import redact

    with collected_errors() as errors:
        try:
            return find_registry(origin, client, end.storage_options)
        except ConfigurationError as error:
            if not errors:
                raise
            # SQLAlchemy's own text contains the query.
            cause = redact(str(getattr(errors[0], "orig", None) or errors[0]))
            raise ConfigurationError(
                f"The Airflow variable {origin!r} cannot be read from Airflow's database: {cause}.",
                remedy="Give the path of a file with a '/', such as ./clusters.json, or set AIRFLOW_HOME to "
                "the home of your Airflow.",
            ) from error


@contextmanager
def _bar() -> Iterator[Observer]:
    """Show a progress bar if stderr is a terminal."""
    if not sys.stderr.isatty():
        yield unobserved
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("tables", total=None)

        def show(event: Event) -> None:
            if isinstance(event, TablesProcessed):
                bar.update(task, completed=event.tables, total=event.all_tables)

        yield show
