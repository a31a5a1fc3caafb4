"""The tail of an ORC file: read what pyarrow does not show, and set what it cannot write.

An ORC file ends with footer, postscript and one byte with the postscript's length; both are protocol buffers
(``orc_proto.proto`` of the ORC specification). Hive wants user metadata in the footer, and char and varchar
types, neither of which pyarrow's writer can produce: the footer is replaced after the file is written.
"""

from __future__ import annotations

import io
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import BinaryIO, NamedTuple

from airflow_hive_federation.errors import AcidFormatError
from airflow_hive_federation.orc.chunks import CODECS, UNCOMPRESSED, decompressed, uncompressed_chunks
from airflow_hive_federation.orc.protobuf import (
    BYTES,
    VARINT,
    Field,
    all_of,
    fields_of,
    message_of,
    number_of,
    optional_number,
    unzigzag,
)
from airflow_hive_federation.orc.tail_bounds import check_stripes, check_types

# Fields of Footer.
_STRIPES, _TYPES, _METADATA, _ROWS, _STATISTICS, _CALENDAR = 3, 4, 5, 6, 7, 11
# Fields of ColumnStatistics.
_COUNT, _INTEGERS, _TIMESTAMPS = 1, 2, 9
_TIMESTAMP_KIND = 9
#: ``Type.Kind`` of timestamps with local time zone.
INSTANT_KIND = 18
# Fields of TimestampStatistics.
_MILLIS = range(1, 5)
# Fields of PostScript.
_FOOTER_LENGTH, _COMPRESSION, _BLOCK_SIZE = 1, 2, 3
_DEFAULT_BLOCK_BYTES = 262_144
_MAX_POSTSCRIPT_BYTES = 256
#: Bytes that a footer has at most, decompressed. One of 10,000 columns in 1,000 stripes has two million.
_MAX_FOOTER_BYTES = 64 << 20


class StripePlace(NamedTuple):
    """Where a stripe lies.

    :param offset: its first byte.
    :param index_bytes: length of its index.
    :param data_bytes: length of its data.
    :param footer_bytes: length of its footer.
    :param rows: rows that it has.
    """

    offset: int
    index_bytes: int
    data_bytes: int
    footer_bytes: int
    rows: int


@dataclass(frozen=True, kw_only=True)
class OrcTail:
    """What a file's tail says.

    :param types: serialized ``Type`` messages, in column order.
    :param stripes: where each stripe lies.
    :param user_metadata: Hive's properties among others.
    :param calendar: number of the ``CalendarKind`` of dates and timestamps, ``None`` if not said.
    :param compression: pyarrow's name of the codec.
    :param row_count: rows of the file.
    :param constants: by a column's number the one whole number that all rows have, where statistics say.
    :param timestamp_millis: by a timestamp column's number its lowest and highest value, in milliseconds, or
        ``None`` if statistics do not say; columns without values are left out.
    """

    types: tuple[bytes, ...]
    stripes: tuple[StripePlace, ...]
    user_metadata: Mapping[str, bytes]
    calendar: int | None
    compression: str
    row_count: int
    constants: Mapping[int, int]
    timestamp_millis: Mapping[int, tuple[int, int] | None]

    @property
    def stripe_rows(self) -> tuple[int, ...]:
        """Rows of each stripe."""
        return tuple(stripe.rows for stripe in self.stripes)


def read_tail(file: BinaryIO, name: str) -> OrcTail:
    """Read the tail of an open ORC file.

    :param name: the file's name for error messages.
    :raises AcidFormatError: if it is no ORC file, is truncated, or contradicts itself.
    """
    start, postscript, footer = locate_footer(file, name)
    with _read_errors(name):
        tail = _tail(postscript, footer)
        check_stripes(tail.stripes, start, tail.row_count)
        check_types(tail.types)
        return tail


def _tail(postscript: Sequence[Field], footer: Sequence[Field]) -> OrcTail:
    statistics = [fields_of(message) for message in all_of(footer, _STATISTICS)]
    rows = number_of(footer, _ROWS)
    types = tuple(all_of(footer, _TYPES))
    stripes = map(fields_of, all_of(footer, _STRIPES))
    return OrcTail(
        types=types,
        stripes=tuple(StripePlace(*(number_of(one, number) for number in range(1, 6))) for one in stripes),
        user_metadata={
            all_of(item, 1)[0].decode(): all_of(item, 2)[0]
            for item in map(fields_of, all_of(footer, _METADATA))
        },
        calendar=optional_number(footer, _CALENDAR),
        compression=CODECS.get(number_of(postscript, _COMPRESSION), "unknown"),
        row_count=rows,
        constants=dict(_constants(statistics, rows)),
        timestamp_millis=dict(_timestamp_bounds(types, statistics)),
    )


def replace_footer(
    file: BinaryIO,
    name: str,
    *,
    types: Sequence[bytes],
    calendar: int | None,
    user_metadata: Mapping[str, bytes],
) -> None:
    """Give a finished file other type descriptions, calendar and user metadata, in place.

    :param file: open for reading and writing.
    :param types: serialized ``Type`` messages; as many as the file has columns, of equal layout (a char is
        laid out as a string).
    :raises AcidFormatError: if the number of types differs.
    """
    start, postscript, footer = locate_footer(file, name)
    if len(all_of(footer, _TYPES)) != len(types):
        raise AcidFormatError(
            f"{name} has {len(all_of(footer, _TYPES))} columns, but {len(types)} were expected.", path=name
        )
    kept = [field for field in footer if field[0] not in {_TYPES, _METADATA, _CALENDAR}]
    kept += [(_TYPES, BYTES, one) for one in types]
    kept += [
        (_METADATA, BYTES, message_of([(1, BYTES, key.encode()), (2, BYTES, value)]))
        for key, value in user_metadata.items()
    ]
    if calendar is not None:
        kept.append((_CALENDAR, VARINT, calendar))
    file.seek(start)
    file.truncate()
    file.write(_end(postscript, kept))


def end_with_types(file: BinaryIO, name: str, types: Sequence[bytes]) -> tuple[int, bytes]:
    """Make what a file would end with, were its columns of other types.

    :param types: serialized ``Type`` messages, one for each column.
    :return: where the end begins, and the end.
    """
    start, postscript, footer = locate_footer(file, name)
    kept = [field for field in footer if field[0] != _TYPES]
    return start, _end(postscript, [*kept, *((_TYPES, BYTES, one) for one in types)])


def _end(postscript: Sequence[Field], footer: Sequence[Field]) -> bytes:
    """Make footer and postscript; only the length of the footer is another than ``postscript`` says."""
    block = number_of(postscript, _BLOCK_SIZE, _DEFAULT_BLOCK_BYTES) or _DEFAULT_BLOCK_BYTES
    body = message_of(footer)
    if number_of(postscript, _COMPRESSION) != UNCOMPRESSED:
        body = uncompressed_chunks(body, block)
    new = [field for field in postscript if field[0] != _FOOTER_LENGTH]
    trailer = message_of([(_FOOTER_LENGTH, VARINT, len(body)), *new])
    return body + trailer + bytes([len(trailer)])


def locate_footer(file: BinaryIO, name: str) -> tuple[int, list[Field], list[Field]]:
    """Return where the footer begins, and the fields of postscript and footer.

    :param name: the file's name for error messages.
    :raises AcidFormatError: it is not an ORC file, or is truncated.
    """
    size = file.seek(0, io.SEEK_END)
    file.seek(max(0, size - _MAX_POSTSCRIPT_BYTES))
    end = file.read()
    length = end[-1] if end else 0
    if length < 4 or length >= len(end) or not end[:-1].endswith(b"ORC"):
        raise AcidFormatError(f"{name} is not an ORC file, or is truncated.", path=name)
    with _read_errors(name):
        postscript = fields_of(end[-1 - length : -1])
        footer_length = number_of(postscript, _FOOTER_LENGTH)
        start = size - 1 - length - footer_length
        if start < 0 or footer_length > _MAX_FOOTER_BYTES:
            raise ValueError(f"a footer of {footer_length} bytes in a file of {size}")
        file.seek(start)
        body, codec = file.read(footer_length), number_of(postscript, _COMPRESSION)
        footer = fields_of(decompressed(body, codec, limit=_MAX_FOOTER_BYTES))
    return start, postscript, footer


@contextmanager
def _read_errors(name: str) -> Iterator[None]:
    """Give errors of broken or hostile tails their type, and the file's name."""
    try:
        yield
    except (ValueError, IndexError, OverflowError, zlib.error, OSError) as error:
        raise AcidFormatError(
            f"The tail of {name} cannot be read: {error}.",
            remedy="The file is damaged, or not written by an ORC writer: replace it, or move it away.",
            path=name,
        ) from error


def _timestamp_bounds(
    types: Sequence[bytes], statistics: Sequence[Sequence[Field]]
) -> Iterator[tuple[int, tuple[int, int] | None]]:
    for number, column in enumerate(types):
        if number_of(fields_of(column), 1) not in {_TIMESTAMP_KIND, INSTANT_KIND}:
            continue
        told = statistics[number] if number < len(statistics) else []
        if optional_number(told, _COUNT) == 0:
            continue
        fields = [field for message in all_of(told, _TIMESTAMPS) for field in fields_of(message)]
        # What the wall clock shows, and in UTC; finer digits are extra.
        bounds = [
            unzigzag(value) for place, _, value in fields if place in _MILLIS and isinstance(value, int)
        ]
        yield number, (min(bounds), max(bounds)) if bounds else None


def _constants(statistics: Sequence[Sequence[Field]], rows: int) -> Iterator[tuple[int, int]]:
    for number, column in enumerate(statistics):
        for message in all_of(column, _INTEGERS):
            low, high = (optional_number(fields_of(message), bound) for bound in (1, 2))
            # Nulls are not counted.
            if low is not None and low == high and number_of(column, _COUNT) == rows:
                yield number, unzigzag(low)
