"""Finds timestamps that Java's ORC reader may return for other ones, in a JVM that does not run in UTC.

Java's reader converts the timestamps of a file in the proleptic calendar, which our writer uses, to the
Julian calendar (``CalendarUtils.convertTimeToHybrid``); Spark converts them back (``RebaseDateTime``). Both
keep the wall clock, but Java's reader keeps that of UTC, and Spark that of the JVM's time zone. Within that
zone's distance from UTC,

- a timestamp in the year before year 1, in UTC, comes back in year 1, because eras are ignored;
- a timestamp on a day that the Julian calendar does not have comes back ten days later;
- a timestamp on 1 March, in UTC, comes back as 29 February of a year that has none, hence as 1 March.

The reader also refuses the timestamps as which these come back, because it cannot distinguish the two.
"""

from __future__ import annotations

from pyspark.sql import types as spark_types

# The leap years from 100 to 1500 that only the Julian calendar has.
_CENTURIES = [year for year in range(100, 1600, 100) if year % 400]


def has_timestamps(data_type: spark_types.DataType) -> bool:
    """Return whether a type is or contains a timestamp."""
    return bool(_anywhere("", data_type, "{}", 0))


def checked(
    text: str, data_type: spark_types.DataType, zone: str, standard_offset_s: int, column: str
) -> str:
    """Make an expression fail on values with a timestamp that Java's ORC reader may have mistaken.

    :param text: the expression, in Spark's SQL.
    :param zone: time zone of the JVM.
    :param standard_offset_s: seconds by which its clock was ahead of UTC before 1900, according to Java.
    :param column: name of the column, for the error message.
    """
    condition = _anywhere(text, data_type, _ambiguous(zone, standard_offset_s), 0)
    if not standard_offset_s or not condition:
        return text
    why = (
        f"The column {column} has an early timestamp that, by the clock of {zone}, Java's ORC reader may "
        "have taken for another one. Remedy: run Spark with -Duser.timezone=UTC."
    )
    # Hexadecimal, because names may contain quotation marks.
    message = f"decode(unhex('{why.encode().hex()}'), 'UTF-8')"
    return f"if({condition}, raise_error({message}), {text})"


def _ambiguous(zone: str, offset_s: int) -> str:
    """Return the condition on a timestamp, for which ``{}`` stands."""
    days = ["2, 1, 1", "1582, 10, 25"] if offset_s > 0 else [f"{year}, 3, 2" for year in _CENTURIES]
    midnights = [f"make_timestamp_ltz({day}, 0, 0, 0, '{zone}')" for day in days]
    shift = f"interval {offset_s} seconds"
    windows = [
        f"({{}} >= {midnight} and {{}} < {midnight} + {shift})"
        if offset_s > 0
        else f"({{}} >= {midnight} + {shift} and {{}} < {midnight})"
        for midnight in midnights
    ]
    # One comparison is enough for nearly all timestamps.
    return f"({{}} < make_timestamp_ltz(1583, 1, 1, 0, 0, 0, '{zone}') and ({' or '.join(windows)}))"


def _anywhere(text: str, data_type: spark_types.DataType, ambiguous: str, depth: int) -> str:
    """Return the condition that a value has an ambiguous timestamp; empty if its type has no timestamps."""
    if isinstance(data_type, spark_types.TimestampType):
        return ambiguous.replace("{}", text)
    if isinstance(data_type, spark_types.StructType):
        inside = [
            _anywhere(f"{text}.`{field.name.replace('`', '``')}`", field.dataType, ambiguous, depth)
            for field in data_type.fields
        ]
        return " or ".join(filter(None, inside))
    if isinstance(data_type, spark_types.ArrayType):
        item = f"x{depth}"
        inside_item = _anywhere(item, data_type.elementType, ambiguous, depth + 1)
        return f"exists({text}, {item} -> {inside_item})" if inside_item else ""
    if isinstance(data_type, spark_types.MapType):
        keys = spark_types.ArrayType(data_type.keyType)
        values = spark_types.ArrayType(data_type.valueType)
        pairs = ((f"map_keys({text})", keys), (f"map_values({text})", values))
        return " or ".join(filter(None, (_anywhere(part, kind, ambiguous, depth) for part, kind in pairs)))
    return ""
