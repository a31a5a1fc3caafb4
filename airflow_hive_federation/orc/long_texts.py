"""Writes columns with very long texts without the usual bounds in their statistics.

pyarrow's ORC writer keeps the complete least and greatest text of a column in each of its statistics, and
copies them repeatedly: a text of 100 MB takes 3.3 GB of memory, and 700 MB of the file. The same text encoded
as binary, which has the same stored form, takes neither. The statistics of the whole column then get bounds
of a kilobyte, as Hive's own writer (``StringStatisticsImpl``) cuts them; entries of the row index have none.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from airflow_hive_federation.model.protobuf import BYTES, VARINT, all_of, fields_of, message_of, number_of
from airflow_hive_federation.orc.arrow_columns import in_one_piece, orc_width

LONG_BYTES = 64 << 10
"""Length in bytes above which a text is long."""
_BOUND_BYTES = 1024
_STRINGS, _BINARIES = 4, 8
"""Fields of ``ColumnStatistics``."""
_SUM_OF_STRINGS, _SUM_OF_BINARIES = 3, 1

Bounds = tuple[bytes, bytes] | None
"""``None`` if a text is not UTF-8, because readers decode such texts differently."""


def without_long_texts(rows: pa.Table) -> tuple[pa.Table, Mapping[int, Bounds]]:
    """Convert columns of long texts to binary, inside structs too, but not inside arrays and maps.

    :return: the rows, and the bounds of the converted columns by their number in an ORC file.
    """
    bounds: dict[int, Bounds] = {}
    columns, number = [], 1
    for column in rows.columns:
        is_long = any(_has_long_text(chunk) for chunk in column.chunks)
        columns.append(_changed(in_one_piece(column), number, bounds) if is_long else column)
        number += orc_width(column.type)
    if not bounds:
        return rows, bounds
    return pa.Table.from_arrays(columns, names=rows.column_names), bounds


def with_bounds(statistics: bytes, bounds: Bounds) -> bytes:
    """Convert the statistics of a binary column to those of a text column.

    :param statistics: a serialized ``ColumnStatistics``.
    """
    out: list[tuple[int, int, int | bytes]] = []
    for field in fields_of(statistics):
        if field[0] != _BINARIES:
            out.append(field)
        elif bounds is not None:
            # Without bounds nothing is written: Java's reader takes texts without bounds for nulls only.
            total = number_of(fields_of(all_of([field], _BINARIES)[0]), _SUM_OF_BINARIES)
            texts = message_of(
                [(1, BYTES, bounds[0]), (2, BYTES, bounds[1]), (_SUM_OF_STRINGS, VARINT, total)]
            )
            out.append((_STRINGS, BYTES, texts))
    return message_of(sorted(out, key=lambda field: field[0]))


def stripe_with_bounds(statistics: bytes, bounds: Mapping[int, Bounds]) -> bytes:
    """Convert the statistics of such columns in a ``StripeStatistics``; see :func:`with_bounds`."""
    columns = all_of(fields_of(statistics), 1)
    return message_of(
        [
            (
                1,
                BYTES,
                with_bounds(column_statistics, bounds[number]) if number in bounds else column_statistics,
            )
            for number, column_statistics in enumerate(columns)
        ]
    )


def _changed(array: pa.Array, number: int, bounds: dict[int, Bounds]) -> pa.Array:
    if not _has_long_text(array):
        return array
    if pa.types.is_struct(array.type):
        children, place = [], number + 1
        for child in _children(array):
            children.append(_changed(child, place, bounds))
            place += orc_width(child.type)
        names = [field.name for field in array.type]
        mask = pc.is_null(array) if array.null_count else None
        return pa.StructArray.from_arrays(children, names=names, mask=mask)
    binary = array.view(pa.binary())
    # Nulls come last. Texts are not copied, because they may be as long as memory permits.
    order = pc.sort_indices(binary)
    first, last = (order[place].as_py() for place in (0, len(binary) - binary.null_count - 1))
    try:
        bounds[number] = (_low(_text(binary, first)), _high(_text(binary, last)))
    except UnicodeDecodeError:
        bounds[number] = None
    return binary


def _text(binary: pa.Array, place: int) -> pa.Buffer:
    _, offsets, content = binary.buffers()
    start, end = memoryview(offsets).cast("i")[binary.offset + place : binary.offset + place + 2]
    return content.slice(start, end - start)


def _children(array: pa.StructArray) -> Iterator[pa.Array]:
    for place in range(array.type.num_fields):
        yield array.field(place)


def _has_long_text(array: pa.Array) -> bool:
    if pa.types.is_struct(array.type):
        return any(map(_has_long_text, _children(array)))
    if not pa.types.is_string(array.type):
        return False
    return bool((pc.max(pc.binary_length(array)).as_py() or 0) > LONG_BYTES)


def _low(text: pa.Buffer) -> bytes:
    return _head(text).encode()


def _high(text: pa.Buffer) -> bytes:
    head = _head(text)
    if text.size <= _BOUND_BYTES:
        return head.encode()
    # The bound is the least text that is greater than all texts with this head.
    for place in range(len(head) - 1, -1, -1):
        code = ord(head[place])
        if code < 0x10FFFF:
            following = 0xE000 if code == 0xD7FF else code + 1
            return (head[:place] + chr(following)).encode()
    return bytes(text)


def _head(text: pa.Buffer) -> str:
    # The incremental decoder drops the rest of a character at the cut.
    is_all = text.size <= _BOUND_BYTES
    return codecs.getincrementaldecoder("utf-8")().decode(
        bytes(text[: min(text.size, _BOUND_BYTES)]), final=is_all
    )
