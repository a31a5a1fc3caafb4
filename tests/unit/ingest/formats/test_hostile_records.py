"""Records made to harm: bad ones among good ones, in bounded memory and time, and never another error."""

from __future__ import annotations

import io
import json
import resource
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from airflow_hive_federation.errors import HiveFederationError
from airflow_hive_federation.ingest.errors import InvalidConnection, SerializationError
from airflow_hive_federation.ingest.formats.delimited import StrictDelimitedInputWriter
from airflow_hive_federation.ingest.formats.json_records import StrictJsonWriter
from airflow_hive_federation.ingest.formats.record_bounds import parse_bounded
from airflow_hive_federation.ingest.formats.regex_records import StrictRegexWriter
from airflow_hive_federation.ingest.formats.streams import records_of
from airflow_hive_federation.ingest.formats.writers import MAX_RECORD_BYTES, AbstractRecordWriter, Malformed
from airflow_hive_federation.ingest.inputs import Position, text_records
from airflow_hive_federation.model.types import Column, parse_type
from tests.support.process_memory import peak_memory_bytes

ZONED = "timestamp with local time zone"


def json_writer(_: Malformed) -> AbstractRecordWriter:
    return StrictJsonWriter.new_builder().build()


def delimited(malformed: Malformed) -> AbstractRecordWriter:
    builder = StrictDelimitedInputWriter.new_builder().with_field_delimiter(",")
    return builder.with_malformed(malformed).build()


def regex(expression: str) -> Callable[[Malformed], AbstractRecordWriter]:
    return lambda malformed: StrictRegexWriter(expression, malformed=malformed, limit_s=0.2)


@dataclass(frozen=True)
class Attack:
    """A record, and what the columns are. ``good`` is read all the same."""

    writer: Callable[[Malformed], AbstractRecordWriter]
    types: tuple[str, ...]
    record: Callable[[], bytes]
    good: bool = False
    malformed: Malformed = "raise"


MB = 1 << 20
ATTACKS = {
    "json: lists": Attack(json_writer, ("string",), lambda: b'{"c0":[' + b"[]," * (30 * MB) + b"1]}"),
    "json: an unknown key": Attack(json_writer, ("date",), lambda: b'{"x":[' + b"{}," * (30 * MB) + b"1]}"),
    "json: 100 MB": Attack(
        json_writer, ("string",), lambda: b'{"c0":"' + b"a" * (100 * MB) + b'"}', good=True
    ),
    "json: too long": Attack(json_writer, ("string",), lambda: b'{"c0":"' + b"a" * MAX_RECORD_BYTES + b'"}'),
    "json: digits": Attack(json_writer, ("date", "int"), lambda: b'{"c1":' + b"1" * MB + b"}"),
    "json: a zone": Attack(json_writer, (ZONED,), lambda: b'{"c0":"' + b"a" * 100_000 + b'!"}'),
    "json: blanks for a zone": Attack(json_writer, (ZONED,), lambda: b'{"c0":"1' + b" " * 100_000 + b'!"}'),
    "json: a zone of the file system": Attack(
        json_writer, (ZONED,), lambda: b'{"c0":"2026-01-01 00:00:00 ' + b"A" * 5000 + b'"}'
    ),
    "json: a directory of zones": Attack(
        json_writer, (ZONED,), lambda: b'{"c0":"2026-01-01 00:00:00 America"}'
    ),
    "json: a time before all": Attack(json_writer, (ZONED,), lambda: b'{"c0":"0001-01-01 00:00:00 +14:00"}'),
    "json: a time after all": Attack(
        json_writer, (ZONED,), lambda: b'{"c0":"9999-12-31 23:00:00 Pacific/Honolulu"}'
    ),
    "delimited: fields": Attack(delimited, ("string", "int"), lambda: b"," * (100 * MB)),
    "delimited: fields for nulls": Attack(
        delimited, ("string", "int"), lambda: b"," * (100 * MB), good=True, malformed="null"
    ),
    "delimited: elements": Attack(
        delimited, ("array<int>", "int"), lambda: b"1\x02" * (40 * MB) + b",1"
    ),
    "delimited: pairs": Attack(
        delimited, ("map<int,array<int>>", "int"), lambda: b"1\x03\x04" * (20 * MB) + b",1"
    ),
    "delimited: 100 MB": Attack(
        delimited, ("string", "int"), lambda: b"a" * (100 * MB) + b",1", good=True
    ),
    "delimited: a hexadecimal number": Attack(
        delimited, ("double", "int"), lambda: b"-0x1p9999999,1", good=True
    ),
    "regex: doubling": Attack(regex("(a+)+b"), ("string",), lambda: b"a" * 60),
    "regex: powers": Attack(regex("(.*) .* .* .* .*b"), ("string",), lambda: b" " * 5000),
    "regex: a number": Attack(regex("(.*)"), ("int",), lambda: b"1" * MB),
}  # fmt: skip
#: A record of 100 MB takes some seven times its size.
BUDGET_BYTES = 1000 * MB


def outcome(attack: Attack) -> tuple[int, list[tuple[int, str]]]:
    writer = attack.writer(attack.malformed)
    writer.bind(
        [Column(name=f"c{n}", type=parse_type(type_name)) for n, type_name in enumerate(attack.types)]
    )
    parsed = parse_bounded(writer, [attack.record()])
    return parsed.rows.num_rows, [(bad.index, bad.reason) for bad in parsed.bad]


def main() -> None:
    """Run in the child process of the test: a line per attack, its memory included."""
    # Of addresses, allocators take gigabytes themselves; this only keeps a failing test from taking all.
    resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
    for name, attack in ATTACKS.items():
        rows, bad = outcome(attack)
        used = peak_memory_bytes()
        print(json.dumps({"what": name, "rows": rows, "bad": bad, "bytes": used}), flush=True)


@pytest.fixture(scope="module")
def outcomes() -> dict[str, Any]:
    """In a process of its own, for what it takes, and because others of its kind ended it."""
    call = "from tests.unit.ingest.formats.test_hostile_records import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", call],
        cwd=Path(__file__).parents[4],
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert (done.returncode, done.stderr[-2000:], len(lines)) == (0, "", len(ATTACKS)), lines[-1:]
    return {line["what"]: line for line in lines}


@pytest.mark.parametrize("name", ATTACKS)
def test_is_one_bad_record_in_little_memory(outcomes: dict[str, Any], name: str) -> None:
    outcome = outcomes[name]
    assert (outcome["rows"], len(outcome["bad"])) == ((1, 0) if ATTACKS[name].good else (0, 1))
    assert all(index == 0 and 0 < len(reason) < 500 for index, reason in outcome["bad"])
    assert outcome["bytes"] < BUDGET_BYTES


def bound(writer: AbstractRecordWriter, *types: str) -> AbstractRecordWriter:
    writer.bind([Column(name=f"c{n}", type=parse_type(type_name)) for n, type_name in enumerate(types)])
    return writer


def test_records_that_are_too_long_keep_their_places() -> None:
    writer = bound(delimited("raise"), "int")
    writer.max_record_bytes = 3
    parsed = parse_bounded(writer, [b"1", b"1234", b"x", b"2", b"12345"])
    assert parsed.rows.to_pydict() == {"c0": [1, 2]}
    assert [(bad.index, bad.reason.split()[-2:]) for bad in parsed.bad] == [
        (1, ["3", "bytes"]),
        (2, ["whole", "number"]),
        (4, ["3", "bytes"]),
    ]


def test_an_expression_that_takes_too_long_for_many_records_is_not_tried_for_all() -> None:
    writer = bound(StrictRegexWriter("(a+)+b", limit_s=0.01), "string")
    records = [b"ab", b"\xff", *[b"a" * 60] * 30, b"aab"]
    parsed = writer.parse(records)
    assert parsed.rows.to_pydict() == {"c0": ["a"]}
    assert [bad.index for bad in parsed.bad] == list(range(1, len(records)))
    assert "more than 0.01 s" in parsed.bad[1].reason
    assert "not tried" in parsed.bad[-1].reason
    with pytest.raises(ValueError, match="more than"):
        writer.encode(b"a" * 60)


def test_the_limit_of_an_expression_is_a_time() -> None:
    with pytest.raises(InvalidConnection, match="limit_s"):
        StrictRegexWriter.new_builder().with_regex("(.)").with_limit_s(0).build()


def test_a_line_without_end_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"1\n2\n" + b"3" * (9 << 20))
    uri = f"file:{tmp_path}/f"
    pieces = text_records(Position(uri=uri, offset=0), None, header=False, max_record_bytes=MB)
    assert next(pieces)[0] == [b"1", b"2"]
    with pytest.raises(SerializationError, match="line 3: it has more than") as caught:
        next(pieces)
    assert isinstance(caught.value, HiveFederationError)
    assert "max_record_bytes" in caught.value.remedy


@pytest.mark.parametrize("delimiter", [None, b"<>"])
def test_a_stream_without_end_is_an_error(delimiter: bytes | None) -> None:
    class Endless(io.RawIOBase):
        def read(self, size: int = -1) -> bytes:
            return b"a" * size

    with pytest.raises(SerializationError, match="more than"):
        list(records_of(Endless(), delimiter, 10 * MB))
