"""Catalogs of a few tables, for tests of the router."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from airflow_hive_federation.clusters.placement import (
    Clusters,
    Copy,
    PartitionFacts,
    Partitions,
    Placement,
    TableFacts,
)

CLUSTERS = Clusters(names=("C1", "C2", "C3"), default="C1")


def placed(primary: str, *secondaries: str, name: str = "t") -> Placement:
    """Copies in clusters; a name with ``!`` behind it is a stale one."""
    return Placement(
        Copy(primary, f"hdfs://{primary.lower()}/{name}"),
        tuple(
            Copy(
                cluster.rstrip("!"),
                f"hdfs://{cluster.rstrip('!').lower()}/{name}",
                fresh=not cluster.endswith("!"),
            )
            for cluster in secondaries
        ),
    )


@dataclass
class Catalog:
    """Tables in memory."""

    tables: dict[tuple[str, str], TableFacts] = field(default_factory=dict)
    rows: dict[tuple[str, str], Partitions] = field(default_factory=dict)
    asked: int = 0

    def table(self, database: str, name: str) -> TableFacts | None:
        self.asked += 1
        return self.tables.get((database, name))

    def partitions(self, table: TableFacts) -> Partitions:
        return self.rows[table.database, table.name]

    def add(
        self, name: str, placement: Placement | None, *, database: str = "default", size: int = 1
    ) -> None:
        facts = TableFacts(database=database, name=name, placement=placement, bytes=size, version="1")
        self.tables[database, name] = facts

    def add_partitioned(
        self,
        name: str,
        placement: Placement | None,
        keys: Sequence[tuple[str, str]],
        partitions: Mapping[tuple[str, ...], Placement | None],
        *,
        database: str = "default",
        size: int | None = 1,
    ) -> None:
        facts = TableFacts(
            database=database, name=name, placement=placement, partition_keys=tuple(keys), version="1"
        )
        self.tables[database, name] = facts
        rows = [PartitionFacts(values, place, size) for values, place in partitions.items()]
        self.rows[database, name] = Partitions.of(rows)

    def add_view(
        self, name: str, text: str, *columns: str, database: str = "default", at: str | None = None
    ) -> None:
        self.tables[database, name] = TableFacts(
            database=database, name=name, view_text=text, view_database=at, columns=columns, version="1"
        )

    def touch(self, name: str, version: str, database: str = "default") -> None:
        self.tables[database, name] = replace(self.tables[database, name], version=version)
