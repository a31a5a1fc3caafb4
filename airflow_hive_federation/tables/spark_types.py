"""Maps Hive types to Spark types."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import types as spark

from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.model.types import Column, HiveType

_PRIMITIVES: dict[str, spark.DataType] = {
    "boolean": spark.BooleanType(),
    "tinyint": spark.ByteType(),
    "smallint": spark.ShortType(),
    "int": spark.IntegerType(),
    "bigint": spark.LongType(),
    "float": spark.FloatType(),
    "double": spark.DoubleType(),
    "string": spark.StringType(),
    "char": spark.StringType(),
    "varchar": spark.StringType(),
    "binary": spark.BinaryType(),
    "date": spark.DateType(),
    # Spark itself maps a Hive timestamp to the wall clock of the session's time zone.
    "timestamp": spark.TimestampType(),
    "timestamp with local time zone": spark.TimestampType(),
    "void": spark.NullType(),
}


def spark_type(hive: HiveType) -> spark.DataType:
    """Map a Hive type to a Spark type; char and varchar become strings.

    :raises ConfigurationError: if Spark has no such type (unions, intervals in tables).
    """
    if hive.name == "decimal":
        return spark.DecimalType(*hive.arguments)
    if hive.name == "array":
        return spark.ArrayType(spark_type(hive.children[0]))
    if hive.name == "map":
        return spark.MapType(spark_type(hive.children[0]), spark_type(hive.children[1]))
    if hive.name == "struct":
        return spark.StructType(
            [spark.StructField(field.name, spark_type(field.type)) for field in hive.fields]
        )
    if hive.name not in _PRIMITIVES:
        raise ConfigurationError(
            f"Spark has no type for Hive's {hive}.",
            remedy="Leave the column out by naming the columns to read.",
        )
    return _PRIMITIVES[hive.name]


def spark_schema(columns: Sequence[Column]) -> spark.StructType:
    """Map a table's columns to a Spark schema, in order."""
    return spark.StructType([spark.StructField(column.name, spark_type(column.type)) for column in columns])
