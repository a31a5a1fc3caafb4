"""Fixtures with a metastore in memory and tables on this machine's disk."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_hive_federation.ingest import HiveStreamingConnection, StrictDelimitedInputWriter
from airflow_hive_federation.ingest.builder import StreamingConnectionBuilder
from airflow_hive_federation.metastore import MetastoreSettings
from airflow_hive_federation.metastore.idl import types
from tests.support.memory_metastore import MemoryMetastore
from tests.support.small_source import storage
from tests.support.streaming import Builders


@pytest.fixture
def metastore(tmp_path: Path) -> MemoryMetastore:
    """A metastore with the tables ``plain`` and ``parted`` (a int, b string) of the database ``d``."""
    made = MemoryMetastore(f"file:{tmp_path}")
    for name, keys in (("plain", []), ("parted", ["p"])):
        made.put_table(
            types.Table(
                dbName="d",
                tableName=name,
                owner="ada",
                sd=storage(f"file:{tmp_path}/{name}"),
                partitionKeys=[types.FieldSchema(name=key, type="string") for key in keys],
                parameters={"transactional": "true", "bucketing_version": "2"},
                tableType="MANAGED_TABLE",
                id=7,
            )
        )
    return made


@pytest.fixture
def settings(metastore: MemoryMetastore) -> Iterator[MetastoreSettings]:
    with metastore.served(user="ada", connect_timeout_s=5.0) as settings:
        yield settings


@pytest.fixture
def builder(settings: MetastoreSettings) -> Builders:
    """Return builders of connections to a table."""

    def built(table: str = "plain") -> StreamingConnectionBuilder:
        return (
            HiveStreamingConnection.new_builder()
            .with_database("d")
            .with_table(table)
            .with_record_writer(StrictDelimitedInputWriter(field_delimiter=","))
            .with_conf(settings)
        )

    return built
