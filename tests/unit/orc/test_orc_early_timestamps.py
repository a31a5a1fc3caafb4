"""Instants before 1970 with fractions: encoded stripes give them back, to a reader that is not ours."""

from __future__ import annotations

import io
import random
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import orc

from airflow_hive_federation.errors import AcidFormatError
from airflow_hive_federation.model.types import parse_type
from airflow_hive_federation.orc.assembly import AssembledFile, encode, type_messages
from airflow_hive_federation.orc.file_writer import OrcFileWriter

NS = pa.timestamp("ns")
SECOND = 10**9


def read_back(rows: pa.Table, hive_type: str, compression: str = "zlib") -> pa.Table:
    made = io.BytesIO()
    types = type_messages(parse_type(hive_type))
    file = AssembledFile(made, types, compression=compression, calendar=2)
    for stripe in encode(rows, compression):
        file.add(stripe)
    file.finish({})
    made.seek(0)
    return orc.ORCFile(made).read()


def instants(rng: random.Random, count: int) -> list[int | None]:
    """Nanoseconds of many kinds; none in the last second before 1970."""
    timestamps: list[int | None] = []
    for _ in range(count):
        second = rng.choice([-9_000_000_000, -86_400, -2, 0, 1, 1_700_000_000])
        fraction = rng.choice([0, 1, 999_999, 1_000_000, 500_000_000, 999_999_999, rng.randrange(10**9)])
        timestamps.append(rng.choice([None, second * SECOND + fraction, second * SECOND + fraction]))
    return timestamps


@pytest.mark.parametrize("compression", ["zlib", "uncompressed", "zstd", "snappy", "lz4"])
def test_they_come_back(compression: str) -> None:
    rng = random.Random(7)
    times = instants(rng, 25_003)
    rows = pa.table(
        {
            "id": pa.array(range(len(times)), pa.int64()),
            "t": pa.array(times, NS),
            "late": pa.array([abs(time) if time else time for time in times], NS),
        }
    )
    rows_read = read_back(rows, "struct<id:bigint,t:timestamp,late:timestamp>", compression)
    assert rows_read.column("t").cast(pa.int64()).to_pylist() == times
    assert rows_read.column("late").equals(rows.column("late"))
    assert rows_read.column("id").equals(rows.column("id"))


def test_in_structs_and_arrays_with_nulls_and_of_slices() -> None:
    rng = random.Random(3)
    inner = pa.struct([("x", pa.int32()), ("t", NS)])
    values = [
        rng.choice([None, {"x": index, "t": instant}, {"x": index, "t": instant}])
        for index, instant in enumerate(instants(rng, 2_000))
    ]
    lists = [rng.choice([None, [], instants(rng, rng.randrange(4))]) for _ in values]
    rows = pa.table({"s": pa.array(values, inner), "l": pa.array(lists, pa.list_(NS))}).slice(11, 1_500)
    rows_read = read_back(rows, "struct<s:struct<x:int,t:timestamp>,l:array<timestamp>>")
    assert rows_read.to_pylist() == rows.to_pylist()


def test_behind_a_map() -> None:
    """Arrow has one struct more in a map than ORC has columns."""
    inner = pa.struct([("m", pa.map_(pa.string(), pa.int32())), ("t", NS)])
    times = [-5 * SECOND + 3, None, 7]
    rows = pa.table(
        {
            "m": pa.array([[("k", 1)], None, []], pa.map_(pa.string(), pa.int32())),
            "t": pa.array(times, NS),
            "s": pa.array([{"m": [("k", 1)], "t": time} for time in times], inner),
        }
    )
    types = "struct<m:map<string,int>,t:timestamp,s:struct<m:map<string,int>,t:timestamp>>"
    assert read_back(rows, types).to_pylist() == rows.to_pylist()


@pytest.mark.parametrize("unit", ["ms", "us"])
def test_other_units(unit: str) -> None:
    per_second = {"ms": 1000, "us": 10**6}[unit]
    times = [-9_000_000_000 * per_second + 5, -3 * per_second + 1, -3 * per_second, None, 7]
    rows = pa.table({"t": pa.array(times, pa.timestamp(unit))})
    read = read_back(rows, "struct<t:timestamp>").column("t").cast(pa.timestamp(unit))
    assert read.to_pylist() == rows.column("t").to_pylist()


def test_behind_later_ones_in_a_file_written_batch_by_batch(tmp_path: Path) -> None:
    path = tmp_path / "insert-0-0-0"
    batches = [
        pa.table({"t": pa.array(times, NS)})
        for times in (range(30_000), instants(random.Random(5), 5_000), instants(random.Random(6), 7_000))
    ]
    writer = OrcFileWriter(path, type_messages(parse_type("struct<t:timestamp>")), "zlib")
    for batch in batches:
        writer.write(batch)
    writer.finish()
    assert orc.ORCFile(path).read().column("t").to_pylist() == pa.concat_tables(batches)["t"].to_pylist()


def test_statistics_claim_nothing_of_them() -> None:
    rows = pa.table({"t": pa.array([-2 * SECOND + 5, 5], NS)})
    (stripe,) = encode(rows, "zlib")
    (plain,) = encode(pa.table({"t": pa.array([-2 * SECOND, 5], NS)}), "zlib")
    assert len(stripe.columns[1]) < len(plain.columns[1])


@pytest.mark.parametrize("nanoseconds", [-1, -SECOND + 1_000_000])
def test_the_last_second_before_1970_is_refused(nanoseconds: int) -> None:
    with pytest.raises(AcidFormatError, match="last second before 1970"):
        encode(pa.table({"t": pa.array([nanoseconds], NS)}), "zlib")
    (stripe,) = encode(pa.table({"t": pa.array([-SECOND], NS)}), "zlib")
    assert stripe.rows == 1


def test_in_maps() -> None:
    maps = pa.array([[("k", -2 * SECOND + 5), ("l", None)], None, [], [("m", 7)]], pa.map_(pa.string(), NS))
    rows_read = read_back(pa.table({"m": maps}), "struct<m:map<string,timestamp>>")
    assert rows_read.column("m").to_pylist() == maps.to_pylist()
