"""Reads JSON from untrusted sources with bounds on its depth and its number of values.

Python's parser takes some 25 bytes of memory per byte of ``[],[],…``, and raises ``RecursionError`` for
brackets that are nested a thousand deep. So this module counts the values of long texts before it parses
them, and raises ``ValueError`` for too deep a text, as for every other error in a text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable

#: Values that a text may hold. An event of 10,000 partitions with ten files each has 120,000.
MAX_VALUES = 1_000_000

#: A string, whose brackets and commas are not counted, with or without its closing quote. The possessive
#: quantifiers keep the match linear.
_STRING = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)
_MARKS = ("[", "{", ",", ":")


def loads(
    text: str | bytes,
    *,
    max_values: int = MAX_VALUES,
    parse_float: Callable[[str], object] | None = None,
    parse_constant: Callable[[str], object] | None = None,
    object_pairs_hook: Callable[[list[tuple[str, object]]], object] | None = None,
) -> object:
    """Read a value with :func:`json.loads`, within the bounds.

    :param max_values: maximum number of values in the text.
    :param parse_float: makes a number of the text of one with a fraction or exponent.
    :param parse_constant: makes a value of ``NaN``, ``Infinity`` or ``-Infinity``.
    :param object_pairs_hook: makes a value of the fields of an object.
    :raises ValueError: if the text is not JSON, is nested too deeply, or holds more values.
    """
    check_values(text, max_values)
    try:
        value: object = json.loads(
            text,
            parse_float=parse_float,
            parse_constant=parse_constant,
            object_pairs_hook=object_pairs_hook,
        )
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    return value


def check_values(text: str | bytes, max_values: int = MAX_VALUES) -> None:
    """Check that a text holds at most ``max_values`` values.

    :raises ValueError: if it holds more.
    :raises UnicodeDecodeError: (a ``ValueError``) if the text is long, and not UTF-8.
    """
    # Nearly every text is shorter than the maximum, or has few marks even if those in strings count.
    if len(text) <= max_values or _marks(text) < max_values:
        return
    document = text if isinstance(text, str) else text.decode()
    count = at = 0
    for string in _STRING.finditer(document):
        count += 1 + _marks_between(document, at, string.start())
        at = string.end()
        if count > max_values:
            break
    if count + _marks_between(document, at, len(document)) > max_values:
        raise ValueError(f"it holds more than {max_values} values")


def _marks(text: str | bytes) -> int:
    if isinstance(text, str):
        return sum(map(text.count, _MARKS))
    return sum(text.count(mark.encode()) for mark in _MARKS)


def _marks_between(text: str, start: int, end: int) -> int:
    return sum(text.count(mark, start, end) for mark in _MARKS)
