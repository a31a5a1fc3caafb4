"""Translates partition filters of Hive's metastore to those of Glue, without any I/O.

Glue parses SQL of its own (``GetPartitions``, *Expression*): it accepts ``<>`` and not ``!=``, strings in
single quotes only, and dates as strings.
"""

from __future__ import annotations

import re

from airflow_hive_federation.errors import ConfigurationError

_TOKEN = re.compile(
    r"""\s*(?:
        (?:date\s*)?(?P<single>'(?:[^'\\]|\\.|'')*')
        | (?:date\s*)?(?P<double>"(?:[^"\\]|\\.|"")*")
        | `(?P<quoted>[^`]+)`
        | (?P<sign><=|>=|<>|!=|==|[=<>(),])
        | (?P<number>-?\d+(?:\.\d+)?)
        | (?P<word>[^\W\d]\w*)
    )""",
    re.VERBOSE | re.IGNORECASE,
)
_SIGNS = {"!=": "<>", "==": "="}


def glue_expression(where: str) -> str:
    """Translate a filter: ``day >= "2026-01-01" AND site != 'x'`` → ``day >= '2026-01-01' AND site <> 'x'``.

    :raises ConfigurationError: if the text is not a filter; the error names the column of the mistake.
    """
    text = where.rstrip()
    parts, place = [], 0
    while place < len(text):
        match = _TOKEN.match(text, place)
        if match is None:
            raise ConfigurationError(
                f"The filter of partitions cannot be read from column {place + 1} on: {text[place:]!r}.",
                remedy="Write it as Hive does: day >= '2026-01-01' AND site IN ('a', 'b').",
            )
        parts.append(_translated(match))
        place = match.end()
    return " ".join(parts)


def _translated(match: re.Match[str]) -> str:
    kind = str(match.lastgroup)
    text = match[kind]
    if kind in {"single", "double"}:
        quote = text[0]
        plain = re.sub(r"\\(.)", r"\1", text[1:-1].replace(quote * 2, quote))
        return "'" + plain.replace("'", "''") + "'"
    return _SIGNS.get(text, text)
