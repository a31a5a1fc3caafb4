"""Writes one table's partitions and files into a dump as they arrive, without keeping them in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from airflow_hive_federation.acid.names import is_acid_directory, parse_directory
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.model.write_ids import ValidWriteIds
from airflow_hive_federation.replication.dump.directory_digests import DirectoryDigests
from airflow_hive_federation.replication.format.directory import DumpDirectory
from airflow_hive_federation.replication.format.files import VisibleFile
from airflow_hive_federation.replication.format.tables import PartitionLine, PartitionTotals
from airflow_hive_federation.replication.metadata.table_locations import TableLocations


@dataclass(frozen=True, kw_only=True)
class FileTotals:
    """The number and size of a table's files.

    :param partitions: the same per partition, in its order; of a table for which they are not kept, none.
    """

    files: int
    size_bytes: int
    partitions: tuple[PartitionTotals, ...] = ()


class Unsettled:
    """Collects the partitions that change when transactions end that are open now.

    Statistics may be of such a transaction, and a streaming writer's file may hold rows of it.

    :param write_ids: the table's write ids at the dump's moment; ``None`` for a table without.
    """

    def __init__(self, write_ids: ValidWriteIds | None) -> None:
        self._write_ids = write_ids
        self._open = frozenset(write_ids.open_ids) if write_ids else frozenset()
        self._names: set[str] = set()

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the partitions."""
        return tuple(sorted(self._names))

    def watch_partitions(self, lines: Iterable[PartitionLine]) -> Iterator[PartitionLine]:
        """Pass partitions on, and note those with a write id of an open transaction."""
        for line in lines:
            write_id = line.definition.get("writeId")
            if isinstance(write_id, int) and self._is_open(write_id):
                self._names.add(line.name)
            yield line

    def watch_files(self, files: Iterable[VisibleFile]) -> Iterator[VisibleFile]:
        """Pass files on, and note those that may get more rows."""
        for file in files:
            if file.partition and (file.side_file or (file.filtered and self._may_grow(file))):
                self._names.add(file.partition)
            yield file

    def _is_open(self, write_id: int) -> bool:
        if self._write_ids is None:
            return False
        return write_id in self._open or write_id > self._write_ids.high_watermark

    def _may_grow(self, file: VisibleFile) -> bool:
        directory = file.path.partition("/")[0]
        last = parse_directory(directory).max_write_id if is_acid_directory(directory) else 0
        return bool(self._open) or self._is_open(last)


def write_partitions(
    directory: DumpDirectory,
    table: types.Table,
    partitions: Iterable[types.Partition],
    unsettled: Unsettled | None = None,
) -> TableLocations:
    """Write a table's partitions, and return the places of its data.

    :param directory: a dump that is being written.
    :param unsettled: notes partitions that the ends of open transactions will change.
    """
    places = TableLocations(table)
    lines = (PartitionLine.of(places.add(partition), partition) for partition in partitions)
    directory.write_partitions(table.tableName, unsettled.watch_partitions(lines) if unsettled else lines)
    return places


def write_files(
    directory: DumpDirectory,
    table: str,
    files: Iterable[VisibleFile],
    *,
    unsettled: Unsettled | None = None,
    places: TableLocations | None = None,
    digests: DirectoryDigests | None = None,
) -> FileTotals:
    """Write the list of a table's files, and return their number and size.

    :param unsettled: notes partitions that the ends of open transactions will change.
    :param places: the places of the table's partitions, of which totals are kept; ``None`` to keep none.
    :param digests: the digests of their directories.
    """
    size_bytes = 0
    counts: Counter[str] = Counter()
    sizes: Counter[str] = Counter()

    def measured() -> Iterator[VisibleFile]:
        nonlocal size_bytes
        for file in unsettled.watch_files(files) if unsettled else files:
            size_bytes += file.size_bytes
            if places is not None:
                counts[file.partition] += 1
                sizes[file.partition] += file.size_bytes
            yield file

    count = directory.write_files(table, measured())
    totals = partition_totals(places, counts, sizes, digests) if places is not None else {}
    return FileTotals(files=count, size_bytes=size_bytes, partitions=tuple(totals.values()))


def partition_totals(
    places: TableLocations,
    counts: Mapping[str, int],
    sizes: Mapping[str, int],
    digests: DirectoryDigests | None,
) -> dict[str, PartitionTotals]:
    """Return the totals of a table's partitions by name.

    :param places: the places of the partitions.
    :param counts: the number of files of those that have any.
    :param sizes: the size of their files in bytes.
    :param digests: the digests of their directories.
    """
    elsewhere = {place.partition: place.location for place in places.elsewhere()}
    return {
        name: PartitionTotals(
            name,
            counts.get(name, 0),
            sizes.get(name, 0),
            elsewhere.get(name, ""),
            digests.of(name) if digests else "",
        )
        for name in places.names()
    }


def has_totals(table: types.Table, places: TableLocations, *, transactional: bool) -> bool:
    """Return whether a dump keeps totals per partition, so that a later one may describe some of them only.

    The directories of a transactional table's partitions change by transactions and events alone. If one may
    lie inside another, they are listed together.
    """
    return transactional and bool(table.partitionKeys) and places.apart
