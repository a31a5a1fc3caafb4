"""Timestamps that nanoseconds do not reach, and the decoding of what they are stored in."""

from __future__ import annotations

import io
import random
from dataclasses import replace
from itertools import chain
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import orc

from airflow_hive_federation.errors import AcidFormatError
from airflow_hive_federation.model.types import parse_type
from airflow_hive_federation.orc.assembly import HYBRID, PROLEPTIC, AssembledFile, encode, type_messages
from airflow_hive_federation.orc.batches import OrcBatches
from airflow_hive_federation.orc.calendars import proleptic_days
from airflow_hive_federation.orc.nanosecond_times import (
    NANOSECOND_TIME,
    microseconds,
    nanosecond_times,
    of_timestamps,
    parts,
    proleptic_times,
)
from airflow_hive_federation.orc.run_lengths import unsigned_numbers
from airflow_hive_federation.orc.tail import read_tail
from airflow_hive_federation.orc.wide_timestamps import wide_columns

YEAR_1, YEAR_9999 = -62_135_596_800, 253_370_764_800
Times = list[tuple[int, int] | None]


def exact(times: Times) -> pa.Array:
    """Make an array of seconds and nanoseconds."""
    seconds, nanoseconds = np.array([time or (0, 0) for time in times], np.int64).reshape(-1, 2).T
    return nanosecond_times(seconds, nanoseconds, pa.array([time is None for time in times]))


def times_of(array: pa.Array | pa.ChunkedArray) -> Times:
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    assert array.type == NANOSECOND_TIME
    pairs = zip(*(part.tolist() for part in parts(array)), strict=True)
    return [
        pair if is_there else None for pair, is_there in zip(pairs, array.is_valid().to_pylist(), strict=True)
    ]


def some_times(rng: random.Random, count: int) -> Times:
    fractions = [0, 1, 100, 999_999, 1_000_000, 123_456_000, 999_999_999]
    times: Times = []
    for _ in range(count):
        second = rng.choice(
            [YEAR_1, YEAR_9999, -86_400, -2, 0, 1_700_000_000, rng.randrange(YEAR_1, YEAR_9999)]
        )
        fraction = rng.choice([*fractions, rng.randrange(10**9)])
        times.append(rng.choice([None, (second, fraction), (second, fraction)]))
    return times


def written(
    tables: list[pa.Table], hive_type: str, compression: str = "zlib", calendar: int = 2
) -> io.BytesIO:
    made = io.BytesIO()
    file = AssembledFile(
        made, type_messages(parse_type(hive_type)), compression=compression, calendar=calendar
    )
    for table in tables:
        for stripe in encode(table, compression):
            file.add(stripe)
    file.finish({})
    return made


def batches_of(file: io.BytesIO, *, doubtful: tuple[int, ...] = (), **options: Any) -> OrcBatches:
    """Read a file; the statistics of some columns are empty."""
    tail = read_tail(file, "made")
    tail = replace(tail, timestamp_millis={**tail.timestamp_millis, **dict.fromkeys(doubtful)})
    return OrcBatches(file, "made", tail, size_bytes=len(file.getvalue()), **options)


def reread(file: io.BytesIO, columns: list[str] | None = None, **options: Any) -> pa.Table:
    batches = batches_of(file, **options)
    rows_read = pa.Table.from_batches(list(batches.batches(columns)))
    if columns is None:
        assert rows_read.schema.types == batches.schema.types
    return rows_read


@pytest.mark.parametrize("compression", ["zlib", "uncompressed", "zstd", "snappy", "lz4"])
def test_they_come_back(compression: str) -> None:
    rng = random.Random(11)
    times = some_times(rng, 40_001)
    late: Times = [time and (abs(time[0]), time[1]) for time in times]
    tables = [
        pa.table({"id": pa.array(range(a, b)), "t": exact(times[a:b]), "late": exact(late[a:b])})
        for a, b in ((0, 25_000), (25_000, 40_001))
    ]
    file = written(tables, "struct<id:bigint,t:timestamp,late:timestamp>", compression)
    assert read_tail(file, "made").timestamp_millis[3] is not None
    rows_read = reread(file)
    assert times_of(rows_read.column("t")) == times
    assert times_of(rows_read.column("late")) == late
    assert rows_read.column("id").to_pylist() == list(range(len(times)))
    assert times_of(reread(file, ["late"]).column("late")) == late


def test_inside_other_columns() -> None:
    rng = random.Random(5)
    times = some_times(rng, 3_000)
    rows, at = [], 0
    while at < len(times) - 8:
        counts = [rng.randrange(4) for _ in range(2)]
        rows.append((times[at], times[at + 1 : at + 1 + counts[0]], times[at + 4 : at + 4 + counts[1]]))
        at += 8
    rows = [(None, None, None) if rng.random() < 0.1 else row for row in rows]
    offsets = [np.cumsum([0, *(len(row[place] or []) for row in rows)]) for place in (1, 2)]
    flat = [exact([element for row in rows for element in row[place] or []]) for place in (1, 2)]
    nulls = pa.array([row[1] is None for row in rows])
    lists = pa.ListArray.from_arrays(pa.array(offsets[0], pa.int32()), flat[0], mask=nulls)
    keys = pa.array([str(index) for index in range(len(flat[1]))])
    maps = pa.MapArray.from_arrays(
        pa.array(offsets[1], pa.int32()), keys, flat[1], pa.map_(pa.string(), NANOSECOND_TIME), mask=nulls
    )
    inner = pa.StructArray.from_arrays([maps, exact([row[0] for row in rows])], names=["m", "t"], mask=nulls)
    table = pa.table({"l": lists, "s": inner})
    file = written([table], "struct<l:array<timestamp>,s:struct<m:map<string,timestamp>,t:timestamp>>")
    rows_read = reread(file)
    assert rows_read.to_pylist() == table.to_pylist()
    assert reread(file, ["s"]).to_pylist() == table.select(["s"]).to_pylist()


PATTERNS = {
    "repeated": [7_000] * 2_000,
    "short": [5, 5, 5, 5, 1, 2, 9, 9, 9, 9, 9],
    "rising": [3 * number for number in range(1_500)],
    "falling": [900_000_000 - 1_000 * number for number in range(1_500)],
    "uneven": [number * number for number in range(1_500)],
    "outliers": [999_999_999 if number % 97 == 0 else number % 31 for number in range(3_000)],
    "few outliers": [987_654_321 if number == 400 else 1_000 + number % 7 for number in range(600)],
    "random": [random.Random(number).randrange(10**9) for number in range(2_000)],
    "small": [number % 3 for number in range(1_000)],
}


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("compression", ["zlib", "uncompressed"])
def test_all_forms_of_another_encoder(pattern: str, compression: str) -> None:
    """pyarrow's encoder chooses between all four forms of runs."""
    times = pa.array(
        [10**18 + 10**9 * pattern + part for pattern, part in enumerate(PATTERNS[pattern])],
        pa.timestamp("ns"),
    )
    file = io.BytesIO()
    orc.write_table(pa.table({"t": times}), file, compression=compression)
    assert times_of(reread(file, doubtful=(1,)).column("t")) == times_of(of_timestamps(times))


def test_of_no_far_column_nothing_changes() -> None:
    table = pa.table({"t": pa.array([0, None, 2**62], pa.timestamp("ns"))})
    assert reread(written([table], "struct<t:timestamp>")).equals(table)


@pytest.mark.parametrize("content", ["4000", "4a", "0a00", "5e03ff", "8e1301", "c6", "c6018081"])
def test_runs_that_are_cut_off(content: str) -> None:
    with pytest.raises(ValueError, match="not whole"):
        unsigned_numbers(bytes.fromhex(content))


def test_examples_of_the_specification() -> None:
    examples = {
        "0a2710": [10_000] * 5,
        "5e035ca1ab1edeadbeef": [23_713, 43_806, 57_005, 48_879],
        "8e132b2107d01e00147028323c46505a646e78828c96a0aab4befce8": [
            *(2030, 2000, 2020, 1_000_000, 2040, 2050, 2060, 2070, 2080, 2090),
            *(2100, 2110, 2120, 2130, 2140, 2150, 2160, 2170, 2180, 2190),
        ],
        "c609020222424246": [2, 3, 5, 7, 11, 13, 17, 19, 23, 29],
    }
    for content, numbers in examples.items():
        assert unsigned_numbers(bytes.fromhex(content)).tolist() == numbers
    assert unsigned_numbers(bytes.fromhex("".join(examples))).tolist() == list(chain(*examples.values()))


def test_clocks_of_another_zone_are_refused() -> None:
    table = pa.table({"t": pa.array([1, 2, 3], pa.timestamp("us"))})
    content = written([table], "struct<t:timestamp>", "uncompressed").getvalue()
    assert content.count(b"GMT") == 1
    with pytest.raises(AcidFormatError, match="the zone UTC only, not in CET"):
        reread(io.BytesIO(content.replace(b"GMT", b"CET")), doubtful=(1,))


@pytest.mark.parametrize("calendar", [HYBRID, PROLEPTIC])
def test_calendars(calendar: int) -> None:
    times: Times = [(YEAR_1 + 3_600, 5), (-12_219_292_801, 7), (-12_219_292_800, 9), None, (YEAR_9999, 1)]
    file = written([pa.table({"t": exact(times)})], "struct<t:timestamp>", calendar=calendar)
    times_read = reread(file, proleptic=True).column("t")
    if calendar == PROLEPTIC:
        assert times_of(times_read) == times
    else:
        assert times_of(times_read) == times_of(proleptic_times(exact(times)))
        # 1 January of the year 1 was a Saturday in the Julian calendar, two days before that of the other.
        assert times_of(times_read)[:3] == [
            (YEAR_1 + 2 * 86_400 + 3_600, 5),
            (-12_219_292_801 - 10 * 86_400, 7),
            (-12_219_292_800, 9),
        ]
    assert times_of(reread(file).column("t")) == times
    shown = reread(file, nanoseconds=False).column("t")
    assert shown.equals(pa.chunked_array([microseconds(exact(times))]))
    assert proleptic_days(np.array([-141_428, -141_427])).tolist() == [-141_438, -141_427]


def test_bounds_within_a_day_of_what_nanoseconds_reach() -> None:
    """They may go by the clock of another zone, and older pyarrow reads wrong what lies beyond."""
    hours_12, last = 12 * 3_600_000, 2**63 // 10**6
    bounds = {1: (hours_12 - last, 0), 2: (0, last - hours_12), 3: (4 * hours_12 - last, last - 4 * hours_12)}
    tail: Any = SimpleNamespace(timestamp_millis={**bounds, 4: None})
    assert wide_columns(tail) == {1, 2, 4}
