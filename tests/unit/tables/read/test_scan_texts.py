"""Locations that need no look-up, and conditions in Spark's SQL."""

from __future__ import annotations

from typing import Any, cast

import pytest
from pyspark.sql import types

from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.tables.read import scan

NO_SPARK = cast("Any", None)


@pytest.mark.parametrize(
    ("location", "path"),
    [
        ("file:/w/d.db/t", "file:/w/d.db/t"),
        ("file:///w/d.db/t/p=1", "file:/w/d.db/t/p=1"),
        ("hdfs://name-node:8020/w/t", "hdfs://name-node:8020/w/t"),
        ("s3a://bucket/w/_t", "s3a://bucket/w/_t"),
    ],
)
def test_plain_locations_are_qualified_without_spark(location: str, path: str) -> None:
    assert scan.qualified(NO_SPARK, location) == (path, path)


@pytest.mark.parametrize(
    "location",
    [
        "/w/t",
        "hdfs:/w/t",
        "hdfs:///w/t",
        "file:/w/p=a%3Ab",
        "file:/w t",
        "file:/w/../t",
        "file:/w//t",
        "file:/w/",
    ],
)
def test_others_are_asked_about(location: str) -> None:
    with pytest.raises(ConfigurationError):
        scan.qualified(NO_SPARK, location)


def test_names_are_quoted() -> None:
    schema = types.StructType([types.StructField("a`b", types.IntegerType())])
    assert "`row`.`a``b` is null" in scan.keep(schema, 0)
