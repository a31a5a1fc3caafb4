"""ORC stripes made quickly: without indexes, dictionaries and compression, as Hive's streaming makes them.

``hive.exec.orc.delta.streaming.optimizations.enabled`` leaves all that to the next compaction. Whole numbers,
dates and texts, most of what is streamed, are then hardly more than copied: numpy makes their streams a
multiple quicker than an encoder that looks for the smallest form. Columns of other types, and columns of long
texts, are encoded by pyarrow's writer, and their streams are taken over.

Streams, encodings and statistics are those of the ORC specification, version 1: integers as runs of version 2
of its run length encoding, each of 512 values, DIRECT in whole bytes, or DELTA where all steps are equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_hive_federation.acid.arrow_columns import orc_width
from airflow_hive_federation.acid.orc.assembly import Stripe, encode
from airflow_hive_federation.acid.orc.tail import _all, _fields, _message, _number, _varint_bytes

_Stream = tuple[int, "bytes | memoryview"]
_Numbers = np.ndarray[Any, np.dtype[Any]]
_VARINT, _BYTES = 0, 2
# Kinds of streams, and of encodings.
_PRESENT, _DATA, _LENGTH = 0, 1, 2
_DIRECT, _DIRECT_V2 = b"\x08\x00", b"\x08\x02"
# Fields of ColumnStatistics.
_COUNT, _INTEGERS, _STRINGS, _DATES, _BINARIES, _HAS_NULL = 1, 2, 4, 7, 8, 10
_TIME_ZONE = 3
_RUN = 512
_DIRECT_RUN, _DELTA_RUN = 0x40, 0xC0
# The number that stands for a width of so many bytes, less one.
_WIDTHS = (7, 15, 23, 27, 28, 29, 30, 31)
_LITERALS = 128
# Texts that are longer have shortened bounds in Hive's statistics.
_LONG_TEXT_BYTES = 1024
_MAX_SUM = 2**63 - 1


@dataclass(frozen=True)
class EncodedColumn:
    """One column of a stripe.

    :param streams: kind and content of each.
    :param encoding: its ``ColumnEncoding``.
    :param statistics: its ``ColumnStatistics``.
    """

    streams: tuple[_Stream, ...]
    encoding: bytes
    statistics: bytes


def constant(value: int, count: int) -> EncodedColumn:
    """Encode one whole number, so many times."""
    return _integer_column(_steps(value, 0, count), value, value, value * count, count)


def counting(first: int, count: int) -> EncodedColumn:
    """Encode the whole numbers from ``first`` on."""
    last = first + count - 1
    return _integer_column(_steps(first, 1, count), first, last, (first + last) * count // 2, count)


def structs(count: int) -> EncodedColumn:
    """Encode the structs, none of them null, whose fields are the columns that follow."""
    return EncodedColumn((), _DIRECT, _message([(_COUNT, _VARINT, count), (_HAS_NULL, _VARINT, 0)]))


def columns_of(rows: pa.RecordBatch) -> list[EncodedColumn]:
    """Encode rows, each of their columns with those below it.

    :raises AcidFormatError: some timestamp cannot be stored; see :mod:`.early_timestamps`.
    """
    made = [_plain(array) for array in rows.columns]
    others = [place for place, one in enumerate(made) if one is None]
    taken = iter(_by_arrow([rows.column(place) for place in others]) if others else ())
    return [column for one in made for column in ([one] if one is not None else next(taken))]


def plain_stripe(columns: Sequence[EncodedColumn], count: int) -> Stripe:
    """Put a stripe together.

    :param columns: all of a file, the root included.
    :param count: rows.
    """
    model = _model()
    fields: list[tuple[int, int, int | bytes]] = []
    pieces: list[bytes | memoryview] = []
    for number, column in enumerate(columns):
        for kind, content in column.streams:
            described = ((1, kind), (2, number), (3, len(content)))
            fields.append((1, _BYTES, _message([(one, _VARINT, value) for one, value in described])))
            pieces.append(content)
    fields += [(2, _BYTES, column.encoding) for column in columns]
    (zone,) = _all(_fields(bytes(model.body[sum(model.lengths[:2]) :])), _TIME_ZONE)
    footer = _message([*fields, (_TIME_ZONE, _BYTES, zone)])
    statistics = tuple(column.statistics for column in columns)
    return Stripe(
        body=memoryview(b"".join([*pieces, footer])),
        lengths=(0, sum(map(len, pieces)), len(footer)),
        rows=count,
        statistics=(_message([(1, _BYTES, one) for one in statistics]),),
        columns=statistics,
        writer=model.writer,
        postscript=model.postscript,
    )


@cache
def _model() -> Stripe:
    """Have a stripe of pyarrow's: it says which software wrote it, and by which time zone."""
    (model,) = encode(pa.table({"model": pa.array([0], pa.int32())}), "uncompressed")
    return model


def _by_arrow(arrays: Sequence[pa.Array]) -> list[list[EncodedColumn]]:
    table = pa.Table.from_arrays(list(arrays), names=[str(place) for place in range(len(arrays))])
    (made,) = encode(table, "uncompressed", dictionaries=False)
    index, data, _ = made.lengths
    footer = _fields(bytes(made.body[index + data :]))
    streams: list[list[_Stream]] = [[] for _ in made.columns]
    at = 0
    for message in _all(footer, 1):
        kind, column, length = (_number(_fields(message), number) for number in (1, 2, 3))
        if at >= index:
            streams[column].append((kind, made.body[at : at + length]))
        at += length
    # The first is the root.
    found = iter(list(map(EncodedColumn, map(tuple, streams), _all(footer, 2), made.columns))[1:])
    return [[next(found) for _ in range(orc_width(array.type))] for array in arrays]


def _plain(array: pa.Array) -> EncodedColumn | None:
    """Encode a column of a type for which that is simple."""
    if array.null_count == len(array):
        return None
    kind = array.type
    if pa.types.is_date32(kind) or kind in {pa.int16(), pa.int32(), pa.int64()}:
        return _integers(array)
    if kind in {pa.string(), pa.binary()}:
        return _texts(array)
    return None


def _integers(array: pa.Array) -> EncodedColumn:
    is_date = pa.types.is_date32(array.type)
    there = array.drop_null() if array.null_count else array
    values = (there.view(pa.int32()) if is_date else there).to_numpy()
    low, high = int(values.min()), int(values.max())
    if low == high:
        runs = _steps(low, 0, len(values))
    else:
        # Zigzag: the sign is the last bit.
        folded = (values << 1) ^ (values >> (8 * values.itemsize - 1))
        runs = _direct(folded.view(f"u{values.itemsize}"), max(_zigzag(low), _zigzag(high)))
    bounds: list[tuple[int, int, int | bytes]] = [(1, _VARINT, _zigzag(low)), (2, _VARINT, _zigzag(high))]
    if is_date:
        told = (_DATES, _BYTES, _message(bounds))
    else:
        # A sum that may not fit is left out.
        fits = max(abs(low), abs(high)) * len(values) <= _MAX_SUM
        total = [(3, _VARINT, _zigzag(int(values.sum(dtype=np.int64))))] if fits else []
        told = (_INTEGERS, _BYTES, _message([*bounds, *total]))
    return EncodedColumn((*_presence(array), (_DATA, runs)), _DIRECT_V2, _statistics(array, told))


def _texts(array: pa.Array) -> EncodedColumn | None:
    there = array.drop_null() if array.null_count else array
    _, offsets, data = there.buffers()
    bounds = np.frombuffer(offsets, np.int32)[there.offset : there.offset + len(there) + 1]
    sizes = np.diff(bounds).astype(np.uint32)
    low, high = int(sizes.min()), int(sizes.max())
    if high > _LONG_TEXT_BYTES or data is None:
        return None
    lengths = _steps(low, 0, len(sizes), signed=False) if low == high else _direct(sizes, high)
    total = (_VARINT, _zigzag(int(bounds[-1] - bounds[0])))
    if pa.types.is_binary(array.type):
        told = (_BINARIES, _BYTES, _message([(1, *total)]))
    else:
        extremes = pc.min_max(there)
        least, greatest = (extremes[name].as_buffer().to_pybytes() for name in ("min", "max"))
        told = (_STRINGS, _BYTES, _message([(1, _BYTES, least), (2, _BYTES, greatest), (3, *total)]))
    content = memoryview(data)[int(bounds[0]) : int(bounds[-1])]
    streams = (*_presence(array), (_DATA, content), (_LENGTH, lengths))
    return EncodedColumn(streams, _DIRECT_V2, _statistics(array, told))


def _integer_column(runs: bytes, low: int, high: int, total: int, count: int) -> EncodedColumn:
    bounds: list[tuple[int, int, int | bytes]] = [(1, _VARINT, _zigzag(low)), (2, _VARINT, _zigzag(high))]
    if abs(total) <= _MAX_SUM:
        bounds.append((3, _VARINT, _zigzag(total)))
    told = (_INTEGERS, _BYTES, _message(bounds))
    statistics = _message([(_COUNT, _VARINT, count), told, (_HAS_NULL, _VARINT, 0)])
    return EncodedColumn(((_DATA, runs),), _DIRECT_V2, statistics)


def _statistics(array: pa.Array, told: tuple[int, int, bytes]) -> bytes:
    count = (_COUNT, _VARINT, len(array) - array.null_count)
    return _message([count, told, (_HAS_NULL, _VARINT, int(array.null_count > 0))])


def _presence(array: pa.Array) -> tuple[_Stream, ...]:
    """Say which values are not null: bits, in runs of literal bytes."""
    if not array.null_count:
        return ()
    octets = np.packbits(array.is_valid().to_numpy(zero_copy_only=False))
    whole = len(octets) // _LITERALS * _LITERALS
    runs = np.empty((whole // _LITERALS, 1 + _LITERALS), np.uint8)
    runs[:, 0] = 256 - _LITERALS
    runs[:, 1:] = octets[:whole].reshape(-1, _LITERALS)
    rest = octets[whole:].tobytes()
    return ((_PRESENT, runs.tobytes() + (bytes([256 - len(rest)]) + rest if rest else b"")),)


def _steps(first: int, step: int, count: int, *, signed: bool = True) -> bytes:
    """Encode numbers with equal steps between them."""
    fold = _zigzag if signed else int
    end = _varint_bytes(_zigzag(step))
    if not step:
        whole, rest = divmod(count, _RUN)
        value = _varint_bytes(fold(first)) + end
        return (_header(_DELTA_RUN, _RUN) + value) * whole + (
            _header(_DELTA_RUN, rest) + value if rest else b""
        )
    return b"".join(
        _header(_DELTA_RUN, min(_RUN, count - at)) + _varint_bytes(fold(first + step * at)) + end
        for at in range(0, count, _RUN)
    )


def _direct(values: _Numbers, greatest: int) -> bytes:
    """Encode unsigned numbers as they are, each in as many bytes as the greatest takes."""
    size, width = values.itemsize, (greatest.bit_length() + 7) // 8
    octets = values.astype(f">u{size}").view(np.uint8).reshape(-1, size)[:, size - width :]
    whole = len(values) // _RUN
    kind = _DIRECT_RUN | _WIDTHS[width - 1] << 1
    runs = np.empty((whole, 2 + _RUN * width), np.uint8)
    runs[:, :2] = list(_header(kind, _RUN))
    runs[:, 2:].reshape(whole, _RUN, width)[:] = octets[: whole * _RUN].reshape(whole, _RUN, width)
    rest = len(values) - whole * _RUN
    end = _header(kind, rest) + octets[whole * _RUN :].tobytes() if rest else b""
    return runs.tobytes() + end


def _header(kind: int, count: int) -> bytes:
    return bytes([kind | (count - 1) >> 8, (count - 1) & 0xFF])


def _zigzag(value: int) -> int:
    return value << 1 if value >= 0 else (-value << 1) - 1
