"""Columns of a stripe that are made without pyarrow's encoder: taken out before it, and put in after it.

The user's columns of ACID files are the children of the column ``row``, so that structs are looked into.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from airflow_hive_federation.acid.arrow_columns import orc_width
from airflow_hive_federation.acid.orc.decimals import Decimals
from airflow_hive_federation.acid.orc.repeated import RepeatedNumbers
from airflow_hive_federation.acid.orc.streams import ROW_INDEX, Stream, Streams

_DIRECT_V2 = b"\x08\x02"
_Any = TypeVar("_Any")


class MadeColumn(Protocol):
    """A column, of which all streams are made here; its encoding is ``DIRECT_V2``."""

    @property
    def kind(self) -> int:
        """A ``Type.Kind`` whose streams are laid out as the column's."""

    def part(self, start: int, end: int) -> MadeColumn:
        """The column of some of the rows."""

    def statistics(self, start: int, end: int) -> bytes:
        """Make the ``ColumnStatistics`` of some rows."""

    def streams(self, number: int, stride: int) -> Iterator[Stream]:
        """Make the streams, that of the index first.

        :param number: the column's.
        :param stride: rows of a row group.
        """


def taken_out(rows: pa.Table) -> tuple[pa.Table, dict[int, MadeColumn]]:
    """Take such columns out of a table, and of structs without nulls; but leave at least one column in each.

    :param rows: columns may be run-end encoded, in one chunk; they come out at once, or decoded.
    :return: the table that is left, and those taken out by the number that each has in an ORC file.
    """
    (names, columns), found = _taken_out((rows.column_names, rows.columns), 1)
    return pa.table(columns, names=names), found


_Columns = tuple[list[str], list[pa.ChunkedArray]]


def _taken_out(columns: _Columns, number: int) -> tuple[_Columns, dict[int, MadeColumn]]:
    """Take columns out.

    :param columns: their names, and themselves.
    :param number: the first column's.
    """
    left: _Columns = ([], [])
    found: dict[int, MadeColumn] = {}
    for name, column in zip(*columns, strict=True):
        made = RepeatedNumbers.of(column) or Decimals.of(column)
        if made is None:
            rest, below = _without_made_children(column, number)
            left[0].append(name)
            left[1].append(rest)
            found |= below
        else:
            found[number] = made
        number += orc_width(column.type)
    return (left, found) if left[0] else ((columns[0], list(map(_decoded, columns[1]))), {})


def _without_made_children(
    column: pa.ChunkedArray, number: int
) -> tuple[pa.ChunkedArray, dict[int, MadeColumn]]:
    if not pa.types.is_struct(column.type) or column.null_count or not len(column):
        return _decoded(column), {}
    (names, children), found = _taken_out((column.type.names, column.flatten()), number + 1)
    return (pc.make_struct(*children, field_names=names) if found else column), found


def _decoded(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.run_end_decode(column) if pa.types.is_run_end_encoded(column.type) else column


def together(others: Sequence[_Any], columns: Mapping[int, _Any]) -> list[_Any]:
    """Put what there is of each column in the order of their numbers."""
    rest = iter(others)
    count = len(others) + len(columns)
    return [columns[number] if number in columns else next(rest) for number in range(count)]


def put_in(streams: Streams, columns: Mapping[int, MadeColumn], stride: int) -> Streams:
    """Put columns that were taken out into a stripe.

    :param columns: by the numbers they get.
    :param stride: rows of a row group.
    """
    count = len(streams.encodings) + len(columns)
    numbers = [one for one in range(count) if one not in columns]
    moved = [one._replace(column=numbers[one.column]) for one in streams.streams]
    made = [one for number, column in columns.items() for one in column.streams(number, stride)]
    return Streams(
        sorted([*made, *moved], key=lambda one: one.kind != ROW_INDEX),
        together(streams.encodings, dict.fromkeys(columns, _DIRECT_V2)),
        streams.others,
    )
