"""Converts column statistics of Glue to those of Hive, without any I/O.

Both store the same facts of a column, each for the types that it knows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from typing import TypeVar

from airflow_hive_federation.catalog import glue_answers as answers
from airflow_hive_federation.metastore.idl import types

V = TypeVar("V")
H = TypeVar("H")


def hive_statistics(statistics: answers.ColumnStatistics) -> types.ColumnStatisticsObj | None:
    """Convert one ``ColumnStatistics`` to Hive's form; return ``None`` for a type that Hive does not know."""
    data = statistics["StatisticsData"]
    make = _BY_TYPE.get(data["Type"])
    if make is None:
        return None
    return types.ColumnStatisticsObj(
        colName=statistics["ColumnName"].lower(), colType=statistics["ColumnType"], statsData=make(data)
    )


def _boolean(data: answers.StatisticsData) -> types.ColumnStatisticsData:
    facts = data["BooleanColumnStatisticsData"]
    return types.ColumnStatisticsData(
        booleanStats=types.BooleanColumnStatsData(
            numTrues=facts["NumberOfTrues"],
            numFalses=facts["NumberOfFalses"],
            numNulls=facts["NumberOfNulls"],
        )
    )


def _long(data: answers.StatisticsData) -> types.ColumnStatisticsData:
    facts = data["LongColumnStatisticsData"]
    low, high = _bounds(facts, int)
    nulls, distinct = facts["NumberOfNulls"], facts["NumberOfDistinctValues"]
    return types.ColumnStatisticsData(
        longStats=types.LongColumnStatsData(lowValue=low, highValue=high, numNulls=nulls, numDVs=distinct)
    )


def _double(data: answers.StatisticsData) -> types.ColumnStatisticsData:
    facts = data["DoubleColumnStatisticsData"]
    low, high = _bounds(facts, float)
    nulls, distinct = facts["NumberOfNulls"], facts["NumberOfDistinctValues"]
    return types.ColumnStatisticsData(
        doubleStats=types.DoubleColumnStatsData(lowValue=low, highValue=high, numNulls=nulls, numDVs=distinct)
    )


def _decimal(data: answers.StatisticsData) -> types.ColumnStatisticsData:
    def value(number: answers.Decimal) -> types.Decimal:
        return types.Decimal(unscaled=number["UnscaledValue"], scale=number["Scale"])

    facts = data["DecimalColumnStatisticsData"]
    low, high = _bounds(facts, value)
    nulls, distinct = facts["NumberOfNulls"], facts["NumberOfDistinctValues"]
    return types.ColumnStatisticsData(
        decimalStats=types.DecimalColumnStatsData(
            lowValue=low, highValue=high, numNulls=nulls, numDVs=distinct
        )
    )


def _date(data: answers.StatisticsData) -> types.ColumnStatisticsData:
    def value(instant: datetime) -> types.Date:
        return types.Date(daysSinceEpoch=(instant.astimezone(UTC).date() - date(1970, 1, 1)).days)

    facts = data["DateColumnStatisticsData"]
    low, high = _bounds(facts, value)
    nulls, distinct = facts["NumberOfNulls"], facts["NumberOfDistinctValues"]
    return types.ColumnStatisticsData(
        dateStats=types.DateColumnStatsData(lowValue=low, highValue=high, numNulls=nulls, numDVs=distinct)
    )


def _string(data: answers.StatisticsData) -> types.ColumnStatisticsData:
    facts = data["StringColumnStatisticsData"]
    return types.ColumnStatisticsData(
        stringStats=types.StringColumnStatsData(
            maxColLen=facts["MaximumLength"],
            avgColLen=facts["AverageLength"],
            numNulls=facts["NumberOfNulls"],
            numDVs=facts["NumberOfDistinctValues"],
        )
    )


def _binary(data: answers.StatisticsData) -> types.ColumnStatisticsData:
    facts = data["BinaryColumnStatisticsData"]
    return types.ColumnStatisticsData(
        binaryStats=types.BinaryColumnStatsData(
            maxColLen=facts["MaximumLength"],
            avgColLen=facts["AverageLength"],
            numNulls=facts["NumberOfNulls"],
        )
    )


def _bounds(facts: answers.Ordered[V], value: Callable[[V], H]) -> tuple[H | None, H | None]:
    least, most = facts.get("MinimumValue"), facts.get("MaximumValue")
    return None if least is None else value(least), None if most is None else value(most)


_BY_TYPE: Mapping[str, Callable[[answers.StatisticsData], types.ColumnStatisticsData]] = {
    "BOOLEAN": _boolean,
    "LONG": _long,
    "DOUBLE": _double,
    "DECIMAL": _decimal,
    "DATE": _date,
    "STRING": _string,
    "BINARY": _binary,
}
