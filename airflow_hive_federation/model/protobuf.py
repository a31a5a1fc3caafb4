"""Parses and writes protocol buffers as lists of fields.

Unknown fields can therefore be copied unchanged, for instance from one ORC file into another. Source:
"Encoding" in the documentation of protocol buffers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

#: Wire types.
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
#: Number, wire type and value of a field.
Field = tuple[int, int, "int | bytes"]
#: Most fields of a message: a table of 10,000 columns in 1,000 stripes needs a tenth of them.
MAX_FIELDS = 1_000_000
_VARINT_BITS = 63
_SHORT = tuple(bytes([value]) for value in range(0x80))


def fields_of(message: bytes) -> list[Field]:
    """Return the fields of a message.

    :raises ValueError: if the message is incomplete, or has more than :data:`MAX_FIELDS` fields.
    :raises IndexError: if it ends within a number.
    """
    fields = list(islice(_walk(message), MAX_FIELDS + 1))
    if len(fields) > MAX_FIELDS:
        raise ValueError(f"a message has more than {MAX_FIELDS} fields")
    return fields


def _walk(message: bytes) -> Iterator[Field]:
    at = 0
    while at < len(message):
        key, at = read_varint(message, at)
        kind = key & 7
        if kind == VARINT:
            number, at = read_varint(message, at)
            yield key >> 3, kind, number
            continue
        if kind == BYTES:
            size, at = read_varint(message, at)
        elif kind in {FIXED64, FIXED32}:
            size = 8 if kind == FIXED64 else 4
        else:
            raise ValueError(f"unknown wire type {kind}")
        if at + size > len(message):
            raise ValueError("a field is longer than its message")
        yield key >> 3, kind, message[at : at + size]
        at += size


def read_varint(message: bytes, at: int) -> tuple[int, int]:
    """Read a number, and return it with the offset after it.

    :raises ValueError: if the number has more than 64 bits.
    :raises IndexError: if the message ends within the number.
    """
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
        if shift > _VARINT_BITS:
            raise ValueError("a number has more than 64 bits")


def read_varints(packed: bytes) -> Iterator[int]:
    """Yield the numbers of a packed field."""
    at = 0
    while at < len(packed):
        value, at = read_varint(packed, at)
        yield value


def message_of(fields: Sequence[Field]) -> bytes:
    """Serialize fields to a message."""
    out = bytearray()
    for number, kind, value in fields:
        out += varint(number << 3 | kind)
        if isinstance(value, int):
            out += varint(value)
        else:
            out += (varint(len(value)) if kind == BYTES else b"") + value
    return bytes(out)


def varint(value: int) -> bytes:
    """Encode a non-negative number."""
    # Most numbers are short: field numbers and lengths.
    if value < 0x80:
        return _SHORT[value]
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def all_of(fields: Sequence[Field], number: int) -> list[bytes]:
    """Return the messages or texts of a repeated field."""
    return [value for field, _, value in fields if field == number and isinstance(value, bytes)]


def number_of(fields: Sequence[Field], number: int, default: int = 0) -> int:
    """Return the number in a field, or the default if the field is missing."""
    value = optional_number(fields, number)
    return default if value is None else value


def optional_number(fields: Sequence[Field], number: int) -> int | None:
    """Return the number in a field, or ``None`` if the field is missing."""
    return next((value for field, _, value in fields if field == number and isinstance(value, int)), None)


def unzigzag(value: int) -> int:
    """Decode an unsigned number to the signed number that it stands for."""
    return (value >> 1) ^ -(value & 1)


def zigzag(value: int) -> int:
    """Encode a signed number as the unsigned number that stands for it."""
    return value << 1 if value >= 0 else (-value << 1) - 1
