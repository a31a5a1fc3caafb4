"""Reads timestamps of ORC files outside the range of nanoseconds, which pyarrow's reader refuses.

Such a column has a stream of seconds and a stream of nanoseconds. pyarrow reads the former as a column of
whole numbers, which has the same layout, and thereby finds the rows that have values. This module decodes the
latter.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Generator, Iterator, Sequence
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_hive_federation.errors import AcidFormatError
from airflow_hive_federation.model.protobuf import VARINT, all_of, fields_of, message_of, number_of
from airflow_hive_federation.orc.arrow_columns import orc_width
from airflow_hive_federation.orc.chunks import inflated
from airflow_hive_federation.orc.nanosecond_times import Numbers, nanosecond_times
from airflow_hive_federation.orc.nested import with_leaves
from airflow_hive_federation.orc.run_lengths import unsigned_numbers
from airflow_hive_federation.orc.streams import SECONDARY
from airflow_hive_federation.orc.tail import OrcTail, StripePlace

# The range of nanoseconds less a day: bounds may follow the clock of another zone, and pyarrow before 25
# reads timestamps outside the range as other ones.
_DAY_MILLIS = 86_400_000
_NANOSECOND_MILLIS = (-(2**63) // 10**6 + _DAY_MILLIS, 2**63 // 10**6 - _DAY_MILLIS)
_LONG_TYPE = message_of([(1, VARINT, 4)])
# Fields of StripeFooter.
_STREAMS, _ENCODINGS, _ZONE = 1, 2, 3
_DIRECT_V2 = 2
_UTC = {b"UTC", b"GMT"}
# Seconds from 1970 to 2015, the origin of ORC's count.
_BASE_S = 1_420_070_400
# The seconds of an early instant with more nanoseconds are rounded up (TimestampTreeReader).
_ROUNDED_NANOSECONDS = 999_999


def wide_columns(tail: OrcTail) -> frozenset[int]:
    """Return the numbers of columns that have or may have timestamps outside the years 1677 to 2262."""
    low, high = _NANOSECOND_MILLIS
    return frozenset(
        number
        for number, bounds in tail.timestamp_millis.items()
        if bounds is None or not low < bounds[0] <= bounds[1] < high
    )


def types_as_numbers(tail: OrcTail, wide: frozenset[int]) -> list[bytes]:
    """Return the ``Type`` messages of a file, with whole numbers in place of the wide columns."""
    return [_LONG_TYPE if number in wide else message for number, message in enumerate(tail.types)]


class WideTimestamps:
    """A reader that combines the seconds and nanoseconds of wide columns, batch by batch.

    :param file: the open file; it is read under the reader's lock if the two share it.
    :param tail: the file's tail.
    :param wide: numbers of the wide columns.
    :param wanted: numbers of the batches' columns.
    """

    def __init__(self, file: BinaryIO, tail: OrcTail, wide: frozenset[int], wanted: Sequence[int]) -> None:
        self._file = file
        self._tail = tail
        self._wide = wide
        self._wanted = wanted
        self._stripes = iter(tail.stripes)
        self._rows_left = 0
        self._stored: dict[int, Numbers] = {}

    def put_together(self, batches: Iterator[pa.RecordBatch]) -> Generator[pa.RecordBatch, None, None]:
        """Yield batches with :data:`.nanosecond_times.NANOSECOND_TIME` in the wide columns.

        :param batches: all batches of the file in order; none extends over the end of a stripe.
        :raises AcidFormatError: if a stripe is damaged, or was written by the clock of a zone other than UTC.
        """
        for batch in batches:
            while not self._rows_left and batch.num_rows:
                self._next_stripe()
            arrays = [
                with_leaves(array, self._times, number) if self._is_wide(array, number) else array
                for array, number in zip(batch.columns, self._wanted, strict=True)
            ]
            self._rows_left -= batch.num_rows
            yield pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)

    def _is_wide(self, array: pa.Array, number: int) -> bool:
        return not self._wide.isdisjoint(range(number, number + orc_width(array.type)))

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
            zone_names = b", ".join(zones).decode()
            raise ValueError(
                f"those outside the years 1677 to 2262 can be read in the zone UTC only, not in {zone_names}"
            )
        encodings = all_of(footer, _ENCODINGS)
        at = stripe.offset
        for stream in map(fields_of, all_of(footer, _STREAMS)):
            kind, column, length = (number_of(stream, number) for number in (1, 2, 3))
            if kind == SECONDARY and column in self._wide:
                if number_of(fields_of(encodings[column]), 1) != _DIRECT_V2:
                    raise ValueError("they have the encoding of Hive 0.11")
                self._file.seek(at)
                stored = unsigned_numbers(inflated(self._file.read(length), self._tail.compression))
                yield column, _lengthened(stored)
            at += length

    def _times(self, array: pa.Array, number: int) -> pa.Array:
        if number not in self._wide:
            return array
        has_value = array.is_valid().to_numpy(zero_copy_only=False)
        count = int(np.count_nonzero(has_value))
        stored = self._stored[number]
        if count > len(stored):
            raise AcidFormatError(f"timestamps have {len(stored)} fractions left in place of {count}")
        self._stored[number] = stored[count:]
        seconds, nanoseconds = np.zeros((2, len(array)), np.int64)
        seconds[has_value] = array.drop_null().to_numpy() + _BASE_S
        nanoseconds[has_value] = stored[:count]
        seconds -= (seconds < 0) & (nanoseconds > _ROUNDED_NANOSECONDS)
        return nanosecond_times(seconds, nanoseconds, pc.is_null(array) if array.null_count else None)


def _lengthened(stored: Numbers) -> Numbers:
    """Decode ORC's stored nanoseconds, whose last three bits are the number of missing zeros less one."""
    zeros = stored & 7
    return (stored >> 3) * np.where(zeros > 0, 10 ** (zeros + 1), 1)
