"""A Hive metastore as a catalog, by whatever transport its settings name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from functools import cached_property

from airflow_hive_federation.errors import MetastoreServerError, UnsupportedMethodError
from airflow_hive_federation.metastore import MetastoreClient, MetastorePool, MetastoreSettings
from airflow_hive_federation.metastore.idl import types

_LISTENER = "DbNotificationListener"
_LISTENERS = ("hive.metastore.transactional.event.listeners", "hive.metastore.event.listeners")
#: Connections to one remote. What is slow is the remote's database: more would not make it faster.
POOL_SIZE = 4
#: Others may hold a connection while they write 100,000 partitions; each of their calls has its own deadline.
_WAIT_S = 3600.0


class HiveCatalog:
    """A metastore with a pool of connections of its own.

    :param settings: where it is; the deadlines of its calls are among them.
    """

    def __init__(self, settings: MetastoreSettings, *, pool_size: int = POOL_SIZE) -> None:
        self._pool = MetastorePool(settings, pool_size, wait_timeout_s=_WAIT_S)

    def client(self) -> AbstractContextManager[MetastoreClient]:
        """See :meth:`.roles.MetastoreOwner.client`."""
        return self._pool.client()

    def identity(self) -> str | None:
        """See :meth:`.roles.Reader.identity`."""
        return self._identity

    @cached_property
    def _identity(self) -> str | None:
        with self.client() as client:
            return identity_of(client)

    def get_database(self, name: str) -> types.Database:
        """See :meth:`.roles.Reader.get_database`."""
        with self.client() as client:
            return client.get_database(name)

    def list_tables(self, database: str) -> list[str]:
        """See :meth:`.roles.Reader.list_tables`."""
        with self.client() as client:
            return client.list_tables(database)

    def get_table(self, database: str, table: str) -> types.Table:
        """See :meth:`.roles.Reader.get_table`."""
        with self.client() as client:
            return client.get_table(database, table, with_column_stats=True)

    def get_tables(self, database: str, names: Sequence[str]) -> list[types.Table]:
        """See :meth:`.roles.Reader.get_tables`."""
        with self.client() as client:
            return client.get_tables(database, names)

    def list_partition_names(self, database: str, table: str) -> list[str]:
        """See :meth:`.roles.Reader.list_partition_names`."""
        with self.client() as client:
            return client.list_partition_names(database, table)

    def get_partitions(
        self, database: str, table: str, names: Sequence[str] | None = None
    ) -> list[types.Partition]:
        """See :meth:`.roles.Reader.get_partitions`."""
        with self.client() as client:
            if names is not None:
                return client.get_partitions_of(database, table, names)
            everything = client.get_partitions(database, table)
            return everything or list(client.iter_partitions(database, table))

    def find_partitions(self, database: str, table: str, where: str) -> list[types.Partition]:
        """See :meth:`.roles.PartitionFilter.find_partitions`."""
        with self.client() as client:
            return client.find_partitions(database, table, where)

    def partition_statistics(
        self, database: str, table: str, names: Sequence[str]
    ) -> dict[str, list[types.ColumnStatisticsObj]]:
        """See :meth:`.roles.PartitionStatistics.partition_statistics`."""
        with self.client() as client:
            return client.get_partitions_column_statistics(database, table, names)

    def last_event_id(self) -> int | None:
        """See :meth:`.roles.EventSource.last_event_id`."""
        if not self._keeps_events:
            return None
        with self.client() as client:
            return client.get_current_notification_event_id()

    @cached_property
    def _keeps_events(self) -> bool:
        with self.client() as client:
            return keeps_events(client)

    def events(self, after: int, up_to: int) -> Iterator[types.NotificationEvent]:
        """See :meth:`.roles.EventSource.events`."""
        with self.client() as client:
            yield from client.iter_notification_events(after, up_to=up_to)

    def has_events_after(self, event_id: int) -> bool:
        """See :meth:`.roles.EventSource.has_events_after`."""
        with self.client() as client:
            request = types.NotificationEventRequest(lastEvent=event_id, maxEvents=1)
            found = client.call("get_next_notification", request).events
            if found:
                # Ids have no gaps: a later first one means that older events were cleaned away.
                return bool(found[0].eventId == event_id + 1)
            return client.get_current_notification_event_id() == event_id

    def close(self) -> None:
        """See :meth:`.roles.Reader.close`."""
        self._pool.close()
        if self._pool.settings.dialer is not None:
            self._pool.settings.dialer.close()


def identity_of(client: MetastoreClient) -> str | None:
    """The id of a metastore's database; ``None`` if it has none, as before Hive 3."""
    try:
        return str(client.call("get_metastore_db_uuid"))
    except (MetastoreServerError, UnsupportedMethodError):
        # Before Hive 3, or one whose database was never given an id.
        return None


def keeps_events(client: MetastoreClient) -> bool:
    """Return whether a metastore keeps notification events.

    Without a listener the last id stands still, which looks as if nothing ever changed.
    """
    return any(_LISTENER in client.call("get_config_value", key, "") for key in _LISTENERS)
