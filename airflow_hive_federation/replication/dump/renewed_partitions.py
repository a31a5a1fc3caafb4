"""Finds the partitions of a table whose names, or directories, stood for others on the target."""

from __future__ import annotations

from airflow_hive_federation.replication.dump.other_partitions import other_partitions
from airflow_hive_federation.replication.dump.relocated import relocated_partitions
from airflow_hive_federation.replication.dump.source_moment import SourceMoment
from airflow_hive_federation.replication.format.directory import DumpDirectory
from airflow_hive_federation.replication.metadata.table_locations import TableLocations


def renewed_partitions(
    moment: SourceMoment,
    directory: DumpDirectory,
    table: str,
    places: TableLocations,
    home: DumpDirectory | None = None,
) -> tuple[str, ...]:
    """Return the present partitions that replace those of the target.

    :param directory: the dump that is being written, with the table's partitions and files.
    :param places: the places of its partitions.
    :param home: the dump with the former locations of all partitions of a transactional table.
    """
    folded = moment.folded
    gone = set(folded.partitions_gone.get(table, ()))
    if folded.is_doubtful(table) and places.partitions:
        index = moment.table_index
        gone |= other_partitions(index.of(table), directory, table) if table in index else set()
    if home and places.partitions:
        gone |= relocated_partitions(home, directory, table, places)
    return tuple(sorted(gone.intersection(places.names()))) if gone else ()
