"""Computes the bucket of each row over arrays, by Hive's bucketing versions 1 and 2.

Hive's ``ObjectInspectorUtils`` has the rules: ``getBucketHashCode`` with ``hashCodeMurmur`` (version 2),
``getBucketHashCodeOld`` with ``hashCode`` (version 1), and ``getBucketNumber``. These peculiarities are
Hive's:

- Version 2 converts the bits of a float or double, as a *number*, to a float or double, and hashes that.
- Version 2 does not hash boolean and tinyint: the value is the hash code.
- Trailing zeros in the fraction of a decimal are removed before hashing: 1.50 is hashed as 1.5.
- Version 1 hashes a timestamp as the instant of its wall clock in the JVM's time zone, by the calendar of
  ``java.sql.Timestamp`` (Julian before 15 October 1582). Here that zone is UTC.
- The hash code of null is 0, at any depth.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.model.types import HiveType
from airflow_hive_federation.orc.calendars import julian_shift

UInts = npt.NDArray[np.uint32]
Ints = npt.NDArray[np.int64]
N = TypeVar("N", bound=np.generic)
_SEED = np.uint32(104729)  # Murmur3.DEFAULT_SEED
_BITS = (1 << 32) - 1
_DAY_S = 86_400


def bucket_numbers(
    columns: Sequence[pa.Array], column_types: Sequence[HiveType], *, buckets: int, version: int
) -> npt.NDArray[np.int32]:
    """Return the bucket number of each row.

    :param columns: values of the bucket columns, in the order of CLUSTERED BY. Timestamps are wall clocks,
        timestamps with local time zone are instants.
    :param column_types: Hive types of the bucket columns.
    :param buckets: the number of buckets of the table.
    :param version: the table's ``bucketing_version``, 1 or 2.
    :raises ConfigurationError: if a type cannot be hashed, the version is unknown, or there are no buckets.
    """
    if buckets < 1:
        raise ConfigurationError(f"A table cannot have {buckets} buckets.")
    hashed = bucket_hash_codes(columns, column_types, version=version)
    return ((hashed & np.uint32(0x7FFFFFFF)) % np.uint32(buckets)).astype(np.int32)


def bucket_hash_codes(
    columns: Sequence[pa.Array], column_types: Sequence[HiveType], *, version: int
) -> UInts:
    """Return the hash code of each row: Hive's ``int`` as 32 unsigned bits.

    :raises ConfigurationError: if a type cannot be hashed, or the version is unknown.
    """
    if version not in {1, 2}:
        raise ConfigurationError(
            f"There is no bucketing version {version}.", remedy="bucketing_version is 1 or 2."
        )
    combined = np.zeros(len(columns[0]), np.uint32)
    for column, hive_type in zip(columns, column_types, strict=True):
        array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        combined = combined * np.uint32(31) + _hash_codes(array, hive_type, version)
    return combined


def _hash_codes(array: pa.Array, hive_type: HiveType, version: int) -> UInts:
    if hive_type.name in _NESTED:
        hashed = _NESTED[hive_type.name](array, hive_type, version)
    else:
        if hive_type.name == "char":
            array = _without_padding(array, hive_type.arguments[0])
        hasher = (_VERSION_1 if version == 1 else _VERSION_2).get(hive_type.name)
        if hasher is None:
            raise ConfigurationError(f"Rows cannot be bucketed by a column of type {hive_type}.")
        hashed = hasher(array)
    if array.null_count:
        hashed = np.where(_is_null(array), np.uint32(0), hashed)
    return hashed


# Nested types ---------------------------------------------------------------------------------------------


def _struct_codes(array: pa.Array, hive_type: HiveType, version: int) -> UInts:
    combined = np.zeros(len(array), np.uint32)
    for index, field in enumerate(hive_type.fields):
        child = array.field(index)
        combined = combined * np.uint32(31) + _hash_codes(child, field.type, version)
    return combined


def _list_codes(array: pa.Array, hive_type: HiveType, version: int) -> UInts:
    starts, lengths = _segments(array)
    elements = _hash_codes(array.values, hive_type.children[0], version)
    return _polynomial(elements, starts, lengths, start=0)


def _map_codes(array: pa.Array, hive_type: HiveType, version: int) -> UInts:
    starts, lengths = _segments(array)
    # Both versions hash map values by version 1: hashCodeMurmur calls hashCode for them.
    keys = _hash_codes(array.keys, hive_type.children[0], version)
    entries = keys ^ _hash_codes(array.items, hive_type.children[1], 1)
    sums = np.concatenate([np.zeros(1, np.uint32), np.cumsum(entries, dtype=np.uint32)])
    codes: UInts = sums[starts + lengths] - sums[starts]
    return codes


_NESTED: dict[str, Callable[[pa.Array, HiveType, int], UInts]] = {
    "struct": _struct_codes,
    "array": _list_codes,
    "map": _map_codes,
}


def _segments(array: pa.Array) -> tuple[Ints, Ints]:
    offsets = np.asarray(array.offsets, dtype=np.int64)
    lengths = np.diff(offsets)
    if array.null_count:
        lengths = np.where(_is_null(array), 0, lengths)
    return offsets[:-1], lengths


_FEW_ROWS = 32
_PIECE_BYTES = 4 << 20
# The intermediate arrays for this number of rows fit into the processor's cache.
_PIECE_ROWS = 1 << 17

# Version 2 ------------------------------------------------------------------------------------------------


def _murmur_ints(values: npt.NDArray[np.number], dtype: str) -> UInts:
    """Hash numbers of fixed width by their big-endian bytes."""
    wide = np.ascontiguousarray(values.astype(dtype)).view(np.uint8)
    return _murmur_fixed(wide.reshape(len(values), np.dtype(dtype).itemsize))


def _murmur_fixed(rows: npt.NDArray[np.uint8]) -> UInts:
    count, width = rows.shape
    if count > _PIECE_ROWS:
        pieces = range(0, count, _PIECE_ROWS)
        return np.concatenate([_murmur_fixed(rows[start : start + _PIECE_ROWS]) for start in pieces])
    hashed = np.full(count, _SEED, np.uint32)
    for at in range(0, width - 3, 4):
        block = np.ascontiguousarray(rows[:, at : at + 4]).view("<u4").reshape(count)
        hashed = _mixed(hashed, block.astype(np.uint32))
    tail = rows[:, width - width % 4 :].view(np.int8)
    if tail.shape[1]:
        hashed = _with_tail(hashed, [tail[:, index] for index in range(tail.shape[1])])
    return _finished(hashed ^ np.uint32(width))


def _murmur_bytes(array: pa.Array) -> UInts:
    data, starts, lengths = _binary(array)
    hashed = np.full(len(array), _SEED, np.uint32)
    # The longest values come first, so that the rows that still have a block are always the first ones.
    order = np.argsort(-lengths, kind="stable")
    starts, sizes = starts[order], lengths[order]
    for block in range(int(sizes[0]) // 4 if len(sizes) else 0):
        rows = int(np.searchsorted(-sizes, -(4 * block + 4), side="right"))
        if rows < _FEW_ROWS:
            for row in range(rows):
                begin, end = starts[row] + 4 * block, starts[row] + sizes[row] // 4 * 4
                hashed[row] = _mixed_along(int(hashed[row]), data[begin:end])
            break
        at = starts[:rows] + 4 * block
        word = data[at].astype(np.uint32)
        for byte in (1, 2, 3):
            word |= data[at + byte].astype(np.uint32) << np.uint32(8 * byte)
        hashed[:rows] = _mixed(hashed[:rows], word)
    signed = data.view(np.int8)
    for rest in (1, 2, 3):
        rows_of = np.flatnonzero(sizes % 4 == rest)
        at = starts[rows_of] + sizes[rows_of] - rest
        hashed[rows_of] = _with_tail(hashed[rows_of], [signed[at + byte] for byte in range(rest)])
    hashed ^= sizes.astype(np.uint32)
    unsorted = np.empty_like(hashed)
    unsorted[order] = _finished(hashed)
    return unsorted


def _mixed_along(hashed: int, data: npt.NDArray[np.uint8]) -> int:
    """Mix the blocks of one long value in Python, which is faster than numpy for a few numbers."""
    for start in range(0, len(data), _PIECE_BYTES):
        words = np.ascontiguousarray(data[start : start + _PIECE_BYTES]).view("<u4")
        for word in _scrambled(words.astype(np.uint32)).tolist():
            hashed ^= word
            hashed = (((hashed << 13 | hashed >> 19) & 0xFFFFFFFF) * 5 + 0xE6546B64) & 0xFFFFFFFF
    return hashed


def _rotated(value: UInts, bits: int) -> UInts:
    return (value << np.uint32(bits)) | (value >> np.uint32(32 - bits))


def _scrambled(block: UInts) -> UInts:
    return _rotated(block * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)


def _mixed(hashed: UInts, block: UInts) -> UInts:
    return _rotated(hashed ^ _scrambled(block), 13) * np.uint32(5) + np.uint32(0xE6546B64)


def _with_tail(hashed: UInts, tail: Sequence[npt.NDArray[np.int8]]) -> UInts:
    # Hive's Murmur3 reads the last bytes as signed numbers: their sign extends into the higher bits.
    word = np.zeros(len(hashed), np.uint32)
    for index, byte in enumerate(tail):
        word ^= byte.astype(np.int32).view(np.uint32) << np.uint32(8 * index)
    return hashed ^ _scrambled(word)


def _finished(hashed: UInts) -> UInts:
    hashed = (hashed ^ (hashed >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    hashed = (hashed ^ (hashed >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return hashed ^ (hashed >> np.uint32(16))


def _float_murmur(array: pa.Array) -> UInts:
    # The bits are converted as a number: ByteBuffer.putFloat(Float.floatToIntBits(x)).
    return _murmur_ints(_float_bits(array).astype(np.float32), ">f4")


def _double_murmur(array: pa.Array) -> UInts:
    return _murmur_ints(_double_bits(array).astype(np.float64), ">f8")


def _decimal_murmur(array: pa.Array) -> UInts:
    unscaled = [_stripped(value)[0] if value is not None else 0 for value in array.to_pylist()]
    data = [
        value.to_bytes((value + (value < 0)).bit_length() // 8 + 1, "big", signed=True) for value in unscaled
    ]
    return _murmur_bytes(pa.array(data, pa.binary()))


def _timestamp_murmur(array: pa.Array) -> UInts:
    seconds, nanos = _seconds(array)
    data = [_timestamp_bytes(int(s), int(n)) for s, n in zip(seconds, nanos, strict=True)]
    return _murmur_bytes(pa.array(data, pa.binary()))


def _timestamp_bytes(seconds: int, nanos: int) -> bytes:
    """Return the bytes of ``TimestampWritableV2``.

    They hold 31 bits of the seconds, the reversed digits of the nanoseconds, and the other seconds' bits.
    """
    fraction = int(f"{nanos:09d}"[::-1])
    out_of_range = not 0 <= seconds <= 0x7FFFFFFF
    flagged = out_of_range or fraction != 0
    first = (seconds & 0xFFFFFFFF) | 0x80000000 if flagged else seconds & 0x7FFFFFFF
    out = first.to_bytes(4, "big")
    if flagged:
        out += _vlong(-fraction - 1 if out_of_range else fraction)
    return out + (_vlong(seconds >> 31) if out_of_range else b"")


def _vlong(value: int) -> bytes:
    """Encode a number as Hadoop's ``WritableUtils.writeVLong`` does."""
    if -112 <= value <= 127:
        return (value & 0xFF).to_bytes(1, "big")
    marker, rest = (-112, value) if value >= 0 else (-120, ~value)
    size = (rest.bit_length() + 7) // 8
    return ((marker - size) & 0xFF).to_bytes(1, "big") + rest.to_bytes(size, "big")


_VERSION_2: dict[str, Callable[[pa.Array], UInts]] = {
    "boolean": lambda array: _numbers(array, np.uint32),
    "tinyint": lambda array: _numbers(array, np.int32).view(np.uint32),
    "smallint": lambda array: _murmur_ints(_numbers(array, np.int16), ">i2"),
    "int": lambda array: _murmur_ints(_numbers(array, np.int32), ">i4"),
    "bigint": lambda array: _murmur_ints(_numbers(array, np.int64), ">i8"),
    "float": _float_murmur,
    "double": _double_murmur,
    "decimal": _decimal_murmur,
    "string": _murmur_bytes,
    "varchar": _murmur_bytes,
    "char": _murmur_bytes,
    "binary": _murmur_bytes,
    "date": lambda array: _murmur_ints(_days(array), ">i4"),
    "timestamp": _timestamp_murmur,
    "timestamp with local time zone": _timestamp_murmur,
    "void": lambda array: np.zeros(len(array), np.uint32),
}


# Version 1 ------------------------------------------------------------------------------------------------


def _folded(values: npt.NDArray[np.int64]) -> UInts:
    bits = values.astype(np.int64).view(np.uint64)
    return ((bits >> np.uint64(32)) ^ bits).astype(np.uint32)


def _java_bytes(array: pa.Array, start: int) -> UInts:
    data, starts, lengths = _binary(array)
    return _polynomial(data.view(np.int8).astype(np.int32).view(np.uint32), starts, lengths, start=start)


def _decimal_java(array: pa.Array) -> UInts:
    codes = [_big_decimal_code(value) if value is not None else 0 for value in array.to_pylist()]
    return np.array(codes, np.uint64).astype(np.uint32)


def _big_decimal_code(value: Decimal) -> int:
    """Return the hash code of ``java.math.BigDecimal``."""
    unscaled, scale = _stripped(value)
    rest, words = abs(unscaled), []
    while rest:
        words.append(rest & _BITS)
        rest >>= 32
    code = 0
    for word in reversed(words):
        code = (31 * code + word) & _BITS
    return (31 * (-code if unscaled < 0 else code) + scale) & _BITS


def _timestamp_java(array: pa.Array) -> UInts:
    seconds, nanos = _seconds(array)
    days = seconds // _DAY_S
    seconds = seconds + _DAY_S * julian_shift(days)
    return _folded((seconds << np.int64(30)) | nanos)


def _instant_java(array: pa.Array) -> UInts:
    """Return the hash codes of ``java.time.Instant``."""
    seconds, nanos = _seconds(array)
    return _folded(seconds) + np.uint32(51) * nanos.astype(np.uint32)


_VERSION_1: dict[str, Callable[[pa.Array], UInts]] = {
    "boolean": lambda array: _numbers(array, np.uint32),
    "tinyint": lambda array: _numbers(array, np.int32).view(np.uint32),
    "smallint": lambda array: _numbers(array, np.int32).view(np.uint32),
    "int": lambda array: _numbers(array, np.int32).view(np.uint32),
    "bigint": lambda array: _folded(_numbers(array, np.int64)),
    "float": lambda array: _float_bits(array).view(np.uint32),
    "double": lambda array: _folded(_double_bits(array)),
    "decimal": _decimal_java,
    "string": lambda array: _java_bytes(array, 0),
    # Text.hashCode starts from 1; Hive's own loop over a string's bytes starts from 0.
    "varchar": lambda array: _java_bytes(array, 1),
    "char": lambda array: _java_bytes(array, 1),
    "binary": lambda array: _java_bytes(array, 1),
    "date": lambda array: _days(array).view(np.uint32),
    "timestamp": _timestamp_java,
    "timestamp with local time zone": _instant_java,
    "void": lambda array: np.zeros(len(array), np.uint32),
}


# Arrow arrays as numpy ------------------------------------------------------------------------------------


def _is_null(array: pa.Array) -> npt.NDArray[np.bool_]:
    return np.asarray(pc.is_null(array).to_numpy(zero_copy_only=False))


def _numbers(array: pa.Array, dtype: type[N]) -> npt.NDArray[N]:
    filled = array.fill_null(False if pa.types.is_boolean(array.type) else 0) if array.null_count else array
    values: npt.NDArray[N] = filled.to_numpy(zero_copy_only=False).astype(dtype)
    return values


def _float_bits(array: pa.Array) -> npt.NDArray[np.int32]:
    bits = _numbers(array, np.float32).view(np.int32)
    return np.where(np.isnan(bits.view(np.float32)), np.int32(0x7FC00000), bits)


def _double_bits(array: pa.Array) -> npt.NDArray[np.int64]:
    bits = _numbers(array, np.float64).view(np.int64)
    return np.where(np.isnan(bits.view(np.float64)), np.int64(0x7FF8000000000000), bits)


def _days(array: pa.Array) -> npt.NDArray[np.int32]:
    return _numbers(array.cast(pa.int32()), np.int32)


def _seconds(array: pa.Array) -> tuple[Ints, Ints]:
    """Split timestamps into seconds, rounded down, and nanoseconds."""
    a_second = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[array.type.unit]
    counts = _numbers(array.cast(pa.int64()), np.int64)
    return counts // a_second, counts % a_second * (10**9 // a_second)


def _binary(array: pa.Array) -> tuple[npt.NDArray[np.uint8], Ints, Ints]:
    wide = array.cast(pa.large_binary())
    _, offsets, data = wide.buffers()
    bounds = np.frombuffer(offsets, np.int64)[wide.offset : wide.offset + len(wide) + 1]
    held = np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    lengths = np.diff(bounds)
    if array.null_count:
        lengths = np.where(_is_null(array), 0, lengths)
    return held, bounds[:-1], lengths


def _without_padding(array: pa.Array, length: int) -> pa.Array:
    """Remove a char's padding, and NULs before it, as ``HiveCharWritable.getStrippedValue`` does."""
    padded = pc.or_(pc.less(pc.utf8_length(array), length), pc.ends_with(array, " "))
    return pc.if_else(padded, pc.utf8_rtrim(array, characters=" \0"), array)


def _polynomial(values: UInts, starts: Ints, lengths: Ints, *, start: int) -> UInts:
    """Compute ``h = 31 * h + value`` over segments."""
    hashed = np.full(len(starts), start, np.uint32)
    order = np.argsort(-lengths, kind="stable")
    starts, sizes = starts[order], lengths[order]
    for index in range(int(sizes[0]) if len(sizes) else 0):
        rows = int(np.searchsorted(-sizes, -(index + 1), side="right"))
        hashed[:rows] = hashed[:rows] * np.uint32(31) + values[starts[:rows] + index]
    unsorted = np.empty_like(hashed)
    unsorted[order] = hashed
    return unsorted


def _stripped(value: Decimal) -> tuple[int, int]:
    """Return a decimal's unscaled value and scale, without trailing zeros in the fraction."""
    sign, digits, exponent = value.as_tuple()
    unscaled, scale = int("".join(map(str, digits))), -int(exponent)
    while scale > 0 and unscaled % 10 == 0:
        unscaled, scale = unscaled // 10, scale - 1
    return (-unscaled if sign else unscaled), scale
