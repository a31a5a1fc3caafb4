"""Timestamps that no count of nanoseconds reaches: seconds since 1970, and nanoseconds.

Arrow counts nanoseconds in 64 bits, which suffices from 1677 to 2262; a count of microseconds would lose what
Hive's ``current_timestamp`` has. A table that keeps when rows cease to be valid has both in one column: the
moment, to the nanosecond, and 9999-12-31.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_hive_federation.orc.calendars import proleptic_days

#: The Arrow type that stands for them: two numbers of 64 bits. Nothing of Hive's has it.
EXACT = pa.binary(16)
#: Type of an array's numbers.
Numbers = np.ndarray[Any, np.dtype[np.int64]]

_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_DAY_S = 86_400


def has_exact(kind: pa.DataType) -> bool:
    """Whether a type is that, or has it inside."""
    return kind == EXACT or any(has_exact(kind.field(place).type) for place in range(kind.num_fields))


def exact_times(seconds: Numbers, nanoseconds: Numbers, nulls: pa.BooleanArray | None = None) -> pa.Array:
    """Make an array.

    :param seconds: since 1970, rounded down.
    :param nanoseconds: from 0 to 999,999,999.
    :param nulls: where there is none, whatever the numbers say.
    """
    content = np.stack([seconds, nanoseconds], axis=1).astype("<i8", copy=False)
    validity = None if nulls is None else pc.invert(nulls).buffers()[1]
    return pa.Array.from_buffers(EXACT, len(seconds), [validity, pa.py_buffer(content)])


def parts(times: pa.Array) -> tuple[Numbers, Numbers]:
    """Return seconds and nanoseconds; those of nulls are anything."""
    numbers = np.frombuffer(times.buffers()[1], "<i8", count=2 * (times.offset + len(times)))
    seconds, nanoseconds = numbers.reshape(-1, 2)[times.offset :].T
    return seconds, nanoseconds


def of_timestamps(timestamps: pa.Array) -> pa.Array:
    """Make them of Arrow's timestamps."""
    per_second = _PER_SECOND[timestamps.type.unit]
    counts = pc.fill_null(timestamps.cast(pa.int64()), 0).to_numpy(zero_copy_only=False)
    seconds, fractions = np.divmod(counts, per_second)
    nulls = timestamps.is_null() if timestamps.null_count else None
    return exact_times(seconds, fractions * (10**9 // per_second), nulls)


def microseconds(times: pa.Array) -> pa.Array:
    """Make Arrow's timestamps of them, which reach further in microseconds; finer digits are cut off."""
    seconds, nanoseconds = parts(times)
    nulls = times.is_null().to_numpy(zero_copy_only=False) if times.null_count else None
    return pa.array(seconds * 10**6 + nanoseconds // 1_000, pa.int64(), mask=nulls).cast(pa.timestamp("us"))


def proleptic_times(times: pa.Array) -> pa.Array:
    """Give wall clocks of the Julian calendar, before 15 October 1582, the numbers of proleptic days."""
    seconds, nanoseconds = parts(times)
    days = seconds // _DAY_S
    moved = seconds + (proleptic_days(days) - days) * _DAY_S
    return exact_times(moved, nanoseconds, times.is_null() if times.null_count else None)
