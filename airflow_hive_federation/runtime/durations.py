"""Reads durations as Hive writes them: ``3600s``, ``5m``, ``500ms``; a bare number is seconds."""

from __future__ import annotations

import re

from airflow_hive_federation.errors import ConfigurationError

#: Operating systems count the milliseconds of a wait for a socket in 32 bits, which is 24 days.
LONGEST_TIMEOUT_S = 7 * 24 * 3600

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)")
_UNITS_S = {
    "ms": 1e-3, "msec": 1e-3, "us": 1e-6, "usec": 1e-6, "ns": 1e-9, "nsec": 1e-9,
    "": 1, "s": 1, "sec": 1, "m": 60, "min": 60, "h": 3600, "hour": 3600, "d": 86400, "day": 86400,
}  # fmt: skip


def parse_duration_s(text: str) -> float | None:
    """Return the seconds of a duration; ``None`` for any other text."""
    match = _DURATION.fullmatch(text.strip().lower())
    if match is None:
        return None
    unit_s = _UNITS_S.get(match[2], _UNITS_S.get(match[2].removesuffix("s")))
    return None if unit_s is None else float(match[1]) * unit_s


def duration_s(text: str) -> float:
    """Return the seconds of a duration.

    :raises ConfigurationError: the text is not a duration.
    """
    seconds = parse_duration_s(text)
    if seconds is None:
        raise ConfigurationError(
            f"{text!r} is not a duration.", remedy="Write it as Hive does: 500ms, 30s, 5m, 1h."
        )
    return seconds
