"""``hive-federation metastore start|stop|list``: runs embedded metastores for development."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from airflow_hive_federation.embedded.database import DERBY, KINDS
from airflow_hive_federation.embedded.metastore import (
    EmbeddedMetastore,
    RunningMetastore,
    running_metastores,
    stop_metastore,
)
from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.runtime.cache import DATA_VARIABLE, data_directory


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> argparse.ArgumentParser:
    """Register ``metastore`` and its three actions, which :func:`run` executes."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "metastore", help="start, stop and list local Hive metastores for development"
    )
    actions = parser.add_subparsers(dest="metastore_action", required=True, metavar="start|stop|list")
    json_option = argparse.ArgumentParser(add_help=False)
    json_option.add_argument("--json", action="store_true", help="print JSON")

    start = actions.add_parser("start", parents=[json_option], help="start one that stays when this ends")
    start.add_argument("name", metavar="NAME")
    start.add_argument(
        "--directory",
        type=Path,
        help=f"where it lives (default: metastores/NAME in ${DATA_VARIABLE} or ~/airflow-hive-federation)",
    )
    start.add_argument("--port", type=int, default=0, help="Thrift port on 127.0.0.1 (default: a free one)")
    start.add_argument(
        "--database",
        choices=KINDS,
        help="where its data lies: Derby inside of it, or a PostgreSQL server that stops with it "
        f"(default: what its directory has, else {DERBY})",
    )
    start.set_defaults(metastore_run=_start)

    stop = actions.add_parser("stop", parents=[json_option], help="stop one; its directory stays")
    stop.add_argument("name", metavar="NAME")
    stop.set_defaults(metastore_run=_stop)

    listing = actions.add_parser("list", parents=[json_option], help="list the ones that run")
    listing.set_defaults(metastore_run=_list)

    parser.set_defaults(run=run)
    return parser


def run(args: argparse.Namespace) -> int:
    """Run one action and return the exit code.

    :raises HiveFederationError: the action failed; the caller prints the error.
    """
    action: Callable[[argparse.Namespace], int] = args.metastore_run
    return action(args)


def _start(args: argparse.Namespace) -> int:
    for running in running_metastores():
        if running.name == args.name:
            if args.database not in {None, running.database}:
                raise ConfigurationError(
                    f"{args.name} is running on {running.database}, not on {args.database}.",
                    remedy="leave --database out, or take another name.",
                )
            _print(args, [running], f"{args.name} is running already: {running.uri}", single=True)
            return 0
    directory = args.directory or data_directory() / "metastores" / args.name
    started = EmbeddedMetastore.start(
        args.name, directory=directory, tied_to_parent=False, port=args.port, database=args.database
    )
    text = (
        f"{args.name}: {started.uri}\ndatabase: {started.database}\ndirectory: {started.directory}\n"
        f"log: {started.log_path}\n"
        f"It runs until: hive-federation metastore stop {args.name}"
    )
    _print(args, [started], text, single=True)
    return 0


def _stop(args: argparse.Namespace) -> int:
    stopped = [metastore for metastore in running_metastores() if metastore.name == args.name]
    if not stopped:
        names = ", ".join(metastore.name for metastore in running_metastores())
        raise ConfigurationError(
            f"no metastore named {args.name!r} is running.",
            remedy=f"name one that runs: {names}." if names else "none runs: nothing is to be stopped.",
        )
    for metastore in stopped:
        stop_metastore(metastore)
    _print(args, stopped, f"{args.name} is stopped; its directory stays: {stopped[0].directory}", single=True)
    return 0


def _list(args: argparse.Namespace) -> int:
    running = running_metastores()
    rows = [("NAME", "URI", "PID", "DIRECTORY")]
    rows += [
        (metastore.name, metastore.uri, str(metastore.pid), str(metastore.directory)) for metastore in running
    ]
    _print(args, running, _table(rows) if running else "no metastore is running")
    return 0


def _table(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(line.rstrip() for line in lines)


def _print(
    args: argparse.Namespace,
    metastores: Sequence[RunningMetastore | EmbeddedMetastore],
    text: str,
    *,
    single: bool = False,
) -> None:
    if not args.json:
        print(text)
        return
    described = [_described(metastore) for metastore in metastores]
    print(json.dumps(described[0] if single else described))


def _described(metastore: RunningMetastore | EmbeddedMetastore) -> dict[str, Any]:
    return {
        "name": metastore.name,
        "uri": metastore.uri,
        "pid": metastore.pid,
        "database": metastore.database,
        "directory": str(metastore.directory),
        "warehouse": str(metastore.warehouse),
        "log_path": str(metastore.log_path),
    }
