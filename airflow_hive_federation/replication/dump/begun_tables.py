"""Finds the tables of a target that killed loads have changed beyond the dump that describes them.

A load makes a table before its partitions. If it is killed in between, and another dump is loaded next, no
event may name the table any more: somebody had dropped it on the target, or the policy had not replicated it.

Nor may anything name a table without transactions. An external table changes without events: its source may
take back what a killed load has copied or removed, and then equals the last dump again.
"""

from __future__ import annotations

from functools import cached_property

from airflow_hive_federation.replication.format.kinds import TableWork
from airflow_hive_federation.replication.format.unfinished import UnfinishedLoads
from airflow_hive_federation.replication.replica.position import TargetPosition
from airflow_hive_federation.replication.replica.table_index import TableIndex


class BegunTables:
    """The tables of a target that killed loads have made, or brought forward.

    :param table_index: the tables of the dump from which the target was last loaded.
    :param event_id: the event of that dump.
    """

    def __init__(
        self, unfinished: UnfinishedLoads, position: TargetPosition, table_index: TableIndex, event_id: int
    ) -> None:
        self._unfinished = unfinished
        self._position = position
        self._table_index = table_index
        self._event_id = event_id

    def __contains__(self, table: str) -> bool:
        state = self._position.tables.get(table)
        if state is None:
            return False
        if table not in self._table_index:
            return True
        entry = self._table_index.entries[table]
        if not entry.kind.transactional:
            # It has no write ids that would show how far a killed load has come.
            return table in self._worked_on
        brought_forward = state.high_watermark > entry.reached
        # Manifests are read only if the table is not older than the published load.
        return brought_forward or (state.loaded_id >= self._event_id and table in self._made)

    @cached_property
    def _worked_on(self) -> frozenset[str]:
        """Return the tables that killed loads were about to change."""
        return frozenset(
            entry.name for dump in self._unfinished.dumps for entry in dump.manifest().changed_tables
        )

    @cached_property
    def _made(self) -> frozenset[str]:
        """Return the tables that killed loads were about to make, from the beginning or anew."""
        return frozenset(
            entry.name
            for dump in self._unfinished.dumps
            for entry in dump.manifest().changed_tables
            if entry.work is not TableWork.CONTINUE
        )
