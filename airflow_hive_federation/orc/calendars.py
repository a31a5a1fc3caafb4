"""Converts day numbers before 15 October 1582 between the Julian and the proleptic Gregorian calendar.

A date is the name of a day in a calendar. Files in the Julian calendar therefore store another day number for
the same date.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

_Numbers = npt.NDArray[np.int64]
_GREGORIAN_START_DAY = -141_427  # 15 October 1582, as days since 1970


def julian_shift(days: _Numbers) -> _Numbers:
    """Return the days to add to proleptic days since 1970 for the Julian day numbers of the same dates."""
    return np.where(days < _GREGORIAN_START_DAY, _shift(_march_year(days)), 0)


def julian_days(days: _Numbers) -> _Numbers:
    """Convert proleptic days since 1970 to the Julian calendar's days of the same dates before 1582."""
    return days + julian_shift(days)


def proleptic_days(days: _Numbers) -> _Numbers:
    """Convert days of a file in the Julian calendar before 1582 to proleptic days of the same dates.

    29 February 1500 and other dates that the Gregorian calendar does not have become 1 March, as in Hive
    (``CalendarUtils.convertDateToProleptic``) and Spark (``RebaseDateTime``).
    """
    # Days are counted from 1 March of the Julian year 0: four years have 1,461 of them, the leap day last.
    march_year = (4 * (days + 719_470) + 3) // 1_461
    return np.where(days < _GREGORIAN_START_DAY, days - _shift(march_year), days)


def proleptic_dates(dates: pa.Array) -> pa.Array:
    """Convert dates of the Julian calendar to proleptic dates; see :func:`proleptic_days`."""
    days = pc.fill_null(dates.cast(pa.int32()), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    if not (days < _GREGORIAN_START_DAY).any():
        return dates
    made = proleptic_days(days).astype(np.int32)
    return pa.array(made, mask=dates.is_null().to_numpy(zero_copy_only=False)).cast(dates.type)


def _shift(march_year: _Numbers) -> _Numbers:
    # Both calendars agree in the third century; from then on the Julian calendar has more leap years.
    return march_year // 100 - march_year // 400 - 2


def _march_year(days: _Numbers) -> _Numbers:
    """Return the proleptic Gregorian year, counted from 1 March, of days since 1970."""
    shifted = days + 719_468
    era = shifted // 146_097
    day = shifted - era * 146_097
    years: _Numbers = (day - day // 1_460 + day // 36_524 - day // 146_096) // 365 + era * 400
    return years
