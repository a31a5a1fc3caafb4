"""Assembles ORC files from stripes that were encoded separately and in parallel.

The content of a stripe does not depend on its place in the file. A stripe can therefore be encoded as a small
file of its own, in any thread, compressed, and moved. A file's data about its stripes (positions, statistics,
Hive's key index) is written last. pyarrow's writer alone uses one core, deflates slowly, and sets neither
user metadata nor char and varchar types.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import BinaryIO, NamedTuple

import pyarrow as pa
from pyarrow import orc

from airflow_hive_federation.model.protobuf import BYTES, VARINT, all_of, fields_of, message_of, number_of
from airflow_hive_federation.model.types import HiveType
from airflow_hive_federation.orc.bloom_filters import filtered_columns, with_filters
from airflow_hive_federation.orc.chunks import decompressed, uncompressed_chunks
from airflow_hive_federation.orc.column_statistics import merged_statistics
from airflow_hive_federation.orc.compression import BLOCK_BYTES, COMPRESSIONS, compressed
from airflow_hive_federation.orc.early_timestamps import (
    Nanoseconds,
    split,
    storable,
    value_counts,
    with_nanoseconds,
    without_bounds,
)
from airflow_hive_federation.orc.encodable_columns import extract_columns, in_column_order, insert_columns
from airflow_hive_federation.orc.long_texts import Bounds, stripe_with_bounds, with_bounds, without_long_texts
from airflow_hive_federation.orc.nested import whole_nested
from airflow_hive_federation.orc.properties import NO_FILTERS, BloomFilters
from airflow_hive_federation.orc.row_groups import Encoded
from airflow_hive_federation.orc.streams import Streams
from airflow_hive_federation.orc.tail import locate_footer

#: ORC's ``CalendarKind`` of dates and timestamps: Julian before 1582, or Gregorian at all times as in Arrow.
HYBRID, PROLEPTIC = 1, 2

#: Rows of a row group, for which an index has an entry.
ROW_INDEX_STRIDE = 10_000

_MAGIC = b"ORC"
# Large enough to keep rows that are encoded together in one stripe.
_STRIPE_BYTES = 1 << 40
# The share of distinct texts up to which dictionaries pay (hive.exec.orc.dictionary.key.size.threshold).
_DICTIONARY_THRESHOLD = 0.8
# Fields of Footer and PostScript that are copied from the stripes' writer.
_WRITER, _SOFTWARE = 9, 12
_VERSION, _WRITER_VERSION = 4, 6


@dataclass(frozen=True, kw_only=True)
class Stripe:
    """An encoded stripe.

    :param body: index, data and footer.
    :param lengths: bytes of index, data and footer.
    :param rows: the number of rows.
    :param statistics: serialized ``StripeStatistics``.
    :param columns: one serialized ``ColumnStatistics`` per column.
    :param writer: fields of the footer that identify the software that wrote the stripe.
    :param postscript: fields of the postscript that do so.
    """

    body: memoryview
    lengths: tuple[int, int, int]
    rows: int
    statistics: tuple[bytes, ...]
    columns: tuple[bytes, ...]
    writer: tuple[tuple[int, int, int | bytes], ...]
    postscript: tuple[tuple[int, int, int | bytes], ...]


def encode(
    rows: pa.Table,
    compression: str,
    *,
    dictionaries: bool = True,
    filters: BloomFilters = NO_FILTERS,
) -> list[Stripe]:
    """Encode rows as one stripe, or as several if they are very many; other threads run meanwhile.

    An empty table becomes a stripe without content, which only identifies the writer of the file.

    :param compression: a name of :data:`.compression.COMPRESSIONS`.
    :param dictionaries: make dictionaries of repeated texts, which takes time.
    :param filters: Bloom filters to make.
    :raises AcidFormatError: if a timestamp cannot be stored; see :mod:`.early_timestamps`.
    """
    filtered = filtered_columns(filters, rows)
    rows, columns = extract_columns(rows, texts=not dictionaries)
    rows, nanoseconds = storable(whole_nested(rows))
    rows, bounds = without_long_texts(rows)
    # malloc keeps freed pages for the next stripe; pyarrow's own pool returns them to the kernel.
    sink = pa.BufferOutputStream(pa.system_memory_pool())
    with orc.ORCWriter(
        sink,
        # The version determines the layouts of streams.
        file_version="0.12",
        compression="uncompressed",
        stripe_size=_STRIPE_BYTES,
        row_index_stride=ROW_INDEX_STRIDE,
        dictionary_key_size_threshold=_DICTIONARY_THRESHOLD if dictionaries else 0.0,
    ) as writer:
        writer.write(rows)
    stripes, kinds = taken_apart(memoryview(sink.getvalue()))
    if not len(rows):
        return stripes
    kinds = in_column_order(kinds, {number: column.kind for number, column in columns.items()})
    counts = [value_counts(stripe.statistics[0]) for stripe in stripes]
    made, at = [], 0
    for stripe, early in zip(stripes, split(nanoseconds, counts), strict=True):
        streams = with_nanoseconds(Streams.of(stripe.body, stripe.lengths), early)
        encoded_columns = {
            number: column.part(at, at + stripe.rows).encoded(number, ROW_INDEX_STRIDE)
            for number, column in columns.items()
        }
        streams = insert_columns(streams, encoded_columns)
        end = at + stripe.rows
        streams = with_filters(streams, filtered, at, end, fpp=filters.fpp, stride=ROW_INDEX_STRIDE)
        body, lengths = compressed(streams, kinds, compression)
        changed = _with_statistics(_with_bounds(_without_bounds(stripe, early), bounds), encoded_columns)
        made.append(replace(changed, body=body, lengths=lengths))
        at += stripe.rows
    return made


class Mark(NamedTuple):
    """A state of an unfinished file, to which it can be rewound."""

    offset: int
    stripes: int
    statistics: int
    columns: Sequence[bytes]
    last: Stripe | None
    rows: int


class AssembledFile:
    """An unfinished ORC file, to which stripes are added.

    :param file: the output, open for writing.
    :param types: serialized ``Type`` messages, see :func:`type_messages`.
    :param compression: compression of the stripes.
    :param calendar: number of the ``CalendarKind`` of dates and timestamps.
    :param indexed: the stripes have indexes.
    """

    def __init__(
        self,
        file: BinaryIO,
        types: Sequence[bytes],
        *,
        compression: str,
        calendar: int | None,
        indexed: bool = True,
    ) -> None:
        self._file = file
        self._types = types
        self._compression = COMPRESSIONS[compression]
        self._calendar = calendar
        self._row_index_stride = ROW_INDEX_STRIDE if indexed else 0
        self._offset = len(_MAGIC)
        self._stripes: list[bytes] = []
        self._statistics: list[bytes] = []
        # Column statistics of the parts of the file.
        self._parts: list[Sequence[bytes]] = []
        self._last: Stripe | None = None
        self.rows = 0
        file.write(_MAGIC)

    def add(self, stripe: Stripe) -> None:
        """Append a stripe; a stripe without rows only identifies the writer of the file."""
        if stripe.rows:
            index, data, footer = stripe.lengths
            fields = ((1, self._offset), (2, index), (3, data), (4, footer), (5, stripe.rows))
            self._stripes.append(message_of([(number, VARINT, value) for number, value in fields]))
            self._statistics += stripe.statistics
        self._parts.append(stripe.columns)
        self._file.write(stripe.body)
        self._offset += len(stripe.body)
        self.rows += stripe.rows
        # Many files may be unfinished at once, so none keeps the content of its last stripe in memory.
        self._last = replace(stripe, body=memoryview(b""))

    def finish(self, user_metadata: Mapping[str, bytes]) -> int:
        """Write the tail and return the file's length in bytes; the file stays open.

        :raises ValueError: if no stripe was added (an empty one is enough).
        """
        if self._last is None:
            raise ValueError("a file needs at least one stripe")
        metadata = self._framed(
            message_of([(1, BYTES, stripe_statistics) for stripe_statistics in self._statistics])
        )
        footer = self._framed(self._footer(self._last, user_metadata))
        postscript = message_of(
            [
                (1, VARINT, len(footer)),
                (2, VARINT, self._compression),
                (3, VARINT, BLOCK_BYTES),
                *(field for field in self._last.postscript if field[0] == _VERSION),
                (5, VARINT, len(metadata)),
                *(field for field in self._last.postscript if field[0] == _WRITER_VERSION),
                (8000, BYTES, _MAGIC),
            ]
        )
        self._file.write(metadata + footer + postscript + bytes([len(postscript)]))
        return self._offset + len(metadata) + len(footer) + len(postscript) + 1

    def flush(self, user_metadata: Mapping[str, bytes]) -> int:
        """Write a tail, after which more stripes may follow, and return the file's present length.

        These bytes are a complete file. Hive's readers read only them, according to ``_flush_length``.
        """
        self._offset = self.finish(user_metadata)
        return self._offset

    def mark(self) -> Mark:
        """Return the present state of the file, for :meth:`rewind`."""
        return Mark(
            self._offset, len(self._stripes), len(self._statistics), self._columns(), self._last, self.rows
        )

    def rewind(self, mark: Mark) -> None:
        """Forget the stripes added since a mark; the caller truncates the file at ``mark.offset``."""
        del self._stripes[mark.stripes :], self._statistics[mark.statistics :]
        self._offset, self._last, self.rows = mark.offset, mark.last, mark.rows
        self._parts = [mark.columns] if mark.columns else []

    def _columns(self) -> Sequence[bytes]:
        if len(self._parts) > 1:
            self._parts = [merged_statistics(self._parts)]
        return self._parts[0] if self._parts else ()

    def _footer(self, last: Stripe, user_metadata: Mapping[str, bytes]) -> bytes:
        fields: list[tuple[int, int, int | bytes]] = [
            (1, VARINT, len(_MAGIC)),
            (2, VARINT, self._offset - len(_MAGIC)),
            *((3, BYTES, stripe) for stripe in self._stripes),
            *((4, BYTES, type_message) for type_message in self._types),
            *(
                (5, BYTES, message_of([(1, BYTES, key.encode()), (2, BYTES, value)]))
                for key, value in user_metadata.items()
            ),
            (6, VARINT, self.rows),
            *((7, BYTES, statistics) for statistics in self._columns()),
            (8, VARINT, self._row_index_stride),
            *(field for field in last.writer if field[0] == _WRITER),
        ]
        if self._calendar is not None:
            fields.append((11, VARINT, self._calendar))
        return message_of([*fields, *(field for field in last.writer if field[0] == _SOFTWARE)])

    def _framed(self, message: bytes) -> bytes:
        return uncompressed_chunks(message, BLOCK_BYTES) if self._compression else message


def taken_apart(content: memoryview, name: str = "stripe") -> tuple[list[Stripe], list[int]]:
    """Return the stripes of a file, and the ``Type.Kind`` of each column.

    :param name: the file's name for error messages.
    :raises AcidFormatError: if it is not an ORC file, or is truncated.
    """
    start, postscript, footer = locate_footer(pa.BufferReader(content), name)
    metadata = bytes(content[start - number_of(postscript, 5) : start])
    metadata_fields = fields_of(decompressed(metadata, number_of(postscript, 2)))
    statistics = all_of(metadata_fields, 1)
    columns = tuple(all_of(footer, 7))
    # The model of all stripes, and the result for a file without any; its statistics are the whole file's.
    nothing = Stripe(
        body=memoryview(b""),
        lengths=(0, 0, 0),
        rows=0,
        statistics=(),
        columns=columns,
        writer=tuple(field for field in footer if field[0] in {_WRITER, _SOFTWARE}),
        postscript=tuple(field for field in postscript if field[0] in {_VERSION, _WRITER_VERSION}),
    )
    informations = [fields_of(message) for message in all_of(footer, 3)]
    stripes = []
    for number, information in enumerate(informations):
        offset, index, data, length, rows = (number_of(information, field) for field in range(1, 6))
        stripes.append(
            replace(
                nothing,
                body=content[offset : offset + index + data + length],
                lengths=(index, data, length),
                rows=rows,
                statistics=(statistics[number],),
                columns=columns
                if len(informations) == 1
                else tuple(all_of(fields_of(statistics[number]), 1)),
            )
        )
    return stripes or [nothing], [number_of(fields_of(message), 1) for message in all_of(footer, 4)]


def _with_statistics(stripe: Stripe, columns: Mapping[int, Encoded]) -> Stripe:
    made_statistics = {number: column.statistics for number, column in columns.items()}
    (statistics,) = stripe.statistics
    fields = [
        (1, BYTES, column_statistics)
        for column_statistics in in_column_order(all_of(fields_of(statistics), 1), made_statistics)
    ]
    return replace(
        stripe,
        statistics=(message_of(fields),),
        columns=tuple(in_column_order(stripe.columns, made_statistics)),
    )


def _without_bounds(stripe: Stripe, nanoseconds: Mapping[int, Nanoseconds]) -> Stripe:
    (statistics,) = stripe.statistics
    numbered = enumerate(all_of(fields_of(statistics), 1))
    fields = [
        (1, BYTES, without_bounds(column_statistics) if number in nanoseconds else column_statistics)
        for number, column_statistics in numbered
    ]
    columns = enumerate(stripe.columns)
    return replace(
        stripe,
        statistics=(message_of(fields),),
        columns=tuple(
            without_bounds(column_statistics) if number in nanoseconds else column_statistics
            for number, column_statistics in columns
        ),
    )


def _with_bounds(stripe: Stripe, bounds: Mapping[int, Bounds]) -> Stripe:
    return replace(
        stripe,
        statistics=tuple(stripe_with_bounds(statistics, bounds) for statistics in stripe.statistics),
        columns=tuple(
            with_bounds(statistics, bounds[number]) if number in bounds else statistics
            for number, statistics in enumerate(stripe.columns)
        ),
    )


# Type.Kind of orc_proto.proto.
_KINDS = {
    "boolean": 0,
    "tinyint": 1,
    "smallint": 2,
    "int": 3,
    "bigint": 4,
    "float": 5,
    "double": 6,
    "string": 7,
    "binary": 8,
    "timestamp": 9,
    "array": 10,
    "map": 11,
    "struct": 12,
    "decimal": 14,
    "date": 15,
    "varchar": 16,
    "char": 17,
    "timestamp with local time zone": 18,
}


def type_messages(root: HiveType) -> list[bytes]:
    """Serialize a type and the types below it, in column order.

    :raises KeyError: if ORC has no such type (intervals), or the type cannot be written (unions).
    """
    out: list[bytes] = []
    _add_type(root, out)
    return out


def _add_type(hive: HiveType, out: list[bytes]) -> None:
    place = len(out)
    out.append(b"")
    fields: list[tuple[int, int, int | bytes]] = [(1, VARINT, _KINDS[hive.name])]
    children = [field.type for field in hive.fields] or list(hive.children)
    numbers = []
    for child in children:
        numbers.append(len(out))
        _add_type(child, out)
    if numbers:
        fields.append((2, BYTES, b"".join(message_of([(1, VARINT, number)])[1:] for number in numbers)))
    fields += [(3, BYTES, field.name.encode()) for field in hive.fields]
    if hive.name in {"char", "varchar"}:
        fields.append((4, VARINT, hive.arguments[0]))
    if hive.name == "decimal":
        precision, scale = hive.arguments
        fields += [(5, VARINT, precision), (6, VARINT, scale)]
    out[place] = message_of(fields)
