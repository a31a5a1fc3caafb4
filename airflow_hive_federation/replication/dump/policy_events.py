"""Decides for each event of a source, as it comes, if it calls for a cycle of a policy. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from airflow_hive_federation.model import events as ev
from airflow_hive_federation.replication.dump.unreadable_events import Concern, concern_of
from airflow_hive_federation.replication.metadata.table_names import named_event
from airflow_hive_federation.replication.policy import ReplicationPolicy


class PolicyEvents:
    """Reads a source's events in their order, and keeps the open transactions that concern the policy.

    An allocated write id, a written file and a compaction call for no cycle, unless rows have other numbers
    after it. The end of a transaction does, because readers see another state from then on.

    :param open_txns: transactions with write ids of the policy's tables, open before the first event.
    """

    def __init__(self, policy: ReplicationPolicy, open_txns: Iterable[int] = ()) -> None:
        self._policy = policy
        self._database = policy.source_database
        self._open = set(open_txns)

    def add(self, event: ev.Event) -> bool:
        """Read the next event; return whether it calls for a cycle.

        :param event: an event as the source names it.
        :raises EventCorruptError: the event cannot be read, and its heading names no database.
        """
        event = named_event(self._policy, event)
        match event:
            case ev.UnreadableEvent():
                return concern_of(event, self._database) is not Concern.NOTHING
            case ev.UnknownEvent():
                return event.database in {"", self._database}
            case ev.TxnEnded():
                return self._ends(event)
            case ev.TableEvent():
                return self._changes(event)
        return isinstance(event, ev.DatabaseEvent | ev.FunctionEvent) and event.database == self._database

    def _changes(self, event: ev.TableEvent) -> bool:
        if isinstance(event, ev.WriteIdsAllocated) and self._is_of_ours(event.database, event.table):
            self._open.update(txn for txn, _ in event.write_ids)
        if isinstance(event, ev.Compacted) and not event.rebalanced:
            return False
        if isinstance(event, ev.WriteIdsAllocated | ev.AcidWritten):
            return False
        if isinstance(event, ev.TableAltered) and self._is_of_ours(event.old_database, event.old_table):
            return True
        return self._is_of_ours(event.database, event.table)

    def _ends(self, event: ev.TxnEnded) -> bool:
        is_known = event.txn_id in self._open
        self._open.discard(event.txn_id)
        return is_known

    def _is_of_ours(self, database: str, table: str) -> bool:
        return database == self._database and self._policy.replicates(table)
