"""Finds partitions that have taken the names of others without an event."""

from __future__ import annotations

from airflow_hive_federation.replication.format.directory import DumpDirectory
from airflow_hive_federation.replication.format.files import VisibleFile


def other_partitions(before: DumpDirectory, now: DumpDirectory, table: str) -> set[str]:
    """Return the partitions of a table that replaced the ones dumped under their names.

    Events that record the drop or renaming of a partition may be lost. A partition keeps the time at which it
    was created. Files of a transactional table never change, so a file of the same name with another length
    or modification time came with another partition. (Files of other tables are compared elsewhere.)

    :param before: the dump that describes the table as the target has it.
    :param now: the dump that is being written, with the table's partitions and files.
    """
    created = {line.name: line.created_s for line in before.partitions(table)}
    versions = {
        dumped_file.uri: _version(dumped_file)
        for dumped_file in before.files(table)
        if not _may_grow(dumped_file)
    }
    replaced = set()
    for line in now.partitions(table, sealed=False):
        if line.name in created and line.created_s != created[line.name]:
            replaced.add(line.name)
    for file in now.files(table, sealed=False):
        if not _may_grow(file) and versions.get(file.uri, _version(file)) != _version(file):
            replaced.add(file.partition)
    return replaced


def _may_grow(file: VisibleFile) -> bool:
    # A streaming writer keeps writing to a file while transactions of its batch are open.
    return bool(file.filtered or file.side_file)


def _version(file: VisibleFile) -> tuple[int, int]:
    return file.size_bytes, file.modified_ns
