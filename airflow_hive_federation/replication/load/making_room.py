"""Drops partitions whose names or directories now stand for others, before the files of these are copied."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from airflow_hive_federation.metastore.objects import Described
from airflow_hive_federation.progress.kinds import Step
from airflow_hive_federation.progress.observers import Steps
from airflow_hive_federation.replication.format.directory import DumpDirectory
from airflow_hive_federation.replication.format.kinds import TableKind, TableWork
from airflow_hive_federation.replication.format.manifest import TableEntry
from airflow_hive_federation.replication.format.tables import TableDocument
from airflow_hive_federation.replication.format.unfinished import MADE_ROOM
from airflow_hive_federation.replication.load.copying import partition_names
from airflow_hive_federation.replication.metadata.definitions import name_of
from airflow_hive_federation.replication.replica import markers
from airflow_hive_federation.replication.replica.layout import TargetLayout
from airflow_hive_federation.storage.filesystem import canonical

if TYPE_CHECKING:
    from airflow_hive_federation.metastore import MetastoreClient


def needs_room(entry: TableEntry) -> bool:
    """Return whether a load may drop the table, or partitions of it, before it copies files."""
    return entry.work is TableWork.REPLACE or bool(entry.changes.renewed or entry.changes.gone)


def made_before(candidates: Iterable[Described], dump: str) -> list[Described]:
    """Return the tables or partitions that the load of another dump has made.

    :param dump: URI of the dump whose load asks.
    """
    return [made for made in candidates if (made.parameters or {}).get(markers.CHECKPOINT) != dump]


class PartitionRoom:
    """Makes room for the partitions of a table that is not external.

    :param client: client of the target.
    :param directory: the dump.
    :param layout: maps its tables to the target.
    :param step: announces the steps.
    """

    def __init__(
        self, client: MetastoreClient, directory: DumpDirectory, layout: TargetLayout, *, step: Steps
    ) -> None:
        self._client = client
        self._directory = directory
        self._layout = layout
        self._step = step
        self._database = layout.policy.target_database
        self._is_noted = False

    def note(self) -> None:
        """Record that the load drops something, before it does: a take-over may find the load killed."""
        if not self._is_noted:
            self._directory.add_lines(MADE_ROOM, [{"database": self._database}])
            self._is_noted = True

    def make(self, document: TableDocument, entry: TableEntry) -> None:
        """Drop partitions whose names stand for others, and those that are gone and in the way.

        :param entry: the table's entry in the dump.
        """
        if document.kind.transactional and entry.changes.renewed:
            # For other tables, files that the source no longer has are removed one by one.
            self._drop_renewed(document, entry.changes.renewed)
        if document.kind is not TableKind.EXTERNAL and entry.changes.gone:
            self._drop_in_the_way(document, entry)

    def _drop_renewed(self, document: TableDocument, renewed: Sequence[str]) -> None:
        table = document.name
        present = set(self._client.list_partition_names(self._database, table))
        names = [name for name in renewed if name in present]
        if not names:
            return
        older = made_before(
            self._client.iter_partitions(self._database, table, names=names), self._directory.uri
        )
        if older:
            self._step(Step.REPLACE_PARTITIONS, table)
            self._drop(document, [name_of(document.table, partition) for partition in older])

    def _drop_in_the_way(self, document: TableDocument, entry: TableEntry) -> None:
        """Drop the gone partitions in whose directories the dump places files of others.

        They would take these files with them. The others are dropped once the rows of the cycle are visible.
        """
        table, gone = document.name, entry.changes.gone
        if not self._client.get_tables(self._database, [table]):
            return
        around = directories_around(self._directory, self._layout, document, entry)
        in_the_way = [
            name_of(document.table, partition)
            for partition in self._client.get_partitions_of(self._database, table, gone)
            if canonical(str(partition.sd.location)) in around
        ]
        if in_the_way:
            self._step(Step.REPLACE_PARTITIONS, table)
            self._drop(document, in_the_way)

    def _drop(self, document: TableDocument, names: Sequence[str]) -> None:
        self.note()
        self._client.drop_partitions(self._database, document.name, names, delete_data=True)


def directories_around(
    dump: DumpDirectory, layout: TargetLayout, document: TableDocument, entry: TableEntry
) -> frozenset[str]:
    """Return the directories on the target in which a dump places a table's files, and all above them.

    A partition that is gone is in the way if it has one of them.

    :param entry: the table's entry in the dump.
    :return: canonical URIs.
    """
    places = partition_names(dump, layout, document, entry.described)
    return frozenset(directory for place in places for directory in _upwards(place))


def _upwards(directory: str) -> Iterator[str]:
    """Yield a directory and all above it."""
    while directory:
        yield directory
        directory = directory.rpartition("/")[0]
