"""Reads the table properties that determine the form of ORC files (``OrcConf``)."""

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
#: Types whose values all writers and readers hash to the same number. The texts of a ``char`` are missing,
#: because files lack the spaces that Hive looks up, and timestamps, because they depend on a time zone.
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

    :param columns: names of the user's columns that have a filter.
    :param fpp: share of values that a filter reports as present although the row group lacks them.
    """

    columns: tuple[str, ...] = ()
    fpp: float = 0.01


NO_FILTERS = BloomFilters()


def merged_properties(*several: Mapping[str, str] | None) -> dict[str, str]:
    """Merge properties, with names in lower case; later mappings take precedence."""
    return {key.lower(): value for properties in several for key, value in (properties or {}).items()}


def requested_properties(text: str | None) -> dict[str, str]:
    """Return the table properties in a compaction request.

    Such a request has ``TBLPROPERTIES ("tblprops.orc.compress"="ZSTD")``.

    :param text: the properties as in ``CompactionInfoStruct`` (``StringableMap``): their number, then keys
        and values, each after its length.
    :raises ConfigurationError: if the text does not have this form.
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

    def sized_text() -> str:
        nonlocal rest
        length = number()
        content, rest = rest[:length], rest[length:]
        return content

    pairs = [(sized_text(), sized_text()) for _ in range(number())]
    return {key.removeprefix(_REQUESTED): value for key, value in pairs if key.startswith(_REQUESTED)}


def orc_compression(table: str, properties: Mapping[str, str]) -> str:
    """Return pyarrow's name of the codec of a table's files.

    :param table: name of the table for error messages.
    :param properties: result of :func:`merged_properties`.
    :raises ConfigurationError: if ``orc.compress`` names an unsupported codec.
    """
    text = properties.get("orc.compress", "ZLIB")
    if text.upper() not in _COMPRESSIONS:
        raise ConfigurationError(
            f"{table}: orc.compress is {text}, which cannot be written.",
            remedy=f"Choose among {', '.join(_COMPRESSIONS)}.",
        )
    return _COMPRESSIONS[text.upper()]


def bloom_filters(
    table: str, properties: Mapping[str, str], columns: Iterable[tuple[str, str]]
) -> BloomFilters:
    """Return the Bloom filters of a table's files.

    :param table: name of the table for error messages.
    :param properties: result of :func:`merged_properties`.
    :param columns: names and Hive types of the table's columns. Numbers, dates, strings and varchars get
        filters; columns of other types get none even if the property names them.
    :raises ConfigurationError: if ``orc.bloom.filter.fpp`` is not a number between 0 and 1.
    """
    text = properties.get("orc.bloom.filter.columns", "")
    requested = {name.strip().lower() for name in text.split(",")}
    names = tuple(
        name.lower()
        for name, kind in columns
        if ("*" in requested or name.lower() in requested) and _is_filtered(parse_type(kind))
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
