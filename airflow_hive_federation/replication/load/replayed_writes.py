"""Reads from an increment's dump the write ids and ends of transactions that its load replays."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property

from airflow_hive_federation.replication.dump.ends import merging_of
from airflow_hive_federation.replication.dump.merging import Merging
from airflow_hive_federation.replication.dump.pairs import Pairs
from airflow_hive_federation.replication.format.directory import DumpDirectory
from airflow_hive_federation.replication.format.manifest import TableEntry
from airflow_hive_federation.replication.replica.position import TableState


class ReplayedWrites:
    """The writes and ends of a dump, by the transactions that stand for the source's on the target.

    :param directory: the increment's dump.
    """

    def __init__(self, directory: DumpDirectory) -> None:
        self._directory = directory

    @cached_property
    def merging(self) -> Merging:
        """Return the transactions that stand for others."""
        return merging_of(self._directory)

    def ends(self) -> Iterator[int]:
        """Yield the source's transactions that ended, in their order."""
        return (end.txn for end in self._directory.ends())

    def missing(self, tables: Iterable[TableEntry], states: Mapping[str, TableState]) -> dict[str, Pairs]:
        """Return pairs of transaction and write id that the target's tables do not have yet.

        :param states: the states of the target's tables.
        """
        new = TableState(loaded_id=0)
        return self.merging.merged(
            {
                entry.name: self._writes_above(states.get(entry.name, new).high_watermark, entry)
                for entry in tables
            }
        )

    def _writes_above(self, write_id: int, entry: TableEntry) -> Pairs:
        lines = self._directory.writes(entry.name) if entry.changes.writes else ()
        return Pairs((txn, write) for txn, write in lines if write > write_id)
