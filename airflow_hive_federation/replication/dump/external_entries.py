"""Reads the directories of external tables from the dumps that describe the tables."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

from airflow_hive_federation.replication.format.directory import DumpDirectory
from airflow_hive_federation.replication.metadata import external_tables
from airflow_hive_federation.replication.metadata.external_tables import ExternalEntry
from airflow_hive_federation.storage.options import StorageOptions


def dumped_entries(dumps: Mapping[str, str], options: StorageOptions | None) -> Iterator[ExternalEntry]:
    """Yield the directories of external tables.

    :param dumps: name of an external table → URI of the dump that describes it.
    :raises DumpCorruptError: the list of a dump is not as it was written.
    """
    tables: defaultdict[str, set[str]] = defaultdict(set)
    for name, uri in dumps.items():
        tables[uri].add(name)
    for uri, names in sorted(tables.items()):
        yield from (entry for entry in listed_entries(DumpDirectory(uri, options)) if entry.table in names)


def listed_entries(directory: DumpDirectory) -> list[ExternalEntry]:
    """Read the directories of external tables that a dump describes.

    :raises DumpCorruptError: the list is not as it was written, or has names or paths that lead elsewhere.
    """
    parsed = external_tables.parse(directory.read_text(external_tables.FILE_NAME))
    for number, entry in enumerate(parsed, 1):
        try:
            entry.check()
        except ValueError as error:
            directory.refuse(external_tables.FILE_NAME, str(error), number)
    return parsed
