"""The file that lists the locations of external tables."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_hive_federation.errors import DumpCorruptError
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.replication.metadata.external_tables import (
    ExternalEntry,
    entries,
    parse,
    to_text,
)
from airflow_hive_federation.replication.metadata.table_locations import TableLocations


def test_one_entry_covers_what_lies_inside_and_a_partition_outside_has_its_own() -> None:
    table = types.Table(
        sd=types.StorageDescriptor(location="file:/ext/weather"),
        partitionKeys=[types.FieldSchema(name="origin", type="string")],
    )
    locations = {
        "EWR": "file:/ext/weather/origin=EWR",
        "JFK": "file:///ext/weather/origin=JFK",
        "LGA": "file:/elsewhere",
    }
    places = TableLocations(
        table,
        (
            types.Partition(values=[value], sd=types.StorageDescriptor(location=location))
            for value, location in locations.items()
        ),
    )
    assert entries("weather", places) == [
        ExternalEntry(table="weather", location="file:/ext/weather"),
        ExternalEntry(table="weather", location="file:/elsewhere", partition="origin=LGA"),
    ]


def test_the_form_of_a_line() -> None:
    entry = ExternalEntry(table="t", location="hdfs://nn:8020/x", partition="a=1")
    assert to_text([entry]) == "t,a=1,aGRmczovL25uOjgwMjAveA==\n"


names = st.text(alphabet=st.characters(codec="utf-8", exclude_characters=",\n\r"), min_size=1)
partitions = st.text(alphabet=st.characters(codec="utf-8", exclude_characters="\n\r"))


@given(
    st.lists(
        st.builds(
            ExternalEntry,
            table=names,
            location=st.text(min_size=1).filter(str.isprintable),
            partition=partitions,
        )
    )
)
def test_what_is_written_is_read_back(written: list[ExternalEntry]) -> None:
    assert parse(to_text(written)) == written


@pytest.mark.parametrize("line", ["t", "t,***", "t,p,", ",aGRm", "t,/w=="])
def test_a_line_that_is_no_entry_is_named(line: str) -> None:
    with pytest.raises(DumpCorruptError, match="line 2"):
        parse(f"t,aGRm\n{line}\n")
