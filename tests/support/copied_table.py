"""A table and a partition of cluster C1, as a metastore has them, each with a copy in C2."""

from __future__ import annotations

from typing import Any

from airflow_hive_federation.clusters.metadata import (
    ClusterMetadata,
    Secondary,
    SourceMark,
    metadata_mark,
    write_metadata,
)
from airflow_hive_federation.metastore.idl import types

PRIMARY, COPY = "file:/c1/d.db/t", "file:/c2/d.db/t"


def described(made: Any, location: str, copy: str) -> Any:
    """A table or partition of C1 with a copy in C2."""
    made.sd = types.StorageDescriptor(location=location)
    mark = SourceMark(metadata=metadata_mark(made), files=1, size_bytes=1, content="c", listing="l")
    secondary = Secondary(location=copy, source=mark)
    made.parameters = write_metadata(
        made.parameters, ClusterMetadata(primary="C1", secondaries={"C2": secondary})
    )
    return made


def table() -> types.Table:
    keys = [types.FieldSchema(name="p", type="string")]
    return described(types.Table(dbName="d", tableName="t", partitionKeys=keys), PRIMARY, COPY)  # type: ignore[no-any-return]


def partition(write_id: int | None = None) -> types.Partition:
    made = types.Partition(dbName="d", tableName="t", values=["a"], writeId=write_id)
    return described(made, f"{PRIMARY}/p=a", f"{COPY}/p=a")  # type: ignore[no-any-return]
