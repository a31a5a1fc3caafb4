"""The two calendars of dates before 15 October 1582: the Julian one, and the Gregorian one for all times.

A date is what its calendar calls a day: files that go by the Julian calendar have another number for it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_Numbers = np.ndarray[Any, np.dtype[np.int64]]
_GREGORIAN_START_DAY = -141_427  # 15 October 1582, as days since 1970


def julian_shift(days: _Numbers) -> _Numbers:
    """Return how many days later the Julian calendar has the dates of proleptic days since 1970."""
    return np.where(days < _GREGORIAN_START_DAY, _shift(_march_year(days)), 0)


def julian_days(days: _Numbers) -> _Numbers:
    """Give proleptic days since 1970 the numbers that the Julian calendar has for these dates before 1582."""
    return days + julian_shift(days)


def proleptic_days(days: _Numbers) -> _Numbers:
    """Give days of a file that goes by the Julian calendar before 1582 the numbers of proleptic days.

    29 February of 1500 and the like, which the Gregorian calendar has not, becomes 1 March, as in Hive
    (``CalendarUtils.convertDateToProleptic``) and Spark (``RebaseDateTime``).
    """
    # Days since 1 March of the Julian year 0: four years have 1,461 of them, the leap day last.
    march_year = (4 * (days + 719_470) + 3) // 1_461
    return np.where(days < _GREGORIAN_START_DAY, days - _shift(march_year), days)


def proleptic_dates(dates: pa.Array) -> pa.Array:
    """Do so with dates; see :func:`proleptic_days`."""
    days = pc.fill_null(dates.cast(pa.int32()), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    if not (days < _GREGORIAN_START_DAY).any():
        return dates
    made = proleptic_days(days).astype(np.int32)
    return pa.array(made, mask=dates.is_null().to_numpy(zero_copy_only=False)).cast(dates.type)


def _shift(march_year: _Numbers) -> _Numbers:
    # Both calendars agree in the third century; from then on the Julian has more leap years.
    return march_year // 100 - march_year // 400 - 2


def _march_year(days: _Numbers) -> _Numbers:
    """Return the proleptic Gregorian year, counted from 1 March, of days since 1970."""
    shifted = days + 719_468
    era = shifted // 146_097
    day = shifted - era * 146_097
    years: _Numbers = (day - day // 1_460 + day // 36_524 - day // 146_096) // 365 + era * 400
    return years
