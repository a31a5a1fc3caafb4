"""Looks at the clusters of tables, by the answers of a metastore in memory."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from airflow_hive_federation.clusters import catalog
from airflow_hive_federation.clusters.look import CopyLook, TableLook, look_at_clusters
from airflow_hive_federation.clusters.registry import ClusterRegistry
from airflow_hive_federation.errors import NoSuchObjectError
from airflow_hive_federation.model.write_ids import ValidWriteIds
from tests.support.two_clusters import two_clusters
from tests.support.warehouse import Warehouse, copied, partition, table

REGISTRY = two_clusters("/one", "/two")


def looks_at(
    warehouse: Warehouse, registry: ClusterRegistry = REGISTRY
) -> tuple[dict[str, TableLook], tuple[int, int, int, list[str]]]:
    found: dict[str, TableLook] = {}
    status = look_at_clusters(
        warehouse.client,
        registry,
        looked_at=lambda _, looks: found.update({look.table: look for look in looks}),
    )
    return found, (status.tables, status.copies, status.stale, list(status.problems))


@pytest.fixture
def warehouse() -> Warehouse:
    """Return one table per kind of place."""
    warehouse = Warehouse()
    fresh, behind = table("fresh", primary="C1"), table("behind", primary="C1", totalSize="7")
    copied(fresh)
    copied(behind, stale=True)
    days = [
        partition("a", transient_lastDdlTime="30", totalSize="5"),
        partition("b", transient_lastDdlTime="20", totalSize="6"),
        partition("c", transient_lastDdlTime="10"),
        partition("d"),
    ]
    for each in days[:2]:
        copied(each, stale=True)
    copied(days[2])
    broken = table("broken", primary="C1")
    (broken.parameters or {})["hive.cluster.secondary.C2.location"] = "/two/half"
    view, link = table("view"), table("link", **{"hive.federation.remote": "thrift"})
    view.tableType = "VIRTUAL_VIEW"
    link.sd = None
    parted = table("parted", primary="C1", keys=["day"])
    warehouse.tables = {"d": [fresh, behind, parted, broken, view, link, table("plain")]}
    warehouse.partitions = {"d.parted": days}
    return warehouse


def test_each_table_has_its_primary_and_its_copies(warehouse: Warehouse) -> None:
    found, numbers = looks_at(warehouse)
    assert list(found) == ["d.fresh", "d.behind", "d.parted", "d.broken", "d.plain"]
    assert found["d.fresh"].copies == (CopyLook(cluster="C2", objects=1, stale_bytes=0),)
    assert found["d.behind"].copies == (CopyLook(cluster="C2", objects=1, stale=1, stale_bytes=7),)
    assert (found["d.parted"].partitions, found["d.parted"].copies) == (
        4,
        (CopyLook(cluster="C2", objects=3, stale=2, stale_bytes=11, lacks_since_s=20),),
    )
    assert (found["d.plain"].primary, found["d.plain"].assigned) == ("C1", False)
    assert found["d.fresh"].assigned
    assert numbers == (5, 3, 2, ["d.broken"])
    assert "no parameter hive.cluster.secondary.C2.source" in found["d.broken"].problem


def test_a_stale_object_of_unknown_size_leaves_the_sum_unknown(warehouse: Warehouse) -> None:
    copied(warehouse.partitions["d.parted"][3], stale=True)
    (copy,) = looks_at(warehouse)[0]["d.parted"].copies
    assert (copy.stale, copy.stale_bytes, copy.lacks_since_s) == (3, None, 20)


def test_a_registry_without_the_default_leaves_tables_in_no_cluster(warehouse: Warehouse) -> None:
    strict = ClusterRegistry(REGISTRY.clusters, default="C1", use_default=False)
    assert looks_at(warehouse, strict)[0]["d.plain"].primary == ""


def test_tables_are_read_a_hundred_per_call() -> None:
    warehouse = Warehouse()
    warehouse.tables = {"d": [table(f"t{number}") for number in range(250)], "e": []}
    found, numbers = looks_at(warehouse)
    assert (len(found), numbers, warehouse.calls) == (250, (250, 0, 0, []), 3)


def test_a_database_that_does_not_exist_is_named(warehouse: Warehouse) -> None:
    with pytest.raises(NoSuchObjectError, match="no database absent"):
        look_at_clusters(warehouse.client, REGISTRY, ["absent"], looked_at=lambda *_: None)


def test_a_copy_of_a_transactional_table_lacks_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    warehouse, now = Warehouse(), ValidWriteIds(table="d.acid", high_watermark=9, aborted_ids=(8,))
    monkeypatch.setattr(
        catalog, "take_snapshots", lambda _, names: {name: SimpleNamespace(write_ids=now) for name in names}
    )
    acid = table("acid", primary="C1", keys=["day"], transactional="true")
    days = [partition(day, transient_lastDdlTime="1", totalSize="5") for day in "abc"]
    for day, seen in zip(days, (9, 7, 5), strict=True):
        copied(day, snapshot=ValidWriteIds(table="d.acid", high_watermark=seen))
    warehouse.tables, warehouse.partitions = {"d": [acid]}, {"d.acid": days}
    (copy,) = looks_at(warehouse)[0]["d.acid"].copies
    assert copy == CopyLook(cluster="C2", objects=3, stale=2, stale_bytes=10, lacks_writes=3)
