# PYTHON_ARGCOMPLETE_OK
"""Runs the command ``hive-federation``."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
from collections.abc import Sequence
from importlib import import_module

from airflow_hive_federation import __version__
from airflow_hive_federation.cli.airflow_logs import log_of_command
from airflow_hive_federation.cli.connecting import answers_up_to, connections_of_the_database
from airflow_hive_federation.cli.parsers import COMPLETING, CommandParser, count
from airflow_hive_federation.errors import HiveFederationError

#: The module of each command, which has ``add_parser(subparsers)`` and ``run(args) -> int``.
COMMANDS = {
    "init": "airflow_hive_federation.cli.init",
    "demo": "airflow_hive_federation.demo.command",
    "metastore": "airflow_hive_federation.cli.metastore",
    "cluster": "airflow_hive_federation.cli.cluster",
    "compact": "airflow_hive_federation.cli.compact",
    "doctor": "airflow_hive_federation.cli.doctor",
    "gateway": "airflow_hive_federation.cli.gateway",
    "ingest": "airflow_hive_federation.cli.ingest",
    "replicate": "airflow_hive_federation.cli.replicate",
    "remote": "airflow_hive_federation.cli.remote",
    "route": "airflow_hive_federation.cli.route",
    "sql": "airflow_hive_federation.cli.sql",
    "state": "airflow_hive_federation.cli.state",
}


def build_parser() -> argparse.ArgumentParser:
    """Build the parser of the whole command line."""
    parser = CommandParser(
        prog="hive-federation", description="Federate Hive metastores and replicate Hive databases."
    )
    parser.add_argument("--version", action="version", version=__version__)
    parser.add_argument(
        "--max-answer-bytes",
        type=count,
        metavar="BYTES",
        help="longest answer of a metastore that is accepted, in place of 256 MiB or the connection's",
    )
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for module in COMMANDS.values():
        import_module(module).add_parser(subparsers)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return its exit status: 0, or 1 with one clear message on stderr."""
    name = "hive-federation"
    try:
        parser = build_parser()
        if COMPLETING in os.environ:
            import argcomplete

            # This prints the completions and ends the process.
            argcomplete.autocomplete(parser)
        args = parser.parse_args(argv)
        name = f"{name} {args.command}"
        logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(message)s")
        with answers_up_to(args.max_answer_bytes), connections_of_the_database(), log_of_command():
            status = int(import_module(COMMANDS[args.command]).run(args))
            sys.stdout.flush()
            return status
    except HiveFederationError as error:
        print(f"{name}: {type(error).__name__}: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        # The reader of the output has ended, for instance ``head``. The interpreter would flush once more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except OSError as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"{name}: interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
