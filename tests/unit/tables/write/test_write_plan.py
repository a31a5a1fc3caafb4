"""A writer takes its plan from a table's description, or refuses the table."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.orc.properties import BloomFilters
from airflow_hive_federation.tables.write.constraints import constrained
from airflow_hive_federation.tables.write.plan import (
    StagedFile,
    check_one_file_per_bucket,
    match_columns,
    statement_directory,
    static_values,
    table_layout,
)

ORC = "org.apache.hadoop.hive.ql.io.orc.OrcOutputFormat"


def table(**changes: Any) -> SimpleNamespace:
    storage = {
        "cols": [SimpleNamespace(name="Id", type="int"), SimpleNamespace(name="name", type="varchar(3)")],
        "location": "file:/t/",
        "outputFormat": changes.pop("output_format", ORC),
        "numBuckets": changes.pop("buckets", -1),
        "bucketCols": changes.pop("bucket_columns", []),
        "sortCols": [],
        "serdeInfo": SimpleNamespace(parameters=changes.pop("serde_parameters", {})),
    }
    if "column_type" in changes:
        storage["cols"] = [SimpleNamespace(name="id", type=changes.pop("column_type"))]
    settings = {
        "dbName": "D",
        "tableName": "T",
        "tableType": "MANAGED_TABLE",
        "parameters": {"transactional": "true"},
        "partitionKeys": [SimpleNamespace(name="day", type="date"), SimpleNamespace(name="hour", type="int")],
        "sd": SimpleNamespace(**storage),
    }
    return SimpleNamespace(**{**settings, **changes})


def test_files_follow_the_tables_properties() -> None:
    """The table's properties come after those of its SerDe."""
    named = {"orc.compress": "SNAPPY", "orc.bloom.filter.columns": "ID,gone"}
    layout = table_layout(table(serde_parameters=named))
    assert (layout.compression, layout.filters) == ("snappy", BloomFilters(columns=("id",)))
    parameters = {"transactional": "true", "orc.compress": "none"}
    layout = table_layout(table(serde_parameters=named, parameters=parameters))
    assert layout.compression == "uncompressed"


def test_layout() -> None:
    layout = table_layout(table(buckets=4, bucket_columns=["ID"]))
    assert (layout.name, layout.file_format, layout.key_names) == ("d.t", "acid", ["day", "hour"])
    # Tables older than Hive 3 have no version.
    assert (layout.bucket_columns, layout.bucket_count, layout.bucketing_version) == (("id",), 4, 1)
    assert layout.location == "file:/t"


def test_constraints_that_hive_enforces() -> None:
    def rule(**parts: Any) -> SimpleNamespace:
        return SimpleNamespace(**{"enable_cstr": True, "rely_cstr": False, **parts})

    layout = table_layout(table())
    nulls = [rule(column_name="ID"), rule(column_name="name", enable_cstr=False, rely_cstr=True)]
    # Hive enforces none of a partition key.
    nulls.append(rule(column_name="day"))
    check = rule(column_name=None, dc_name="short", check_expression="length(name) < 3")
    answer: Any = SimpleNamespace(notNullConstraints=nulls, checkConstraints=None)
    assert constrained(layout, answer).not_null == ("id",)
    match_columns(constrained(layout, answer), ["id", "name", "day", "hour"], None)
    answer = SimpleNamespace(notNullConstraints=None, checkConstraints=[check])
    with pytest.raises(
        ConfigurationError, match=r"d\.t has a CHECK .*: short \(length\(name\) < 3\)\."
    ) as error:
        match_columns(constrained(layout, answer), ["id", "name", "day", "hour"], None)
    assert "DROP CONSTRAINT" in error.value.remedy
    check.enable_cstr = False
    assert constrained(layout, answer) == layout


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"parameters": {}}, "not transactional"),
        ({"tableType": "VIRTUAL_VIEW"}, "is a view"),
        ({"output_format": "some.TextFormat"}, "format that cannot be written"),
        ({"column_type": "array<uniontype<int>>"}, "column id is of type uniontype"),
        ({"buckets": 5000, "bucket_columns": ["id"]}, "5000 buckets"),
        ({"parameters": {"transactional": "true", "orc.compress": "LZO"}}, "orc.compress is LZO"),
    ],
)
def test_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        table_layout(table(**changes))


def test_columns_by_name() -> None:
    match = match_columns(table_layout(table()), ["NAME", "hour", "id"], {"DAY": "2026-01-01"})
    assert match.sources == ("id", "NAME")
    assert (match.dynamic, match.static) == ({"hour": "hour"}, {"day": "2026-01-01"})
    with pytest.raises(ConfigurationError, match="column id twice"):
        match_columns(table_layout(table()), ["id", "ID"], None)
    with pytest.raises(ConfigurationError, match="without name, day"):
        match_columns(table_layout(table()), ["id", "hour"], None)


def test_null_and_empty_are_the_default_partition() -> None:
    default = "__HIVE_DEFAULT_PARTITION__"
    assert static_values(table_layout(table()), {"day": None, "hour": ""}) == {
        "day": default,
        "hour": default,
    }
    assert static_values(table_layout(table()), {"hour": 0}) == {"hour": "0"}


@pytest.mark.parametrize(
    ("key_type", "value", "text"),
    [
        ("int", 7, "7"),
        ("int", "007", "7"),
        ("int", " -0 ", "0"),
        ("int", 1.0, "1"),
        ("bigint", np.int64(-(2**63)), "-9223372036854775808"),
        ("tinyint", Decimal("-128.00"), "-128"),
        ("date", date(2026, 1, 1), "2026-01-01"),
        ("date", datetime.fromisoformat("2026-01-01T23:59:00"), "2026-01-01"),
        ("date", np.datetime64("2026-01-01T01:02:03", "ns"), "2026-01-01"),
        ("date", "2026-1-1", "2026-01-01"),
        ("date", "0001-01-01", "0001-01-01"),
        ("timestamp", datetime.fromisoformat("2026-01-01T00:00:00"), "2026-01-01 00:00:00"),
        ("timestamp", date(2026, 1, 1), "2026-01-01 00:00:00"),
        ("timestamp", "2026-01-01T1:02:03.1200000", "2026-01-01 01:02:03.12"),
        ("boolean", True, "true"),
        ("boolean", "FALSE", "false"),
        ("boolean", 0, "false"),
        ("decimal(5,2)", "1.50", "1.5"),
        ("decimal(5,2)", Decimal("100.00"), "100"),
        ("decimal(5,2)", 1.005, "1.01"),
        ("decimal(5,2)", "-0.001", "0"),
        ("decimal(38,0)", 10**37 + 1, str(10**37 + 1)),
        ("double", 1, "1.0"),
        ("double", "1e7", "1.0E7"),
        ("double", float("-inf"), "-Infinity"),
        ("float", 0.1, "0.1"),
        ("float", np.float32(0.1), "0.1"),
        ("char(3)", "ab  ", "ab"),
        ("char(3)", "   ", "__HIVE_DEFAULT_PARTITION__"),
        ("varchar(3)", "abcd", "abc"),
        ("string", " 007 ", " 007 "),
        ("string", 7, "7"),
        ("string", True, "true"),
        ("string", datetime.fromisoformat("2026-01-01T00:00:00.100000"), "2026-01-01 00:00:00.1"),
        ("int", "__HIVE_DEFAULT_PARTITION__", "__HIVE_DEFAULT_PARTITION__"),
    ],
)
def test_static_values_are_of_their_keys_types(key_type: str, value: Any, text: str) -> None:
    layout = table_layout(table(partitionKeys=[SimpleNamespace(name="k", type=key_type)]))
    assert static_values(layout, {"K": value}) == {"k": text}


@pytest.mark.parametrize(
    ("key_type", "value"),
    [
        ("int", "yesterday"),
        ("int", 1.5),
        ("int", 2**31),
        ("int", True),
        ("int", float("nan")),
        ("int", "1_000"),
        ("tinyint", "1e9999"),
        ("date", "yesterday"),
        ("date", "2026-02-30"),
        ("date", 20260101),
        ("date", datetime(2026, 1, 1, tzinfo=UTC)),
        ("timestamp", "2026-01-01 25:00:00"),
        ("timestamp", "2026-01-01 01:02:03.1234567"),
        ("boolean", "maybe"),
        ("boolean", 2),
        ("decimal(5,2)", 1000),
        ("decimal(5,2)", "999.995"),
        ("decimal(5,2)", "NaN"),
        ("double", "much"),
    ],
)
def test_static_values_of_other_types_are_refused(key_type: str, value: Any) -> None:
    layout = table_layout(table(partitionKeys=[SimpleNamespace(name="k", type=key_type)]))
    with pytest.raises(ConfigurationError, match=r"d\.t: partition key k is of type ") as refusal:
        static_values(layout, {"k": value})
    assert f"{key_type}, which {value!r} is not" in refusal.value.message


def test_names() -> None:
    assert statement_directory(7, 1, deletes=False, overwrite=False) == "delta_0000007_0000007_0001"
    assert statement_directory(7, 0, deletes=True, overwrite=False) == "delete_delta_0000007_0000007_0000"
    assert statement_directory(7, 3, deletes=False, overwrite=True) == "base_0000007"


def test_no_bucket_comes_twice() -> None:
    file = StagedFile(path="a", values=("x",), bucket=1, row_count=1, size_bytes=1)
    other = StagedFile(path="b", values=("y",), bucket=1, row_count=1, size_bytes=1)
    check_one_file_per_bucket("t", [file, other])
    with pytest.raises(ConfigurationError, match="bucket 1"):
        check_one_file_per_bucket("t", [file, other, file])
