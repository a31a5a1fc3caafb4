"""Represents timestamps outside the range of nanoseconds, as seconds since 1970 and nanoseconds.

Arrow counts nanoseconds in 64 bits, which suffices from 1677 to 2262; a count of microseconds would lose
digits of Hive's ``current_timestamp``. A table with the times at which rows cease to be valid has both in one
column: the moment, to the nanosecond, and 9999-12-31.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from airflow_hive_federation.orc.calendars import proleptic_days

#: The Arrow type of such timestamps: two numbers of 64 bits. No Hive type is mapped to it.
NANOSECOND_TIME = pa.binary(16)
#: Type of the numbers of an array.
Numbers = npt.NDArray[np.int64]

_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_DAY_S = 86_400


def has_nanosecond_times(kind: pa.DataType) -> bool:
    """Return whether a type is or contains :data:`NANOSECOND_TIME`."""
    return kind == NANOSECOND_TIME or any(
        has_nanosecond_times(kind.field(place).type) for place in range(kind.num_fields)
    )


def nanosecond_times(
    seconds: Numbers, nanoseconds: Numbers, nulls: pa.BooleanArray | None = None
) -> pa.Array:
    """Make an array of such timestamps.

    :param seconds: seconds since 1970, rounded down.
    :param nanoseconds: nanoseconds from 0 to 999,999,999.
    :param nulls: mask of the nulls, whose numbers are ignored.
    """
    content = np.stack([seconds, nanoseconds], axis=1).astype("<i8", copy=False)
    validity = None if nulls is None else pc.invert(nulls).buffers()[1]
    return pa.Array.from_buffers(NANOSECOND_TIME, len(seconds), [validity, pa.py_buffer(content)])


def parts(times: pa.Array) -> tuple[Numbers, Numbers]:
    """Return the seconds and nanoseconds of such timestamps; the numbers of nulls are arbitrary."""
    numbers = np.frombuffer(times.buffers()[1], "<i8", count=2 * (times.offset + len(times)))
    seconds, nanoseconds = numbers.reshape(-1, 2)[times.offset :].T
    return seconds, nanoseconds


def of_timestamps(timestamps: pa.Array) -> pa.Array:
    """Convert Arrow timestamps to this type."""
    per_second = _PER_SECOND[timestamps.type.unit]
    counts = pc.fill_null(timestamps.cast(pa.int64()), 0).to_numpy(zero_copy_only=False)
    seconds, fractions = np.divmod(counts, per_second)
    nulls = timestamps.is_null() if timestamps.null_count else None
    return nanosecond_times(seconds, fractions * (10**9 // per_second), nulls)


def microseconds(times: pa.Array) -> pa.Array:
    """Convert such timestamps to Arrow's microseconds, whose range suffices; finer digits are cut."""
    seconds, nanoseconds = parts(times)
    nulls = times.is_null().to_numpy(zero_copy_only=False) if times.null_count else None
    return pa.array(seconds * 10**6 + nanoseconds // 1_000, pa.int64(), mask=nulls).cast(pa.timestamp("us"))


def proleptic_times(times: pa.Array) -> pa.Array:
    """Convert wall clocks of the Julian calendar, before 15 October 1582, to the proleptic calendar."""
    seconds, nanoseconds = parts(times)
    days = seconds // _DAY_S
    moved = seconds + (proleptic_days(days) - days) * _DAY_S
    return nanosecond_times(moved, nanoseconds, times.is_null() if times.null_count else None)
