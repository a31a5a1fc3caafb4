"""What is asked of a catalog, role by role.

Tables and partitions are the wire structs of Hive's interface definition, whatever the catalog: they are what
a local metastore is given, and carry every field. A catalog has the roles that it can play; a caller asks
with ``isinstance`` before it relies on one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Protocol, runtime_checkable

from airflow_hive_federation.metastore import MetastoreClient
from airflow_hive_federation.metastore.idl import types


@runtime_checkable
class Reader(Protocol):
    """Definitions of databases, tables and partitions. May be used by several threads."""

    def identity(self) -> str | None:
        """The catalog's own id, the same by whatever way it is reached; ``None`` where it has none."""

    def get_database(self, name: str) -> types.Database:
        """Read a database.

        :raises NoSuchObjectError: if there is none of that name.
        """

    def list_tables(self, database: str) -> list[str]:
        """Names of a database's tables and views; empty where there is no such database."""

    def get_table(self, database: str, table: str) -> types.Table:
        """Read a table, column statistics included where the catalog has any.

        :raises NoSuchObjectError: if there is none of that name.
        """

    def get_tables(self, database: str, names: Sequence[str]) -> list[types.Table]:
        """Read many tables, without column statistics; those that do not exist are left out."""

    def list_partition_names(self, database: str, table: str) -> list[str]:
        """Names of all partitions, as Hive writes them."""

    def get_partitions(
        self, database: str, table: str, names: Sequence[str] | None = None
    ) -> list[types.Partition]:
        """Read partitions; names that do not exist are left out.

        :param names: which; ``None`` means all.
        """

    def close(self) -> None:
        """Give up what is held; never fails."""


@runtime_checkable
class EventSource(Protocol):
    """A catalog that tells what was changed in it."""

    def last_event_id(self) -> int | None:
        """Id of the newest event; ``None`` if the catalog is set up to keep none."""

    def events(self, after: int, up_to: int) -> Iterator[types.NotificationEvent]:
        """Yield the events with ids above ``after`` and not above ``up_to``, in order.

        Those of all databases: a table that is moved to another one has its event there.
        """

    def has_events_after(self, event_id: int) -> bool:
        """Whether all events above an id are still there."""


@runtime_checkable
class PartitionFilter(Protocol):
    """A catalog that finds partitions by a condition."""

    def find_partitions(self, database: str, table: str, where: str) -> list[types.Partition]:
        """Read the partitions that a condition holds for.

        :param where: a condition on partition keys as Hive's metastore takes it, ``day >= '2026-01-01'``.
        :raises NoSuchObjectError: if there is no such table.
        :raises ConfigurationError: or another error of the catalog, if it cannot read the condition.
        """


@runtime_checkable
class TableStatistics(Protocol):
    """A catalog whose tables come without column statistics, and do not say whether there are any."""

    def table_statistics(self, table: types.Table) -> list[types.ColumnStatisticsObj]:
        """Read a table's column statistics; columns without any are left out."""


@runtime_checkable
class PartitionStatistics(Protocol):
    """A catalog that keeps column statistics of partitions."""

    def partition_statistics(
        self, database: str, table: str, names: Sequence[str]
    ) -> dict[str, list[types.ColumnStatisticsObj]]:
        """Read column statistics by partition name; partitions without any are left out."""


@runtime_checkable
class MetastoreOwner(Protocol):
    """A catalog that is a Hive metastore: it owns transactions and write ids."""

    def client(self) -> AbstractContextManager[MetastoreClient]:
        """Lend a client to the caller's thread."""


class Catalog(Reader, Protocol):
    """The least that a remote needs."""
