"""Quoted CSV: what Python's csv writes comes back, from any position, and mistakes are bad records."""

from __future__ import annotations

import csv
import io
import random
from pathlib import Path
from typing import Any

import pytest

from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.ingest import inputs
from airflow_hive_federation.ingest.errors import SerializationError
from airflow_hive_federation.ingest.formats.quoted import Dialect, QuotedInputWriter, RecordJoiner
from airflow_hive_federation.ingest.inputs import Position, quoted_records
from airflow_hive_federation.model.types import Column

COLUMNS = [Column.of("id", "int"), Column.of("msg", "string")]
TEXTS = [
    "",
    "a",
    "a,b",
    'say "hi"',
    "two\nlines",
    "\n",
    '"',
    '""',
    ",",
    "x\r\ny",
    "é😀",
    "\\N,",
    'a"b',
    " b ",
]


def writer(malformed: Any = "raise", **dialect: str) -> QuotedInputWriter:
    made = QuotedInputWriter(dialect=Dialect(**dialect), malformed=malformed)
    made.bind(COLUMNS)
    return made


def rows(made: QuotedInputWriter, *records: bytes) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in made.parse(records).rows.to_pylist()]


@pytest.mark.parametrize("quoting", [csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("delimiter", [",", "§"])
def test_what_python_writes_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quoting: Any, end: str, delimiter: str
) -> None:
    monkeypatch.setattr(inputs, "_CHUNK_BYTES", 64)
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    chance = random.Random(seed)
    wanted = [(number, "".join(chance.choices(TEXTS, k=chance.randrange(4)))) for number in range(300)]
    text = io.StringIO()
    made = csv.writer(text, delimiter=delimiter, quoting=quoting, lineterminator=end)
    made.writerows([("id", "msg"), *wanted])
    content = text.getvalue().encode()
    (tmp_path / "f.csv").write_bytes(content)
    dialect, start = Dialect(delimiter), Position(uri=str(tmp_path / "f.csv"), offset=0)
    headers: list[bytes] = []
    pieces = list(quoted_records(start, dialect, header=True, on_header=headers.append))
    assert [dialect.fields(header.decode(), 9)[0] for header in headers] == [["id", "msg"]]
    assert len(pieces) > 3
    read = [record for records, _, _ in pieces for record in records]
    # Carriage returns before the end of a record belong to the end.
    assert rows(writer(delimiter=delimiter), *read) == wanted
    for place in range(0, len(pieces), 7):
        again = quoted_records(pieces[place][1], dialect, header=True)
        assert [record for records, _, _ in again for record in records] == [
            record for records, _, _ in pieces[place + 1 :] for record in records
        ]
    lines = [line for _, _, numbers in pieces for line in numbers]
    for record, line in zip(read, lines, strict=True):
        assert b"\n".join(content.split(b"\n")[line - 1 :]).startswith(record)


def test_nulls_and_empty_texts() -> None:
    assert rows(writer(), b"\\N,\\N", b'"","\\N"', b',""', b'"3",') == [
        (None, None),
        (None, "\\N"),
        (None, ""),
        (3, ""),
    ]


def test_another_quote() -> None:
    assert rows(writer(quote="'"), b"'1','a,''b'''") == [(1, "a,'b'")]


def test_a_quote_inside_a_field_is_text() -> None:
    assert rows(writer(), b'1,5" pipe', b'2,a"b"') == [(1, '5" pipe'), (2, 'a"b"')]


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (b'1,"a" b', "text follows the quote that ends at its character 5"),
        (b'1,"a""', "the quote at its character 3 is not closed"),
        (b'1,"a","b"', "it has 3 fields, but there are 2 columns"),
        (b'"1"', "it has 1 field, but there are 2 columns"),
        (b'"x",a', "'x' is not a whole number"),
        (b'1,"\xff"', "byte 3 is not UTF-8"),
    ],
)
def test_a_mistake_is_a_bad_record(record: bytes, reason: str) -> None:
    parsed = writer().parse([b'1,"a"', record, b"3,c"])
    assert [(row["id"], row["msg"]) for row in parsed.rows.to_pylist()] == [(1, "a"), (3, "c")]
    (bad,) = parsed.bad
    assert bad.index == 1
    assert reason in bad.reason


def test_as_pythons_csv_mistakes_are_text() -> None:
    made = writer(malformed="null")
    assert rows(made, b'1,"a" b', b'2,"a,b', b"3", b"4,a,b") == [(1, "a b"), (2, "a,b"), (3, None), (4, "a")]


def test_groups_that_arrow_reads_are_read_the_same_one_by_one() -> None:
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    chance, made = random.Random(seed), writer()
    for _ in range(500):
        records = [bytes(chance.choices(b'1,"" a', k=chance.randrange(8))) for _ in range(3)]
        together, apart = made.parse(records), made._each(records)
        assert together.rows == apart.rows, records
        assert [bad.index for bad in together.bad] == [bad.index for bad in apart.bad], records


def test_a_quote_that_is_open_at_the_end_of_a_group_is_not_closed_by_arrow() -> None:
    parsed = writer().parse([b"1,a", b'2,"'])
    assert [row["id"] for row in parsed.rows.to_pylist()] == [1]
    assert [bad.index for bad in parsed.bad] == [1]


def test_a_quote_that_is_not_closed_is_one_bad_record_at_its_line(tmp_path: Path) -> None:
    (tmp_path / "f.csv").write_bytes(b'1,a\n2,"b\n3,c\n')
    pieces = list(quoted_records(Position(uri=str(tmp_path / "f.csv"), offset=0), Dialect(), header=False))
    assert [(records, [*lines]) for records, _, lines in pieces] == [([b"1,a"], [1]), ([b'2,"b\n3,c'], [2])]


def test_a_record_is_bounded_over_all_its_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs, "_CHUNK_BYTES", 64)
    (tmp_path / "f.csv").write_bytes(b'1,"' + b"abc\n" * 100 + b'"\n')
    pieces = quoted_records(
        Position(uri=str(tmp_path / "f.csv"), offset=0), Dialect(), header=False, max_record_bytes=200
    )
    with pytest.raises(SerializationError, match=r"f\.csv, line 1: it has more than 200 bytes"):
        list(pieces)


def test_lines_without_quotes_are_not_searched() -> None:
    joiner = RecordJoiner(Dialect(), 5)
    assert joiner.join([b"1,a\r", b"2,b"]) == ([b"1,a", b"2,b"], range(6, 8))


@pytest.mark.parametrize(
    ("delimiter", "quote"), [(",", ""), (",", "''"), (",", "\n"), ('"', '"'), (",", "é")]
)
def test_a_quote_is_one_character(delimiter: str, quote: str) -> None:
    with pytest.raises(ConfigurationError, match="--quote"):
        Dialect(delimiter, quote)


@pytest.mark.parametrize(
    "records",
    [
        [b'1,"a,"b'],
        [b',"a1\\1,'],
        [b'1,"a,"'],
        [b'1,"a', b'2",b'],
        [b'1,"a"b'],
        [b'"1","a""b"'],
        [b'1,5" pipe'],
        [b'1,""'],
        [b'1,"a"', b'2,","'],
        [b'"1,"a"'],
        [b'1,"a"', b'2,"'],
    ],
)
@pytest.mark.parametrize("neighbours", [[], [b'7,"x"'], [b"8,y", b'"9",""']])
def test_a_record_does_not_depend_on_its_neighbours(records: list[bytes], neighbours: list[bytes]) -> None:
    made = writer()
    for given in ([*records, *neighbours], [*neighbours, *records]):
        together, one_by_one = made.parse(given), made._each(given)
        assert together.rows.to_pylist() == one_by_one.rows.to_pylist()
        assert [bad.index for bad in together.bad] == [bad.index for bad in one_by_one.bad]


def test_random_records_do_not_depend_on_their_neighbours() -> None:
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    chance = random.Random(seed)
    pieces = [b'"', b'""', b",", b"1", b"\\N", b" ", "é".encode(), b',"', b'",', b'"a"', b'"x,y"']
    made = writer()
    for _ in range(3_000):
        given = [
            b"".join(chance.choices(pieces, k=chance.randrange(1, 8))) for _ in range(chance.randrange(1, 4))
        ]
        together, one_by_one = made.parse(given), made._each(given)
        assert together.rows.to_pylist() == one_by_one.rows.to_pylist(), given
        assert [bad.index for bad in together.bad] == [bad.index for bad in one_by_one.bad], given


def test_whole_fields_in_quotes_are_split_at_once() -> None:
    dialect = Dialect()
    assert dialect.encloses_fields(b'1,"a"\n"2","b,c"\n3,""\n4,d')
    for lines in (b'1,"a', b'1,"a"b', b'1,a"', b'1,"a""b"', b'1,"a,"b"', b'"1\n2"'):
        assert not dialect.encloses_fields(lines)
