"""The footer of a Parquet file names the calendar and zone of its dates and timestamps."""

from __future__ import annotations

import io
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from airflow_hive_federation.tables.read.formats.parquet import Clock, ParquetForm, parquet_form

NOON = datetime.fromisoformat("2026-01-01T12:00:00")
BY_HIVE = {"writer.model.name": "4.2.1"}


def form_of(
    columns: dict[str, pa.Array], metadata: dict[str, str], *, maker: str = "", **settings: Any
) -> ParquetForm:
    table = pa.table(columns)
    file = io.BytesIO()
    parquet.write_table(table.replace_schema_metadata(metadata), file, **settings)
    footer = parquet.read_metadata(file)
    definition = SimpleNamespace(
        metadata=footer.metadata, schema=footer.schema, created_by=maker or footer.created_by
    )
    return parquet_form(definition)


@pytest.mark.parametrize(
    ("metadata", "clock"),
    [
        ({}, None),
        (BY_HIVE, Clock(zone=None, standard=True)),
        ({**BY_HIVE, "writer.time.zone": "Asia/Tokyo"}, Clock(zone="Asia/Tokyo", standard=True)),
        (
            {**BY_HIVE, "writer.time.zone": "Asia/Tokyo", "writer.zone.conversion.legacy": "false"},
            Clock(zone="Asia/Tokyo", standard=False),
        ),
    ],
)
def test_instants(metadata: dict[str, str], clock: Clock | None) -> None:
    columns = {"At": pa.array([NOON]), "several": pa.array([[NOON]]), "other": pa.array([1])}
    form = form_of(columns, metadata, maker="parquet-mr version 1.15.2", use_deprecated_int96_timestamps=True)
    assert form == ParquetForm(
        julian="writer.model.name" in metadata, clock=clock, instants=frozenset({"at", "several"})
    )


def test_instants_of_others_than_java_are_wall_clocks() -> None:
    metadata = {**BY_HIVE, "writer.time.zone": "Asia/Tokyo"}
    form = form_of({"at": pa.array([NOON])}, metadata, use_deprecated_int96_timestamps=True)
    assert form.clock == Clock(zone="UTC", standard=False)


def test_wall_clocks() -> None:
    columns = {
        "naive": pa.array([NOON]),
        "nested": pa.array([{"at": NOON}]),
        "instant": pa.array([NOON.replace(tzinfo=UTC)]),
        "name": pa.array(["x"]),
    }
    form = form_of(columns, {**BY_HIVE, "writer.time.zone": "Asia/Tokyo"})
    assert form == ParquetForm(julian=True, wall_clocks=frozenset({"naive", "nested"}))


@pytest.mark.parametrize(
    ("metadata", "julian"),
    [
        ({}, False),
        (BY_HIVE, True),
        ({**BY_HIVE, "writer.date.proleptic": "false"}, True),
        ({**BY_HIVE, "writer.date.proleptic": "true"}, False),
        ({"writer.date.proleptic": "false"}, False),
    ],
)
def test_calendars(metadata: dict[str, str], julian: bool) -> None:
    assert form_of({"day": pa.array([NOON.date()])}, metadata) == ParquetForm(julian=julian)
