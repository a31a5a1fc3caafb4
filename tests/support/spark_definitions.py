"""Definitions of tables that Spark wrote."""

from __future__ import annotations

from airflow_hive_federation.metastore.idl import types

HERE, THERE = "hdfs://a/w/d.db/t", "s3a://b/w/d.db/t"


def table(
    location: str = HERE,
    path: str | None = HERE,
    provider: str | None = "parquet",
    *,
    kind: str = "EXTERNAL_TABLE",
    keys: tuple[str, ...] = (),
    input_format: str = "",
    options: dict[str, str] | None = None,
    **parameters: str,
) -> types.Table:
    named = {} if path is None else {"path": path}
    given = {} if provider is None else {"spark.sql.sources.provider": provider}
    return types.Table(
        dbName="d",
        tableName="t",
        tableType=kind,
        parameters={**given, **{key.replace("__", "."): value for key, value in parameters.items()}},
        partitionKeys=[types.FieldSchema(name=key, type="string") for key in keys],
        sd=types.StorageDescriptor(
            location=location,
            inputFormat=input_format,
            serdeInfo=types.SerDeInfo(parameters={**named, **(options or {}), "serialization.format": "1"}),
        ),
    )
