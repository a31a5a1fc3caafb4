"""Reads a database and its tables and writes their documents, alike in a bootstrap and in an increment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.model.write_ids import ValidTxns, ValidWriteIds
from airflow_hive_federation.progress.kinds import Activity
from airflow_hive_federation.progress.observers import Observer, counted
from airflow_hive_federation.replication.dump.allowed_sources import check_functions, check_places
from airflow_hive_federation.replication.dump.change_manager import with_kept
from airflow_hive_federation.replication.dump.contents import visible_files
from airflow_hive_federation.replication.dump.directory_digests import DirectoryDigests
from airflow_hive_federation.replication.dump.external_snapshots import ExternalSnapshots
from airflow_hive_federation.replication.dump.source import ReplicatedSource
from airflow_hive_federation.replication.dump.source_directories import Sightings
from airflow_hive_federation.replication.dump.tables import (
    FileTotals,
    Unsettled,
    has_totals,
    write_files,
    write_partitions,
)
from airflow_hive_federation.replication.format.directory import DumpDirectory
from airflow_hive_federation.replication.format.kinds import TableKind
from airflow_hive_federation.replication.metadata import external_tables
from airflow_hive_federation.replication.metadata.directories import check_partitions
from airflow_hive_federation.replication.metadata.external_tables import ExternalEntry
from airflow_hive_federation.replication.metadata.spark_tables import at_its_data
from airflow_hive_federation.replication.metadata.table_locations import TableLocations

if TYPE_CHECKING:
    from airflow_hive_federation.metastore import MetastoreClient


class Documents:
    """Writes the documents of a dump.

    :param directory: a dump that is being written.
    :param snapshots: makes the snapshots of external tables.
    """

    def __init__(
        self,
        directory: DumpDirectory,
        source: ReplicatedSource,
        observer: Observer,
        snapshots: ExternalSnapshots,
    ) -> None:
        self._directory = directory
        self._snapshots = snapshots
        self._database, self._options, self._sources = source.database, source.options, source.roots
        self._observer = observer

    def write_database(self, client: MetastoreClient) -> list[types.Function]:
        """Write the source's database and its functions, and return the functions.

        :raises NoSuchObjectError: the source has no such database.
        :raises SourceNotAllowedError: the policy may not copy the jar of a function.
        """
        self._directory.write_database(client.get_database(self._database))
        functions = list(client.get_functions(self._database))
        check_functions(self._sources, functions)
        self._directory.write_functions(functions)
        return functions

    def read_table(self, client: MetastoreClient, name: str, write_ids: ValidWriteIds | None) -> types.Table:
        """Return a wire ``Table`` of the source, with its statistics.

        :param write_ids: those that readers of the target may see; ``None`` for a table without.
        :raises NoSuchObjectError: the source has no such table.
        """
        text = write_ids.text() if write_ids else None
        table = client.get_table(self._database, name, with_column_stats=True, valid_write_ids=text)
        return at_its_data(table)

    def write_partitions(
        self, table: types.Table, partitions: Iterable[types.Partition], unsettled: Unsettled
    ) -> TableLocations:
        """Write all partitions of a table, and return the places of its data.

        :param unsettled: notes partitions that the ends of open transactions will change.
        """
        label = f"{self._database}.{table.tableName}"
        read = counted(partitions, label, Activity.READ, self._observer)
        return write_partitions(self._directory, table, read, unsettled)

    def write_files(
        self,
        table: types.Table,
        kind: TableKind,
        places: TableLocations,
        *,
        write_ids: ValidWriteIds | None,
        transactions: ValidTxns,
        kept: Mapping[str, str],
        unsettled: Unsettled,
        home: DumpDirectory | None = None,
    ) -> tuple[FileTotals, Sightings]:
        """Write the list of a whole table's files, and return their totals and the directories that exist.

        :param places: the places of its data.
        :param write_ids: those whose rows are dumped; ``None`` for a table without.
        :param transactions: the source's transactions at the dump's moment.
        :param kept: see :func:`~.change_manager.kept_by_source`.
        :param unsettled: notes partitions that the ends of open transactions will change.
        :param home: the dump that describes the target's replica of the table, if it has one.
        :raises LocationConflictError: partitions share or nest directories.
        :raises SourceNotAllowedError: the policy may not copy from a directory.
        """
        name = table.tableName
        if kind is not TableKind.EXTERNAL:
            check_partitions(name, places)
        check_places(self._sources, self._database, table, places)
        sightings = Sightings(places)
        kept_apart = has_totals(table, places, transactional=kind.transactional)
        digests = DirectoryDigests(write_ids, transactions) if kept_apart and write_ids else None
        files = visible_files(
            table,
            places,
            write_ids,
            transactions,
            options=self._options,
            sightings=sightings,
            digests=digests,
            list_external=self._snapshots.lister(f"{self._database}.{name}", name, home),
        )
        files = self._sources.watch(files, f"a file of table {self._database}.{name}")
        totals = write_files(
            self._directory,
            name,
            self._snapshots.with_former_names(name, with_kept(files, kept)),
            unsettled=unsettled,
            places=places if kept_apart else None,
            digests=digests,
        )
        if kept_apart:
            self._directory.write_totals(name, totals.partitions)
        return totals, sightings

    def write_external(self, entries: Iterable[ExternalEntry]) -> None:
        """Write the directories of the dump's external tables."""
        self._directory.write_text(external_tables.FILE_NAME, external_tables.to_text(entries))
