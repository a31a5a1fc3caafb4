"""``hive-federation sql``: runs statements of remotes."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING

from airflow_hive_federation.cli.connecting import remotes_for
from airflow_hive_federation.cli.parsers import Subparsers
from airflow_hive_federation.cli.tables import print_table
from airflow_hive_federation.errors import StatementError

if TYPE_CHECKING:
    from airflow_hive_federation.remotes.describe import Answer


def add_parser(subparsers: Subparsers) -> None:
    """Add the command to ``hive-federation``."""
    parser = subparsers.add_parser("sql", help="run statements of remotes: CREATE REMOTE TABLE …")
    parser.add_argument("sql", help="statements, with semicolons between them; - reads standard input")
    parser.add_argument(
        "--metastore",
        default="hive_federation_default",
        help="URI(s) of the local metastore, or the id of an Airflow connection "
        "(default: hive_federation_default)",
    )
    parser.add_argument(
        "--database", default="default", help="database of tables named without one (default: default)"
    )
    parser.add_argument("--json", action="store_true", help="print the answers as JSON")


def run(args: argparse.Namespace) -> int:
    """Run the statements, and print each answer as soon as it arrives."""
    script = sys.stdin.read() if args.sql == "-" else args.sql
    _refuse_nothing(script)
    with remotes_for(args.metastore, database=args.database) as remotes:
        if args.json:
            answers = remotes.run(script)
            print(
                json.dumps([{"columns": result.columns, "rows": result.rows} for result in answers], indent=1)
            )
            return 0
        for answer in remotes.answers(script):
            print_answer(answer)
    return 0


def _refuse_nothing(script: str) -> None:
    from airflow_hive_federation.remotes.statement import parse_script

    if not parse_script(script):
        raise StatementError(
            "There is no statement to run.", remedy="Give a statement, or - and statements on standard input."
        )


def print_answer(answer: Answer) -> None:
    """Print rows as a table; a message, or a statement that describes an object, as it is."""
    if len(answer.columns) == 1:
        for row in answer.rows:
            print(*row)
    else:
        print_table(answer.columns, answer.rows, whole=True)
