"""Timestamps of ORC files that no count of nanoseconds reaches; pyarrow's reader refuses them.

Such a column has a stream of seconds and one of nanoseconds. pyarrow is told that the former is a column of
whole numbers, which is laid out alike, and finds out which rows have values; the latter is decoded here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Generator, Iterator, Sequence
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_hive_federation.errors import AcidFormatError
from airflow_hive_federation.orc.arrow_columns import orc_width
from airflow_hive_federation.orc.chunks import inflated
from airflow_hive_federation.orc.exact_times import Numbers, exact_times
from airflow_hive_federation.orc.nested import with_leaves
from airflow_hive_federation.orc.protobuf import VARINT, all_of, fields_of, message_of, number_of
from airflow_hive_federation.orc.run_lengths import unsigned_numbers
from airflow_hive_federation.orc.streams import SECONDARY
from airflow_hive_federation.orc.tail import OrcTail, StripePlace

# A day less than nanoseconds reach: bounds may go by the clock of another zone, and pyarrow before 25 reads
# what lies beyond as other timestamps.
_DAY_MILLIS = 86_400_000
_NANOSECOND_MILLIS = (-(2**63) // 10**6 + _DAY_MILLIS, 2**63 // 10**6 - _DAY_MILLIS)
_LONG_TYPE = message_of([(1, VARINT, 4)])
# Fields of StripeFooter.
_STREAMS, _ENCODINGS, _ZONE = 1, 2, 3
_DIRECT_V2 = 2
_UTC = {b"UTC", b"GMT"}
# Seconds from 1970 to 2015, from which ORC counts.
_BASE_S = 1_420_070_400
# Of early instants with more of them, the seconds are rounded up (TimestampTreeReader).
_ROUNDED_NANOSECONDS = 999_999


def far_columns(tail: OrcTail) -> frozenset[int]:
    """Return the numbers of columns with timestamps outside the years 1677 to 2262, or that may have some."""
    low, high = _NANOSECOND_MILLIS
    return frozenset(
        number
        for number, bounds in tail.timestamp_millis.items()
        if bounds is None or not low < bounds[0] <= bounds[1] < high
    )


def types_as_numbers(tail: OrcTail, far: frozenset[int]) -> list[bytes]:
    """Return the ``Type`` messages of a file, of which some columns are whole numbers."""
    return [_LONG_TYPE if number in far else one for number, one in enumerate(tail.types)]


class FarColumns:
    """Puts seconds and nanoseconds together, batch after batch.

    :param file: the file, open; read under the reader's lock if they share it.
    :param tail: its tail.
    :param far: numbers of such columns.
    :param wanted: those of the batches' columns.
    """

    def __init__(self, file: BinaryIO, tail: OrcTail, far: frozenset[int], wanted: Sequence[int]) -> None:
        self._file = file
        self._tail = tail
        self._far = far
        self._wanted = wanted
        self._stripes = iter(tail.stripes)
        self._rows_left = 0
        self._stored: dict[int, Numbers] = {}

    def put_together(self, batches: Iterator[pa.RecordBatch]) -> Generator[pa.RecordBatch, None, None]:
        """Yield batches with :data:`.exact_times.EXACT` in these columns.

        :param batches: all of the file in their order; none reaches over the end of a stripe.
        :raises AcidFormatError: a stripe is damaged, or written by clocks of another zone than UTC.
        """
        for batch in batches:
            while not self._rows_left and batch.num_rows:
                self._next_stripe()
            arrays = [
                with_leaves(array, self._times, number) if self._is_far(array, number) else array
                for array, number in zip(batch.columns, self._wanted, strict=True)
            ]
            self._rows_left -= batch.num_rows
            yield pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)

    def _is_far(self, array: pa.Array, number: int) -> bool:
        return not self._far.isdisjoint(range(number, number + orc_width(array.type)))

    def _next_stripe(self) -> None:
        stripe = next(self._stripes)
        self._rows_left = stripe.rows
        self._stored = defaultdict(lambda: np.empty(0, np.int64))
        try:
            self._stored |= dict(self._nanoseconds(stripe))
        except (ValueError, IndexError) as error:
            raise AcidFormatError(f"timestamps cannot be read: {error}") from error

    def _nanoseconds(self, stripe: StripePlace) -> Iterator[tuple[int, Numbers]]:
        self._file.seek(stripe.offset + stripe.index_bytes + stripe.data_bytes)
        footer = fields_of(inflated(self._file.read(stripe.footer_bytes), self._tail.compression))
        zones = all_of(footer, _ZONE)
        if not _UTC.issuperset(zones):
            told = b", ".join(zones).decode()
            raise ValueError(f"those outside the years 1677 to 2262 are read by UTC's clock only, not {told}")
        encodings = all_of(footer, _ENCODINGS)
        at = stripe.offset
        for stream in map(fields_of, all_of(footer, _STREAMS)):
            kind, column, length = (number_of(stream, number) for number in (1, 2, 3))
            if kind == SECONDARY and column in self._far:
                if number_of(fields_of(encodings[column]), 1) != _DIRECT_V2:
                    raise ValueError("they are encoded as by Hive 0.11")
                self._file.seek(at)
                stored = unsigned_numbers(inflated(self._file.read(length), self._tail.compression))
                yield column, _lengthened(stored)
            at += length

    def _times(self, array: pa.Array, number: int) -> pa.Array:
        if number not in self._far:
            return array
        there = array.is_valid().to_numpy(zero_copy_only=False)
        count = int(np.count_nonzero(there))
        stored = self._stored[number]
        if count > len(stored):
            raise AcidFormatError(f"timestamps have {len(stored)} fractions left in place of {count}")
        self._stored[number] = stored[count:]
        seconds, nanoseconds = np.zeros((2, len(array)), np.int64)
        seconds[there] = array.drop_null().to_numpy() + _BASE_S
        nanoseconds[there] = stored[:count]
        seconds -= (seconds < 0) & (nanoseconds > _ROUNDED_NANOSECONDS)
        return exact_times(seconds, nanoseconds, pc.is_null(array) if array.null_count else None)


def _lengthened(stored: Numbers) -> Numbers:
    """Make nanoseconds of what ORC stores; the last three bits tell how many zeros, less one, are missing."""
    zeros = stored & 7
    return (stored >> 3) * np.where(zeros > 0, 10 ** (zeros + 1), 1)
