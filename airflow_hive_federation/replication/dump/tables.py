"""Writes one table's partitions and files into a dump as they arrive, without keeping them in memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from airflow_hive_federation.replication.format.directory import DumpDirectory
from airflow_hive_federation.replication.format.files import VisibleFile
from airflow_hive_federation.replication.format.tables import PartitionLine
from airflow_hive_federation.replication.metadata.table_locations import TableLocations


@dataclass(frozen=True, kw_only=True)
class FileTotals:
    """The number and size of a table's files."""

    files: int
    size_bytes: int


def write_partitions(directory: DumpDirectory, table: Any, partitions: Iterable[Any]) -> TableLocations:
    """Write a table's partitions, and return the places of its data.

    :param directory: a dump that is being written.
    :param table: wire ``Table``.
    :param partitions: its wire ``Partition`` objects.
    """
    places = TableLocations(table)
    directory.write_partitions(
        table.tableName, (PartitionLine.of(places.add(partition), partition) for partition in partitions)
    )
    return places


def write_files(directory: DumpDirectory, table: str, files: Iterable[VisibleFile]) -> FileTotals:
    """Write the list of a table's files, and return their number and size."""
    size_bytes = 0

    def measured() -> Iterator[VisibleFile]:
        nonlocal size_bytes
        for file in files:
            size_bytes += file.size_bytes
            yield file

    count = directory.write_files(table, measured())
    return FileTotals(files=count, size_bytes=size_bytes)
