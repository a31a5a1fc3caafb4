"""Reads the tail of an ORC file and replaces its footer, beyond the abilities of pyarrow.

An ORC file ends with footer, postscript and one byte with the postscript's length; footer and postscript are
protocol buffers (``orc_proto.proto`` of the ORC specification). Hive requires user metadata, and char and
varchar types, in the footer. pyarrow's writer can produce neither, so the footer is replaced after the file
is written.
"""

from __future__ import annotations

import io
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import BinaryIO, NamedTuple

from airflow_hive_federation.errors import AcidFormatError
from airflow_hive_federation.model.protobuf import (
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
from airflow_hive_federation.orc.chunks import CODECS, UNCOMPRESSED, decompressed, uncompressed_chunks
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
#: Most bytes of a decompressed footer. A footer of 10,000 columns in 1,000 stripes has two million.
_MAX_FOOTER_BYTES = 64 << 20


class StripePlace(NamedTuple):
    """The place of a stripe in its file.

    :param offset: offset of the stripe's first byte.
    :param index_bytes: length of its index.
    :param data_bytes: length of its data.
    :param footer_bytes: length of its footer.
    :param rows: number of its rows.
    """

    offset: int
    index_bytes: int
    data_bytes: int
    footer_bytes: int
    rows: int


@dataclass(frozen=True, kw_only=True)
class OrcTail:
    """The content of a file's tail.

    :param types: serialized ``Type`` messages, in column order.
    :param stripes: the place of each stripe.
    :param user_metadata: user metadata, with Hive's properties among others.
    :param calendar: number of the ``CalendarKind`` of dates and timestamps; ``None`` if the tail has none.
    :param compression: pyarrow's name of the codec.
    :param row_count: number of rows of the file.
    :param constants: by column number, the only whole number in all rows, if the statistics show it.
    :param timestamp_millis: by number of a timestamp column, its lowest and highest value in milliseconds, or
        ``None`` if the statistics lack them; columns without values are left out.
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
        """Return the number of rows of each stripe."""
        return tuple(stripe.rows for stripe in self.stripes)


def read_tail(file: BinaryIO, name: str) -> OrcTail:
    """Read the tail of an open ORC file, and check it against the file.

    :param name: the file's name for error messages.
    :raises AcidFormatError: if the file is not an ORC file, is truncated, or its tail contradicts itself.
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
        stripes=tuple(
            StripePlace(*(number_of(stripe, field) for field in range(1, 6))) for stripe in stripes
        ),
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
    """Replace the types, calendar and user metadata in the footer of a finished file, in place.

    :param file: the file, open for reading and writing.
    :param types: serialized ``Type`` messages, one per column of the file and of equal layout (a char has the
        layout of a string).
    :raises AcidFormatError: if the number of types differs.
    """
    start, postscript, footer = locate_footer(file, name)
    if len(all_of(footer, _TYPES)) != len(types):
        raise AcidFormatError(
            f"{name} has {len(all_of(footer, _TYPES))} columns, but {len(types)} were expected.", path=name
        )
    kept = [field for field in footer if field[0] not in {_TYPES, _METADATA, _CALENDAR}]
    kept += [(_TYPES, BYTES, message) for message in types]
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
    """Return the end that a file would have if its columns had other types.

    :param types: serialized ``Type`` messages, one per column.
    :return: offset of the end, and its bytes.
    """
    start, postscript, footer = locate_footer(file, name)
    kept = [field for field in footer if field[0] != _TYPES]
    return start, _end(postscript, [*kept, *((_TYPES, BYTES, message) for message in types)])


def _end(postscript: Sequence[Field], footer: Sequence[Field]) -> bytes:
    """Return the bytes of a footer and of its postscript, which differs only in the footer's length."""
    block = number_of(postscript, _BLOCK_SIZE, _DEFAULT_BLOCK_BYTES) or _DEFAULT_BLOCK_BYTES
    body = message_of(footer)
    if number_of(postscript, _COMPRESSION) != UNCOMPRESSED:
        body = uncompressed_chunks(body, block)
    new = [field for field in postscript if field[0] != _FOOTER_LENGTH]
    trailer = message_of([(_FOOTER_LENGTH, VARINT, len(body)), *new])
    return body + trailer + bytes([len(trailer)])


def damaged(message: str, path: str) -> AcidFormatError:
    """Return the error of a file of a table that is not in the form that its table has."""
    return AcidFormatError(
        message,
        remedy="Read the table with Hive. If Hive fails, too, restore the file, or repair the replica of "
        "which it is a part.",
        path=path,
    )


def locate_footer(file: BinaryIO, name: str) -> tuple[int, list[Field], list[Field]]:
    """Return the offset of the footer, and the fields of postscript and footer.

    :param name: the file's name for error messages.
    :raises AcidFormatError: if the file is not an ORC file, or is truncated.
    """
    size = file.seek(0, io.SEEK_END)
    file.seek(max(0, size - _MAX_POSTSCRIPT_BYTES))
    end = file.read()
    length = end[-1] if end else 0
    if length < 4 or length >= len(end) or not end[:-1].endswith(b"ORC"):
        raise damaged(f"{name} is not an ORC file, or is truncated.", name)
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
    """Convert errors of broken or hostile tails to ``AcidFormatError`` with the file's name."""
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
        column_statistics = statistics[number] if number < len(statistics) else []
        if optional_number(column_statistics, _COUNT) == 0:
            continue
        fields = [field for message in all_of(column_statistics, _TIMESTAMPS) for field in fields_of(message)]
        # The bounds of the wall clock and in UTC, in milliseconds; other fields hold finer digits.
        bounds = [
            unzigzag(value) for place, _, value in fields if place in _MILLIS and isinstance(value, int)
        ]
        yield number, (min(bounds), max(bounds)) if bounds else None


def _constants(statistics: Sequence[Sequence[Field]], rows: int) -> Iterator[tuple[int, int]]:
    for number, column in enumerate(statistics):
        for message in all_of(column, _INTEGERS):
            low, high = (optional_number(fields_of(message), bound) for bound in (1, 2))
            # The count excludes nulls.
            if low is not None and low == high and number_of(column, _COUNT) == rows:
                yield number, unzigzag(low)
