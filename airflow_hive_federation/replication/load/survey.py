"""Finds foreign writes on a target before a load places or drops anything there.

:mod:`..replica.foreign_writes` decides; this module lists the target, and reads the records of the policy's
dumps. It examines only tables that the cycle changes. It reads other dumps than the last one of a table only
if that dump does not account for everything.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from airflow_hive_federation.errors import FileVanishedError
from airflow_hive_federation.model.files import FileEntry
from airflow_hive_federation.model.write_ids import ValidWriteIds
from airflow_hive_federation.replication.format.directory import DumpDirectory
from airflow_hive_federation.replication.format.files import PlacedTime
from airflow_hive_federation.replication.format.kinds import TableKind
from airflow_hive_federation.replication.format.tables import TableDocument
from airflow_hive_federation.replication.format.unfinished import COPY_PLAN, UnfinishedLoads, begun_loads
from airflow_hive_federation.replication.load.target_files import files_there
from airflow_hive_federation.replication.metadata.definitions import name_of
from airflow_hive_federation.replication.replica import markers
from airflow_hive_federation.replication.replica.foreign_writes import (
    ForeignWrite,
    PlacedFile,
    foreign_file,
    foreign_functions,
    foreign_partition,
    names_digest,
    other_write_ids,
    suspect_files,
    unplaced,
)
from airflow_hive_federation.replication.replica.layout import TargetLayout, final_uri
from airflow_hive_federation.replication.replica.table_index import TableIndex
from airflow_hive_federation.storage.digests import digest_file
from airflow_hive_federation.storage.filesystem import canonical
from airflow_hive_federation.storage.plan_files import read_plan
from airflow_hive_federation.transactions.write_id_counts import max_allocated_write_id

if TYPE_CHECKING:
    from airflow_hive_federation.metastore import MetastoreClient


class Survey:
    """Compares a target with the records of its policy's loads.

    :param client: client of the target.
    :param layout: maps tables to the target.
    :param directory: the dump that is about to be loaded.
    :param before: the dump from which the target was last loaded; ``None`` for a bootstrap.
    """

    def __init__(
        self, client: MetastoreClient, layout: TargetLayout, directory: DumpDirectory, before: str | None
    ) -> None:
        self._client = client
        self._layout = layout
        self._policy = layout.policy
        self._options = layout.policy.storage_options
        self._directory = directory
        self._unfinished = UnfinishedLoads(policy=layout.policy, loaded=str(before))
        self._before = TableIndex(DumpDirectory(before, self._options)) if before else None

    def partitions(self, table: str) -> list[ForeignWrite]:
        """Name the partitions of a table of the target that no load made.

        :param table: a table that the target has, unless a load that was killed has dropped it.
        """
        if self._before is None or table not in self._before:
            return []
        entry = self._before.entries[table]
        wire_tables = self._client.get_tables(self._policy.target_database, [table])
        if not wire_tables or not wire_tables[0].partitionKeys or not entry.kind.has_files:
            return []
        names = self._client.list_partition_names(self._policy.target_database, table)
        if names_digest(names) == entry.partition_names:
            return []
        known = self._before.of(table).partition_names(table)
        suspects = sorted(set(names).difference(known))
        if not suspects:
            return []
        partitions = self._client.iter_partitions(self._policy.target_database, table, names=suspects)
        begun = {dump.uri for dump in self._unfinished.dumps}
        return [
            foreign_partition(table, name_of(wire_tables[0], partition), partition.parameters)
            for partition in partitions
            # A load that was killed, perhaps of this dump, has made it.
            if (partition.parameters or {}).get(markers.CHECKPOINT) not in begun
        ]

    def files(self, document: TableDocument, there: Mapping[str, FileEntry]) -> list[ForeignWrite]:
        """Name the files of a table that no load placed, or not in their present state.

        :param document: the table's document in the dump; for a table that is dropped, in the dump before.
        :param there: the files in the table's present or future directories.
        """
        if not there:
            return []
        table = document.name
        if document.kind.transactional:
            return self._transactional_files(document, there)
        placed = self._placed_before(table)
        suspects = suspect_files(there, placed, known=None, adopted=False)
        # The size is the placed one: its time may show a later write, and then its bytes decide.
        in_place = {
            uri: entry for uri, entry in suspects.items() if uri in placed and placed[uri].fits(entry)
        }
        others = {uri: entry for uri, entry in suspects.items() if uri not in in_place}
        in_place = {uri: entry for uri, entry in in_place.items() if not self._is_unchanged(table, uri)}
        if in_place:
            in_place = unplaced(in_place, self._being_placed())
        return _named(table, {**in_place, **self._unaccounted(document, others)})

    def adopted_write_ids(self, table: str, high_watermark: int) -> list[ForeignWrite]:
        """Name the write ids of a table that is adopted, if they exceed those that the load gives it.

        :param table: a transactional table that no load of the policy has finished.
        :param high_watermark: the highest write id that the load gives it.
        """
        database = self._policy.target_database
        if not self._policy.into_existing or not self._client.get_tables(database, [table]):
            return []
        reached = max_allocated_write_id(self._client, database, table)
        if reached <= high_watermark:
            return []
        present = ValidWriteIds(table=f"{database}.{table}", high_watermark=reached)
        return [other_write_ids(table, present, high_watermark)]

    def dropped(self, table: str) -> list[ForeignWrite]:
        """Name foreign writes to a table of the target that is dropped, with its data if it is managed."""
        if self._before is None or table not in self._before:
            return []
        home = self._before.of(table)
        document = home.table(table)
        kind = document.kind
        writes = self.partitions(table)
        if kind.has_files and kind is not TableKind.EXTERNAL:
            present = files_there(self._layout, document, self._options)
            writes += self.files(document, present)
        return writes

    def functions(self, there: Iterable[str]) -> list[ForeignWrite]:
        """Name the functions of the target database that no load made.

        :param there: names of the functions of the target database.
        """
        if self._before is None:
            return []
        names = list(there)
        known = [self._before.directory, self._directory]
        unknown = foreign_functions(names, _function_names(known))
        return unknown and foreign_functions(names, _function_names([*known, *self._unfinished.dumps]))

    # -- inside ----------------------------------------------------------------------------------------

    def _transactional_files(
        self, document: TableDocument, there: Mapping[str, FileEntry]
    ) -> list[ForeignWrite]:
        table, before = document.name, self._before
        known, adopted = 0, False
        if before is None and self._policy.into_existing and document.write_ids:
            # The target's compactor may have merged directories of an adopted table.
            known = document.write_ids.high_watermark
        if before is not None and table in before:
            known, adopted = before.entries[table].reached, table in before.adopted
        suspects = suspect_files(there, {}, known=known, adopted=adopted)
        if suspects:
            # A file of transactions that are still open may have a write id that is not given out.
            placed = self._placed_before(table)
            suspects = {uri: entry for uri, entry in suspects.items() if uri not in placed}
        return _named(table, self._unaccounted(document, suspects))

    def _unaccounted(
        self, document: TableDocument, suspects: Mapping[str, FileEntry]
    ) -> Mapping[str, FileEntry]:
        """Return the suspects that no load of the policy may have placed."""
        table = document.name
        if suspects and (self._before is None or table not in self._before):
            # Files of a new table may have been copied before: the copy compares them.
            suspects = unplaced(suspects, self._files_of(self._directory, document))
        return unplaced(suspects, self._placed_by_others(table)) if suspects else suspects

    # -- records of the dumps --------------------------------------------------------------------------

    def _placed_before(self, table: str) -> dict[str, PlacedFile]:
        if self._before is None or table not in self._before:
            return {}
        home = self._before.of(table)
        document = home.table(table)
        if not document.kind.has_files:
            return {}
        times = home.placed_times(table)
        return {
            uri: PlacedFile(size_bytes=file.size_bytes, modified_ns=times.get(uri, 0))
            for uri, file in self._files_of(home, document)
        }

    def _is_unchanged(self, table: str, uri: str) -> bool:
        """Return whether a file whose time changed since it was placed has the same bytes all the same."""
        known = self._before.digests(table).get(uri) if self._before is not None else None
        return known is None or digest_file(uri, options=self._options).digest == known

    def _being_placed(self) -> Iterator[tuple[str, PlacedFile]]:
        """Yield files that killed loads were about to copy."""
        for dump in self._unfinished.dumps:
            for item in read_plan(f"{dump.uri}/{COPY_PLAN}", options=self._options):
                size_bytes = None if item.visible_write_ids else item.size_bytes
                yield canonical(final_uri(item.target)), PlacedFile(size_bytes=size_bytes)

    def _placed_by_others(self, table: str) -> Iterator[tuple[str, PlacedFile]]:
        """Yield files that any load of the policy has placed, or was about to place.

        External tables may share a directory, and keep their files when they are dropped.
        """
        for dump in begun_loads(self._policy):
            for entry in dump.manifest().changed_tables:
                of_table = entry.name == table and entry.kind.has_files
                if of_table or entry.kind is TableKind.EXTERNAL:
                    document = dump.table(entry.name)
                    # An earlier dump to which this one refers may be gone, if this one was never published.
                    yield from self._files_of(dump, document, only=entry.described)

    def _files_of(
        self, dump: DumpDirectory, document: TableDocument, *, only: Collection[str] | None = None
    ) -> Iterator[tuple[str, PlacedFile]]:
        for file in dump.files(document.name, only=only):
            size_bytes = None if file.filtered else file.size_bytes
            yield canonical(self._layout.file(document, file)), PlacedFile(size_bytes=size_bytes)


def _named(table: str, files: Mapping[str, FileEntry]) -> list[ForeignWrite]:
    return [foreign_file(table, uri, entry) for uri, entry in files.items()]


def note_placed(directory: DumpDirectory, layout: TargetLayout, document: TableDocument) -> None:
    """Record the modification times of the files placed for a table without transactions.

    A later writer changes these times.

    :param directory: the dump whose load is about to be published.
    :raises FileVanishedError: a file of the dump is not on the target. All of its files are copied or were
        there by now, and the load has removed others only. But a cycle that was suspended between its check
        and a removal may have taken away a file that its successor, this load, has copied again.
    """
    if not is_noted(document.kind):
        return
    table = document.name
    present = files_there(layout, document, directory.options)

    def times() -> Iterator[PlacedTime]:
        for file in directory.files(table):
            uri = canonical(layout.file(document, file))
            if uri not in present:
                raise FileVanishedError(
                    f"{uri} of table {table} was copied, and is gone.",
                    remedy="Load again: the load copies the file again.",
                    path=uri,
                )
            if present[uri].size_bytes == file.size_bytes:
                yield PlacedTime(uri=uri, modified_ns=present[uri].modified_ns)

    directory.add_placed(table, times())


def is_noted(kind: TableKind) -> bool:
    """Return whether a kind of table has files without write ids in their names, which may be replaced in
    place.
    """
    return kind.has_files and not kind.transactional


def _function_names(dumps: Iterable[DumpDirectory]) -> Iterator[str]:
    return (str(function.functionName) for dump in dumps for function in dump.functions())
