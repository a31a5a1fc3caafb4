"""Finds the dump that describes a table of an increment: that of the cycle that changed the table last."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from airflow_hive_federation.replication.format.directory import DumpDirectory
from airflow_hive_federation.replication.format.layers import layers
from airflow_hive_federation.replication.format.manifest import TableEntry
from airflow_hive_federation.replication.metadata.table_names import asked_for
from airflow_hive_federation.replication.replica.layout import final_uri
from airflow_hive_federation.storage.filesystem import canonical
from airflow_hive_federation.storage.options import StorageOptions
from airflow_hive_federation.storage.plan_files import read_outcomes


class TableIndex:
    """The tables of a dump, each with the dump that describes it.

    ``directory`` is the dump itself, which describes the database and its functions.

    :param directory: the dump; of a bootstrap or of an increment.
    """

    def __init__(self, directory: DumpDirectory) -> None:
        self.directory = directory
        self._options = directory.options
        self._directories = {directory.uri: directory}
        self._outcomes: dict[str, dict[str, str]] = {}
        manifest = directory.manifest()
        self._uris = {entry.name: entry.dump or directory.uri for entry in manifest.tables}
        #: Tables that the target held before this policy owned it; they carry no marker.
        self.adopted: frozenset[str] = frozenset(manifest.adopted)
        self.entries: dict[str, TableEntry] = {entry.name: entry for entry in manifest.tables}
        #: The tables of the source that the policy selects but that are not replicated, each with the reason.
        self.skipped: Mapping[str, str] = asked_for(manifest.skipped)
        #: Those of the skipped tables whose earlier replica the target keeps.
        self.retained: frozenset[str] = frozenset(manifest.retained)

    def __contains__(self, table: str) -> bool:
        return table in self._uris

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._uris))

    @property
    def uris(self) -> set[str]:
        """Return the URIs of the dumps that describe the tables, some of their partitions included."""
        return {*self._uris.values(), *(uri for entry in self.entries.values() for uri in entry.rest)}

    def changed(self) -> set[str]:
        """Return the tables that the dump's own cycle worked on; for a bootstrap, these are all tables."""
        return {name for name, entry in self.entries.items() if entry.is_changed}

    def of(self, table: str) -> DumpDirectory:
        """Return the dump that describes a table."""
        uri = self._uris[table]
        if uri not in self._directories:
            self._directories[uri] = DumpDirectory(uri, self._options)
        return self._directories[uri]

    def digests(self, table: str) -> Mapping[str, str]:
        """Return the digests of the table's files on the target, as they were copied, by canonical URI."""
        merged: dict[str, str] = {}
        for dump, _ in reversed(list(layers(self.of(table), table))):
            digests = dump.digests(table)
            merged.update(self.copied(dump) if digests is None else digests)
        return merged

    def copied(self, dump: DumpDirectory) -> Mapping[str, str]:
        """Return the digests of the files that a dump's own load has copied."""
        if dump.uri not in self._outcomes:
            outcomes = read_outcomes(f"{dump.uri}/load/outcomes", options=self._options)
            self._outcomes[dump.uri] = {
                canonical(final_uri(target)): outcome.digest for target, outcome in outcomes.items()
            }
        return self._outcomes[dump.uri]


def whole_sizes(dump: str, options: StorageOptions | None = None) -> dict[str, tuple[int, int]]:
    """Return bytes and files of each table of a bootstrap's dump; an increment copies parts of tables.

    :param dump: URI of the dump.
    """
    manifest = DumpDirectory(dump, options).manifest()
    if manifest.is_increment:
        return {}
    return {entry.name: (entry.size_bytes, entry.files) for entry in manifest.tables if entry.kind.has_files}


def changed_tables(dump: str, options: StorageOptions | None = None) -> set[str]:
    """Return the tables that a dump's own cycle worked on.

    :param dump: URI of the dump.
    """
    return TableIndex(DumpDirectory(dump, options)).changed()
