"""The directories of external tables, each as the dump has them that describes the table."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from airflow_hive_federation.replication.dump.directory import DumpDirectory
from airflow_hive_federation.replication.metadata import external_tables
from airflow_hive_federation.replication.metadata.external_tables import ExternalEntry


def dumped_entries(homes: Mapping[str, str], options: Mapping[str, Any] | None) -> Iterator[ExternalEntry]:
    """Yield the directories of external tables.

    :param homes: name of an external table → URI of the dump that describes it.
    :param options: storage options.
    :raises DumpCorruptError: the list of a dump is not as it was written.
    """
    tables: defaultdict[str, set[str]] = defaultdict(set)
    for name, uri in homes.items():
        tables[uri].add(name)
    for uri, names in sorted(tables.items()):
        text = DumpDirectory(uri, options).read_text(external_tables.FILE_NAME)
        yield from (entry for entry in external_tables.parse(text) if entry.table in names)
