"""The error of a partition that is not stored as its table names the difference."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.tables.write.partitions import check_alike, new_partition
from airflow_hive_federation.tables.write.plan import table_layout

TEXT = "org.apache.hadoop.hive.ql.io.HiveIgnoreKeyTextOutputFormat"
ORC = "org.apache.hadoop.hive.ql.io.orc.OrcOutputFormat"
LAZY = "org.apache.hadoop.hive.serde2.lazy.LazySimpleSerDe"


def table(**changes: Any) -> Any:
    storage = types.StorageDescriptor(
        cols=[types.FieldSchema(name="id", type="int"), types.FieldSchema(name="name", type="string")],
        location="file:/w/t",
        outputFormat=TEXT,
        serdeInfo=types.SerDeInfo(serializationLib=LAZY, parameters={"field.delim": ","}),
        bucketCols=["id"],
        numBuckets=4,
        sortCols=[types.Order(col="id", order=1)],
    )
    return types.Table(
        dbName="d",
        tableName="t",
        sd=with_changes(storage, changes),
        partitionKeys=[types.FieldSchema(name="p", type="string")],
        parameters={"transactional": "true", "transactional_properties": "insert_only"},
    )


def with_changes(storage: Any, changes: dict[str, Any]) -> Any:
    changed = copy.deepcopy(storage)
    for name, value in changes.items():
        setattr(changed, name, value)
    return changed


def partition_of(owner: Any, **changes: Any) -> Any:
    made = new_partition(owner, ["a b"], "file:/w/t/p=a b", 1)
    made.sd = with_changes(made.sd, changes)
    return made


def test_what_is_made_is_alike() -> None:
    owner = table()
    made = partition_of(owner)
    assert (made.sd.location, owner.sd.location) == ("file:/w/t/p=a b", "file:/w/t")
    check_alike(table_layout(owner), owner, [made])


@pytest.mark.parametrize("count", [-1, 0])
def test_without_buckets(count: int) -> None:
    owner = table(numBuckets=-1, bucketCols=[], sortCols=[])
    check_alike(table_layout(owner), owner, [partition_of(owner, numBuckets=count, sortCols=None)])


@pytest.mark.parametrize(
    ("changes", "difference"),
    [
        ({"numBuckets": 2}, "buckets: 2 by id instead of 4 by id"),
        ({"bucketCols": ["name"]}, "buckets: 4 by name instead of 4 by id"),
        ({"bucketCols": []}, "buckets: none instead of 4 by id"),
        ({"sortCols": []}, "order: none instead of id asc"),
        ({"sortCols": [types.Order(col="id", order=0)]}, "order: id desc instead of id asc"),
        ({"outputFormat": ORC}, f"format: {ORC} instead of {TEXT}"),
        (
            {"serdeInfo": types.SerDeInfo(serializationLib=LAZY, parameters={"field.delim": ";"})},
            "text: ';' between fields, .* instead of ',' between fields",
        ),
    ],
)
def test_the_error_names_the_difference(changes: dict[str, Any], difference: str) -> None:
    owner = table()
    with pytest.raises(
        ConfigurationError, match=rf"p=a b of d\.t is not stored as its table: {difference}"
    ) as caught:
        check_alike(table_layout(owner), owner, [partition_of(owner), partition_of(owner, **changes)])
    assert "ALTER TABLE back" in str(caught.value.remedy)
