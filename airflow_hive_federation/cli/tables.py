"""Prints rows as a table on stdout."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Sequence

#: The width of tables without a terminal, which rich would otherwise cut at 80 columns.
_WIDTH_WITHOUT_TERMINAL = 200
_WIDEST = 1 << 24


def print_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str | None]],
    *,
    numbers: Collection[str] = (),
    whole: bool = False,
) -> None:
    """Print a table.

    :param rows: the cells as text; ``None`` is printed as ``NULL``.
    :param numbers: the columns that hold numbers, which are printed flush right.
    :param whole: without a terminal, make the table as wide as its longest cells, so that no cell is cut.
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table()
    for name in columns:
        table.add_column(Text(name), justify="right" if name in numbers else "left", no_wrap=True)
    for row in rows:
        table.add_row(*(Text("NULL", style="dim") if cell is None else Text(cell) for cell in row))
    width = None
    if not sys.stdout.isatty():
        width = _WIDTH_WITHOUT_TERMINAL
        if whole:
            width = max(width, Console(width=_WIDEST).measure(table).maximum)
    Console(width=width, highlight=False).print(table)
