"""JSON records by Arrow's reader and one by one: the same rows, the same bad records, and no dead process."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from airflow_hive_federation.ingest.json_records import StrictJsonWriter
from airflow_hive_federation.model.types import Column, parse_type

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
    made.bind([Column(name=f"c{place}", type=parse_type(one)) for place, one in enumerate(types)])
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


def differences(seed: int, batches: int) -> list[str]:
    """Batches of which Arrow's reader makes other rows than are made one by one."""
    chance = random.Random(seed)
    types = [chance.choice(TYPES) for _ in range(chance.randrange(1, 4))]
    by = writer(types)
    found = []
    for _ in range(batches):
        records = [made_record(chance, len(types)) for _ in range(chance.choice([1, 1, 2, 3]))]
        at_once, each = by._at_once(records), by._each(records)
        # As text: not a number equals itself, and -0 is not 0.
        if at_once is not None and (each.bad or repr(at_once.to_pylist()) != repr(each.rows.to_pylist())):
            found.append(f"seed {seed}, {types}: {records}")
    return found


def main(first: int, seeds: int) -> None:
    """What the child process of the test runs."""
    found = [one for seed in range(first, first + seeds) for one in differences(seed, 100)]
    sys.stdout.write(json.dumps(found))


def test_both_ways_make_the_same_rows() -> None:
    # In a process of its own: some of these ended it.
    call = "from tests.unit.ingest.test_json_records import main; main(0, 60)"
    done = subprocess.run(
        [sys.executable, "-c", call],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[3],
    )
    assert (done.returncode, done.stderr[-2000:]) == (0, "")
    assert json.loads(done.stdout) == []


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
    wrong = [index for index, one in enumerate(records) if one not in {b"{}", b'{"c0":3}'}]
    parsed = writer(["double"]).parse(records)
    assert [one.index for one in parsed.bad] == wrong
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
    assert [one.index for one in parsed.bad] == [1]
    assert reason in parsed.bad[0].reason
    assert parsed.rows.num_rows == 2


def test_objects_are_read_at_once_whatever_their_texts_hold() -> None:
    records = [b'{"c0":"} and more"}', b'{"c0":"Infinity"}', b' {"c0":"a"} ']
    found = writer(["string"])._at_once(records)
    assert found is not None
    assert found.to_pylist() == [{"c0": "} and more"}, {"c0": "Infinity"}, {"c0": "a"}]
