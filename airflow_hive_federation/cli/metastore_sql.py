"""``hive-federation metastore sql``: runs statements in Hive's own SQL engine on an embedded metastore."""

from __future__ import annotations

import argparse
import json
import sys
import textwrap
import time
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_hive_federation.cli.tables import print_table
from airflow_hive_federation.embedded.naming import named_metastore
from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.progress.quantities import duration, several

if TYPE_CHECKING:
    from airflow_hive_federation.embedded.sql import HiveAnswer, HiveSql

#: First words of statements that return rows of tables, and of those that return rows of Hive's own.
_QUERIES = frozenset({"SELECT", "WITH", "FROM", "VALUES"})
_ANSWERING = frozenset({"SHOW", "DESCRIBE", "DESC"})
_SHOWN_CHARACTERS = 60
_TIMEOUT_S = 300.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``sql``."""
    parser.add_argument(
        "sql",
        nargs="?",
        metavar="SQL",
        help="statements, with semicolons between them (default, or -: standard input)",
    )
    parser.add_argument("-f", "--file", type=Path, metavar="FILE", help="file with the statements")
    parser.add_argument(
        "--database", default="default", help="database of tables named without one (default: default)"
    )
    parser.add_argument(
        "--timeout-s",
        type=_seconds,
        default=_TIMEOUT_S,
        metavar="S",
        help=f"longest time of one statement, in seconds (default: {_TIMEOUT_S:.0f})",
    )


def run(args: argparse.Namespace) -> int:
    """Run the statements, and print each result as soon as it arrives.

    :raises ConfigurationError: no such metastore runs, or there are no statements.
    :raises HiveSqlError: Hive refused or failed a statement; the later ones do not run.
    """
    from airflow_hive_federation.embedded.sql import HiveSql

    metastore = named_metastore(args.name, args.directory)
    statements = statements_of(_script(args))
    with HiveSql(metastore) as sql:
        if args.database != "default":
            sql.execute(f"USE `{args.database.replace('`', '``')}`")
        for statement in statements:
            _run_statement(sql, statement, args)
    return 0


def statements_of(script: str) -> list[str]:
    """Return the statements of a script, without the semicolons between them and comments before them.

    :raises ConfigurationError: the script has no statement, or a quotation or comment in it does not end.
    """
    from airflow_hive_federation.clusters.statements.statement import UnreadableError
    from airflow_hive_federation.clusters.statements.tokens import split_script, tokens_of

    try:
        # Hive chooses the processor of a statement by its first word, which must not be a comment.
        statements = [statement[tokens_of(statement)[0].start :] for statement in split_script(script)]
    except UnreadableError as error:
        raise ConfigurationError(
            f"The statements cannot be read: {error}.", remedy="Correct the SQL; no statement was run."
        ) from error
    if not statements:
        raise ConfigurationError(
            "There is no statement to run.", remedy="Give SQL, or -f FILE, or pass it on standard input."
        )
    return statements


def _script(args: argparse.Namespace) -> str:
    if args.sql is not None and args.file is not None:
        raise ConfigurationError("SQL and --file are both given.", remedy="Give one of them.")
    if args.file is not None:
        try:
            return str(args.file.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigurationError(
                f"File {args.file} cannot be read: {error}.", remedy="Give a file of SQL in UTF-8."
            ) from error
    if args.sql is not None and args.sql != "-":
        return str(args.sql)
    if sys.stdin.isatty():
        print("Type statements with semicolons between them, then Ctrl-D.", file=sys.stderr)
    return sys.stdin.read()


def _run_statement(sql: HiveSql, statement: str, args: argparse.Namespace) -> None:
    began = time.monotonic()
    answer = sql.query(statement, timeout_s=args.timeout_s)
    if args.json:
        print(json.dumps({"sql": statement, "columns": answer.columns, "rows": answer.rows}), flush=True)
        return
    verb = statement.split(maxsplit=1)[0].upper()
    print_answer(answer, rows_are_values=verb in _QUERIES, always=verb in _QUERIES | _ANSWERING)
    beginning = textwrap.shorten(statement, _SHOWN_CHARACTERS, placeholder=" …")
    rows = f"{several(len(answer.rows), 'row')}, " if answer.rows or verb in _QUERIES else ""
    print(f"{beginning}: {rows}{duration(time.monotonic() - began)}", file=sys.stderr, flush=True)


def print_answer(answer: HiveAnswer, *, rows_are_values: bool, always: bool) -> None:
    """Print rows with columns as a table, and other lines as they are.

    :param rows_are_values: the spaces around a value are part of it; Hive fills up the cells of ``DESCRIBE``.
    :param always: print the heading of a table without rows; an ``INSERT`` has columns, and never rows.
    """
    if answer.columns and (answer.rows or always):
        rows = answer.rows
        if not rows_are_values:
            rows = [tuple(cell.strip() if cell else cell for cell in row) for row in rows]
        print_table(answer.columns, rows, whole=True)
    elif not answer.columns:
        for row in answer.rows:
            print(*row, sep="\t")
    sys.stdout.flush()


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not a number of seconds above 0")
    return seconds
