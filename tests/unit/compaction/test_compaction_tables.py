"""Tables that are not compacted here, by their definition in the metastore."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_hive_federation.compaction.plan import FileFormat
from airflow_hive_federation.compaction.tables import compacted_table
from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.metastore.idl import types


class Metastore:
    """A metastore with one insert-only table of text."""

    def __init__(self, **parameters: str) -> None:
        self.parameters = {"transactional": "true", "transactional_properties": "insert_only", **parameters}

    def get_table(self, database: str, name: str) -> Any:
        storage = types.StorageDescriptor(
            cols=[types.FieldSchema(name="a", type="string")],
            location="file:/w/t",
            inputFormat="org.apache.hadoop.mapred.TextInputFormat",
            sortCols=[],
            numBuckets=-1,
        )
        return types.Table(
            dbName=database, tableName=name, sd=storage, partitionKeys=[], parameters=self.parameters
        )


def test_lines_that_readers_skip_in_each_file_are_not_merged() -> None:
    plain: Any = Metastore(**{"skip.header.line.count": "0"})
    compacted = compacted_table(plain, "d", "t", None).compacted
    assert compacted is not None
    assert compacted.file_format is FileFormat.TEXT
    for lines in ("header", "footer"):
        skipping: Any = Metastore(**{f"skip.{lines}.line.count": "1"})
        with pytest.raises(ConfigurationError, match=f"d.t has {lines} lines in its files"):
            compacted_table(skipping, "d", "t", None)
