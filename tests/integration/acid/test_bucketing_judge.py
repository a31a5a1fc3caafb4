"""Bucketing against Hive's own ``ObjectInspectorUtils``, on random values of every type."""

from __future__ import annotations

import json
import os
import random
import struct
import subprocess
from collections.abc import Callable
from decimal import Context, Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from airflow_hive_federation.acid.bucketing import bucket_hash_codes, bucket_numbers
from airflow_hive_federation.embedded.jars import sql_jars
from airflow_hive_federation.embedded.jvm import java_command
from airflow_hive_federation.model.types import HiveType, parse_type
from airflow_hive_federation.orc.arrow_columns import arrow_type
from airflow_hive_federation.runtime.java import find_java

ROWS = int(os.environ.get("BUCKETING_JUDGE_ROWS", "4000"))
JUDGE = Path(__file__).parents[2] / "support" / "bucketing_judge.groovy"

CASES = [
    *("boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "string", "binary", "date"),
    *(
        "decimal(7,2)",
        "decimal(18,6)",
        "decimal(38,18)",
        "decimal(38,0)",
        "char(5)",
        "char(30)",
        "varchar(9)",
    ),
    "timestamp",
    "timestamp with local time zone",
    "array<int>",
    "array<string>",
    "map<string,int>",
    "map<int,array<double>>",
    "struct<a:int,b:string>",
    "struct<a:struct<x:bigint,y:timestamp>,b:array<struct<c:char(3)>>>",
    "int|string",
    "string|bigint|date",
    "decimal(10,3)|array<smallint>|varchar(4)",
]


def test_same_codes_as_hive(tmp_path: Path) -> None:
    seed = int(os.environ.get("BUCKETING_JUDGE_SEED", "0")) or random.SystemRandom().randint(1, 2**31)
    print(f"seed {seed}")
    rng = random.Random(seed)
    asked = []
    for case in CASES:
        column_types = [parse_type(text) for text in case.split("|")]
        asked.append([[_random(rng, column_type) for column_type in column_types] for _ in range(ROWS)])
    wrong = {}
    for case, rows, theirs in zip(CASES, asked, _judge(asked, tmp_path), strict=True):
        ours = _ours([parse_type(text) for text in case.split("|")], rows)
        differing = [(row, a, b) for row, a, b in zip(rows, ours, theirs, strict=True) if a != b]
        if differing:
            wrong[case] = (len(differing), differing[:3])
    assert not wrong, f"seed {seed}: {wrong}"


def _ours(column_types: list[HiveType], rows: list[list[Any]]) -> list[str]:
    columns = [
        _array([row[index] for row in rows], column_type) for index, column_type in enumerate(column_types)
    ]
    numbers = [bucket_hash_codes(columns, column_types, version=v).view(np.int32) for v in (1, 2)]
    numbers += [bucket_numbers(columns, column_types, buckets=7, version=v) for v in (1, 2)]
    return [":".join(map(str, codes)) for codes in zip(*numbers, strict=True)]


def _judge(asked: list[list[list[Any]]], tmp_path: Path) -> list[list[str]]:
    answers = tmp_path / "answers"
    java = find_java()
    command = java_command(
        java,
        "groovy.ui.GroovyMain",
        [str(JUDGE), str(answers)],
        class_path=sql_jars(java),
        argument_file=tmp_path / "java.args",
    )
    lines = [
        json.dumps({"types": case.split("|"), "rows": rows}) for case, rows in zip(CASES, asked, strict=True)
    ]
    done = subprocess.run(
        command, input="\n".join(lines) + "\n", text=True, capture_output=True, check=False, timeout=280
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return [line.split(" ") for line in answers.read_text(encoding="utf-8").splitlines()]


# What goes over to the judge: JSON, with numbers as texts and floats as their bits.


def _random(rng: random.Random, hive_type: HiveType) -> Any:
    if rng.random() < 0.08:
        return None
    if hive_type.name == "array":
        return [_random(rng, hive_type.children[0]) for _ in range(rng.randint(0, 4))]
    if hive_type.name == "map":
        return _random_map(rng, hive_type)
    if hive_type.name == "struct":
        return [_random(rng, field.type) for field in hive_type.fields]
    if hive_type.name == "decimal":
        return _random_decimal(rng, *hive_type.arguments)
    if hive_type.name in {"char", "varchar"}:
        return _random_text(rng)[: hive_type.arguments[0]]
    return _RANDOM[hive_type.name](rng)


def _random_map(rng: random.Random, hive_type: HiveType) -> list[list[Any]]:
    keys = {_random(rng, hive_type.children[0]) for _ in range(rng.randint(0, 4))} - {None}
    return [[key, _random(rng, hive_type.children[1])] for key in sorted(keys)]


def _random_text(rng: random.Random) -> str:
    alphabet = rng.choice(["abc ", "0123456789", "äöüßé", "日本語中文", "😀𝄞x", "\x00\x7f\u0080~"])
    return "".join(rng.choices(alphabet, k=rng.choice([0, 1, 2, 3, 4, 5, 7, 8, 21, 60])))


def _random_decimal(rng: random.Random, precision: int, scale: int) -> str:
    digits = rng.randint(0, precision)
    integer = rng.choice([0, rng.randint(0, 10**digits - 1), 10 ** (digits - 1) if digits else 0])
    return str(Decimal(rng.choice([1, -1]) * integer).scaleb(-scale, _WIDE))


_WIDE = Context(prec=60)


def _bits(width: int) -> Callable[[random.Random], str]:
    def draw(rng: random.Random) -> str:
        edge = [0, -1, 2 ** (width - 1) - 1, -(2 ** (width - 1))]
        return str(rng.choice([*edge, rng.randint(*edge[3:1:-1]), rng.randint(*edge[3:1:-1])]))

    return draw


def _float_bits(form: str, bits: str) -> Callable[[random.Random], str]:
    def draw(rng: random.Random) -> str:
        odd = [0.0, -0.0, float("nan"), float("inf"), -float("inf"), 1.5, -1.5]
        value = rng.choice([rng.choice(odd), rng.uniform(-1e9, 1e9), rng.gauss(0, 1)])
        return str(struct.unpack(bits, struct.pack(form, value))[0])

    return draw


def _random_moment(rng: random.Random) -> list[int]:
    ranges = [rng.randint(-62_135_596_800, 253_402_300_799), rng.randint(-(2**31), 2**33), 0, 2**31]
    # Microseconds are what Spark has.
    nanos = [0, 1000, 500_000_000, 123_000_000, 999_999_000, rng.randint(0, 999_999) * 1000]
    return [rng.choice(ranges), rng.choice(nanos)]


_RANDOM: dict[str, Callable[[random.Random], Any]] = {
    "boolean": lambda rng: rng.random() < 0.5,
    "tinyint": _bits(8),
    "smallint": _bits(16),
    "int": _bits(32),
    "bigint": _bits(64),
    "float": _float_bits("<f", "<I"),
    "double": _float_bits("<d", "<Q"),
    "string": _random_text,
    "binary": lambda rng: rng.randbytes(rng.randint(0, 20)).hex(),
    "date": lambda rng: rng.choice(
        [rng.randint(-719_162, 2_932_896), rng.randint(-30_000, 30_000), -141_428]
    ),
    **dict.fromkeys(("timestamp", "timestamp with local time zone"), _random_moment),
}


def _array(values: list[Any], hive_type: HiveType) -> pa.Array:
    return pa.array([_decoded(value, hive_type) for value in values], arrow_type(hive_type))


def _decoded(value: Any, hive_type: HiveType) -> Any:
    if value is None:
        return None
    name, children = hive_type.name, hive_type.children
    if name == "array":
        return [_decoded(element, children[0]) for element in value]
    if name == "map":
        return [(_decoded(key, children[0]), _decoded(element, children[1])) for key, element in value]
    if name == "struct":
        return {f.name: _decoded(element, f.type) for f, element in zip(hive_type.fields, value, strict=True)}
    return _DECODED.get(name, lambda decoded: decoded)(value)


_DECODED: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("tinyint", "smallint", "int", "bigint"), int),
    "float": lambda bits: struct.unpack("<f", struct.pack("<I", int(bits)))[0],
    "double": lambda bits: struct.unpack("<d", struct.pack("<Q", int(bits)))[0],
    "decimal": Decimal,
    "binary": bytes.fromhex,
    "timestamp": lambda parts: np.datetime64(parts[0] * 1_000_000 + parts[1] // 1000, "us"),
    "timestamp with local time zone": lambda parts: parts[0] * 1_000_000 + parts[1] // 1000,
}
