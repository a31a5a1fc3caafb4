"""A Glue database as a remote (moto stands in for AWS): real Hive joins its tables, and follows changes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto import mock_aws

from airflow_hive_federation.catalog.glue import GlueCatalog
from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.embedded.sql import HiveSql
from airflow_hive_federation.metastore import MetastoreSettings
from airflow_hive_federation.remotes.session import Remotes
from airflow_hive_federation.remotes.statement import Kind, Name

FAR, NEAR = "glue_far", "glue_near"
REGION = "eu-central-1"


@pytest.fixture
def glue(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)
    # moto has none.
    monkeypatch.setattr(GlueCatalog, "table_statistics", lambda _catalog, _table: [])
    with mock_aws():
        yield boto3.client("glue", region_name=REGION)


def storage(place: Path) -> dict[str, Any]:
    """As Glue's crawlers write it, upper case and all."""
    return {
        "Columns": [{"Name": "Id", "Type": "int"}, {"Name": "word", "Type": "string"}],
        "Location": f"file:{place}",
        "InputFormat": "org.apache.hadoop.mapred.TextInputFormat",
        "OutputFormat": "org.apache.hadoop.hive.ql.io.HiveIgnoreKeyTextOutputFormat",
        "SerdeInfo": {
            "SerializationLibrary": "org.apache.hadoop.hive.serde2.lazy.LazySimpleSerDe",
            "Parameters": {"field.delim": ","},
        },
    }


def rows(place: Path, text: str) -> Path:
    place.mkdir(parents=True)
    (place / "rows").write_text(text, encoding="utf-8")
    return place


@pytest.mark.slow
def test_hive_joins_tables_of_glue(
    glue: Any, target: EmbeddedMetastore, hive_sql_target: HiveSql, tmp_path: Path
) -> None:
    cities, visits = tmp_path / "cities", tmp_path / "visits"
    glue.create_database(DatabaseInput={"Name": FAR, "Description": "of Glue"})
    glue.create_table(
        DatabaseName=FAR,
        TableInput={"Name": "cities", "StorageDescriptor": storage(rows(cities, "1,Berlin\n2,Wien\n"))},
    )
    keys = [{"Name": "Day", "Type": "string"}]
    glue.create_table(
        DatabaseName=FAR,
        TableInput={"Name": "visits", "StorageDescriptor": storage(visits), "PartitionKeys": keys},
    )

    def add(day: str, text: str) -> None:
        place = storage(rows(visits / day, text))
        partition = {"Values": [day], "StorageDescriptor": place}
        glue.create_partition(DatabaseName=FAR, TableName="visits", PartitionInput=partition)

    add("monday", "1,a\n1,b\n")
    joined = f"""SELECT c.word, v.day, count(*) FROM {NEAR}.cities c JOIN {NEAR}.visits v ON c.id = v.id
        GROUP BY c.word, v.day"""
    with Remotes(MetastoreSettings(uris=(target.uri,))) as remotes:
        remotes.run(
            f"""CREATE REMOTE DATABASE {NEAR} CONNECTED TO {FAR}
            VIA 'com.amazonaws.glue.catalog.metastore.AWSGlueDataCatalogHiveClientFactory'
              -- Glue endpoint configuration"""
        )
        assert hive_sql_target.execute(joined) == [("Berlin", "monday", "2")]
        assert ("id", "int", "") in remotes.run(f"DESCRIBE {NEAR}.visits")[0].rows
        add("friday", "2,c\n")
        glue.delete_partition(DatabaseName=FAR, TableName="visits", PartitionValues=["monday"])
        report = remotes.refresh(Kind.DATABASE, Name(database=NEAR))
        assert (report.partitions_added, report.partitions_dropped) == (1, 1)
        assert hive_sql_target.execute(joined) == [("Wien", "friday", "1")]
        glue.delete_table(DatabaseName=FAR, Name="cities")
        assert remotes.refresh(Kind.DATABASE, Name(database=NEAR)).dropped == ["cities"]
        assert not remotes.refresh(Kind.DATABASE, Name(database=NEAR)).changed
        remotes.run(f"DROP REMOTE DATABASE {NEAR}")
    assert (cities / "rows").exists()
    assert (visits / "monday" / "rows").exists()
