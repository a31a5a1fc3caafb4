"""A refresh copies the column statistics of partitions again if they have changed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from airflow_hive_federation.catalog.factories import Factory
from airflow_hive_federation.catalog.open import Catalogs
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.remotes.session import Remotes
from airflow_hive_federation.remotes.statement import Kind, Name
from tests.support.catalog_contract import DATABASE, tables
from tests.support.memory_catalog import MemoryCatalog
from tests.support.memory_metastore import MemoryMetastore

PARTED = Name(database="default", table="parted")
MARKED = {"COLUMN_STATS_ACCURATE": '{"COLUMN_STATS":{"id":"true"}}'}


class Analyzed(MemoryCatalog):
    """A catalog with statistics of the column ``id`` in some partitions, by their numbers of values."""

    distinct: dict[str, int] = {}  # noqa: RUF012 - one catalog per test

    def partition_statistics(
        self, database: str, table: str, names: Sequence[str]
    ) -> dict[str, list[types.ColumnStatisticsObj]]:
        assert (database, table) == (DATABASE, "parted")
        return {
            name: [
                types.ColumnStatisticsObj(
                    colName="id",
                    colType="int",
                    statsData=types.ColumnStatisticsData(
                        longStats=types.LongColumnStatsData(numNulls=0, numDVs=self.distinct[name])
                    ),
                )
            ]
            for name in names
        }


@pytest.fixture
def far() -> Analyzed:
    catalog = Analyzed()
    catalog.distinct = {"p=a": 1, "p=b c": 2}
    catalog.put_database(types.Database(name=DATABASE))
    table, partitions = tables("file:/far")["parted"]
    for partition in partitions[:2]:
        partition.parameters = {**(partition.parameters or {}), **MARKED}
    catalog.put_table(table, partitions)
    return catalog


@pytest.fixture
def remotes(near: MemoryMetastore, far: Analyzed) -> Iterator[Remotes]:
    factory = Factory(name="far", class_names=(), properties={}, open=lambda _: far)
    with near.served() as settings, Remotes(settings, catalogs=Catalogs(factories=(factory,))) as opened:
        yield opened


def test_other_statistics(remotes: Remotes, near: MemoryMetastore, far: Analyzed) -> None:
    written: list[tuple[str, int]] = []

    def note(args: Any) -> None:
        for statistics in args.request.colStats:
            (column,) = statistics.statsObj
            written.append((statistics.statsDesc.partName, column.statsData.longStats.numDVs))

    near.before["set_aggr_stats_for"] = note
    remotes.run(f"CREATE REMOTE TABLE parted CONNECTED TO {DATABASE}.parted VIA 'far'")
    assert sorted(written) == [("p=a", 1), ("p=b c", 2)]
    written.clear()
    assert not remotes.refresh(Kind.TABLE, PARTED, whole=True).changed
    far.distinct["p=a"] = 7
    assert remotes.refresh(Kind.TABLE, PARTED, whole=True).partitions_altered == 1
    assert written == [("p=a", 7)]
    assert not remotes.refresh(Kind.TABLE, PARTED, whole=True).changed
