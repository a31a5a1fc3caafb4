"""Operator and command line have the settings of a request, with the same defaults."""

from __future__ import annotations

import inspect
from dataclasses import MISSING, fields
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_hive_federation.cli import ingest as cli_ingest
from airflow_hive_federation.cli.main import build_parser
from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.ingest.connection import HiveStreamingConnection
from airflow_hive_federation.ingest.description import Description, described_table
from airflow_hive_federation.ingest.errors import InvalidConnection, InvalidTable
from airflow_hive_federation.ingest.files import IngestRequest, ingest_files
from airflow_hive_federation.ingest.queries import QueryRequest
from airflow_hive_federation.ingest.runs import IngestReport
from airflow_hive_federation.metastore import MetastoreSettings
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.operators.ingest import StreamingIngestOperator

#: Of the operator's arguments: of either source, or named after the source.
SOURCES = {"inputs", "sql", "order_by", "name"}
NOWHERE = MetastoreSettings(uris=("thrift://127.0.0.1:1",))


@pytest.mark.parametrize("request_type", [IngestRequest, QueryRequest])
def test_the_operator_has_every_field_of_a_request(request_type: Any) -> None:
    parameters = inspect.signature(StreamingIngestOperator.__init__).parameters
    for field in fields(request_type):
        if field.name not in SOURCES:
            default = parameters[field.name].default
            assert (default is inspect.Parameter.empty) == (field.default is MISSING), field.name
            assert default == (inspect.Parameter.empty if field.default is MISSING else field.default)
    assert SOURCES | set(StreamingIngestOperator.template_fields) <= set(parameters)


@pytest.mark.parametrize(
    "source",
    [
        {},
        {"inputs": ["x"], "sql": "t", "sql_conn_id": "c"},
        {"sql": "t"},
        {"inputs": ["x"], "sql_conn_id": "c"},
    ],
)
def test_the_operator_wants_one_source(source: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="into does not have exactly one source"):
        StreamingIngestOperator(task_id="into", table="d.t", **source)


def test_the_command_line_has_the_same_defaults() -> None:
    args = build_parser().parse_args(["ingest", "d.t", "a.csv", "b.csv", "--json"])
    assert args.inputs == ["a.csv", "b.csv"]
    request = IngestRequest(table="d.t", inputs=())
    assert (args.commit_records, args.commit_bytes, args.commit_interval_s) == (
        request.commit_records,
        request.commit_bytes,
        request.commit_interval_s,
    )
    assert (args.name, args.format) == (request.name, request.file_format)


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"table": "t"}, "names no table"),
        ({"name": "a b"}, "cannot name a position"),
        ({"file_format": "regex"}, "needs an expression"),
        ({"file_format": "xml"}, "no format 'xml'"),
        ({"inputs": []}, "nothing to ingest"),
    ],
)
def test_requests_that_make_no_sense(wrong: dict[str, object], reason: str) -> None:
    request = IngestRequest(**{"table": "d.t", "inputs": ["x"], **wrong})  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match=reason):
        ingest_files(NOWHERE, request)


def test_a_connection_names_the_missing_setting() -> None:
    with pytest.raises(InvalidConnection, match="with_table, with_record_writer, with_conf") as caught:
        HiveStreamingConnection.new_builder().with_database("d").connect()
    assert not caught.value.retryable
    with pytest.raises(InvalidConnection, match="names no metastore"):
        HiveStreamingConnection.new_builder().with_conf({"hive.txn.manager": "x"})


@pytest.mark.parametrize(
    ("parameters", "storage_format", "reason"),
    [
        ({}, "orc.OrcInputFormat", "not transactional"),
        ({"transactional": "false"}, "orc.OrcInputFormat", "not transactional"),
        ({"transactional": "true"}, "parquet.MapredParquetInputFormat", "ORC"),
    ],
)
def test_tables_that_are_not_transactional_or_not_orc(
    parameters: dict[str, str], storage_format: str, reason: str
) -> None:
    """Hive's own statements make no such managed tables; older and other engines do."""
    storage = types.StorageDescriptor(
        cols=[types.FieldSchema(name="a", type="int")],
        location="file:/t",
        inputFormat=f"org.apache.hadoop.hive.ql.io.{storage_format}",
        serdeInfo=types.SerDeInfo(serializationLib="x", parameters={}),
    )
    table = types.Table(
        dbName="d",
        tableName="t",
        sd=storage,
        partitionKeys=[],
        parameters=parameters,
        tableType="MANAGED_TABLE",
    )
    client: Any = SimpleNamespace(get_table=lambda *_name: table)
    with pytest.raises(InvalidTable, match=reason):
        described_table(client, Description(database="d", table="t"))


def test_settings_of_the_specification_that_are_given_otherwise_are_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    conf = {
        "metastore.thrift.uris": "thrift://h:1",
        "hive.support.concurrency": "false",
        "hive.exec.orc.delta.streaming.optimizations.enabled": "false",
        "hive.metastore.client.cache.enabled": "FALSE",
        "my.own": "1",
    }
    made = HiveStreamingConnection.new_builder().with_conf(conf)._description
    assert [record.getMessage().partition(" is ignored")[0] for record in caplog.records] == [
        "hive.support.concurrency=false",
        "hive.exec.orc.delta.streaming.optimizations.enabled=false",
    ]
    assert "with_streaming_optimizations(False)" in caplog.text
    assert made.optimized
    assert made.settings is not None
    assert made.settings.uris == ("thrift://h:1",)


@pytest.mark.parametrize("first", [True, False])
def test_optimizations_are_switched_off_in_any_order(first: bool) -> None:
    builder = HiveStreamingConnection.new_builder()
    conf = {"metastore.thrift.uris": "thrift://h:1"}
    if first:
        made = builder.with_streaming_optimizations(False).with_conf(conf)._description
    else:
        made = builder.with_conf(conf).with_streaming_optimizations(False)._description
    assert not made.optimized


@pytest.mark.parametrize(
    ("position", "text"),
    [
        (None, "d.t: nothing to ingest; no file was found."),
        (
            '{"uri": "/b/1.csv", "offset": null, "line": 0}',
            "d.t: nothing to ingest; no file comes after file:/b/1.csv, which --name nightly has reached.",
        ),
    ],
)
def test_a_run_without_files_says_what_its_name_has_reached(position: str | None, text: str) -> None:
    assert cli_ingest._described(IngestReport(table="d.t", position=position), "nightly").startswith(text)
