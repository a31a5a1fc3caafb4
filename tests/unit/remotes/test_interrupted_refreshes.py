"""Refreshes that end in their middle, and what the next one makes of that."""

from __future__ import annotations

import copy

import pytest

from airflow_hive_federation.errors import MetastoreError
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.remotes import partitions
from airflow_hive_federation.remotes.links import DEFINITION, READ_BY
from airflow_hive_federation.remotes.session import Remotes
from airflow_hive_federation.remotes.statement import Kind, Name
from tests.support.catalog_contract import DATABASE, tables
from tests.support.memory_catalog import MemoryCatalog
from tests.support.memory_metastore import MemoryMetastore, hang_up

MIRROR = Name(database="mirror")
PARTED = ("mirror", "parted")


def another_day(value: str) -> types.Partition:
    partition = copy.deepcopy(tables("file:/far")["parted"][1][0])
    partition.values = [value]
    partition.sd.location = f"file:/far/parted/{value}"  # type: ignore[union-attr]
    return partition


@pytest.mark.parametrize("left", ["dropped locally", "made anew"])
@pytest.mark.parametrize("killed_after", ["create_table_req", "add_partitions_req"])
def test_a_link_that_was_being_made_gets_all_partitions(
    left: str,
    killed_after: str,
    remotes: Remotes,
    near: MemoryMetastore,
    far: MemoryCatalog,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The event that makes the link anew names one partition only."""
    monkeypatch.setattr(partitions, "PARTITIONS_PER_BATCH", 1)
    remotes.run(f"CREATE REMOTE DATABASE mirror CONNECTED TO {DATABASE} VIA 'far'")
    assert near.tables[PARTED].parameters[DEFINITION]
    if left == "dropped locally":
        remotes.run("DROP REMOTE TABLE mirror.parted")
    else:
        near.tables[PARTED].parameters[READ_BY] = "an earlier way"
    far.add_partition(another_day("new"))
    near.after[killed_after] = hang_up
    with pytest.raises(MetastoreError):
        remotes.refresh(Kind.DATABASE, MIRROR)
    near.after.clear()
    assert len(near.partitions[PARTED]) < 2
    report = remotes.refresh(Kind.DATABASE, MIRROR)
    assert (report.whole, report.event_id) == (False, far.last_event_id())
    assert sorted(near.partitions[PARTED]) == far.list_partition_names(DATABASE, "parted")
    assert near.tables[PARTED].parameters[DEFINITION]
    near.calls.clear()
    assert not remotes.refresh(Kind.DATABASE, MIRROR).changed
    assert near.writes == []
