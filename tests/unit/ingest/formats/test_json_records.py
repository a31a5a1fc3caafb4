"""JSON records by Arrow's reader and one by one: the same rows, the same bad records, and no dead process."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from airflow_hive_federation.ingest.formats.json_records import StrictJsonWriter
from airflow_hive_federation.model.types import Column, parse_type
from tests.support.examples import seeds

TYPES = ["boolean", "tinyint", "smallint", "int", "bigint", "double", "string", "varchar(3)", "char(3)"]
VALUES = [
    *("null", "true", "1", "-1", "1.5", "1e5", "1E400", "1e-400", "-0", "-0.0", "0.1", "127", "128", "32768"),
    *(
        "2147483648",
        "9223372036854775807",
        "9223372036854775808",
        "12345678901234567890123",
        "1e9999999999999",
    ),
    *("0.30000000000000004", "123456789012345678.5", "1.", "01", "+1", "nul", "TRUE"),
    *("NaN", "Infinity", "-Infinity", "Inf", "-NaN", '"NaN"', '"Infinity"'),
    *(
        '"a"',
        '""',
        '"true"',
        '"1"',
        '" 1"',
        '"1.0"',
        '"é"',
        '"abcd"',
        '"\\ud800"',
        '"\\u0000"',
        '"\\x"',
        '"\x01"',
    ),
    *('"} x"', '"} {"', '"}{"', "[]", "{}", '{"a":1}', '{"a":{}}', "[1]", "[[[[1]]]]", "[{}]"),
]
RECORDS = [
    *("null", "", "1", "[]", "{}", "{", "}", "true", '"s"', "nan", "\0", "null null"),
    *(
        '{"c0":1',
        '}{"c0":2}',
        '{"c0":1} null',
        'null {"c0":1}',
        '{"c0":1}{"c0":2}',
        '{"c0":1}5',
        '{"c0":1} "x"',
    ),
    *(' {"c0":1}', '{"c0":1} ', '{"c0":1}\r', '\ufeff{"c0":1}', '{"c0":1}\0', '{"c0":1}\n{"c0":2}'),
    *('{"C0":1}', '{"c0":1,"c0":2}', '{"c0":1,}', '{"c0" :1}', "{c0:1}", "{'c0':1}", '{"x":1}'),
    *(
        '/* */{"c0":1}',
        '{"c0":1}//x',
        '{"c0":"a',
        'b"}',
        '{"c0":[1',
        "2]}",
        '{"c0":{"a":{}',
        "}}",
        '{"c0":[{}',
        "{}]}",
    ),
]


def writer(types: Sequence[str]) -> StrictJsonWriter:
    made = StrictJsonWriter.new_builder().build()
    made.bind([Column(name=f"c{place}", type=parse_type(type_name)) for place, type_name in enumerate(types)])
    return made


def made_record(chance: random.Random, columns: int) -> bytes:
    if chance.random() < 0.2:
        return chance.choice(RECORDS).encode()
    name = "C" if chance.random() < 0.05 else "c"
    fields = [f'"{name}{place}":{chance.choice(VALUES)}' for place in range(columns) if chance.random() < 0.9]
    record = "{" + ",".join(fields) + "}"
    if chance.random() < 0.1:
        at = chance.randrange(len(record))
        record = record[:at] + chance.choice(["", "}", "{", "\n", ",", '"', "null"]) + record[at + 1 :]
    return record.encode() + (b"\xff" if chance.random() < 0.02 else b"")


def batches(seed: int, count: int) -> Iterator[tuple[list[str], list[bytes]]]:
    """Random batches of one table: the types of its columns, and records."""
    chance = random.Random(seed)
    types = [chance.choice(TYPES) for _ in range(chance.randrange(1, 4))]
    for _ in range(count):
        yield types, [made_record(chance, len(types)) for _ in range(chance.choice([1, 1, 2, 3]))]


def differs(types: Sequence[str], records: Sequence[bytes]) -> bool:
    """Return whether Arrow's reader makes other rows of a batch than are made one by one."""
    by = writer(types)
    at_once, each = by._at_once(records), by._each(records)
    # As text: not a number equals itself, and -0 is not 0.
    return at_once is not None and bool(each.bad or repr(at_once.to_pylist()) != repr(each.rows.to_pylist()))


def differs_apart(types: Sequence[str], records: Sequence[bytes]) -> bool:
    """As :func:`differs`, in a process of its own: a batch that ends it differs, too."""
    child = os.fork()
    if not child:
        code = 2
        try:
            code = int(differs(types, records))
        finally:
            os._exit(code)
    return os.waitpid(child, 0)[1] != 0


def main(first: int, count: int, per_seed: int, apart: int) -> None:
    """Run in the child process of the test."""
    asks = differs_apart if apart else differs
    if apart:
        pa.array([1])  # it imports pandas, once for all processes
    records = [
        f"seed {seed}, {types}: {records}"
        for seed in range(first, first + count)
        for types, records in batches(seed, per_seed)
        if asks(types, records)
    ]
    sys.stdout.write(json.dumps(records))


def in_a_process(call: str) -> subprocess.CompletedProcess[str]:
    # (Python 3.12 warns of a fork beside threads, which Arrow has; none is used before it.)
    return subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", call],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[4],
    )


def test_both_ways_make_the_same_rows() -> None:
    """Some batches ended the process, so it is their own: one per batch where more examples are set."""
    asked = len(seeds(60))
    for arguments in [(0, asked, 100, 0), (1_000_000, asked, 1, 1)][: 1 + (asked > 60)]:
        call = f"from tests.unit.ingest.formats.test_json_records import main; main{arguments}"
        done = in_a_process(call)
        assert (done.returncode, done.stderr[-2000:]) == (0, "")
        assert json.loads(done.stdout) == []


def test_a_process_that_a_batch_ends_is_a_difference() -> None:
    call = (
        "import os; from tests.unit.ingest.formats import test_json_records as module\n"
        "for outcome in (lambda *_: False, lambda *_: True, lambda *_: os.abort()):\n"
        "    module.differs = outcome; print(module.differs_apart(['string'], []))"
    )
    assert in_a_process(call).stdout.split() == ["False", "True", "True"]


@pytest.mark.parametrize(
    "records",
    [
        [b"null"],
        [b"{}", b"null"],
        [b'{"c0":1', b'}{"c0":2}'],
        [b'{"c0":"a', b'b"}'],
        [b'{"c0":1} null'],
        [b'{"c0":1}{"c0":2}', b'{"c0":3}'],
        [b'{"c0":NaN}'],
    ],
)
def test_what_is_no_object_is_bad(records: list[bytes]) -> None:
    wrong = [index for index, record in enumerate(records) if record not in {b"{}", b'{"c0":3}'}]
    parsed = writer(["double"]).parse(records)
    assert [bad.index for bad in parsed.bad] == wrong
    assert parsed.rows.num_rows == len(records) - len(wrong)


@pytest.mark.parametrize("hive_type", ["double", "decimal(10,2)", "bigint", "string", "array<string>"])
@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("1e99999999999999999999", "exponent"),
        ("-1e99999999999999999999", "exponent"),
        ("[" * 100_000 + "]" * 100_000, "deep"),
        ('{"a":' * 100_000 + "1" + "}" * 100_000, "deep"),
    ],
    ids=["large", "small", "arrays", "objects"],
)
def test_what_is_out_of_bounds_is_one_bad_record(hive_type: str, value: str, reason: str) -> None:
    parsed = writer([hive_type]).parse([b"{}", f'{{"c0":{value}}}'.encode(), b"{}"])
    assert [bad.index for bad in parsed.bad] == [1]
    assert reason in parsed.bad[0].reason
    assert parsed.rows.num_rows == 2


def test_objects_are_read_at_once_whatever_their_texts_hold() -> None:
    records = [b'{"c0":"} and more"}', b'{"c0":"Infinity"}', b' {"c0":"a"} ']
    parsed = writer(["string"])._at_once(records)
    assert parsed is not None
    assert parsed.to_pylist() == [{"c0": "} and more"}, {"c0": "Infinity"}, {"c0": "a"}]
