"""Row indexes of our ORC files, judged by Java's reader: it seeks by them, and skips row groups."""

from __future__ import annotations

import random
import subprocess
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa

from airflow_hive_federation.embedded.jars import sql_jars
from airflow_hive_federation.embedded.jvm import java_command
from airflow_hive_federation.model.types import parse_type
from airflow_hive_federation.orc.assembly import type_messages
from airflow_hive_federation.orc.file_writer import OrcFileWriter
from airflow_hive_federation.orc.properties import BloomFilters
from airflow_hive_federation.runtime.java import find_java

JUDGE = Path(__file__).parents[2] / "support" / "orc_seek_judge.groovy"
BLOOM_JUDGE = Path(__file__).parents[2] / "support" / "orc_bloom_judge.groovy"
ROWS = 70_000
TYPES = (
    "id bigint, b boolean, t tinyint, i int, f float, d double, x string, word string, y binary, day date, "
    "at timestamp, price decimal(20,2), a array<bigint>, m map<string,bigint>, "
    "s struct<n:bigint,inner:struct<c:string>>, small decimal(18,3), cents decimal(12,2), code string, "
    "half double, made struct<rate:decimal(9,4),n:bigint>, nothing bigint, same int, few bigint, "
    "risen bigint, fallen int, born date, seen timestamp, later timestamp"
)


def rows(seed: int) -> pa.Table:
    """Columns of every type, with nulls, some of them longer than a compression block."""
    chance = np.random.default_rng(seed)
    numbers = chance.integers(-(2**31), 2**31 - 1, ROWS)
    texts = [f"ä{number}" * 2 for number in numbers]
    columns = {
        "b": pa.array(numbers % 2 == 0),
        "t": pa.array(numbers % 100, pa.int8()),
        "i": pa.array(numbers, pa.int32()),
        "f": pa.array(chance.random(ROWS), pa.float32()),
        "d": pa.array(chance.random(ROWS)),
        "x": pa.array(texts),
        "word": pa.array([f"w{number}" for number in numbers % 300]),
        "y": pa.array(texts).cast(pa.binary()),
        "day": pa.array(numbers % 50_000, pa.int32()).cast(pa.date32()),
        # Some before 1970 with fractions of a second, whose streams are made apart.
        "at": pa.array(numbers * 10**9 - 7 * 10**9 + 5, pa.timestamp("ns")),
        "price": pa.array([Decimal(int(number)) / 100 for number in numbers], pa.decimal128(20, 2)),
        "a": pa.array([[int(number)] * (number % 4) for number in numbers]),
        "m": pa.array(
            [[(f"k{number}", int(number))] * (number % 2) for number in numbers], pa.map_("string", "int64")
        ),
        "s": pa.array(
            [{"n": int(number), "inner": {"c": "x"} if number % 5 else None} for number in numbers]
        ),
        "small": pa.array([Decimal(int(number)) / 1000 for number in numbers], pa.decimal128(18, 3)),
        "cents": pa.array([Decimal(number) / 100 for number in range(ROWS)], pa.decimal128(12, 2)),
        "code": pa.array([f"code {number:06}" for number in range(ROWS)]),
        "half": pa.array(np.arange(ROWS) / 2),
        "risen": pa.array(np.arange(ROWS) * 1000 + numbers % 900),
        "fallen": pa.array((-np.arange(ROWS) * 1000 - numbers % 900).astype(np.int32)),
        "born": pa.array((np.arange(ROWS) // 5 * 2).astype(np.int32)).cast(pa.date32()),
        "seen": pa.array((np.arange(ROWS) * 50_000 + numbers % 40_000) * 10**6 + 10, pa.timestamp("us")),
        "later": pa.array(np.abs(numbers) * 10**9 + 123_000, pa.timestamp("ns")),
    }
    places = {name: pa.array(np.arange(ROWS), mask=chance.random(ROWS) < 0.2) for name in columns}
    taken = {name: array.take(places[name]) for name, array in columns.items()}
    # Without nulls, so that its fields are encoded apart.
    rates = pa.array([Decimal(int(number % 10**9)) / 10_000 for number in numbers], pa.decimal128(9, 4))
    made = pa.StructArray.from_arrays([rates, pa.array(numbers)], ["rate", "n"])
    # Of long runs, which are encoded apart.
    few = np.sort(chance.integers(-3, 2**40, 9))[np.sort(chance.integers(0, 9, ROWS))]
    repeated = {"same": pa.array(np.full(ROWS, 7, np.int32)), "few": few}
    nothing = pa.nulls(ROWS, pa.int64())
    others = {"made": made, "nothing": nothing, **repeated}
    late = {name: taken.pop(name) for name in ("risen", "fallen", "born", "seen", "later")}
    return pa.table({"id": np.arange(ROWS), **taken, **others, **late})


def test_javas_reader_seeks_and_skips(tmp_path: Path) -> None:
    seed = random.SystemRandom().randint(1, 2**31)
    print(f"seed {seed}")
    chance = random.Random(seed)
    path = tmp_path / "bucket_00000"
    writer = OrcFileWriter(path, type_messages(parse_type(f"struct<{_fields()}>")), "zlib")
    writer.write(rows(seed))
    writer.finish()
    sought = [*range(0, ROWS, 10_000), *(chance.randrange(ROWS) for _ in range(20))]
    chance.shuffle(sought)
    java = find_java()
    arguments = [
        "id:LONG:31000:32000",
        "cents:DECIMAL:310.00:320.00",
        "code:STRING:code 031000:code 032000",
        "half:FLOAT:15500:16000",
        "risen:LONG:31000000:32000899",
        "fallen:LONG:-32000899:-31000000",
        "born:DATE:12400:12800",
        "seen:TIMESTAMP:1550000000:1600040000",
    ]
    command = java_command(
        java,
        "groovy.ui.GroovyMain",
        [str(JUDGE), str(path), ",".join(map(str, sought)), "31000", "32000", *arguments],
        class_path=sql_jars(java),
        argument_file=tmp_path / "java.args",
    )
    done = subprocess.run(command, text=True, capture_output=True, check=False, timeout=280)
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    # Of seven row groups each argument leaves one.
    assert done.stdout.split()[-1 - len(arguments) :] == [str(len(sought)), *["10000"] * len(arguments)]


def test_javas_reader_skips_by_bloom_filters(tmp_path: Path) -> None:
    """Values lie anywhere between the bounds of every row group, so that only a filter excludes groups."""
    seed = random.SystemRandom().randint(1, 2**31)
    print(f"seed {seed}")
    count = 50_000
    # Even ones, none of them twice.
    numbers = np.random.default_rng(seed).permutation(np.arange(-count, count, 2))
    # As Java prints them.
    columns = {
        "long_one": ("bigint", "LONG", pa.array(numbers), str),
        "short_one": ("int", "LONG", pa.array(numbers, pa.int32()), str),
        "real": ("double", "FLOAT", pa.array(numbers / 4), lambda number: str(number / 4)),
        "half": ("float", "FLOAT", pa.array(numbers / 4, pa.float32()), lambda number: str(number / 4)),
        "name": (
            "string",
            "STRING",
            pa.array([f"ä{number}" for number in numbers]),
            lambda number: f"ä{number}",
        ),
        "code": (
            "varchar(9)",
            "STRING",
            pa.array([f"c{number}" for number in numbers]),
            lambda number: f"c{number}",
        ),
        "born": (
            "date",
            "DATE",
            pa.array(numbers // 2, pa.int32()).cast(pa.date32()),
            lambda number: str(number // 2),
        ),
        "price": (
            "decimal(12,2)",
            "DECIMAL",
            pa.array([Decimal(int(number)) for number in numbers], pa.decimal128(12, 2)),
            str,
        ),
    }
    path = tmp_path / "bucket_00000"
    row = ",".join(f"{name}:{kind}" for name, (kind, *_) in columns.items())
    filters = BloomFilters(columns=tuple(columns))
    writer = OrcFileWriter(path, type_messages(parse_type(f"struct<{row}>")), "snappy", filters)
    writer.write(pa.table({name: array for name, (_, _, array, _) in columns.items()}))
    writer.finish()
    there, gone = int(numbers[12_345]), 4_001
    arguments = []
    for name, (_, kind, _, shown) in columns.items():
        arguments.append(f"{name}:{kind}:{shown(there)}")
        # Days are by two, so that an odd number is another's.
        arguments += [f"{name}:{kind}:!{shown(gone + 2 * more)}" for more in range(3) if name != "born"]
    java = find_java()
    command = java_command(
        java,
        "groovy.ui.GroovyMain",
        [str(BLOOM_JUDGE), str(path), *arguments],
        class_path=sql_jars(java),
        argument_file=tmp_path / "java.args",
    )
    done = subprocess.run(command, text=True, capture_output=True, check=False, timeout=280)
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    codec, *counts = done.stdout.split()[-1 - len(arguments) :]
    assert codec == "SNAPPY"
    let = dict(zip(arguments, map(int, counts), strict=True))
    # One row group of five, and perhaps another that the filter lets through: one of a hundred does.
    assert all(10_000 <= rows <= 30_000 for name, rows in let.items() if "!" not in name), let
    absent = [rows for name, rows in let.items() if "!" in name]
    assert sum(absent) <= len(absent) * 10_000, let


def _fields() -> str:
    return TYPES.replace(", ", ",").replace(" ", ":")
