"""Locations that need no look-up, and conditions in Spark's SQL."""

from __future__ import annotations

from typing import Any, cast

import pytest
from pyspark.sql import types

from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.model.types import Column
from airflow_hive_federation.tables.read import scan
from airflow_hive_federation.tables.read.partition_scans import shown

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


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("string", "`c`"),
        ("char(3)", "rpad(`c`, 3, ' ')"),
        ("varchar(3)", "substring(`c`, 1, 3)"),
        ("array<varchar(3)>", "transform(`c`, __acid_0 -> substring(__acid_0, 1, 3))"),
        ("array<string>", "`c`"),
    ],
)
def test_texts_have_the_columns_length(kind: str, text: str) -> None:
    assert shown(Column.of("c", kind), "`c`") == text


def test_names_are_quoted() -> None:
    schema = types.StructType([types.StructField("a`b", types.IntegerType())])
    assert "`row`.`a``b` is null" in scan.keep(schema, 0)


@pytest.mark.parametrize(
    ("directory", "shared"),
    [
        ("delta_0000005_0000005_0000", True),
        ("delta_0000005_0000005_0001/HIVE_UNION_SUBDIR_1", True),
        # Streaming, or a compaction of Hive 3, or a replica's copy of one.
        ("delta_0000005_0000005", False),
        ("delta_0000001_0000005", False),
        ("delta_0000001_0000005_v0000123", False),
        ("base_0000005", False),
        ("base_0000005_v0000123", False),
        ("base_0000005/HIVE_UNION_SUBDIR_1", False),
    ],
)
def test_a_footer_stands_for_the_files_of_one_writer(
    directory: str, shared: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A dynamic insert wrote both partitions; the column was renamed before the second one was written anew.
    columns = {f"file:/w/t/p=1/{directory}/bucket_00000": ("id", "a")}
    columns[f"file:/w/t/p=2/{directory}/bucket_00000"] = ("id", "b")
    asked: list[str] = []

    def row_columns(paths: list[str], options: object) -> list[tuple[str, ...]]:
        asked.extend(paths)
        return [columns[path] for path in paths]

    monkeypatch.setattr(scan, "row_columns", row_columns)
    schema = types.StructType([types.StructField(name, types.IntegerType()) for name in ("id", "b")])
    assert scan.names_fit(list(columns), schema, None) is shared
    assert len(asked) == (1 if shared else 2)
