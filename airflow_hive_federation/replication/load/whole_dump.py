"""Reads every document of a dump before a load changes anything.

A load reads each document when it needs it. An unusable document would stop it half-way, with tables created,
files copied and other tables dropped.
"""

from __future__ import annotations

from collections.abc import Iterable

from airflow_hive_federation.replication.dump.allowed_sources import check_functions
from airflow_hive_federation.replication.dump.external_entries import listed_entries
from airflow_hive_federation.replication.format.directory import DumpDirectory
from airflow_hive_federation.replication.format.kinds import TableKind
from airflow_hive_federation.replication.format.layers import layers
from airflow_hive_federation.replication.format.manifest import TableEntry
from airflow_hive_federation.replication.format.tables import table_file
from airflow_hive_federation.replication.metadata import external_tables
from airflow_hive_federation.storage.sources import SourceRoots


def check_dump(directory: DumpDirectory, sources: SourceRoots) -> None:
    """Check that each document of a dump is whole, and that no name or path in it leads elsewhere.

    :param directory: a finished dump, of a bootstrap or of an increment.
    :param sources: directories from which the dump's policy may copy.
    :raises DumpCorruptError: names the document, and the line.
    :raises SourceNotAllowedError: the dump lists files that the policy may not copy.
    """
    manifest = directory.manifest()
    directory.database()
    check_functions(sources, directory.functions(), written=True)
    external = set()
    for table_entry in manifest.changed_tables:
        _check_table(directory, table_entry, sources)
        if table_entry.changes.writes:
            _read_through(directory.writes(table_entry.name))
        if table_entry.kind is TableKind.EXTERNAL:
            external.add(table_entry.name)
    for entry in listed_entries(directory):
        if entry.table not in external:
            directory.refuse(external_tables.FILE_NAME, f"the dump has no external table {entry.table!r}")
    if manifest.is_increment:
        _read_through(directory.ends())


def _check_table(directory: DumpDirectory, entry: TableEntry, sources: SourceRoots) -> None:
    name = entry.name
    document = directory.table(name)
    if document.kind is not entry.kind:
        directory.refuse(
            table_file("tables", name, ".json"),
            f"it is of kind {document.kind.value}, and the manifest has {entry.kind.value}",
        )
    if not entry.kind.has_files:
        return
    keys, described = document.partition_keys, entry.described
    if described is not None:
        for _ in layers(directory, name):
            pass  # The dumps that describe the other partitions are there; their own loads have read them.
    directory.totals(name)  # The next increment reads them.
    for number, line in enumerate(directory.partitions(name, only=described), 1):
        if (problem := line.problem(keys)) is not None:
            directory.refuse(table_file("partitions", name, ".jsonl"), problem, number)
    for file in directory.files(name, only=described):
        sources.check_written(file.directory, f"the directory of a file of table {name}")
        if file.kept:
            sources.check_written(file.kept, f"what the source keeps of a file of table {name}")


def _read_through(lines: Iterable[object]) -> None:
    for _ in lines:
        pass
