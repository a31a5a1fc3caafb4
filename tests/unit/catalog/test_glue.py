"""Glue on moto, and what moto does not do as AWS does on botocore's stubs."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError
from botocore.stub import ANY, Stubber
from moto import mock_aws

from airflow_hive_federation.catalog.glue import GlueCatalog
from airflow_hive_federation.catalog.glue_expressions import glue_expression
from airflow_hive_federation.catalog.open import Catalogs
from airflow_hive_federation.catalog.roles import PartitionFilter, TableLister, TableStatistics
from airflow_hive_federation.errors import (
    ConfigurationError,
    HiveFederationError,
    MetastoreServerError,
    MetastoreTimeoutError,
    NoSuchObjectError,
)
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.remotes import definitions
from tests.support.catalog_contract import DATABASE, check_reader, tables

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
                        "Values": partition.values,
                        "StorageDescriptor": glue_input(partition.sd),
                        "Parameters": partition.parameters,
                    }
                    for partition in partitions
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
        assert isinstance(catalog, TableLister)


def test_partitions_are_found_by_hives_conditions(glue: Any) -> None:
    fill(glue)
    with Catalogs() as catalogs:
        catalog, _ = catalogs.open("glue", {"aws.region": "eu-central-1"}, remote="r")
        assert isinstance(catalog, PartitionFilter)
        partitions = catalog.find_partitions(DATABASE, "parted", "`p` != 'a' AND p <= \"c\"")
        assert [partition.values for partition in partitions] == [["b c"]]


@pytest.mark.parametrize(
    ("hive", "glue"),
    [
        ("day >= '2026-01-01'", "day >= '2026-01-01'"),
        ("day=date '2026-01-01'", "day = '2026-01-01'"),
        ('`day` == "it\'s"', "day = 'it''s'"),
        (r"p = 'it\'s'", "p = 'it''s'"),
        ("n<>-1.5 and (p!='a' or p like 'b%')", "n <> -1.5 and ( p <> 'a' or p like 'b%' )"),
        (
            "p in ('a', \"b\") AND NOT (n BETWEEN 1 AND 2) ",
            "p in ( 'a' , 'b' ) AND NOT ( n BETWEEN 1 AND 2 )",
        ),
    ],
)
def test_conditions_become_glues(hive: str, glue: str) -> None:
    assert glue_expression(hive) == glue


@pytest.mark.parametrize(("where", "column"), [("p = 'a", 4), ("p = 1; DROP", 6), ("p || 'a'", 2)])
def test_what_is_no_condition_is_refused(where: str, column: int) -> None:
    with pytest.raises(ConfigurationError, match=f"from column {column} on"):
        glue_expression(where)


def test_a_role_is_assumed(glue: Any) -> None:
    fill(glue)
    with Catalogs() as catalogs:
        catalog, _ = catalogs.open(
            "glue",
            {"aws.region": "eu-central-1", "aws.glue.role.arn": "arn:aws:iam::123456789012:role/reader"},
            remote="r",
        )
        assert sorted(catalog.list_tables(DATABASE)) == ["parted", "plain"]


def test_no_region_is_an_error() -> None:
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


def test_many_tables_are_read_by_name(glue: Any) -> None:
    """A listing of the whole database for each hundred of them would grow with the square of their number."""
    fill(glue)
    calls: list[str] = []
    glue.meta.events.register("before-call.glue", lambda model, **_: calls.append(model.name))
    catalog = GlueCatalog(lambda: glue)
    names = [f"none{number}" for number in range(20)]
    found = catalog.get_tables(DATABASE, ["plain", *names, "parted"])
    assert [table.tableName for table in found] == ["plain", "parted"]
    assert calls == ["GetTable"] * 22
    calls.clear()
    assert sorted(str(table.tableName) for table in catalog.iter_tables(DATABASE)) == ["parted", "plain"]
    assert calls == ["GetTables"]
    with pytest.raises(NoSuchObjectError):
        list(catalog.iter_tables("none"))


def test_a_table_that_glue_does_not_return_for_another_reason(
    glue: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(glue)
    catalog = GlueCatalog(lambda: glue)

    def throttled(**_: Any) -> Any:
        raise ClientError({"Error": {"Code": "ThrottlingException"}}, "GetTable")

    monkeypatch.setattr(glue, "get_table", throttled)
    with pytest.raises(MetastoreTimeoutError):
        catalog.get_tables(DATABASE, ["plain"])


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
    partitions = catalog.get_partitions("d", "t", ["p=a%2Fb/q=1", "p=c/q=2"])
    assert [partition.values for partition in partitions] == [["a/b", "1"], ["c", "2"]]


WHEN = datetime(2026, 1, 2, tzinfo=UTC)
#: Of each type: Glue's facts, and what Hive's become. moto has no statistics.
STATISTICS = [
    (
        "LONG",
        {"MinimumValue": -1, "MaximumValue": 9, "NumberOfNulls": 1, "NumberOfDistinctValues": 3},
        types.ColumnStatisticsData(
            longStats=types.LongColumnStatsData(lowValue=-1, highValue=9, numNulls=1, numDVs=3)
        ),
    ),
    (
        "DOUBLE",
        {"NumberOfNulls": 1, "NumberOfDistinctValues": 3},
        types.ColumnStatisticsData(doubleStats=types.DoubleColumnStatsData(numNulls=1, numDVs=3)),
    ),
    (
        "DECIMAL",
        {
            "MinimumValue": {"UnscaledValue": b"\x01", "Scale": 2},
            "MaximumValue": {"UnscaledValue": b"\x7f", "Scale": 2},
            "NumberOfNulls": 0,
            "NumberOfDistinctValues": 3,
        },
        types.ColumnStatisticsData(
            decimalStats=types.DecimalColumnStatsData(
                lowValue=types.Decimal(unscaled=b"\x01", scale=2),
                highValue=types.Decimal(unscaled=b"\x7f", scale=2),
                numNulls=0,
                numDVs=3,
            )
        ),
    ),
    (
        "DATE",
        {"MinimumValue": WHEN, "MaximumValue": WHEN, "NumberOfNulls": 0, "NumberOfDistinctValues": 1},
        types.ColumnStatisticsData(
            dateStats=types.DateColumnStatsData(
                lowValue=types.Date(daysSinceEpoch=20455),
                highValue=types.Date(daysSinceEpoch=20455),
                numNulls=0,
                numDVs=1,
            )
        ),
    ),
    (
        "STRING",
        {"MaximumLength": 7, "AverageLength": 2.5, "NumberOfNulls": 0, "NumberOfDistinctValues": 3},
        types.ColumnStatisticsData(
            stringStats=types.StringColumnStatsData(maxColLen=7, avgColLen=2.5, numNulls=0, numDVs=3)
        ),
    ),
    (
        "BINARY",
        {"MaximumLength": 7, "AverageLength": 2.5, "NumberOfNulls": 0},
        types.ColumnStatisticsData(
            binaryStats=types.BinaryColumnStatsData(maxColLen=7, avgColLen=2.5, numNulls=0)
        ),
    ),
    (
        "BOOLEAN",
        {"NumberOfTrues": 2, "NumberOfFalses": 3, "NumberOfNulls": 0},
        types.ColumnStatisticsData(
            booleanStats=types.BooleanColumnStatsData(numTrues=2, numFalses=3, numNulls=0)
        ),
    ),
]


def glue_statistics(name: str, kind: str, facts: dict[str, Any]) -> dict[str, Any]:
    return {
        "ColumnName": name,
        "ColumnType": "x",
        "AnalyzedTime": WHEN,
        "StatisticsData": {"Type": kind, f"{kind.title()}ColumnStatisticsData": facts},
    }


def test_statistics_of_a_table_come_a_hundred_columns_a_call(stubbed: tuple[GlueCatalog, Stubber]) -> None:
    catalog, stubber = stubbed
    columns = [f"c{number}" for number in range(107)]
    asked = {"DatabaseName": "d", "TableName": "t", "CatalogId": "42"}
    stubber.add_response(
        "get_column_statistics_for_table",
        {"ColumnStatisticsList": [], "Errors": [{"ColumnName": "c1"}]},
        {**asked, "ColumnNames": columns[:100]},
    )
    statistics = [
        glue_statistics(name.upper(), kind, facts)
        for name, (kind, facts, _) in zip(columns[100:], STATISTICS, strict=True)
    ]
    stubber.add_response(
        "get_column_statistics_for_table",
        {"ColumnStatisticsList": statistics},
        {**asked, "ColumnNames": columns[100:]},
    )
    sd = types.StorageDescriptor(cols=[types.FieldSchema(name=name, type="int") for name in columns])
    table = types.Table(dbName="d", tableName="t", sd=sd)
    assert isinstance(catalog, TableStatistics)
    of_columns = catalog.table_statistics(table)
    assert [column.colName for column in of_columns] == columns[100:]
    assert [column.statsData for column in of_columns] == [data for _, _, data in STATISTICS]
    made = definitions.table_statistics(of_columns, types.Table(dbName="l", tableName="n"))
    assert made.statsDesc is not None
    assert (made.statsDesc.dbName, made.statsDesc.tableName) == ("l", "n")


def test_statistics_of_partitions(stubbed: tuple[GlueCatalog, Stubber]) -> None:
    catalog, stubber = stubbed
    stubber.add_response(
        "get_table",
        {"Table": {"Name": "t", "StorageDescriptor": {"Columns": [{"Name": "id", "Type": "int"}]}}},
        {"DatabaseName": "d", "Name": "t", "CatalogId": "42"},
    )
    kind, facts, data = STATISTICS[0]
    asked = {"DatabaseName": "d", "TableName": "t", "ColumnNames": ["id"], "CatalogId": "42"}
    stubber.add_response(
        "get_column_statistics_for_partition",
        {"ColumnStatisticsList": [glue_statistics("id", kind, facts)]},
        {**asked, "PartitionValues": ["a/b"]},
    )
    statistics = catalog.partition_statistics("d", "t", ["p=a%2Fb"])
    assert [column.statsData for column in statistics["p=a%2Fb"]] == [data]


def test_statistics_that_may_not_be_read_are_left_out(
    stubbed: tuple[GlueCatalog, Stubber], caplog: pytest.LogCaptureFixture
) -> None:
    catalog, stubber = stubbed
    stubber.add_client_error("get_column_statistics_for_table", "AccessDeniedException", "no")
    sd = types.StorageDescriptor(cols=[types.FieldSchema(name="id", type="int")])
    assert catalog.table_statistics(types.Table(dbName="d", tableName="t", sd=sd)) == []
    assert "Left out: Glue, statistics of d.t" in caplog.text


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
