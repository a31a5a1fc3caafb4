"""JSON, regular expressions, Arrow batches, and a writer of one's own."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from airflow_hive_federation.ingest.errors import InvalidColumn, SerializationError
from airflow_hive_federation.ingest.formats.arrow_records import ArrowRecordWriter, conforming_batch
from airflow_hive_federation.ingest.formats.json_records import StrictJsonWriter
from airflow_hive_federation.ingest.formats.regex_records import StrictRegexWriter
from airflow_hive_federation.ingest.formats.writers import AbstractRecordWriter, Parsed
from airflow_hive_federation.model.types import Column

ALERTS = [Column.of("id", "int"), Column.of("msg", "string")]


def rows(parsed: Parsed) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in parsed.rows.to_pylist()]


def json_writer(*columns: Column, malformed: Any = "raise") -> StrictJsonWriter:
    made = StrictJsonWriter.new_builder().with_malformed(malformed).build()
    made.bind(columns or ALERTS)
    return made


def test_json_at_once_and_one_by_one_agree() -> None:
    plain = [b'{"id": 1, "msg": "a"}', b'{"msg": "b"}', b'{"id": null, "msg": null}']
    expected = [(1, "a"), (None, "b"), (None, None)]
    assert rows(json_writer().parse(plain)) == expected
    assert rows(json_writer().parse([*plain, b'{"ID": "4", "Msg": 5, "other": []}'])) == [
        *expected,
        (4, "5"),
    ]


@pytest.mark.parametrize(
    ("record", "column", "reason"),
    [
        (b"[1]", "", "not a JSON object"),
        (b'{"id": 1', "", "delimiter"),
        (b'{"id": "x"}', "id", "not a whole number"),
        (b'{"id": true}', "id", "true is no int"),
        (b'{"id": {}}', "id", "no int"),
        (b'{"id": 3000000000}', "id", "32 bits"),
        (b'{"msg": "\xff"}', "", "UTF-8"),
        (b'{"id": NaN}', "", "NaN is not JSON"),
    ],
)
def test_bad_json(record: bytes, column: str, reason: str) -> None:
    parsed = json_writer().parse([b'{"id":1,"msg":"a"}', record])
    assert rows(parsed) == [(1, "a")]
    (bad,) = parsed.bad
    assert (bad.index, bad.column) == (1, column)
    assert reason in bad.reason


def test_nested_json() -> None:
    columns = [
        Column.of("a", "array<int>"),
        Column.of("m", "map<string,double>"),
        Column.of("s", "struct<x:int,y:string>"),
        Column.of("d", "decimal(10,2)"),
        Column.of("t", "string"),
    ]
    record = b'{"a":[1,null],"m":{"k":1.5},"s":{"Y":"z"},"d":12.345,"t":{"q":[1,2.5]}}'
    assert rows(json_writer(*columns).parse([record])) == [
        ([1, None], [("k", 1.5)], {"x": None, "y": "z"}, Decimal("12.35"), '{"q":[1,2.5]}')
    ]


def test_regex() -> None:
    made = StrictRegexWriter.new_builder().with_regex(r"(\d+)(?: (.*))?").build()
    made.bind(ALERTS)
    parsed = made.parse([b"1 a b", b"2", b"x", b"99999999999 c"])
    assert rows(parsed) == [(1, "a b"), (2, None)]
    assert [(bad.index, bad.column) for bad in parsed.bad] == [(2, ""), (3, "id")]


def test_a_regex_reads_whole_numbers_as_java_does() -> None:
    made = StrictRegexWriter.new_builder().with_regex(r"(.*)!(.*)").build()
    made.bind(ALERTS)
    parsed = made.parse([b"+7!a\nb", "\u0663!".encode(), b" 1!c", b"1.0!d", b"!e"])
    assert rows(parsed) == [(7, "a\nb"), (3, ""), (None, "e")]
    assert [bad.index for bad in parsed.bad] == [2, 3]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("1.50", "1.5"),
        ("1e3", "1E+3"),
        ("1E400", "1E+400"),
        ("-0.0", "0"),
        ("12345678901234567890.10", "12345678901234567890.1"),
        ('{"a":[true,null,"\\u001f\\"\\u00e9/"]}', '{"a":[true,null,"\\u001F\\"é/"]}'),
    ],
)
def test_json_as_a_text(value: str, text: str) -> None:
    assert rows(json_writer(Column.of("s", "string")).parse([f'{{"s":{value}}}'.encode()])) == [(text,)]


def test_an_object_is_no_varchar() -> None:
    (bad,) = json_writer(Column.of("v", "varchar(9)")).parse([b'{"v":{}}']).bad
    assert "no varchar(9)" in bad.reason


def test_a_regex_has_a_group_for_each_column() -> None:
    made = StrictRegexWriter.new_builder().with_regex(r"(\d+)").build()
    with pytest.raises(InvalidColumn, match="1 groups, but there are 2 columns"):
        made.bind(ALERTS)


def test_batches_are_matched_by_name_and_cast() -> None:
    batch = pa.RecordBatch.from_pydict({"MSG": ["a"], "id": pa.array([7], pa.int64())})
    made = conforming_batch(batch, ALERTS)
    assert made.schema == pa.schema([("id", pa.int32()), ("msg", pa.string())])
    assert made.to_pylist() == [{"id": 7, "msg": "a"}]


def test_a_value_that_does_not_fit_is_named() -> None:
    batch = pa.RecordBatch.from_pydict(
        {"id": pa.array([*range(700), 2**40, 1, 2**41], pa.int64()), "msg": ["a"] * 703}
    )
    with pytest.raises(SerializationError, match="Row 701 of the batch, column id") as caught:
        conforming_batch(batch, ALERTS)
    assert caught.value.record_number == 701


@pytest.mark.parametrize("schema", [{"id": pa.int32()}, {"id": pa.int32(), "msg": pa.list_(pa.int8())}])
def test_a_schema_is_checked_when_connecting(schema: dict[str, pa.DataType]) -> None:
    with pytest.raises(InvalidColumn):
        ArrowRecordWriter(pa.schema(list(schema.items()))).bind(ALERTS)


class _Pairs(AbstractRecordWriter):
    def encode(self, record: bytes) -> Sequence[Any]:
        key, _, value = record.decode().partition("=")
        return [int(key), value or None]


def test_instants_that_orc_cannot_store() -> None:
    columns = [Column.of("id", "int"), Column.of("t", "timestamp")]
    times = [
        "1969-12-31 23:59:59.5",
        "1969-12-31 23:59:58.5",
        "1500-01-01 00:00:00.000001",
        "1970-01-01 00:00:00.5",
    ]
    records = [f'{{"id":{place % 4},"t":"{times[place % 4]}"}}'.encode() for place in range(4_000)]
    parsed = json_writer(*columns).parse(records)
    assert [bad.index for bad in parsed.bad] == list(range(0, 4_000, 4))
    assert {bad.column for bad in parsed.bad} == {"t"}
    assert "last second before 1970" in parsed.bad[0].reason
    assert parsed.rows.num_rows == 3_000
    batch = pa.RecordBatch.from_pydict({"id": [1, 2], "t": pa.array([-1_500_000, -1], pa.timestamp("us"))})
    with pytest.raises(SerializationError, match=r"Row 2 of the batch, column t: .*last second"):
        conforming_batch(batch, columns)


def test_a_writer_of_ones_own() -> None:
    made = _Pairs()
    made.bind(ALERTS)
    parsed = made.parse([b"1=a", b"x=b", b"3=", b"5000000000=z"])
    assert rows(parsed) == [(1, "a"), (3, None)]
    assert [(bad.index, bad.column) for bad in parsed.bad] == [(1, ""), (3, "id")]
