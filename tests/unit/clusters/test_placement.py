"""Copies of tables and partitions."""

from __future__ import annotations

import pytest

from airflow_hive_federation.clusters.placement import Clusters, Copy, PartitionFacts, Partitions, Placement
from airflow_hive_federation.errors import ConfigurationError

C1 = Copy("C1", "hdfs://one/t")
C2 = Copy("C2", "hdfs://two/t")
STALE = Copy("C3", "hdfs://three/t", fresh=False)


def test_an_object_is_readable_where_its_copy_is_fresh() -> None:
    placement = Placement(C1, (C2, STALE))
    assert placement.readable == ("C1", "C2")
    assert placement.stale == ("C3",)
    assert placement.on("C2") is C2
    assert placement.on("C3") is STALE
    assert placement.on("C4") is None


def test_partitions_are_kept_by_column() -> None:
    rows = [
        PartitionFacts(("2026-01-01", "0"), Placement(C1, (C2,)), 10),
        PartitionFacts(("2026-01-01", "1"), Placement(C1, (Copy("C2", "elsewhere"),)), None),
        PartitionFacts(("2026-01-02", "0"), None, 30),
    ]
    partitions = Partitions.of(rows)
    assert list(partitions) == rows
    assert Partitions.of(partitions) is partitions
    assert [column.distinct for column in partitions.columns] == [("2026-01-01", "2026-01-02"), ("0", "1")]
    assert [column.codes.tolist() for column in partitions.columns] == [[0, 0, 1], [0, 1, 0]]
    assert partitions.homes == ((("C1", "C2"), ()), None)
    assert partitions.home_codes.tolist() == [0, 0, 1]
    assert partitions.bytes.tolist() == [10, -1, 30]


def test_no_partitions_have_no_columns() -> None:
    assert Partitions.of([]).columns == ()
    assert Partitions.of([]).home_codes.tolist() == []


def test_the_default_cluster_is_a_configured_one() -> None:
    assert "C1" in Clusters(names=("C1", "C2"), default="C1")
    with pytest.raises(ConfigurationError, match="'C9' is not configured"):
        Clusters(names=("C1",), default="C9")
