"""Columns of a stripe that are made without pyarrow's encoder: taken out before it, and put in after it.

The user's columns of ACID files are the children of the column ``row``, so that structs are looked into.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from airflow_hive_federation.orc.arrow_columns import orc_width
from airflow_hive_federation.orc.counted import CountedNumbers
from airflow_hive_federation.orc.decimals import Decimals
from airflow_hive_federation.orc.floats import Floats
from airflow_hive_federation.orc.instants import Instants
from airflow_hive_federation.orc.repeated import RepeatedNumbers
from airflow_hive_federation.orc.row_groups import Encoded
from airflow_hive_federation.orc.streams import ROW_INDEX, Streams
from airflow_hive_federation.orc.texts import Texts
from airflow_hive_federation.orc.whole_numbers import WholeNumbers

_Any = TypeVar("_Any")


class MadeColumn(Protocol):
    """A column, of which all streams are made here."""

    @property
    def kind(self) -> int:
        """A ``Type.Kind`` whose streams are laid out as the column's."""

    def part(self, start: int, end: int) -> MadeColumn:
        """The column of some of the rows."""

    def encoded(self, number: int, stride: int) -> Encoded:
        """Make streams, that of the index first, and statistics.

        :param number: the column's.
        :param stride: rows of a row group.
        """


def taken_out(rows: pa.Table, *, texts: bool = False) -> tuple[pa.Table, dict[int, MadeColumn]]:
    """Take such columns out of a table, and of structs without nulls; but leave at least one column.

    :param rows: columns may be run-end encoded, in one chunk; they come out at once, or decoded.
    :param texts: whether texts are among them, which then get no dictionaries.
    :return: the table that is left, and those taken out by the number that each has in an ORC file.
    """
    makers = (*_MAKERS, Texts.of) if texts else _MAKERS
    (names, columns), found = _taken_out((rows.column_names, rows.columns), 1, makers)
    if not columns:
        found.popitem()
        names, columns = rows.column_names[-1:], [_decoded(rows.columns[-1])]
    return pa.table(columns, names=names), found


_Maker = Callable[[pa.ChunkedArray], MadeColumn | None]
_MAKERS: tuple[_Maker, ...] = (
    RepeatedNumbers.of,
    CountedNumbers.of,
    WholeNumbers.of,
    Instants.of,
    Decimals.of,
    Floats.of,
)
_Columns = tuple[list[str], list[pa.ChunkedArray]]


def _taken_out(
    columns: _Columns, number: int, makers: Sequence[_Maker]
) -> tuple[_Columns, dict[int, MadeColumn]]:
    """Take columns out.

    :param columns: their names, and themselves.
    :param number: the first column's.
    """
    left: _Columns = ([], [])
    found: dict[int, MadeColumn] = {}
    for name, column in zip(*columns, strict=True):
        made = next(filter(None, (make(column) for make in makers)), None)
        if made is None:
            rest, below = _without_made_children(column, number, makers)
            left[0].append(name)
            left[1].append(rest)
            found |= below
        else:
            found[number] = made
        number += orc_width(column.type)
    return left, found


def _without_made_children(
    column: pa.ChunkedArray, number: int, makers: Sequence[_Maker]
) -> tuple[pa.ChunkedArray, dict[int, MadeColumn]]:
    if not pa.types.is_struct(column.type) or column.null_count or not len(column):
        return _decoded(column), {}
    (names, children), found = _taken_out((column.type.names, column.flatten()), number + 1, makers)
    if not found:
        return column, {}
    if not children:
        empty = pa.Array.from_buffers(pa.struct([]), len(column), [None])
        return pa.chunked_array([empty]), found
    return pc.make_struct(*children, field_names=names), found


def _decoded(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.run_end_decode(column) if pa.types.is_run_end_encoded(column.type) else column


def together(others: Sequence[_Any], columns: Mapping[int, _Any]) -> list[_Any]:
    """Put what there is of each column in the order of their numbers."""
    rest = iter(others)
    count = len(others) + len(columns)
    return [columns[number] if number in columns else next(rest) for number in range(count)]


def put_in(streams: Streams, columns: Mapping[int, Encoded]) -> Streams:
    """Put columns that were taken out into a stripe.

    :param columns: by the numbers they get.
    """
    count = len(streams.encodings) + len(columns)
    numbers = [one for one in range(count) if one not in columns]
    moved = [one._replace(column=numbers[one.column]) for one in streams.streams]
    made = [one for column in columns.values() for one in column.streams]
    return Streams(
        sorted([*made, *moved], key=lambda one: one.kind != ROW_INDEX),
        together(streams.encodings, {number: one.encoding for number, one in columns.items()}),
        streams.others,
    )
