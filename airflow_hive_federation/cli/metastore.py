"""``hive-federation metastore start|stop|list|sql|prepare``: runs embedded metastores for development."""

from __future__ import annotations

import argparse
import json
import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from shlex import quote

from airflow_hive_federation.cli import metastore_sql
from airflow_hive_federation.cli.tables import print_table
from airflow_hive_federation.embedded.class_archives import make_archives
from airflow_hive_federation.embedded.database import DERBY, KINDS
from airflow_hive_federation.embedded.metastore import (
    EmbeddedMetastore,
    RunningMetastore,
    running_metastores,
    stop_metastore,
)
from airflow_hive_federation.embedded.naming import default_directory, metastore_to_stop
from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.progress.quantities import size
from airflow_hive_federation.runtime.cache import DATA_VARIABLE

_NAME_HELP = "name of the metastore: letters, digits, '_', '-' and '.'"


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> argparse.ArgumentParser:
    """Register ``metastore`` and its actions, which :func:`run` executes."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "metastore",
        help="run local Hive metastores for development, and Hive's SQL on them",
    )
    actions = parser.add_subparsers(
        dest="metastore_action", required=True, metavar="start|stop|list|sql|prepare"
    )
    json_option = argparse.ArgumentParser(add_help=False)
    json_option.add_argument("--json", action="store_true", help="print JSON")

    start = actions.add_parser(
        "start", parents=[json_option], help="start a metastore that runs until it is stopped"
    )
    start.add_argument("name", metavar="NAME", help=_NAME_HELP)
    start.add_argument(
        "--directory",
        type=Path,
        help="directory of its data, warehouse and log "
        f"(default: metastores/NAME in ${DATA_VARIABLE} or ~/airflow-hive-federation)",
    )
    start.add_argument("--port", type=_port, default=0, help="Thrift port on 127.0.0.1 (default: a free one)")
    start.add_argument(
        "--database",
        choices=KINDS,
        help="its database: Derby in its own process, or a PostgreSQL or MariaDB server that stops "
        "with it "
        f"(default: that of its directory, else {DERBY})",
    )
    start.set_defaults(metastore_run=_start)

    stop = actions.add_parser("stop", parents=[json_option], help="stop a metastore; its directory stays")
    stop.set_defaults(metastore_run=_stop)
    sql = actions.add_parser(
        "sql",
        parents=[json_option],
        help="run statements in Hive's own SQL engine, on a running embedded metastore",
        description="Run statements in Hive's own SQL engine, on a running embedded metastore. Rows are "
        "printed as tables. The first statement that fails ends the script.",
    )
    for action, default in ((stop, ""), (sql, ", or the only one of the name")):
        action.add_argument("name", metavar="NAME", help="name of a running metastore")
        action.add_argument(
            "--directory", type=Path, help=f"its directory (default: that of `start NAME`{default})"
        )
    metastore_sql.add_arguments(sql)
    sql.set_defaults(metastore_run=metastore_sql.run)

    listing = actions.add_parser(
        "list", parents=[json_option], help="list the running metastores of this user"
    )
    listing.set_defaults(metastore_run=_list)
    prepare = actions.add_parser(
        "prepare",
        parents=[json_option],
        help="fetch and prepare all that metastores and Hive's SQL need; they then start with about a third "
        "less processor time",
    )
    prepare.set_defaults(metastore_run=_prepare)

    parser.set_defaults(run=run)
    return parser


def run(args: argparse.Namespace) -> int:
    """Run one action and return the exit code.

    :raises HiveFederationError: the action failed; the caller prints the error.
    """
    action: Callable[[argparse.Namespace], int] = args.metastore_run
    return action(args)


def _prepare(args: argparse.Namespace) -> int:
    archives = make_archives()
    if args.json:
        print(json.dumps({"archives": [str(path) for path in archives]}))
    else:
        print("Metastores and Hive's SQL engine now start with archived classes:")
        for path in archives:
            print(f"  {path} ({size(path.stat().st_size)})")
    return 0


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65_535:
        raise argparse.ArgumentTypeError(f"{text} is not a port: give a number from 1 to 65535")
    return int(text)


def _start(args: argparse.Namespace) -> int:
    directory = (args.directory or default_directory(args.name)).absolute()
    for running in running_metastores():
        if running.is_in(directory):
            _refuse_differences(args, running)
            _print(args, [running], f"{args.name} is running already: {running.uri}", single=True)
            return 0
    if args.port:
        _refuse_taken(args.port)
    started = EmbeddedMetastore.start(
        args.name, directory=directory, tied_to_parent=False, port=args.port, database=args.database
    )
    text = (
        f"{args.name}: {started.uri}\ndatabase: {started.database}\ndirectory: {started.directory}\n"
        f"log: {started.log_path}\n{_next_commands(args.name, directory)}"
    )
    _print(args, [started], text, single=True)
    return 0


def _next_commands(name: str, directory: Path) -> str:
    where = f" --directory {quote(str(directory))}" if directory != default_directory(name) else ""
    return (
        f"SQL: hive-federation metastore sql {name}{where} 'SHOW DATABASES'\n"
        f"It runs until: hive-federation metastore stop {name}{where}"
    )


def _refuse_differences(args: argparse.Namespace, running: RunningMetastore) -> None:
    """Refuse to start a metastore that runs already by another name, on another port or another database.

    :raises ConfigurationError: one of them differs.
    """
    name, port, database = args.name, args.port, args.database
    differences = [
        f"{preposition} {actual}, not {wanted}"
        for preposition, actual, wanted in (
            ("by the name", running.name, name),
            ("on port", running.port, port or running.port),
            ("on", running.database, database or running.database),
        )
        if actual != wanted
    ]
    if differences:
        raise ConfigurationError(
            f"The metastore in {running.directory} is running {' and '.join(differences)}.",
            remedy=f"Stop it first (hive-federation metastore stop {running.name} --directory "
            f"{running.directory}), or name another directory.",
        )


def _refuse_taken(port: int) -> None:
    try:
        with socket.create_server(("127.0.0.1", port)):
            return
    except OSError as error:
        raise ConfigurationError(
            f"Port {port} of 127.0.0.1 is not free: {error.strerror}.",
            remedy="Name another port, or leave --port out.",
        ) from error


def _stop(args: argparse.Namespace) -> int:
    metastore = metastore_to_stop(args.name, args.directory)
    stop_metastore(metastore)
    text = f"{args.name} is stopped; its directory stays: {metastore.directory}"
    _print(args, [metastore], text, single=True)
    return 0


def _list(args: argparse.Namespace) -> int:
    running = running_metastores()
    if args.json or not running:
        _print(args, running, "no metastore is running")
        return 0
    print_table(
        ("Name", "URI", "Process", "Database", "Directory"),
        (
            (metastore.name, metastore.uri, str(metastore.pid), metastore.database, str(metastore.directory))
            for metastore in running
        ),
        whole=True,
    )
    return 0


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


def _described(metastore: RunningMetastore | EmbeddedMetastore) -> dict[str, object]:
    return {
        "name": metastore.name,
        "uri": metastore.uri,
        "pid": metastore.pid,
        "database": metastore.database,
        "directory": str(metastore.directory),
        "warehouse": str(metastore.warehouse),
        "log_path": str(metastore.log_path),
    }
