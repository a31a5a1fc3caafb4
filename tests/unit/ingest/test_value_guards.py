"""Values, records and settings that are refused, each with its own reason."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.ingest import connection as connections
from airflow_hive_federation.ingest import inputs
from airflow_hive_federation.ingest.dead_letters import BadRecords, DeadLetter
from airflow_hive_federation.ingest.description import Description, check_description, described_table
from airflow_hive_federation.ingest.errors import (
    DeadLetterLimitExceeded,
    InvalidColumn,
    InvalidConnection,
    InvalidTable,
    SerializationError,
)
from airflow_hive_federation.ingest.formats.arrow_records import conforming_batch
from airflow_hive_federation.ingest.formats.columns import BadRecord
from airflow_hive_federation.ingest.formats.delimited import StrictDelimitedInputWriter
from airflow_hive_federation.ingest.formats.json_records import StrictJsonWriter
from airflow_hive_federation.ingest.formats.lazy_values import value_of
from airflow_hive_federation.ingest.formats.writers import AbstractRecordWriter
from airflow_hive_federation.ingest.position import check_key
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.model.types import Column, parse_type


@pytest.mark.parametrize(
    ("kind", "text", "reason"),
    [
        ("decimal(5,2)", "1_000", "is not a decimal"),
        ("decimal(5,2)", "NaN", "is not a decimal"),
        ("decimal(5,2)", "1234.5", r"does not fit decimal\(5,2\)"),
        ("date", "yesterday", "is not a date like"),
        ("timestamp with local time zone", "1" * 101, "is not a timestamp with a time zone"),
        ("struct<a:int>", "1\x022", "has more parts than struct<a:int> has fields"),
    ],
)
def test_values_that_are_none_of_their_type(kind: str, text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        value_of(text, parse_type(kind), "\x02\x03")


def test_a_value_has_no_more_levels_than_there_are_separators() -> None:
    with pytest.raises(ValueError, match="nested in more levels than the table has separators"):
        value_of("1", parse_type("array<array<int>>"), "\x02")


@pytest.mark.parametrize(
    ("kind", "value", "reason"),
    [
        ("array<int>", b'{"0":1}', "it is not an array"),
        ("map<string,int>", b"[1]", "it is not an object"),
        ("struct<a:int>", b"[1]", "it is not an object"),
    ],
)
def test_json_of_another_shape_is_a_bad_record(kind: str, value: bytes, reason: str) -> None:
    writer = StrictJsonWriter.new_builder().build()
    writer.bind([Column.of("a", kind)])
    parsed = writer.parse([b'{"a":' + value + b"}", b"{}"])
    assert [(bad.index, bad.column) for bad in parsed.bad] == [(0, "a")]
    assert reason in parsed.bad[0].reason


@pytest.mark.parametrize(
    ("kind", "value", "reason"),
    [
        ("date", "1-1-1", "'1-1-1' is not a date like"),
        ("array<int>", "\x02" * 1_000_001, "holds more than 1000000 values"),
    ],
)
def test_a_delimited_value_that_is_refused_before_it_is_read(kind: str, value: str, reason: str) -> None:
    writer = StrictDelimitedInputWriter.new_builder().with_field_delimiter(",").build()
    writer.bind([Column.of("a", "int"), Column.of("b", kind)])
    (bad,) = writer.parse([f"1,{value}".encode()]).bad
    assert bad.column == "b"
    assert reason in bad.reason


class OneMore(AbstractRecordWriter):
    def encode(self, record: bytes) -> Sequence[Any]:
        return [1, 2]


def test_a_writer_of_ones_own_makes_a_value_for_each_column() -> None:
    writer = OneMore()
    writer.bind([Column.of("a", "int")])
    (bad,) = writer.parse([b"x"]).bad
    assert bad.reason == "it has 2 values, but there are 1 columns"
    with pytest.raises(InvalidConnection, match="malformed is 'ignore'"):
        OneMore(malformed="ignore")  # type: ignore[arg-type]


def test_bad_records_are_raised_or_handed_over_up_to_a_limit() -> None:
    bad = [BadRecord(index=index, column="a", reason="odd") for index in range(3)]
    records = [b"1", b"2", b"3"]
    with pytest.raises(SerializationError) as refused:
        BadRecords(None, None).deal_with(records, bad, 10)
    assert refused.value.facts["record_number"] == 11
    taken: list[DeadLetter] = []
    with pytest.raises(DeadLetterLimitExceeded) as exceeded:
        BadRecords(taken.append, 2).deal_with(records, bad, 10)
    assert [bad.record_number for bad in taken] == [11, 12]
    assert (exceeded.value.facts["limit"], exceeded.value.facts["record_number"]) == (2, 13)


def test_errors_of_the_file_system_are_no_damage_of_a_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), inputs._decompression("file:/x"):
        (tmp_path / "nothing").read_bytes()


def test_a_commit_sets_no_parameter_of_others() -> None:
    assert check_key("_meta.x") == "_meta.x"
    with pytest.raises(ConfigurationError, match="cannot set the parameter 'transactional'"):
        check_key("transactional")


def test_two_columns_of_arrow_with_one_name() -> None:
    batch = pa.RecordBatch.from_arrays([pa.array([1]), pa.array([2])], names=["a", "A"])
    with pytest.raises(InvalidColumn, match="a column twice"):
        conforming_batch(batch, [Column.of("a", "int")])


@pytest.mark.parametrize("sizes", [{"batch_size": 0}, {"buffer_bytes": 0}])
def test_sizes_of_a_connection_are_above_zero(sizes: dict[str, int]) -> None:
    given: Any = {"settings": object(), "writer": object()}
    with pytest.raises(InvalidConnection, match="is at least 1"):
        check_description(Description(database="d", table="t", **given, **sizes))


def test_a_connection_is_made_by_its_builder() -> None:
    with pytest.raises(InvalidConnection, match=r"Use new_builder\(\)"):
        connections.HiveStreamingConnection(Description(database="d", table="t"))


def client_of(fields: dict[str, Any], key: str) -> Any:
    """Answers with one table (a int), which has the partition key p."""
    parameters = {"transactional": "true"}
    if fields.pop("insert_only", False):
        parameters["transactional_properties"] = "insert_only"
    storage = types.StorageDescriptor(
        cols=[types.FieldSchema(name="a", type="int")],
        location="file:/t",
        inputFormat="org.apache.hadoop.hive.ql.io.orc.OrcInputFormat",
        outputFormat="org.apache.hadoop.hive.ql.io.orc.OrcOutputFormat",
        serdeInfo=types.SerDeInfo(
            serializationLib="org.apache.hadoop.hive.ql.io.orc.OrcSerde", parameters={}
        ),
    )
    table = types.Table(
        dbName="d",
        tableName="t",
        sd=storage,
        partitionKeys=[types.FieldSchema(name="p", type=key)],
        parameters=parameters,
        **{"tableType": "MANAGED_TABLE", **fields},
    )
    none = types.SQLAllTableConstraints()
    return SimpleNamespace(get_table=lambda *_: table, get_table_constraints=lambda *_: none)


@pytest.mark.parametrize(
    ("fields", "static", "error", "reason"),
    [
        ({"tableType": "EXTERNAL_TABLE"}, (), InvalidTable, "d.t is an external table"),
        ({"insert_only": True}, (), InvalidTable, "d.t is insert-only"),
        ({}, ("x", "y"), InvalidConnection, "has 1 partition keys, but 2 static values are given"),
        ({}, ("P=x",), InvalidConnection, "key p of d.t is 'P=x'.*Give the value alone: 'x'"),
        ({"key": "int"}, ("x",), InvalidConnection, "key p of d.t is no int: it is not a number"),
        ({"key": "int"}, ("1.9",), InvalidConnection, "key p of d.t is no int: it is not a whole number"),
    ],
)
def test_tables_that_no_stream_goes_into(
    fields: dict[str, Any], static: tuple[str, ...], error: type[Exception], reason: str
) -> None:
    client = client_of(fields, fields.pop("key", "string"))
    writer: Any = OneMore()
    with pytest.raises(error, match=reason):
        described_table(client, Description(database="d", table="t", writer=writer, static=static))


@pytest.mark.parametrize(
    ("key", "given", "text"),
    [
        ("int", "07", "7"),
        ("date", "2026-1-5", "2026-01-05"),
        ("decimal(5,2)", "1.50", "1.5"),
        ("varchar(2)", "abc", "ab"),
        ("boolean", "TRUE", "true"),
        ("double", "1", "1.0"),
        ("float", "0.1", "0.1"),
        ("timestamp", "2026-1-5 0:0:0", "2026-01-05 00:00:00"),
        ("string", "07", "07"),
        ("int", "__HIVE_DEFAULT_PARTITION__", "__HIVE_DEFAULT_PARTITION__"),
    ],
)
def test_a_static_value_has_one_text(key: str, given: str, text: str) -> None:
    """Otherwise two partitions would have equal values, and a statement would see one of them."""
    described = Description(database="d", table="t", static=(given,))
    assert described_table(client_of({}, key), described)[2] == (text,)
