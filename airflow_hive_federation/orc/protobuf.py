"""Protocol buffers of ORC files, as fields: what is not known here goes from one file into another unchanged.

Source: "Encoding" of the protocol buffers' documentation.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

#: Wire types.
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
#: Number, wire type and value.
Field = tuple[int, int, "int | bytes"]
#: Fields that a message has at most: a table of 10,000 columns in 1,000 stripes needs a tenth of them.
MAX_FIELDS = 1_000_000
_VARINT_BITS = 63
_SHORT = tuple(bytes([value]) for value in range(0x80))


def fields_of(message: bytes) -> list[Field]:
    """Take a message apart.

    :raises ValueError: it is not whole, or has more than :data:`MAX_FIELDS`.
    :raises IndexError: it ends within a number.
    """
    found = list(islice(_walk(message), MAX_FIELDS + 1))
    if len(found) > MAX_FIELDS:
        raise ValueError(f"a message has more than {MAX_FIELDS} fields")
    return found


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
    """Read a number; return it, and where the next thing begins.

    :raises ValueError: it has more than 64 bits.
    :raises IndexError: the message ends within it.
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
    """Put a message together."""
    out = bytearray()
    for number, kind, value in fields:
        out += varint(number << 3 | kind)
        if isinstance(value, int):
            out += varint(value)
        else:
            out += (varint(len(value)) if kind == BYTES else b"") + value
    return bytes(out)


def varint(value: int) -> bytes:
    """Write a number that is not negative."""
    # Most are short: numbers of fields, and lengths.
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
    """Return the number of a field that may be missing."""
    found = optional_number(fields, number)
    return default if found is None else found


def optional_number(fields: Sequence[Field], number: int) -> int | None:
    """Return the number of a field, or ``None`` where it is missing."""
    return next((value for field, _, value in fields if field == number and isinstance(value, int)), None)


def unzigzag(value: int) -> int:
    """Return the signed number that an unsigned one stands for."""
    return (value >> 1) ^ -(value & 1)


def zigzag(value: int) -> int:
    """Return the unsigned number that stands for a signed one."""
    return value << 1 if value >= 0 else (-value << 1) - 1
