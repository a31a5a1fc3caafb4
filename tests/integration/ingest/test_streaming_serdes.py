"""The bytes that Hive's SerDes read from text files, and that our writers stream: the rows are the same.

Each record sets one column of a table with all types. Hive reads the records by the SerDe, and the rows that
our writer has made of them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest

from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.embedded.sql import HiveSql
from airflow_hive_federation.ingest import (
    HiveStreamingConnection,
    StrictDelimitedInputWriter,
    StrictJsonWriter,
    StrictRegexWriter,
)
from airflow_hive_federation.ingest.dead_letters import DeadLetter
from airflow_hive_federation.ingest.formats.writers import AbstractRecordWriter, Malformed
from airflow_hive_federation.metastore import MetastoreSettings

pytestmark = pytest.mark.slow

DATABASE = "serdes"
PRIMITIVES = {
    "b": "boolean",
    "ti": "tinyint",
    "si": "smallint",
    "i": "int",
    "bi": "bigint",
    "f": "float",
    "d": "double",
    "de": "decimal(10,2)",
    "s": "string",
    "v": "varchar(3)",
    "c": "char(3)",
    "da": "date",
    "t": "timestamp",
}
NESTED = {
    "y": "binary",
    "ai": "array<int>",
    "ms": "map<string,int>",
    "mi": "map<int,string>",
    "st": "struct<a:int,b:string>",
    "an": "array<struct<a:int,b:array<string>>>",
    "sn": "struct<a:struct<b:int>,m:map<string,array<int>>>",
}
BOOLEANS = "true|false|TRUE|False|t|f|1|0|yes|| true|x"
INTEGERS = (
    "0|7|-7|+7|007| 12|12 |127|128|-129|32768|2147483648|9223372036854775807|9223372036854775808|3.99|"
    "-3.99|.5|5.|1e3|1E3|0x1F||x|1_000|1,5|12L|NaN|--1|+|-|true|\u0663|.|-.5|5.x|1e-1|\t1"
)
NUMBERS = (
    "0|-0|-0.0|1.5|+1.5| 1.5 |.5|5.|1e3|1E-3|1e400|1e-400|3.4e39|NaN|nan|Infinity|-Infinity|inf|1.5d|"
    "1.5f|0x1p3||x|1,5|1e|0.1|123456789.123456789|16777217|0X1P-2|0x1|1e5f|NaNd|+NaN|-NaN|1_0|\t1"
)
DECIMALS = (
    "0|1.5|1.005|1.004|-1.005|12345678.99|123456789|99999999.995|1e3|1E-1| 2.5 |+2.5|.5|5.|1e9||x|NaN|"
    "0.001|1e-400|1e-38|1e-39|1e-77|1e-100|1E+2|1e|0x1|1_0|1,0|1 2|\u0663"
)
DATES = (
    "2024-02-29|2023-02-29|2023-2-3|0001-01-01|9999-12-31|10000-01-01|1582-10-10|| 2024-01-02 |"
    "2024-01-02 03:04:05|2024-01-02T03:04:05|2024-13-01|20240102|x|24-1-2|2024/01/02|-0044-03-15|"
    "2024-01-02x|2024-1-2x|2024-01-021|2024-01-02 x|123-01-02|12345-01-02|2024-01|+2024-01-02|"
    "2024 -01-02|\t2024-01-02"
)
TIMES = (
    "2024-01-02 03:04:05|2024-01-02 03:04:05.678901|2024-01-02 03:04:05.5|2024-01-02|2024-01-02T03:04:05|"
    "2024-01-02T03:04:05Z|2024-01-02 03:04:05+02:00|2024-01-02 03:04|2024-1-2 3:4:5|"
    "1969-12-31 23:59:58.25|0001-01-01 00:00:00|2024-02-30 00:00:00|2024-01-02 25:00:00|"
    "2024-01-02 24:00:00||x| 2024-01-02 03:04:05 |1704164645|10000-01-01 00:00:00|2024-01-02 03:04:05.|"
    "2024-01-02 03:04:60|1582-10-10 01:02:03.000004|2024-01-02 03|2024-01-02 03:04:05x|"
    "2024-01-02  03:04:05|24-01-02 03:04:05|2024-01-02 03:04:05 UTC|2024-01-02 03:04:05.1234567|"
    "2024-01-02 03:04:05.000000000|-0044-03-15 01:02:03"
)
TEXTS = '|x| x |\xe9\u20ac\U0001f600|abcdef|ab   |"q"|\\\\|\\n|null|NULL|tab\there|' + "\U0001f600" * 4
#: Values by column, as texts.
VALUES: dict[str, list[str]] = {
    column: values.split("|")
    for columns, values in (
        ("b", BOOLEANS),
        ("ti si i bi", INTEGERS),
        ("f d", NUMBERS),
        ("de", DECIMALS),
        ("s v c", TEXTS),
        ("da", DATES),
        ("t", TIMES),
    )
    for column in columns.split()
}
REGEX = r"([0-9]+)" + r"\|(?:~|([^|]*))" * len(PRIMITIVES)
#: Values that the SerDes read, and our writers find bad: years that Arrow and Python do not have, fractions
#: that are finer than those stored, and what is behind a date but no time of day.
REFUSED = {
    "-0044-03-15",
    "-0044-03-15 01:02:03",
    "10000-01-01 00:00:00",
    "2024-01-02 03:04:05.1234567",
    "2024-01-02x",
    "2024-1-2x",
}


@dataclass(frozen=True, kw_only=True)
class Case:
    """A SerDe, and the writer that stands for it.

    :param fails: whether the SerDe fails on records, instead of making nulls.
    """

    name: Literal["delimited", "json", "regex"]
    columns: dict[str, str]
    row_format: str
    writer: Callable[[Malformed], AbstractRecordWriter]
    records: Callable[[], list[bytes]]
    fails: bool = False


def json_records() -> list[bytes]:
    values: list[tuple[str, str]] = []
    for column, texts in VALUES.items():
        for text in texts:
            values.append((column, json.dumps(text, ensure_ascii=False)))
            # Hive's decimals, which numbers are at first, have no negative zero.
            if is_json(text.strip()) and text != "-0.0":
                values.append((column, text))
    for column in ("s", "v", "c"):
        values += [(column, text) for text in JSON_TEXTS]
    values += [
        (column, text) for column in PRIMITIVES for text in ("null", "{}", "[]", "[1]", "true", "1", "1.5")
    ]
    values += [(column, text) for column, texts in JSON_NESTED.items() for text in texts]
    records = [f'{{"id":{number},"{column}":{value}}}' for number, (column, value) in enumerate(values)]
    return [record.encode() for record in [*records, *JSON_WHOLE]]


def is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


JSON_TEXTS = [
    "1",
    "1.0",
    "1.50",
    "1e3",
    "1E400",
    "true",
    '{"a":1, "b":[1.50,"x"]}',
    "[1, 2.50, null]",
    r'"\u00e9"',
]
JSON_TEXTS += [r'"\ud83d\ude00"', r'"\/\b\f\n\r\t\"\\"', "12345678901234567890", r'"\ud800"']
JSON_NESTED = {
    "y": ['"aGk="', '"aGk"', '"x!"', '""', "5", "true", "{}"],
    "ai": [
        "[]",
        "[1,null]",
        "[1.9]",
        '["2"]',
        '["x"]',
        "null",
        "{}",
        "5",
        "[[1]]",
        "[true]",
        "[3000000000]",
        '""',
    ],
    "ms": [
        "{}",
        '{"a":1}',
        '{"a":null}',
        '{"a":"x"}',
        '{"A":1,"a":2}',
        '{"a":1,"a":2}',
        "[]",
        '{"":1}',
        '"x"',
    ],
    "mi": ['{"1":"x"}', '{"x":"y"}', '{"1":5,"2":{"q":[1]}}', '{"1.5":"x"}', '{"":"x"}'],
    "st": [
        "{}",
        '{"A":1,"B":"x"}',
        '{"a":1,"extra":2}',
        '{"a":{}}',
        "[]",
        '"x"',
        "null",
        '{"b":[1,2]}',
        '{"a":"1"}',
    ],
    "an": ['[{"a":1,"b":["x",null]},null,{}]', '[{"B":[]}]', "[1]", '[{"b":"x"}]'],
    "sn": ['{"a":{"b":1},"m":{"k":[1,2]}}', '{"a":null,"m":{}}', '{"m":{"k":null}}', '{"a":{"b":"z"}}'],
}
JSON_WHOLE = [
    '{"id":1001,"unknown":{"deep":[1,{"x":2}]},"s":"x"}',
    '{"id":1002,"s":"first","s":"second"}',
    '{"id":1003,"s":"first","S":"second"}',
    "{}",
    '{"ID":1004,"S":"upper","ST":{"A":1}}',
    ' { "id" : 1005 , "s" : "spaces" } ',
    '{"id":1006,"s":"x"} {"id":1007}',
    '{"id":1008,"s":"x"} trailing',
    '[{"id":1009}]',
    "[1]",
    "",
    "null",
    '{"id":1010,"s":"cut',
    '{"id":1011,"s":"cut"',
    "{'id':1012}",
    "{id:1013}",
    '{"id":1014,"d":NaN}',
    '{"id":1015,"i":007}',
    '{"id":1016,"d":.5}',
    '{"id":1017,"s":"a\tb"}',
    '{"id":1018,}',
    "not json",
    '{"id":1019,"i":1e400}',
    '{"id":1020,"s":null,"i":null}',
    '\ufeff{"id":1021}',
]


def delimited_records() -> list[bytes]:
    columns = ["id", *PRIMITIVES, *NESTED]
    values = [(column, text) for column, texts in {**VALUES, **LAZY_NESTED}.items() for text in texts]
    values += [(column, r"\N") for column in columns[1:]]
    records = []
    for number, (column, value) in enumerate(values):
        fields = dict.fromkeys(columns, r"\N") | {"id": str(number), column: value}
        records.append("|".join(fields.values()))
    records += ["1001", "1002|true", "1003" + "|1" * 30, "", "|", "1004|true|", r"1005\|true"]
    return [record.encode() for record in records]


LAZY_NESTED = {
    "y": ["aGk=", "aGk", "x!", "", "h\u00e9", "aG k="],
    "ai": ["", "1:2", "1:x", "1::2", r"\N:1", ":", "1:", " 1"],
    "ms": ["", "a=1", "a=1:b=2", "a", "a=", "=1", "a=x", "a=1:a=2", "a=1=2", r"\N=1", ":a=1"],
    "mi": ["1=x", "x=y", "1=", "1=x:1=y", "=x"],
    "st": ["", "1:x", "1", "1:x:y", ":x", "x:x", r"\N:\N", "1:"],
    "an": ["1=x", "1=x:2=y", "", "1", "1=x\x04y"],
    "sn": ["1:k=5", "1", "1:k=5\x045", ":"],
}


def regex_records() -> list[bytes]:
    columns = ["id", *PRIMITIVES]
    values = [(column, text) for column, texts in VALUES.items() for text in texts]
    values += [(column, r"\N") for column in columns[1:]]
    # RegexSerDe has a false where there is no boolean, and fails where there is no char or varchar.
    there = {"b": "true", "v": "", "c": ""}
    records = []
    for number, (column, value) in enumerate(values):
        if (column, value) != ("b", ""):
            fields = dict.fromkeys(columns, "~") | there | {"id": str(number), column: value}
            records.append("|".join(fields.values()))
    return [record.encode() for record in [*records, "no match", "", "x|" + records[0]]]


CASES = [
    Case(
        name="delimited",
        columns={**PRIMITIVES, **NESTED},
        row_format="DELIMITED FIELDS TERMINATED BY '|' COLLECTION ITEMS TERMINATED BY ':' "
        "MAP KEYS TERMINATED BY '='",
        writer=lambda malformed: StrictDelimitedInputWriter(
            field_delimiter="|", collection_delimiter=":", map_key_delimiter="=", malformed=malformed
        ),
        records=delimited_records,
    ),
    Case(
        name="json",
        columns={**PRIMITIVES, **NESTED},
        row_format="SERDE 'org.apache.hadoop.hive.serde2.JsonSerDe'",
        writer=lambda malformed: StrictJsonWriter(malformed=malformed),
        records=json_records,
        fails=True,
    ),
    Case(
        name="regex",
        columns=PRIMITIVES,
        row_format="SERDE 'org.apache.hadoop.hive.serde2.RegexSerDe' WITH SERDEPROPERTIES "
        f"('input.regex'='{REGEX.replace(chr(92), chr(92) * 2)}')",
        writer=lambda malformed: StrictRegexWriter(REGEX, malformed=malformed),
        records=regex_records,
    ),
]


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_the_writer_reads_what_the_serde_reads(
    hive_sql_source: HiveSql, source: EmbeddedMetastore, tmp_path: Path, case: Case
) -> None:
    judge = Judge(hive_sql_source, source.uri, tmp_path, case)
    records = case.records()
    strict = judge.ours("raise", records)
    accepted = [record for record, row in zip(records, strict, strict=True) if row is not None]
    assert len(records) // 3 < len(accepted) < len(records)
    # A strict writer takes nothing that Hive fails on, or reads otherwise.
    assert unlike(accepted, judge.hive(accepted), filter(None, strict)) == []
    if not case.fails:
        lenient = judge.ours("null", records)
        for record, hives, ours in unlike(records, judge.hive(records), lenient):
            differences = [
                (theirs, other) for theirs, other in zip(hives, ours, strict=True) if theirs != other
            ]
            # Where RegexSerDe has no true it has a false.
            assert REFUSED & set(record.split("|")) or differences == [("false", None)], (record, differences)


def unlike(records: Sequence[bytes], hives: Iterable[Any], ours: Iterable[Any]) -> list[tuple[str, Any, Any]]:
    rows = zip(records, hives, ours, strict=True)
    return [(record.decode(), theirs, other) for record, theirs, other in rows if theirs != other]


class Judge:
    """Two tables with the same columns: the records, and what a writer makes of them."""

    def __init__(self, sql: HiveSql, uri: str, directory: Path, case: Case) -> None:
        self._sql, self._uri, self._case = sql, uri, case
        self._file = directory / "text" / "records"
        self._file.parent.mkdir()
        columns = ", ".join(["id int", *(f"{column} {kind}" for column, kind in case.columns.items())])
        sql.execute(f"CREATE DATABASE IF NOT EXISTS {DATABASE}")
        sql.execute(
            f"CREATE EXTERNAL TABLE {DATABASE}.{case.name}_text ({columns}) ROW FORMAT {case.row_format} "
            f"STORED AS TEXTFILE LOCATION 'file:{self._file.parent}'"
        )
        for malformed in ("raise", "null"):
            sql.execute(
                f"CREATE TABLE {DATABASE}.{case.name}_{malformed} ({columns}) STORED AS ORC "
                "TBLPROPERTIES ('transactional'='true')"
            )

    def hive(self, records: Sequence[bytes]) -> list[Any]:
        """Return Hive's value of each record."""
        self._file.write_bytes(b"".join(record + b"\n" for record in records))
        return list(self._sql.execute(f"SELECT * FROM {DATABASE}.{self._case.name}_text"))

    def ours(self, malformed: Malformed, records: Sequence[bytes]) -> list[Any]:
        """Return Hive's rows of the records that the writer made; ``None`` of bad ones."""
        bad: set[int] = set()

        def put_aside(letter: DeadLetter) -> None:
            bad.add(letter.record_number - 1)

        table = f"{self._case.name}_{malformed}"
        connection = (
            HiveStreamingConnection.new_builder()
            .with_database(DATABASE)
            .with_table(table)
            .with_record_writer(self._case.writer(malformed))
            .with_conf(MetastoreSettings(uris=(self._uri,)))
            .with_dead_letters(put_aside)
            .connect()
        )
        with connection, connection.transaction():
            connection.write_records(records)
        rows = iter(self._sql.execute(f"SELECT * FROM {DATABASE}.{table}"))
        return [None if place in bad else next(rows) for place in range(len(records))]
