"""Properties of a table that say how its ORC files are written (``OrcConf``)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.model.types import HiveType, parse_type

#: ``CompressionKind`` → pyarrow's name.
_COMPRESSIONS = {
    "NONE": "uncompressed",
    "ZLIB": "zlib",
    "SNAPPY": "snappy",
    "ZSTD": "zstd",
    "LZ4": "lz4",
}
#: Types whose values every writer and reader hashes alike. Not so texts of a ``char``, which are stored
#: without the spaces that Hive looks for, and timestamps, which depend on a time zone.
_FILTERED = {
    "tinyint",
    "smallint",
    "int",
    "bigint",
    "float",
    "double",
    "date",
    "string",
    "varchar",
    "decimal",
}
_REQUESTED = "tblprops."


@dataclass(frozen=True, kw_only=True)
class BloomFilters:
    """The Bloom filters of a table's ORC files.

    :param columns: names of the user's columns that have one.
    :param fpp: share of values that a filter lets through although the row group lacks them.
    """

    columns: tuple[str, ...] = ()
    fpp: float = 0.01


NO_FILTERS = BloomFilters()


def merged_properties(*several: Mapping[str, str] | None) -> dict[str, str]:
    """Properties with names in lower case; the later ones count."""
    return {key.lower(): value for some in several for key, value in (some or {}).items()}


def requested_properties(text: str | None) -> dict[str, str]:
    """Table properties of a compaction's request (``TBLPROPERTIES ("tblprops.orc.compress"="ZSTD")``).

    :param text: as ``CompactionInfoStruct`` has them (``StringableMap``): their number, then keys and values,
        each after its length.
    :raises ConfigurationError: the text is none.
    """
    if not text:
        return {}
    rest = text

    def number() -> int:
        nonlocal rest
        digits, colon, rest = rest.partition(":")
        if not colon or not digits.isdecimal():
            raise ConfigurationError(f"The properties of a compaction's request cannot be read: {text!r}.")
        return int(digits)

    def word() -> str:
        nonlocal rest
        length = number()
        found, rest = rest[:length], rest[length:]
        return found

    pairs = [(word(), word()) for _ in range(number())]
    return {key.removeprefix(_REQUESTED): value for key, value in pairs if key.startswith(_REQUESTED)}


def orc_compression(table: str, properties: Mapping[str, str]) -> str:
    """The codec of a table's files, by pyarrow's name.

    :param table: named by errors.
    :param properties: see :func:`merged_properties`.
    :raises ConfigurationError: ``orc.compress`` names one that is not written here.
    """
    text = properties.get("orc.compress", "ZLIB")
    if text.upper() not in _COMPRESSIONS:
        raise ConfigurationError(
            f"{table}: orc.compress is {text}, which is not written here.",
            remedy=f"Choose among {', '.join(_COMPRESSIONS)}.",
        )
    return _COMPRESSIONS[text.upper()]


def bloom_filters(
    table: str, properties: Mapping[str, str], columns: Iterable[tuple[str, str]]
) -> BloomFilters:
    """The Bloom filters of a table's files.

    :param table: named by errors.
    :param properties: see :func:`merged_properties`.
    :param columns: names and Hive types of the table's columns. Filters are made for numbers, dates, strings
        and varchars; other columns that are named get none.
    :raises ConfigurationError: ``orc.bloom.filter.fpp`` is no number between 0 and 1.
    """
    text = properties.get("orc.bloom.filter.columns", "")
    asked = {name.strip().lower() for name in text.split(",")}
    names = tuple(
        name.lower()
        for name, kind in columns
        if ("*" in asked or name.lower() in asked) and _is_filtered(parse_type(kind))
    )
    if not names:
        return NO_FILTERS
    fpp = properties.get("orc.bloom.filter.fpp", str(NO_FILTERS.fpp))
    try:
        share = float(fpp)
    except ValueError:
        share = 0.0
    if not 0 < share < 1:
        raise ConfigurationError(
            f"{table}: orc.bloom.filter.fpp is {fpp}.", remedy="It is a number between 0 and 1."
        )
    return BloomFilters(columns=names, fpp=share)


def _is_filtered(kind: HiveType) -> bool:
    return kind.name in _FILTERED
