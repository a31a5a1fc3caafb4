"""Timestamps that Java's ORC reader gives for others, where the JVM does not run in UTC.

Of a file that goes by the proleptic calendar, as ours do, Java's reader makes one of the Julian calendar
(``CalendarUtils.convertTimeToHybrid``), and Spark goes back (``RebaseDateTime``). Each keeps what a clock
shows, but the former one in UTC, the latter one in the JVM's time zone. Within that zone's distance from UTC,

- what was the year before the first, in UTC, comes back as the year 1, because eras are not looked at;
- what was a day that the Julian calendar does not have comes back ten days later;
- what was 1 March already, in UTC, comes back as 29 February of a year that has none, hence as 1 March.

The timestamps for which they come are refused with them: they cannot be told apart.
"""

from __future__ import annotations

from pyspark.sql import types as spark_types

# From 100 to 1500, the leap years of the Julian calendar that are none of the Gregorian.
_CENTURIES = [year for year in range(100, 1600, 100) if year % 400]


def has_timestamps(data_type: spark_types.DataType) -> bool:
    """Whether a type is a timestamp, or has one inside."""
    return bool(_anywhere("", data_type, "{}", 0))


def checked(text: str, data_type: spark_types.DataType, zone: str, standard_offset_s: int, told: str) -> str:
    """Make an expression fail where it is such a timestamp, or has one inside.

    :param text: the expression, in Spark's SQL.
    :param zone: time zone of the JVM.
    :param standard_offset_s: seconds that its clock was ahead of UTC before 1900, to Java.
    :param told: name of the column, for the error.
    """
    condition = _anywhere(text, data_type, _doubtful(zone, standard_offset_s), 0)
    if not standard_offset_s or not condition:
        return text
    why = (
        f"The column {told} has an early timestamp that, by the clock of {zone}, Java's ORC reader may have "
        "taken for another one. Remedy: run Spark with -Duser.timezone=UTC."
    )
    # Names may have quotation marks.
    message = f"decode(unhex('{why.encode().hex()}'), 'UTF-8')"
    return f"if({condition}, raise_error({message}), {text})"


def _doubtful(zone: str, offset_s: int) -> str:
    """Build the condition on a timestamp, which is named ``{}``."""
    days = ["2, 1, 1", "1582, 10, 25"] if offset_s > 0 else [f"{year}, 3, 2" for year in _CENTURIES]
    midnights = [f"make_timestamp_ltz({day}, 0, 0, 0, '{zone}')" for day in days]
    shift = f"interval {offset_s} seconds"
    windows = [
        f"({{}} >= {midnight} and {{}} < {midnight} + {shift})"
        if offset_s > 0
        else f"({{}} >= {midnight} + {shift} and {{}} < {midnight})"
        for midnight in midnights
    ]
    # For nearly all of them one comparison is enough.
    return f"({{}} < make_timestamp_ltz(1583, 1, 1, 0, 0, 0, '{zone}') and ({' or '.join(windows)}))"


def _anywhere(text: str, data_type: spark_types.DataType, doubtful: str, depth: int) -> str:
    """Say that there is one; empty if the type has no timestamps."""
    if isinstance(data_type, spark_types.TimestampType):
        return doubtful.replace("{}", text)
    if isinstance(data_type, spark_types.StructType):
        inside = [
            _anywhere(f"{text}.`{field.name.replace('`', '``')}`", field.dataType, doubtful, depth)
            for field in data_type.fields
        ]
        return " or ".join(filter(None, inside))
    if isinstance(data_type, spark_types.ArrayType):
        item = f"x{depth}"
        inside_item = _anywhere(item, data_type.elementType, doubtful, depth + 1)
        return f"exists({text}, {item} -> {inside_item})" if inside_item else ""
    if isinstance(data_type, spark_types.MapType):
        keys = spark_types.ArrayType(data_type.keyType)
        values = spark_types.ArrayType(data_type.valueType)
        pairs = ((f"map_keys({text})", keys), (f"map_values({text})", values))
        return " or ".join(filter(None, (_anywhere(of, kind, doubtful, depth) for of, kind in pairs)))
    return ""
