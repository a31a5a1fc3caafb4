"""Converts column statistics of Glue to those of Hive, without any I/O.

Both store the same facts of a column, each for the types that it knows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from typing import Any

from airflow_hive_federation.metastore.idl import types

Facts = Mapping[str, Any]


def hive_statistics(statistics: Facts) -> types.ColumnStatisticsObj | None:
    """Convert one ``ColumnStatistics`` to Hive's form; return ``None`` for a type that Hive does not know."""
    data = statistics["StatisticsData"]
    make = _BY_TYPE.get(data["Type"])
    if make is None:
        return None
    return types.ColumnStatisticsObj(
        colName=statistics["ColumnName"].lower(),
        colType=statistics["ColumnType"],
        statsData=make(data[f"{data['Type'].title()}ColumnStatisticsData"]),
    )


def _boolean(facts: Facts) -> types.ColumnStatisticsData:
    return types.ColumnStatisticsData(
        booleanStats=types.BooleanColumnStatsData(
            numTrues=facts["NumberOfTrues"],
            numFalses=facts["NumberOfFalses"],
            numNulls=facts["NumberOfNulls"],
        )
    )


def _long(facts: Facts) -> types.ColumnStatisticsData:
    return types.ColumnStatisticsData(
        longStats=types.LongColumnStatsData(**_ordered(facts, lambda number: number))
    )


def _double(facts: Facts) -> types.ColumnStatisticsData:
    return types.ColumnStatisticsData(
        doubleStats=types.DoubleColumnStatsData(**_ordered(facts, lambda number: number))
    )


def _decimal(facts: Facts) -> types.ColumnStatisticsData:
    def value(number: Facts) -> types.Decimal:
        return types.Decimal(unscaled=number["UnscaledValue"], scale=number["Scale"])

    return types.ColumnStatisticsData(decimalStats=types.DecimalColumnStatsData(**_ordered(facts, value)))


def _date(facts: Facts) -> types.ColumnStatisticsData:
    def value(instant: datetime) -> types.Date:
        return types.Date(daysSinceEpoch=(instant.astimezone(UTC).date() - date(1970, 1, 1)).days)

    return types.ColumnStatisticsData(dateStats=types.DateColumnStatsData(**_ordered(facts, value)))


def _string(facts: Facts) -> types.ColumnStatisticsData:
    return types.ColumnStatisticsData(
        stringStats=types.StringColumnStatsData(
            maxColLen=facts["MaximumLength"],
            avgColLen=facts["AverageLength"],
            numNulls=facts["NumberOfNulls"],
            numDVs=facts["NumberOfDistinctValues"],
        )
    )


def _binary(facts: Facts) -> types.ColumnStatisticsData:
    return types.ColumnStatisticsData(
        binaryStats=types.BinaryColumnStatsData(
            maxColLen=facts["MaximumLength"],
            avgColLen=facts["AverageLength"],
            numNulls=facts["NumberOfNulls"],
        )
    )


def _ordered(facts: Facts, value: Callable[[Any], Any]) -> dict[str, Any]:
    least, most = facts.get("MinimumValue"), facts.get("MaximumValue")
    return {
        "lowValue": None if least is None else value(least),
        "highValue": None if most is None else value(most),
        "numNulls": facts["NumberOfNulls"],
        "numDVs": facts["NumberOfDistinctValues"],
    }


_BY_TYPE: Mapping[str, Callable[[Facts], types.ColumnStatisticsData]] = {
    "BOOLEAN": _boolean,
    "LONG": _long,
    "DOUBLE": _double,
    "DECIMAL": _decimal,
    "DATE": _date,
    "STRING": _string,
    "BINARY": _binary,
}
