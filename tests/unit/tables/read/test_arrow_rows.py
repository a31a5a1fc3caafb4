"""Rows by pyarrow: the calendars of dates, and what cannot be read."""

from __future__ import annotations

import io
from datetime import date, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from airflow_hive_federation.errors import AcidFormatError
from airflow_hive_federation.model.types import Column, parse_type
from airflow_hive_federation.orc.assembly import HYBRID, PROLEPTIC, AssembledFile, encode, type_messages
from airflow_hive_federation.orc.calendars import julian_shift, proleptic_dates
from airflow_hive_federation.tables.read.arrow_rows import RowFile, rows_of_file
from airflow_hive_federation.tables.read.scan import _KEY_FIELDS
from airflow_hive_federation.tables.spark_types import spark_schema

UNIX_EPOCH = date(1970, 1, 1).toordinal()
# Days of the Julian calendar, by the proleptic dates that they are, and what they are called.
JULIAN = {
    -719_164 + UNIX_EPOCH: "0001-01-01",
    date(300, 2, 27).toordinal(): "0300-02-27",
    date(1066, 10, 20).toordinal(): "1066-10-14",
    date(1500, 3, 9).toordinal(): "1500-02-28",
    date(1500, 3, 10).toordinal(): "1500-03-01",  # its 29 February
    date(1500, 3, 11).toordinal(): "1500-03-01",
    date(1582, 10, 14).toordinal(): "1582-10-04",
    date(1582, 10, 15).toordinal(): "1582-10-15",
    date(2000, 2, 29).toordinal(): "2000-02-29",
}


def dates_of(ordinals: list[int | None]) -> pa.Array:
    days = [None if ordinal is None else ordinal - UNIX_EPOCH for ordinal in ordinals]
    return pa.array(days, pa.int32()).cast(pa.date32())


def test_julian_days_keep_their_names() -> None:
    assert date(1582, 10, 14).toordinal() - UNIX_EPOCH == -141_428
    dates = proleptic_dates(dates_of([*JULIAN, None]))
    assert dates.type == pa.date32()
    assert [date and str(date) for date in dates.to_pylist()] == [*JULIAN.values(), None]


def test_every_date_has_one_julian_day() -> None:
    days = np.concatenate([np.arange(-719_162, -141_437), np.arange(-141_427, 20_000)])
    julian = pa.array((days + julian_shift(days)).astype(np.int32)).cast(pa.date32())
    assert np.array_equal(proleptic_dates(julian).cast(pa.int32()).to_numpy(), days)


@pytest.mark.parametrize("calendar", [HYBRID, None, PROLEPTIC])
def test_dates_are_of_the_files_calendar(calendar: int | None) -> None:
    early = dates_of([date(1582, 10, 14).toordinal(), None])
    lists = pa.ListArray.from_arrays([0, 2, 2], early)
    rows = pa.table(
        {
            "id": pa.array([1, 2], pa.int32()),
            "day": early,
            "days": lists,
            "by_day": pa.MapArray.from_arrays([0, 1, 1], early[:1], early[:1]),
            "more": pa.StructArray.from_arrays([early, lists], names=["x", "y"]),
        }
    )
    types = ["int", "date", "array<date>", "map<date,date>", "struct<x:date,y:array<date>>"]
    (rows_read,) = read(rows, types, calendar=calendar)
    day = date(1582, 10, 14) if calendar == PROLEPTIC else date(1582, 10, 4)
    assert rows_read.select(rows.column_names).to_pylist() == [
        {
            "id": 1,
            "day": day,
            "days": [day, None],
            "by_day": [(day, day)],
            "more": {"x": day, "y": [day, None]},
        },
        {"id": 2, "day": None, "days": [], "by_day": [], "more": {"x": None, "y": []}},
    ]


@pytest.mark.parametrize("calendar", [HYBRID, PROLEPTIC])
def test_timestamps_that_nanoseconds_do_not_reach(calendar: int) -> None:
    shown = [datetime(9999, 12, 31, 23, 59, 59, 999_999), datetime(1582, 10, 14, 1, 2), None]  # noqa: DTZ001
    far = pa.array(shown, pa.timestamp("us"))
    rows = pa.table({"at": far, "instant": far.cast(pa.timestamp("us", "UTC"))})
    (rows_read,) = read(rows, ["timestamp", "timestamp with local time zone"], calendar=calendar)
    if calendar == HYBRID:
        shown[1] = datetime(1582, 10, 4, 1, 2)  # noqa: DTZ001
    for column in ("at", "instant"):
        assert rows_read.column(column).cast(pa.timestamp("us")).to_pylist() == shown


def test_a_damaged_stripe_is_an_error_that_names_its_file() -> None:
    content = bytearray(made(pa.table({"id": pa.array(range(9_999), pa.int32())}), ["int"], calendar=None))
    content[3 : len(content) // 2] = bytes(len(content) // 2 - 3)
    with pytest.raises(AcidFormatError, match="file:/t/000000_0 cannot be read"):
        rows_of(bytes(content), ["id"], ["int"])


def read(rows: pa.Table, types: list[str], **facts: Any) -> list[pa.RecordBatch]:
    """Write a file without ACID columns, and read it.

    :param facts: of the file: its calendar.
    """
    return rows_of(made(rows, types, **facts), rows.column_names, types)


def made(rows: pa.Table, types: list[str], **facts: Any) -> bytes:
    content = io.BytesIO()
    pairs = zip(rows.column_names, types, strict=True)
    row = parse_type(f"struct<{','.join(f'{name}:{kind}' for name, kind in pairs)}>")
    file = AssembledFile(content, type_messages(row), compression="zlib", **facts)
    for stripe in encode(rows, "zlib"):
        file.add(stripe)
    file.finish({})
    return content.getvalue()


def rows_of(content: bytes, names: list[str], types: list[str]) -> list[pa.RecordBatch]:
    schema = spark_schema([Column.of(name, kind) for name, kind in zip(names, types, strict=True)])
    for field in _KEY_FIELDS:
        schema.add(field)
    original = RowFile(path="file:/t/000000_0", directory="file:/t")
    return list(rows_of_file(original, pa.py_buffer(content), schema, "UTC"))
