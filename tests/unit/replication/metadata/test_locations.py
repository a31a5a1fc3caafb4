"""Locations of the source become locations on the target."""

from __future__ import annotations

import pytest

from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.replication.format.files import target_file_path
from airflow_hive_federation.replication.metadata.locations import (
    external_location,
    partition_location,
    relative_to,
)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("base_0000004_v0000201/bucket_00000", "base_0000004/bucket_00000"),
        ("delta_0000001_0000005_v0000203/bucket_00000", "delta_0000001_0000005/bucket_00000"),
        ("delete_delta_0000001_0000005_v0000203/b", "delete_delta_0000001_0000005/b"),
        ("delta_0000001_0000001_0000/bucket_00000_0", "delta_0000001_0000001_0000/bucket_00000_0"),
        ("000000_0", "000000_0"),
        ("base/000000_0", "base/000000_0"),
    ],
)
def test_a_transaction_of_the_source_is_taken_out_of_directory_names(path: str, expected: str) -> None:
    assert target_file_path(path) == expected


def test_external_tables_of_two_sources_never_collide() -> None:
    first = external_location("hdfs://one/ext_loc/t", "hdfs://target/ext_base1", table="t")
    second = external_location("hdfs://two/ext_loc/t", "hdfs://target/ext_base2", table="t")
    assert first == "hdfs://target/ext_base1/ext_loc/t"
    assert second == "hdfs://target/ext_base2/ext_loc/t"


def test_an_external_table_finds_its_way_back() -> None:
    there = external_location("hdfs://one/ext_loc/t", "s3://two/base", table="t")
    back = external_location(there, "hdfs://one/", table="t", prefix="s3://two/base")
    assert back == "hdfs://one/ext_loc/t"
    # Made on the other side, elsewhere.
    assert external_location("s3://two/new/t", "hdfs://one/", table="t", prefix="s3://two/base") == (
        "hdfs://one/new/t"
    )


def test_an_external_table_without_a_base_is_refused_by_name() -> None:
    with pytest.raises(ConfigurationError, match=r"weather.*external_base"):
        external_location("file:/x", None, table="weather")


@pytest.mark.parametrize(
    ("location", "parent", "expected"),
    [
        ("file:/w/t/p=1", "file:/w/t", "p=1"),
        ("file:///w/t/p=1/", "file:/w/t/", "p=1"),
        ("file:/w/t", "file:///w/t", ""),
        ("file:/w/t2/p=1", "file:/w/t", None),
        ("file:/w/t//p=1", "file:/w/t", "p=1"),
        ("file:/w/t/p=1/", "file:/w/t", "p=1"),
        ("file:///x", "file:/", "x"),
        ("s3a://b/t/p=1", "s3://b/t", "p=1"),
        ("s3://other/t/p=1", "s3://b/t", None),
        ("file:/w/t/p=a%3Ab?#", "file:/w/t", "p=a%3Ab?#"),
    ],
)
def test_inside_or_outside(location: str, parent: str, expected: str | None) -> None:
    assert relative_to(location, parent) == expected


def test_a_partition_from_outside_its_table_moves_to_the_default_place() -> None:
    inside = partition_location("file:/w/t/x/y", "file:/w/t", "file:/r/t", "p=1")
    outside = partition_location("file:/elsewhere", "file:/w/t", "file:/r/t", "p=a%3Ab")
    assert (inside, outside) == ("file:/r/t/x/y", "file:/r/t/p=a%3Ab")
