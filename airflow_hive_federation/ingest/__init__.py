"""Streams records into ACID tables as Hive's Streaming API V2 does, without Hive.

>>> from airflow_hive_federation.ingest import HiveStreamingConnection, StrictDelimitedInputWriter
>>> writer = StrictDelimitedInputWriter.new_builder().with_field_delimiter(",").build()
>>> connection = (  # doctest: +SKIP
...     HiveStreamingConnection.new_builder()
...     .with_database("testing")
...     .with_table("alerts")
...     .with_record_writer(writer)
...     .with_conf(MetastoreSettings(uris=("thrift://localhost:9083",)))
...     .connect()
... )
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow_hive_federation.ingest.connection import HiveStreamingConnection
    from airflow_hive_federation.ingest.formats.arrow_records import ArrowRecordWriter
    from airflow_hive_federation.ingest.formats.delimited import StrictDelimitedInputWriter
    from airflow_hive_federation.ingest.formats.json_records import StrictJsonWriter
    from airflow_hive_federation.ingest.formats.quoted import QuotedInputWriter
    from airflow_hive_federation.ingest.formats.regex_records import StrictRegexWriter
    from airflow_hive_federation.ingest.formats.writers import AbstractRecordWriter

__all__ = [
    "AbstractRecordWriter",
    "ArrowRecordWriter",
    "HiveStreamingConnection",
    "QuotedInputWriter",
    "StrictDelimitedInputWriter",
    "StrictJsonWriter",
    "StrictRegexWriter",
]

_HOME = {
    "AbstractRecordWriter": "formats.writers",
    "ArrowRecordWriter": "formats.arrow_records",
    "HiveStreamingConnection": "connection",
    "QuotedInputWriter": "formats.quoted",
    "StrictDelimitedInputWriter": "formats.delimited",
    "StrictJsonWriter": "formats.json_records",
    "StrictRegexWriter": "formats.regex_records",
}


def __getattr__(name: str) -> Any:
    # Every DAG file imports an operator's module, and pyarrow is heavy: so these modules are imported late.
    from importlib import import_module

    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
