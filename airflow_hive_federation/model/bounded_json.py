"""JSON that others wrote, read within bounds of depth and of the number of values. Pure.

Python's parser takes some 25 bytes of memory for a byte of ``[],[],…``, and ends with a ``RecursionError``
where brackets are nested a thousand deep. So the values of long texts are counted before they are made, and
depth is a ``ValueError``, as every other fault of a text.
"""

from __future__ import annotations

import json
import re
from typing import Any

#: Values that a text may hold. An event of 10,000 partitions with ten files each has 120,000.
MAX_VALUES = 1_000_000

#: A string, whose brackets and commas count for nothing; without its end where it has none.
#: Nothing in it is tried twice.
_STRING = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)
_MARKS = ("[", "{", ",", ":")


def loads(text: str | bytes, *, max_values: int = MAX_VALUES, **hooks: Any) -> Any:
    """Read a value, as :func:`json.loads` does.

    :param max_values: how many values the text may hold.
    :param hooks: ``parse_float`` and the others of :func:`json.loads`.
    :raises ValueError: the text is not JSON, is nested too deeply, or holds more values.
    """
    check_values(text, max_values)
    try:
        return json.loads(text, **hooks)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def check_values(text: str | bytes, max_values: int = MAX_VALUES) -> None:
    """Make sure that a text holds no more values.

    :raises ValueError: it holds more.
    :raises UnicodeDecodeError: (a ``ValueError``) the text is long, and not UTF-8.
    """
    # Nearly every text is shorter than that, or has few marks even if those in strings are counted.
    if len(text) <= max_values or _marks(text) < max_values:
        return
    whole = text if isinstance(text, str) else text.decode()
    count = at = 0
    for string in _STRING.finditer(whole):
        count += 1 + _marks_between(whole, at, string.start())
        at = string.end()
        if count > max_values:
            break
    if count + _marks_between(whole, at, len(whole)) > max_values:
        raise ValueError(f"it holds more than {max_values} values")


def _marks(text: str | bytes) -> int:
    if isinstance(text, str):
        return sum(map(text.count, _MARKS))
    return sum(text.count(mark.encode()) for mark in _MARKS)


def _marks_between(text: str, start: int, end: int) -> int:
    return sum(text.count(mark, start, end) for mark in _MARKS)
