"""Applies a policy to its source database, so that the steps of a dump take no decision of the policy."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING

from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.model.event_messages import read_event
from airflow_hive_federation.model.events import Event
from airflow_hive_federation.replication.dump.later_events import LaterEvents
from airflow_hive_federation.replication.dump.left_out import left_out
from airflow_hive_federation.replication.dump.removals import Unexplained, refuse_unexplained
from airflow_hive_federation.replication.format.dumped_policy import DumpedPolicy
from airflow_hive_federation.replication.metadata.table_names import named_event, named_source
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.replication.policy_changes import PolicyChanges, policy_changes
from airflow_hive_federation.storage.sources import SourceRoots

if TYPE_CHECKING:
    from airflow_hive_federation.metastore import MetastoreClient, MetastorePool


class ReplicatedSource:
    """The source database of a policy, with the target's names of its tables.

    :param pool: connections to the source.
    """

    def __init__(self, pool: MetastorePool, policy: ReplicationPolicy) -> None:
        self.pool = named_source(pool, policy)
        self.database = policy.source_database
        self.options = policy.storage_options
        self.external_snapshots = policy.external_snapshots
        self._policy = policy

    @cached_property
    def roots(self) -> SourceRoots:
        """Return the roots from which the policy may copy.

        :raises ConfigurationError: a root lies outside of those that the worker's administrator allows.
        """
        return self._policy.sources

    def selects(self, table: str) -> bool:
        """Return whether the policy replicates a table or view, by its name on the target."""
        return self._policy.replicates(table)

    def changes_since(self, before: DumpedPolicy) -> PolicyChanges:
        """Return the changes of the policy since an earlier dump.

        :raises ConfigurationError: the policy names another source database now.
        """
        return policy_changes(before, self._policy)

    def events(self, client: MetastoreClient, after: int, up_to: int | None = None) -> Iterator[Event]:
        """Return the source's events after one of them, with the target's names of tables.

        :param client: client of the source.
        :param up_to: last event to return; by default, the source's last one.
        """
        raw_events = client.iter_notification_events(after, up_to=up_to)
        return (named_event(self._policy, read_event(raw)) for raw in raw_events)

    def tables(self, client: MetastoreClient) -> tuple[list[types.Table], dict[str, str]]:
        """Return the wire tables to replicate, and the reason for which each of the others is left out.

        :param client: client of the source.
        :raises StorageError: a table's directory cannot be read.
        """
        tables: list[types.Table] = list(client.get_tables(self.database, client.list_tables(self.database)))
        skipped = left_out(self._policy, tables)
        return [table for table in tables if table.tableName not in skipped], skipped

    def later(self, client: MetastoreClient, event_id: int) -> LaterEvents:
        """Return the drops and renamings after an event, which a dump may have met while it was written.

        :param client: client of the source.
        :param event_id: the last event of the dump.
        """
        return LaterEvents(self.events(client, event_id), self.database)

    def settle(self, client: MetastoreClient, unexplained: Unexplained, event_id: int) -> None:
        """Return if later events account for all losses of the target, or the policy allows them.

        A source is listed after the cycle's events were read, so a missing object may have been removed in
        between.

        :param client: client of the source.
        :param event_id: the cycle's last event.
        :raises SourceDirectoryMissingError: directories of tables do not exist, and no file came from them.
        :raises UnexplainedRemovalError: nothing allows the losses.
        """
        if unexplained.tables or any(losses.partitions for losses in unexplained.losses.values()):
            unexplained = unexplained.without(self.later(client, event_id).evidence)
        refuse_unexplained(self._policy, unexplained)
