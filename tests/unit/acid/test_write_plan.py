"""What a writer takes from a table's description, and what it refuses."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from airflow_hive_federation.acid.write.plan import (
    StagedFile,
    check_one_file_per_bucket,
    match_columns,
    statement_directory,
    static_values,
    table_layout,
)
from airflow_hive_federation.errors import ConfigurationError

ORC = "org.apache.hadoop.hive.ql.io.orc.OrcOutputFormat"


def table(**changes: Any) -> SimpleNamespace:
    storage = {
        "cols": [SimpleNamespace(name="Id", type="int"), SimpleNamespace(name="name", type="varchar(3)")],
        "location": "file:/t/",
        "outputFormat": changes.pop("output_format", ORC),
        "numBuckets": changes.pop("buckets", -1),
        "bucketCols": changes.pop("bucket_columns", []),
        "sortCols": [],
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


def test_layout() -> None:
    layout = table_layout(table(buckets=4, bucket_columns=["ID"]))
    assert (layout.name, layout.file_format, layout.key_names) == ("d.t", "acid", ["day", "hour"])
    # Tables older than Hive 3 do not say which version.
    assert (layout.bucket_columns, layout.bucket_count, layout.bucketing_version) == (("id",), 4, 1)
    assert layout.location == "file:/t"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"parameters": {}}, "not transactional"),
        ({"tableType": "VIRTUAL_VIEW"}, "is a view"),
        ({"output_format": "some.TextFormat"}, "format that is not written"),
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
