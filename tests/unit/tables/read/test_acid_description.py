"""The description of a transactional table passes between two processes as JSON."""

from __future__ import annotations

import json

import pytest

from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.metastore.wire import WireFormatError
from airflow_hive_federation.model.write_ids import ValidTxns, ValidWriteIds
from airflow_hive_federation.tables.read.acid_description import (
    DescribedDirectory,
    DescribedRead,
    DescribedTable,
)

STORAGE = types.StorageDescriptor(location="file:/w/t", cols=[types.FieldSchema(name="id", type="int")])
TABLE = DescribedTable(
    table=types.Table(dbName="d", tableName="t", sd=STORAGE),
    reads=(
        DescribedRead(
            write_ids=ValidWriteIds.parse("d.t:7:5:5:"),
            txns=ValidTxns.everything(),
            directories=(
                DescribedDirectory(location="file:/w/t/k=1", values=("1",), storage=STORAGE),
                DescribedDirectory(location="file:/w/t", content="1f"),
            ),
        ),
    ),
)


def test_a_description_is_read_as_it_was_written() -> None:
    assert DescribedTable.from_json(json.loads(json.dumps(TABLE.to_json()))) == TABLE


@pytest.mark.parametrize("lacks", ["write_ids", "txns", "places"])
def test_a_description_without_a_field_is_refused(lacks: str) -> None:
    document = json.loads(json.dumps(TABLE.to_json()))
    del document["reads"][0][lacks]
    with pytest.raises(ValueError, match=f"reads: it has no '{lacks}'"):
        DescribedTable.from_json(document)


def test_a_description_with_a_damaged_table_is_refused() -> None:
    with pytest.raises(WireFormatError):
        DescribedTable.from_json({"table": {"dbName": 5}, "reads": []})
