"""The tail of an ORC file: read what pyarrow does not show, and set what it cannot write.

An ORC file ends with footer, postscript and one byte with the postscript's length; both are protocol buffers
(``orc_proto.proto`` of the ORC specification). Hive wants user metadata in the footer, and char and varchar
types, neither of which pyarrow's writer can produce: the footer is replaced after the file is written.
"""

from __future__ import annotations

import io
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import BinaryIO

import pyarrow as pa

from airflow_hive_federation.errors import AcidFormatError

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
# Fields of Footer.
_STRIPES, _TYPES, _METADATA, _ROWS, _STATISTICS, _CALENDAR = 3, 4, 5, 6, 7, 11
# Fields of ColumnStatistics.
_COUNT, _INTEGERS = 1, 2
# Fields of PostScript.
_FOOTER_LENGTH, _COMPRESSION, _BLOCK_SIZE = 1, 2, 3
_NONE, _ZLIB, _SNAPPY, _LZ4, _ZSTD = 0, 1, 2, 4, 5
_CODECS = {_NONE: "uncompressed", _ZLIB: "zlib", _SNAPPY: "snappy", _LZ4: "lz4", _ZSTD: "zstd"}
_DEFAULT_BLOCK_BYTES = 262_144
_MAX_POSTSCRIPT_BYTES = 256


@dataclass(frozen=True, kw_only=True)
class OrcTail:
    """What a file's tail says.

    :param types: serialized ``Type`` messages, in column order.
    :param stripe_rows: rows of each stripe.
    :param user_metadata: Hive's properties among others.
    :param calendar: number of the ``CalendarKind`` of dates and timestamps, ``None`` if not said.
    :param compression: pyarrow's name of the codec.
    :param row_count: rows of the file.
    :param constants: by a column's number the one whole number that all rows have, where statistics say.
    :param timestamp_millis: lowest and highest timestamp over all columns, where statistics say.
    """

    types: tuple[bytes, ...]
    stripe_rows: tuple[int, ...]
    user_metadata: Mapping[str, bytes]
    calendar: int | None
    compression: str
    row_count: int
    constants: Mapping[int, int]
    timestamp_millis: tuple[int, int] | None


def read_tail(file: BinaryIO, name: str) -> OrcTail:
    """Read the tail of an open ORC file.

    :param name: the file's name for error messages.
    :raises AcidFormatError: if it is no ORC file or is truncated.
    """
    _, postscript, footer = _locate(file, name)
    statistics = [_fields(message) for message in _all(footer, _STATISTICS)]
    rows = _number(footer, _ROWS)
    return OrcTail(
        types=tuple(_all(footer, _TYPES)),
        stripe_rows=tuple(_number(_fields(stripe), 5) for stripe in _all(footer, _STRIPES)),
        user_metadata={
            _all(item, 1)[0].decode(): _all(item, 2)[0] for item in map(_fields, _all(footer, _METADATA))
        },
        calendar=_optional(footer, _CALENDAR),
        compression=_CODECS.get(_number(postscript, _COMPRESSION), "unknown"),
        row_count=rows,
        constants=dict(_constants(statistics, rows)),
        timestamp_millis=_timestamp_bounds(statistics),
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
    start, postscript, footer = _locate(file, name)
    if len(_all(footer, _TYPES)) != len(types):
        raise AcidFormatError(
            f"{name} has {len(_all(footer, _TYPES))} columns, but {len(types)} were expected.", path=name
        )
    kept = [field for field in footer if field[0] not in {_TYPES, _METADATA, _CALENDAR}]
    kept += [(_TYPES, _BYTES, one) for one in types]
    kept += [
        (_METADATA, _BYTES, _message([(1, _BYTES, key.encode()), (2, _BYTES, value)]))
        for key, value in user_metadata.items()
    ]
    if calendar is not None:
        kept.append((_CALENDAR, _VARINT, calendar))
    block = _number(postscript, _BLOCK_SIZE, _DEFAULT_BLOCK_BYTES) or _DEFAULT_BLOCK_BYTES
    body = _message(kept)
    if _number(postscript, _COMPRESSION) != _NONE:
        body = _uncompressed_chunks(body, block)
    new = [field for field in postscript if field[0] != _FOOTER_LENGTH]
    trailer = _message([(_FOOTER_LENGTH, _VARINT, len(body)), *new])
    file.seek(start)
    file.truncate()
    file.write(body + trailer + bytes([len(trailer)]))


_Field = tuple[int, int, "int | bytes"]


def _locate(file: BinaryIO, name: str) -> tuple[int, list[_Field], list[_Field]]:
    size = file.seek(0, io.SEEK_END)
    file.seek(max(0, size - _MAX_POSTSCRIPT_BYTES))
    end = file.read()
    length = end[-1] if end else 0
    if length < 4 or length >= len(end) or not end[:-1].endswith(b"ORC"):
        raise AcidFormatError(f"{name} is not an ORC file, or is truncated.", path=name)
    try:
        postscript = _fields(end[-1 - length : -1])
        footer_length = _number(postscript, _FOOTER_LENGTH)
        start = size - 1 - length - footer_length
        file.seek(start)
        footer = _fields(decompressed(file.read(footer_length), _number(postscript, _COMPRESSION)))
    except (ValueError, IndexError, zlib.error, OSError) as error:
        raise AcidFormatError(f"The tail of {name} cannot be read: {error}.", path=name) from error
    return start, postscript, footer


def decompressed(body: bytes, codec: int) -> bytes:
    """Decompress a stream's chunks.

    :param codec: its number in a postscript.
    :raises ValueError: for a codec that is not known here.
    """
    if codec == _NONE:
        return body
    out, at = [], 0
    while at < len(body):
        header = int.from_bytes(body[at : at + 3], "little")
        chunk = body[at + 3 : at + 3 + (header >> 1)]
        at += 3 + (header >> 1)
        out.append(chunk if header & 1 else _inflate(chunk, codec))
    return b"".join(out)


def _inflate(chunk: bytes, codec: int) -> bytes:
    if codec == _ZLIB:
        return zlib.decompress(chunk, wbits=-15)
    if codec == _ZSTD:
        return bytes(pa.input_stream(pa.py_buffer(chunk), compression="zstd").read())
    if codec == _SNAPPY:
        size, _ = _varint(chunk, 0)
        return bytes(pa.Codec("snappy").decompress(chunk, decompressed_size=size, asbytes=True))
    if codec == _LZ4:
        size = _lz4_size(chunk)
        return bytes(pa.Codec("lz4_raw").decompress(chunk, decompressed_size=size, asbytes=True))
    raise ValueError(f"compression {_CODECS.get(codec, codec)} is not supported")


def _lz4_size(block: bytes) -> int:
    """Count what a block holds, which says so nowhere (LZ4 Block Format Description)."""
    size = at = 0
    while True:
        token = block[at]
        literals, at = _lz4_length(block, at + 1, token >> 4)
        size += literals
        at += literals
        # The last sequence has no match.
        if at >= len(block):
            return size
        matched, at = _lz4_length(block, at + 2, token & 0xF)
        size += matched + 4


def _lz4_length(block: bytes, at: int, length: int) -> tuple[int, int]:
    if length < 0xF:
        return length, at
    while True:
        length += block[at]
        at += 1
        if block[at - 1] < 0xFF:
            return length, at


def _uncompressed_chunks(body: bytes, block: int) -> bytes:
    pieces = (body[at : at + block] for at in range(0, len(body), block))
    return b"".join((len(piece) << 1 | 1).to_bytes(3, "little") + piece for piece in pieces)


def _timestamp_bounds(statistics: Sequence[Sequence[_Field]]) -> tuple[int, int] | None:
    bounds: list[int] = []
    for column in statistics:
        for message in _all(column, 9):
            bounds += [_unzigzag(value) for _, _, value in _fields(message)[:4] if isinstance(value, int)]
    return (min(bounds), max(bounds)) if bounds else None


def _constants(statistics: Sequence[Sequence[_Field]], rows: int) -> Iterator[tuple[int, int]]:
    for number, column in enumerate(statistics):
        for message in _all(column, _INTEGERS):
            low, high = (_optional(_fields(message), bound) for bound in (1, 2))
            # Nulls are not counted.
            if low is not None and low == high and _number(column, _COUNT) == rows:
                yield number, _unzigzag(low)


def _unzigzag(value: int) -> int:
    return (value >> 1) ^ -(value & 1)


def _zigzag(value: int) -> int:
    return value << 1 if value >= 0 else (-value << 1) - 1


def _fields(message: bytes) -> list[_Field]:
    return list(_walk(message))


def _walk(message: bytes) -> Iterator[_Field]:
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        kind = key & 7
        if kind == _VARINT:
            number, at = _varint(message, at)
            yield key >> 3, kind, number
            continue
        if kind == _BYTES:
            size, at = _varint(message, at)
        elif kind in {_FIXED64, _FIXED32}:
            size = 8 if kind == _FIXED64 else 4
        else:
            raise ValueError(f"unknown wire type {kind}")
        if at + size > len(message):
            raise ValueError("a field is longer than its message")
        yield key >> 3, kind, message[at : at + size]
        at += size


def _varint(message: bytes, at: int) -> tuple[int, int]:
    if message[at] < 0x80:
        return message[at], at + 1
    value = shift = 0
    while True:
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if not byte & 0x80:
            return value, at
        shift += 7


def _varints(packed: bytes) -> Iterator[int]:
    at = 0
    while at < len(packed):
        value, at = _varint(packed, at)
        yield value


def _message(fields: Sequence[_Field]) -> bytes:
    out = bytearray()
    for number, kind, value in fields:
        out += _varint_bytes(number << 3 | kind)
        if isinstance(value, int):
            out += _varint_bytes(value)
        else:
            out += (_varint_bytes(len(value)) if kind == _BYTES else b"") + value
    return bytes(out)


_SHORT = tuple(bytes([value]) for value in range(0x80))


def _varint_bytes(value: int) -> bytes:
    # Most are short: numbers of fields, and lengths.
    if value < 0x80:
        return _SHORT[value]
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _all(fields: Sequence[_Field], number: int) -> list[bytes]:
    return [value for field, _, value in fields if field == number and isinstance(value, bytes)]


def _number(fields: Sequence[_Field], number: int, default: int = 0) -> int:
    found = _optional(fields, number)
    return default if found is None else found


def _optional(fields: Sequence[_Field], number: int) -> int | None:
    return next((value for field, _, value in fields if field == number and isinstance(value, int)), None)
