"""Writes counts, sizes, rates and durations for people: one form for logs, progress, tables and messages."""

from __future__ import annotations

from collections.abc import Sequence

#: Units of powers of 1000, the smallest first.
_UNITS = ("bytes", "kB", "MB", "GB", "TB", "PB", "EB")
_MINUTE_S = 60
_HOUR_S = 3600


def several(count: int, noun: str, plural: str = "") -> str:
    """Return the count with its noun, in the plural unless the count is one.

    :param plural: the plural of the noun, if it is not the noun with an ``s``.
    """
    return f"{count:,} {noun if count == 1 else plural or f'{noun}s'}"


def first_of(names: Sequence[str], limit: int = 10) -> str:
    """Return some of the names, and the number of the others, for instance ``a, b and 3 more``."""
    more = f" and {len(names) - limit:,} more" if len(names) > limit else ""
    return f"{', '.join(names[:limit])}{more}"


def size(size_bytes: int) -> str:
    """Return the size in units of powers of 1000, for instance ``5.6 MB``."""
    power = _power(size_bytes)
    return f"{_amount(size_bytes, power)} {_unit(size_bytes, power)}"


def part_of_size(done_bytes: int, all_bytes: int) -> str:
    """Return both sizes in the unit of the second one, for instance ``2.0 of 9.0 MB``."""
    power = _power(all_bytes)
    return f"{_amount(done_bytes, power)} of {_amount(all_bytes, power)} {_unit(all_bytes, power)}"


def rate(bytes_per_s: float) -> str:
    """Return the rate in units of powers of 1000, for instance ``3.4 MB/s``."""
    return f"{size(round(bytes_per_s))}/s"


def count_rate(per_s: float, noun: str) -> str:
    """Return the rate of a count, for instance ``2,000 records/s``.

    :param noun: the noun in the plural.
    """
    return f"{per_s:,.0f} {noun}/s"


def duration(seconds: float) -> str:
    """Return the duration, for instance ``0.4 s``, ``5 min 3 s`` or ``26 h 40 min``."""
    if round(seconds, 1) < _MINUTE_S:
        return f"{seconds:.1f} s"
    whole_s = round(seconds)
    if whole_s < _HOUR_S:
        return f"{whole_s // _MINUTE_S} min {whole_s % _MINUTE_S} s"
    minutes = round(seconds / _MINUTE_S)
    return f"{minutes // _MINUTE_S:,} h {minutes % _MINUTE_S} min"


def _power(size_bytes: int) -> int:
    """Return the power of 1000 in whose unit the amount, rounded to one digit, lies below 1000."""
    for power in range(len(_UNITS) - 1):
        if round(size_bytes / 1000**power, 1 if power else 0) < 1000:
            return power
    return len(_UNITS) - 1


def _amount(size_bytes: int, power: int) -> str:
    return f"{size_bytes / 1000**power:,.1f}" if power else f"{size_bytes:,}"


def _unit(size_bytes: int, power: int) -> str:
    return "byte" if not power and size_bytes == 1 else _UNITS[power]
