"""Finds what was left where the target has neither the table nor the partition.

A load copies the files of a new table or partition before it creates it. If it ends in between, and the
source drops the table or partition and makes it again, files of the former one are in the directory of the
present one. A compaction of the target leaves its result there if the partition is dropped while it works
(:mod:`.left_compactions`). Readers would see such files as soon as their write ids are valid; a file of the
same name and size may have other rows; and some readers take an empty base for one that hides all deltas
below it.

In such a directory nobody reads anything, so a load makes it hold the files of its dump alone: it removes
files that loads of the policy have placed there, and what the target's compactor has made of them. It refuses
all others, unless it repairs the table. Files of the dump that are in place count only if a load has copied
just these; all others are copied, which compares their digests.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from airflow_hive_federation.acid.names import is_acid_directory
from airflow_hive_federation.model.files import FileEntry, hidden_name
from airflow_hive_federation.progress.events import FileRemoved
from airflow_hive_federation.progress.kinds import Step
from airflow_hive_federation.progress.observers import Observer, Steps
from airflow_hive_federation.replication.format.directory import DumpDirectory
from airflow_hive_federation.replication.format.files import VisibleFile
from airflow_hive_federation.replication.format.tables import TableDocument
from airflow_hive_federation.replication.format.unfinished import begun_loads
from airflow_hive_federation.replication.load.copying import partition_names
from airflow_hive_federation.replication.load.left_compactions import LeftCompactions
from airflow_hive_federation.replication.load.target_files import TargetFiles
from airflow_hive_federation.replication.metadata.definitions import name_of
from airflow_hive_federation.replication.replica.foreign_writes import ForeignWrite, PlacedFile, foreign_file
from airflow_hive_federation.replication.replica.layout import TargetLayout, final_uri
from airflow_hive_federation.storage.durable import sync_directories
from airflow_hive_federation.storage.empty_directories import remove_empty_directory
from airflow_hive_federation.storage.filesystem import canonical, innermost
from airflow_hive_federation.storage.listing import is_there
from airflow_hive_federation.storage.plan_files import read_outcomes
from airflow_hive_federation.storage.publishing import remove_file

if TYPE_CHECKING:
    from airflow_hive_federation.metastore import MetastoreClient

#: More partitions than these are looked up by the list of all names.
_BY_NAME = 1000

#: Source, size in bytes and modification time of a file that never changes; ``None`` if it may change.
_Version = tuple[str, int, int] | None


@dataclass(frozen=True, kw_only=True)
class TableRemains:
    """The content of a table's directories that nobody reads, because no metadata names them.

    :param unread: canonical URIs of these directories.
    :param there: the files on the target without those in ``unread`` that are not known as the dump's.
    :param surplus: URIs of files that are removed: loads of the policy placed them, or the target's compactor
        made them of such files, or they are foreign ones of a table that is repaired; and the dump does not
        have them.
    :param empty: URIs of empty bases and deltas.
    :param foreign: other files that readers would see.
    """

    unread: frozenset[str] = frozenset()
    there: Mapping[str, FileEntry]
    surplus: tuple[str, ...] = ()
    empty: tuple[str, ...] = ()
    foreign: tuple[ForeignWrite, ...] = ()


@dataclass(kw_only=True)
class _Records:
    """The records that loads of a policy have made of one file of the target.

    :param sizes: the files that dumps list for it.
    :param versions: their versions on the source.
    :param copied: a load has copied it, or found it identical.
    """

    sizes: list[PlacedFile] = field(default_factory=list)
    versions: set[_Version] = field(default_factory=set)
    copied: bool = False

    def accounts_for(self, entry: FileEntry) -> bool:
        return any(placed.fits(entry) for placed in self.sizes)

    def is_copy_of(self, version: _Version) -> bool:
        return self.copied and version is not None and self.versions == {version}


class Remains:
    """The remains of loads and compactions in the directories of a dump's transactional tables.

    :param client: client of the target.
    :param directory: the dump that is about to be loaded.
    :param layout: maps its tables to the target.
    """

    def __init__(self, client: MetastoreClient, directory: DumpDirectory, layout: TargetLayout) -> None:
        self._client = client
        self._directory = directory
        self._layout = layout
        self._policy = layout.policy
        self._options = layout.policy.storage_options
        self._left = LeftCompactions(client, directory, layout)
        self._found: dict[str, TableRemains] = {}

    def find(self, document: TableDocument, there: TargetFiles, only: Collection[str] | None) -> TableRemains:
        """Find the remains in the directories of a table, and note them for :meth:`remove`.

        :param there: the content of the directories on the target.
        :param only: names of the partitions that the load works on; ``None`` for the whole table.
        :raises CompactionRunningError: a compaction of the target works in the directory of a partition that
            was dropped.
        """
        name, files = document.name, there.files
        self._found.pop(name, None)
        unread = self._unread(document, only) if document.kind.transactional else frozenset()
        inside = {uri: entry for uri, entry in files.items() if innermost(uri, unread)} if unread else {}
        empty = _empty(there, unread)
        if (inside or empty) and (occupied := self._occupied(document, unread)):
            unread -= occupied
            inside = {uri: entry for uri, entry in inside.items() if innermost(uri, unread)}
            empty = tuple(uri for uri in empty if innermost(uri, unread))
        if not (inside or empty):
            return TableRemains(unread=unread, there=files)
        wanted = {
            canonical(self._layout.file(document, file)): file
            for file in self._directory.files(name, only=only)
        }
        records = self._records(name, {canonical(final_uri(uri)) for uri in inside})
        known, surplus, others = set(), set(), {}
        for uri, entry in inside.items():
            of_file = records[canonical(final_uri(uri))]
            if uri in wanted:
                if of_file.is_copy_of(_version(wanted[uri])):
                    known.add(uri)
            elif of_file.accounts_for(entry):
                surplus.add(uri)
            else:
                others[uri] = entry
        surplus |= self._to_remove(document, unread, others, empty, wanted)
        found = TableRemains(
            unread=unread,
            there={uri: entry for uri, entry in files.items() if uri not in inside or uri in known},
            surplus=tuple(sorted(surplus)),
            empty=empty,
            foreign=tuple(
                foreign_file(name, uri, entry, unread=True)
                for uri, entry in others.items()
                if uri not in surplus and hidden_name(entry.path) is None
            ),
        )
        self._found[name] = found
        return found

    def without(self, table: str, there: Mapping[str, FileEntry]) -> Mapping[str, FileEntry]:
        """Return the files of a table that :meth:`remove` leaves.

        :param there: the files on the target, by canonical URI.
        """
        surplus = set(self._found[table].surplus) if table in self._found else ()
        return {uri: entry for uri, entry in there.items() if uri not in surplus} if surplus else there

    def remove(self, step: Steps, *, observer: Observer, check: Callable[[], None]) -> None:
        """Remove the remains that were found, before the tables and partitions are made.

        :param step: announces the removal from the directories of each table.
        :param check: runs before each file and directory, and raises if the cycle must end.
        """
        for table, found in self._found.items():
            if found.surplus or found.empty:
                step(Step.REMOVE_FILES, table)
                self._remove(found, observer, check)

    # -- inside ----------------------------------------------------------------------------------------

    def _remove(self, found: TableRemains, observer: Observer, check: Callable[[], None]) -> None:
        directories = set(found.empty)
        for uri in found.surplus:
            check()
            if remove_file(uri, self._options):
                observer(FileRemoved(uri=uri))
            directories |= set(_between(uri, found.unread))
        for directory in sorted(directories, reverse=True):
            check()
            remove_empty_directory(directory, self._options)
        # A crash must not bring these files back below a table that exists by then.
        left = directories | {innermost(uri, found.unread) for uri in (*found.surplus, *found.empty)}
        sync_directories(uri for uri in left if is_there(uri, options=self._options))

    def _unread(self, document: TableDocument, only: Collection[str] | None) -> frozenset[str]:
        """Return the directories of the table or its partitions that the target's metastore lacks.

        A partition that gets another directory is dropped before, so that its name is enough.
        """
        database = self._policy.target_database
        if not self._client.get_tables(database, [document.name]):
            return frozenset({canonical(self._layout.directory(document, document.location, ""))})
        if not document.partition_keys:
            return frozenset()
        places = partition_names(self._directory, self._layout, document, only)
        present = self._present(document, list(places.values()))
        return frozenset(place for place, name in places.items() if name not in present)

    def _present(self, document: TableDocument, names: list[str]) -> set[str]:
        database, table = self._policy.target_database, document.name
        if len(names) > _BY_NAME:
            return set(self._client.list_partition_names(database, table))
        partitions = self._client.get_partitions_of(database, table, names) if names else ()
        return {name_of(document.table, partition) for partition in partitions}

    def _to_remove(
        self,
        document: TableDocument,
        unread: Collection[str],
        others: Mapping[str, FileEntry],
        empty: Iterable[str],
        wanted: Iterable[str],
    ) -> set[str]:
        """Return those files that no load has placed and that are removed all the same.

        :param others: the files that no load has placed.
        :param empty: the empty bases and deltas.
        :param wanted: URIs of the files of the dump.
        """
        directories = {uri: _acid_directory(uri, unread) for uri in others}
        cleared = set(self._left.among(document, {*directories.values(), *empty}))
        gone: set[str] = set()
        if document.name in self._directory.manifest().repair_plan.tables:
            gone = {uri for uri, entry in others.items() if hidden_name(entry.path) is None}
            # Hidden files alone make a base that some readers take for an empty one.
            cleared |= {directories[uri] for uri in gone} - {uri.rpartition("/")[0] for uri in wanted}
        return gone | {uri for uri, directory in directories.items() if directory and directory in cleared}

    def _occupied(self, document: TableDocument, unread: Collection[str]) -> frozenset[str]:
        """Return those of the directories that another object of the target has, too."""
        database = self._policy.target_database
        taken = set()
        tables = self._client.get_tables(database, [document.name])
        if tables:
            partitions = self._client.iter_partitions(database, document.name)
            taken |= {canonical(str(partition.sd.location)) for partition in partitions}
        elif self._policy.into_existing:
            # Tables that the source does not have may lie anywhere.
            others = self._client.get_tables(database, self._client.list_tables(database))
            taken |= {canonical(str(other.sd.location)) for other in others if other.sd and other.sd.location}
        around = {innermost(other, unread) for other in taken}
        return frozenset(place for place in unread if place in around or innermost(place, taken))

    def _records(self, table: str, wanted: Collection[str]) -> Mapping[str, _Records]:
        """Return what begun loads of the policy have recorded of some files of a table.

        :param wanted: canonical URIs of the files on the target.
        """
        records: defaultdict[str, _Records] = defaultdict(_Records)
        if not wanted:
            return records
        for dump in begun_loads(self._policy):
            files = {uri: file for uri, file in self._files_of(dump, table) if uri in wanted}
            if not files:
                continue
            outcomes = read_outcomes(f"{dump.uri}/load/outcomes", options=self._options)
            copied = {canonical(final_uri(target)) for target in outcomes}
            for uri, file in files.items():
                records[uri].sizes.append(PlacedFile(size_bytes=None if file.filtered else file.size_bytes))
                records[uri].versions.add(_version(file))
                records[uri].copied |= uri in copied
        return records

    def _files_of(self, dump: DumpDirectory, table: str) -> Iterator[tuple[str, VisibleFile]]:
        for entry in dump.manifest().changed_tables:
            if entry.name == table and entry.kind.has_files:
                document = dump.table(table)
                for file in dump.files(table, only=entry.described):
                    yield canonical(self._layout.file(document, file)), file


def _version(file: VisibleFile) -> _Version:
    if file.filtered or file.side_file or not file.modified_ns:
        return None
    return canonical(file.uri), file.size_bytes, file.modified_ns


def _empty(there: TargetFiles, unread: Collection[str]) -> tuple[str, ...]:
    """Return the empty bases and deltas, most often of copies that ended before their first file."""
    return tuple(
        uri
        for uri in there.empty
        if is_acid_directory(uri.rpartition("/")[2]) and uri not in unread and innermost(uri, unread)
    )


def _acid_directory(uri: str, places: Collection[str]) -> str:
    """Return the base or delta of a table or partition that holds a file; an empty text outside of one.

    :param places: canonical URIs of the directories of tables or partitions.
    """
    directory = innermost(uri, places)
    for name in uri.removeprefix(directory).lstrip("/").split("/")[:-1]:
        directory = f"{directory}/{name}"
        if is_acid_directory(name):
            return directory
    return ""


def _between(uri: str, places: Collection[str]) -> Iterator[str]:
    """Yield the directories between a file and the innermost of the directories that holds it."""
    place, directory = innermost(uri, places), uri.rpartition("/")[0]
    while directory != place:
        yield directory
        directory = directory.rpartition("/")[0]
