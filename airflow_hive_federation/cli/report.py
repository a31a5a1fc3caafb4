"""Prints a verification report as a table on stdout."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from airflow_hive_federation.progress.quantities import size

_KINDS = {"full_acid": "full ACID", "insert_only": "insert-only ACID"}
_COLUMNS = ("Table", "Kind", "Files", "Size", "Rows, source", "Rows, target", "Digests")
_NUMBERS = frozenset(_COLUMNS[2:6])
#: The width of tables without a terminal, which rich would otherwise cut at 80 columns.
_WIDTH_WITHOUT_TERMINAL = 200


def print_report(report: Mapping[str, Any], *, title: str) -> None:
    """Print the tables of a report; its differences appear in the error that follows.

    :param report: the result of ``VerificationReport.to_json``.
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    # Names and paths may have brackets, which rich would take for markup in a plain string.
    table = Table(title=Text(title), title_justify="left")
    for name in _COLUMNS:
        table.add_column(name, justify="right" if name in _NUMBERS else "left", no_wrap=True)
    for row in report["tables"]:
        table.add_row(
            Text(row["name"]),
            Text(_KINDS.get(row["kind"], row["kind"].replace("_", " "))),
            _number(row["files"] or None),
            size(row["size_bytes"]) if row["files"] else "",
            *(_number(row[name]) for name in ("source_rows", "target_rows")),
            ("[green]equal[/]" if row["digest_equal"] else "[red]differ[/]") if row["files"] else "",
        )
    console = Console(width=None if sys.stdout.isatty() else _WIDTH_WITHOUT_TERMINAL, highlight=False)
    console.print(table)
    for name, reason in sorted(report["not_compared"].items()):
        console.print(f"{name} is not compared, because {reason}.", markup=False)


def _number(value: int | None) -> str:
    return "" if value is None else f"{value:,}"
