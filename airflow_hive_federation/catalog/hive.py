"""Reads a Hive metastore as a catalog, over the transport that its settings name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import cached_property

from airflow_hive_federation.errors import MetastoreServerError, UnsupportedMethodError
from airflow_hive_federation.metastore import MetastoreClient, MetastorePool, MetastoreSettings
from airflow_hive_federation.metastore.idl import types

_LISTENER = "DbNotificationListener"
_LISTENERS = ("hive.metastore.transactional.event.listeners", "hive.metastore.event.listeners")
#: Limits the connections per remote. The remote's database is the bottleneck: more would not be faster.
POOL_SIZE = 4
#: Other threads may hold a connection while they write 100,000 partitions; each call has its own deadline.
_WAIT_S = 3600.0


class HiveCatalog:
    """A Hive metastore with a connection pool of its own.

    :param settings: settings of the metastore, with its address and the deadlines of its calls.
    :param pool: a connection pool of another catalog, to be used instead.
    """

    def __init__(self, settings: MetastoreSettings, *, pool: MetastorePool | None = None) -> None:
        self._pool = pool or MetastorePool(settings, POOL_SIZE, wait_timeout_s=_WAIT_S)

    def client(self) -> AbstractContextManager[MetastoreClient]:
        """Lend a client; see :meth:`.roles.MetastoreOwner.client`."""
        return self._pool.client()

    def guarded(self, guard: Callable[[str], None]) -> HiveCatalog:
        """Return the catalog with a guard that runs right before each call that writes.

        :param guard: the guard of :meth:`MetastoreClient.guarded`; several threads call it.
        """
        return HiveCatalog(self._pool.settings, pool=self._pool.guarded(guard))

    def identity(self) -> str | None:
        """Return the catalog's own id; see :meth:`.roles.Reader.identity`."""
        with self.client() as client:
            return identity_of(client)

    def get_database(self, name: str) -> types.Database:
        """Read a database; see :meth:`.roles.Reader.get_database`."""
        with self.client() as client:
            return client.get_database(name)

    def list_tables(self, database: str) -> list[str]:
        """List the tables and views of a database; see :meth:`.roles.Reader.list_tables`."""
        with self.client() as client:
            return client.list_tables(database)

    def get_table(self, database: str, table: str) -> types.Table:
        """Read a table; see :meth:`.roles.Reader.get_table`."""
        with self.client() as client:
            return client.get_table(database, table, with_column_stats=True)

    def get_tables(self, database: str, names: Sequence[str]) -> list[types.Table]:
        """Read many tables; see :meth:`.roles.Reader.get_tables`."""
        with self.client() as client:
            return client.get_tables(database, names)

    def list_partition_names(self, database: str, table: str) -> list[str]:
        """List the names of all partitions; see :meth:`.roles.Reader.list_partition_names`."""
        with self.client() as client:
            return client.list_partition_names(database, table)

    def get_partitions(
        self, database: str, table: str, names: Sequence[str] | None = None
    ) -> list[types.Partition]:
        """Read partitions; see :meth:`.roles.Reader.get_partitions`."""
        with self.client() as client:
            if names is not None:
                return client.get_partitions_of(database, table, names)
            partitions = client.get_partitions(database, table)
            return partitions or list(client.iter_partitions(database, table))

    def find_partitions(self, database: str, table: str, where: str) -> list[types.Partition]:
        """Read the partitions that meet a condition; see :meth:`.roles.PartitionFilter.find_partitions`."""
        with self.client() as client:
            return client.find_partitions(database, table, where)

    def partition_statistics(
        self, database: str, table: str, names: Sequence[str]
    ) -> dict[str, list[types.ColumnStatisticsObj]]:
        """Read statistics by partition; see :meth:`.roles.PartitionStatistics.partition_statistics`."""
        with self.client() as client:
            return client.get_partitions_column_statistics(database, table, names)

    def last_event_id(self) -> int | None:
        """Return the id of the newest event; see :meth:`.roles.EventSource.last_event_id`."""
        if not self._keeps_events:
            return None
        with self.client() as client:
            return client.get_current_notification_event_id()

    @cached_property
    def _keeps_events(self) -> bool:
        with self.client() as client:
            return keeps_events(client)

    def events(self, after: int, up_to: int) -> Iterator[types.NotificationEvent]:
        """Yield events in order; see :meth:`.roles.EventSource.events`."""
        with self.client() as client:
            yield from client.iter_notification_events(after, up_to=up_to)

    def has_events_after(self, event_id: int) -> bool:
        """Return true if all later events still exist; see :meth:`.roles.EventSource.has_events_after`."""
        with self.client() as client:
            request = types.NotificationEventRequest(lastEvent=event_id, maxEvents=1)
            events = client.call("get_next_notification", request).events
            if events:
                # Ids have no gaps: if the first event has a later id, older events were cleaned away.
                return bool(events[0].eventId == event_id + 1)
            return client.get_current_notification_event_id() == event_id

    def close(self) -> None:
        """Close the catalog; see :meth:`.roles.Reader.close`."""
        self._pool.close()
        if self._pool.settings.dialer is not None:
            self._pool.settings.dialer.close()


def identity_of(client: MetastoreClient) -> str | None:
    """Return the id of a metastore's database; ``None`` if it has none, as before Hive 3."""
    try:
        return str(client.call("get_metastore_db_uuid"))
    except (MetastoreServerError, UnsupportedMethodError):
        # The metastore is older than Hive 3, or its database never got an id.
        return None


def keeps_events(client: MetastoreClient) -> bool:
    """Return true if a metastore keeps notification events.

    Without a listener the last event id never grows, so that the metastore would seem unchanged for ever.
    """
    return any(_LISTENER in client.call("get_config_value", key, "") for key in _LISTENERS)
