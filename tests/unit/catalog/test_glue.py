"""Glue on moto, and what moto does not do as AWS does on botocore's stubs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from botocore.stub import ANY, Stubber
from moto import mock_aws

from airflow_hive_federation.catalog.glue import GlueCatalog
from airflow_hive_federation.catalog.open import Catalogs
from airflow_hive_federation.errors import (
    ConfigurationError,
    HiveFederationError,
    MetastoreServerError,
    MetastoreTimeoutError,
    NoSuchObjectError,
)
from airflow_hive_federation.remotes import definitions
from tests.catalog_contract import DATABASE, check_reader, tables

ROOT = "s3://bucket"


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)


@pytest.fixture
def glue() -> Iterator[Any]:
    with mock_aws():
        yield boto3.client("glue", region_name="eu-central-1")


def glue_input(sd: Any) -> dict[str, Any]:
    return {
        "Columns": [{"Name": column.name, "Type": column.type} for column in sd.cols],
        "Location": sd.location,
        "InputFormat": sd.inputFormat,
        "OutputFormat": sd.outputFormat,
        "SerdeInfo": {
            "SerializationLibrary": sd.serdeInfo.serializationLib,
            "Parameters": sd.serdeInfo.parameters,
        },
    }


def fill(glue: Any) -> None:
    glue.create_database(DatabaseInput={"Name": DATABASE})
    for name, (table, partitions) in tables(ROOT).items():
        glue.create_table(
            DatabaseName=DATABASE,
            TableInput={
                "Name": name,
                "Owner": table.owner,
                "TableType": table.tableType,
                "StorageDescriptor": glue_input(table.sd),
                "PartitionKeys": [{"Name": key.name, "Type": key.type} for key in table.partitionKeys or []],
                "Parameters": table.parameters,
            },
        )
        if partitions:
            glue.batch_create_partition(
                DatabaseName=DATABASE,
                TableName=name,
                PartitionInputList=[
                    {
                        "Values": one.values,
                        "StorageDescriptor": glue_input(one.sd),
                        "Parameters": one.parameters,
                    }
                    for one in partitions
                ],
            )


def test_the_contract(glue: Any) -> None:
    fill(glue)
    with Catalogs() as catalogs:
        catalog, _ = catalogs.open(
            "com.amazonaws.glue.catalog.metastore.AWSGlueDataCatalogHiveClientFactory",
            {"aws.region": "eu-central-1"},
            remote="r",
        )
        check_reader(catalog, ROOT)
        # What is missing in Glue is there in what a local metastore gets.
        made = definitions.local_table(
            catalog.get_table(DATABASE, "plain"), database="l", name="n", owner="ada", link={}
        )
        assert (made.sd.bucketCols, made.sd.sortCols, made.partitionKeys) == ([], [], [])
        assert definitions.why_not(catalog.get_table(DATABASE, "plain")) is None


def test_a_role_is_assumed(glue: Any) -> None:
    fill(glue)
    with Catalogs() as catalogs:
        catalog, _ = catalogs.open(
            "glue",
            {"aws.region": "eu-central-1", "aws.glue.role.arn": "arn:aws:iam::123456789012:role/reader"},
            remote="r",
        )
        assert sorted(catalog.list_tables(DATABASE)) == ["parted", "plain"]


def test_no_region_says_so() -> None:
    with Catalogs() as catalogs:
        catalog, _ = catalogs.open("glue", {}, remote="r")
        with pytest.raises(ConfigurationError, match="region"):
            catalog.list_tables(DATABASE)


@pytest.fixture
def stubbed() -> Iterator[tuple[GlueCatalog, Stubber]]:
    client = boto3.client("glue", region_name="eu-central-1")
    with Stubber(client) as stubber:
        yield GlueCatalog(lambda: client, catalog_id="42"), stubber
        stubber.assert_no_pending_responses()


def test_tables_come_in_pages_and_lower_case(stubbed: tuple[GlueCatalog, Stubber]) -> None:
    catalog, stubber = stubbed
    asked = {"DatabaseName": "d", "CatalogId": "42"}
    stubber.add_response("get_tables", {"TableList": [{"Name": "One"}], "NextToken": "more"}, asked)
    stubber.add_response("get_tables", {"TableList": [{"Name": "two"}]}, {**asked, "NextToken": "more"})
    assert catalog.list_tables("d") == ["one", "two"]


def test_keys_that_glue_did_not_process_are_asked_again(stubbed: tuple[GlueCatalog, Stubber]) -> None:
    catalog, stubber = stubbed
    asked = {"DatabaseName": "d", "TableName": "t", "CatalogId": "42"}
    wanted = [{"Values": ["a/b", "1"]}, {"Values": ["c", "2"]}]
    stubber.add_response(
        "batch_get_partition",
        {"Partitions": [wanted[0]], "UnprocessedKeys": [wanted[1]]},
        {**asked, "PartitionsToGet": wanted},
    )
    stubber.add_response(
        "batch_get_partition", {"Partitions": [wanted[1]]}, {**asked, "PartitionsToGet": [wanted[1]]}
    )
    found = catalog.get_partitions("d", "t", ["p=a%2Fb/q=1", "p=c/q=2"])
    assert [one.values for one in found] == [["a/b", "1"], ["c", "2"]]


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("EntityNotFoundException", NoSuchObjectError),
        ("OperationTimeoutException", MetastoreTimeoutError),
        ("AccessDeniedException", ConfigurationError),
        ("GlueEncryptionException", MetastoreServerError),
    ],
)
def test_errors(stubbed: tuple[GlueCatalog, Stubber], code: str, error: type[HiveFederationError]) -> None:
    catalog, stubber = stubbed
    stubber.add_client_error(
        "get_table", code, "no", expected_params={"DatabaseName": ANY, "Name": ANY, "CatalogId": "42"}
    )
    with pytest.raises(error, match=r"table d\.t"):
        catalog.get_table("d", "t")
