"""``airflow hive-federation …``: the command line of this package as a command of Airflow's."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from airflow.cli.cli_config import CLICommand


def get_commands() -> list[CLICommand]:
    """Return the command; each start of Airflow's command line calls this function."""
    from airflow.cli.cli_config import ActionCommand, Arg

    arguments = Arg(
        ("arguments",),
        nargs=argparse.REMAINDER,
        help="arguments of hive-federation; after --, its options, for instance -- --help",
    )
    return [
        ActionCommand(
            name="hive-federation",
            help="Federate Hive metastores and replicate Hive databases",
            func=_run,
            args=(arguments,),
        )
    ]


def _run(args: argparse.Namespace) -> NoReturn:
    from airflow_hive_federation.cli.main import main

    # Python before 3.13 keeps the separator.
    sys.exit(main(args.arguments[args.arguments[:1] == ["--"] :]))
