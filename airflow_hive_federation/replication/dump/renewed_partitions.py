"""Finds the partitions of a table whose names, directories or rows were others on the target."""

from __future__ import annotations

from functools import partial

from airflow_hive_federation.replication.dump.other_partitions import other_partitions
from airflow_hive_federation.replication.dump.relocated import relocated_partitions
from airflow_hive_federation.replication.dump.source_moment import SourceMoment
from airflow_hive_federation.replication.dump.truncated import truncated_partitions
from airflow_hive_federation.replication.format.directory import DumpDirectory
from airflow_hive_federation.replication.metadata.table_locations import TableLocations


def renewed_partitions(
    moment: SourceMoment,
    directory: DumpDirectory,
    table: str,
    places: TableLocations,
    *,
    transactional: bool,
    whole: bool,
) -> tuple[str, ...]:
    """Return the present partitions that replace those of the target.

    :param directory: the dump that is being written, with the table's partitions and files.
    :param places: the places of its partitions.
    :param whole: all partitions are described; otherwise none has been given another directory.
    """
    folded = moment.folded
    gone = set(folded.partitions_gone.get(table, ()))
    if folded.is_doubtful(table) and places.partitions:
        index = moment.table_index
        gone |= other_partitions(index.of(table), directory, table) if table in index else set()
    if transactional and whole and places.partitions:
        for before in moment.former.of(table):
            gone |= relocated_partitions(before, directory, table, places)
    if transactional and folded.evidence.has_emptied(table):
        is_emptied = partial(folded.evidence.of_files, table)
        for before in moment.former.of(table):
            gone |= truncated_partitions(before, directory, table, is_emptied)
    return tuple(sorted(gone.intersection(places.names()))) if gone else ()
