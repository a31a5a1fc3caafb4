"""Takes columns out of a table before pyarrow encodes it, and puts their encoding into the stripe after.

The user's columns of ACID files are children of the column ``row``, so the columns inside structs are taken
too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from airflow_hive_federation.orc.arrow_columns import orc_width
from airflow_hive_federation.orc.decimals import Decimals
from airflow_hive_federation.orc.floats import Floats
from airflow_hive_federation.orc.instants import Instants
from airflow_hive_federation.orc.progressions import ArithmeticProgression
from airflow_hive_federation.orc.repeated import RepeatedNumbers
from airflow_hive_federation.orc.row_groups import Encoded
from airflow_hive_federation.orc.streams import ROW_INDEX, Streams
from airflow_hive_federation.orc.texts import Texts
from airflow_hive_federation.orc.whole_numbers import WholeNumbers

_Any = TypeVar("_Any")


class EncodableColumn(Protocol):
    """A column that is encoded without pyarrow's encoder."""

    @property
    def kind(self) -> int:
        """Return a ``Type.Kind`` whose streams have the layout of the column's streams."""

    def part(self, start: int, end: int) -> EncodableColumn:
        """Return the column of a range of rows."""

    def encoded(self, number: int, stride: int) -> Encoded:
        """Encode streams, the index first, and statistics.

        :param number: the column's number.
        :param stride: number of rows of a row group.
        """


def extract_columns(rows: pa.Table, *, texts: bool = False) -> tuple[pa.Table, dict[int, EncodableColumn]]:
    """Take the columns that this package encodes itself out of a table, but leave at least one column.

    The columns of structs without nulls are taken out too.

    :param rows: a table whose columns may be run-end encoded in one chunk; the remaining columns are decoded.
    :param texts: take columns of texts out too, which then get no dictionaries.
    :return: the remaining table, and the columns taken out by their numbers in an ORC file.
    """
    makers = (*_MAKERS, Texts.of) if texts else _MAKERS
    (names, columns), taken = _extract((rows.column_names, rows.columns), 1, makers)
    if not columns:
        taken.popitem()
        names, columns = rows.column_names[-1:], [_decoded(rows.columns[-1])]
    return pa.table(columns, names=names), taken


_Maker = Callable[[pa.ChunkedArray], EncodableColumn | None]
_MAKERS: tuple[_Maker, ...] = (
    RepeatedNumbers.of,
    ArithmeticProgression.of,
    WholeNumbers.of,
    Instants.of,
    Decimals.of,
    Floats.of,
)
_Columns = tuple[list[str], list[pa.ChunkedArray]]


def _extract(
    columns: _Columns, number: int, makers: Sequence[_Maker]
) -> tuple[_Columns, dict[int, EncodableColumn]]:
    """Take columns out of a list of columns.

    :param columns: names of the columns, and the columns.
    :param number: the first column's number.
    """
    left: _Columns = ([], [])
    taken: dict[int, EncodableColumn] = {}
    for name, column in zip(*columns, strict=True):
        made = next(filter(None, (make(column) for make in makers)), None)
        if made is None:
            rest, below = _extract_children(column, number, makers)
            left[0].append(name)
            left[1].append(rest)
            taken |= below
        else:
            taken[number] = made
        number += orc_width(column.type)
    return left, taken


def _extract_children(
    column: pa.ChunkedArray, number: int, makers: Sequence[_Maker]
) -> tuple[pa.ChunkedArray, dict[int, EncodableColumn]]:
    if not pa.types.is_struct(column.type) or column.null_count or not len(column):
        return _decoded(column), {}
    (names, children), taken = _extract((column.type.names, column.flatten()), number + 1, makers)
    if not taken:
        return column, {}
    if not children:
        empty = pa.Array.from_buffers(pa.struct([]), len(column), [None])
        return pa.chunked_array([empty]), taken
    return pc.make_struct(*children, field_names=names), taken


def _decoded(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.run_end_decode(column) if pa.types.is_run_end_encoded(column.type) else column


def in_column_order(others: Sequence[_Any], columns: Mapping[int, _Any]) -> list[_Any]:
    """Merge the items of remaining columns and of columns taken out, in the order of the columns' numbers."""
    rest = iter(others)
    count = len(others) + len(columns)
    return [columns[number] if number in columns else next(rest) for number in range(count)]


def insert_columns(streams: Streams, columns: Mapping[int, Encoded]) -> Streams:
    """Put the columns that were taken out into a stripe.

    :param columns: encoded columns by their numbers in the stripe.
    """
    count = len(streams.encodings) + len(columns)
    numbers = [place for place in range(count) if place not in columns]
    moved = [stream._replace(column=numbers[stream.column]) for stream in streams.streams]
    made = [stream for column in columns.values() for stream in column.streams]
    return Streams(
        sorted([*made, *moved], key=lambda stream: stream.kind != ROW_INDEX),
        in_column_order(streams.encodings, {number: encoded.encoding for number, encoded in columns.items()}),
        streams.others,
    )
