"""Defines the roles of catalogs, as protocols.

Tables and partitions are the wire structs of Hive's interface definition in every catalog, because the local
metastore stores these structs and they carry every field. A catalog implements the roles that it supports; a
caller checks with ``isinstance`` before it relies on one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Protocol, runtime_checkable

from airflow_hive_federation.metastore import MetastoreClient
from airflow_hive_federation.metastore.idl import types

#: Begins the type of a column, or of a part of it, for which Hive has no type; the catalog's name follows.
#: So one such table is left out, and does not end the reading of many.
HIVE_LACKS = "unknown to Hive: "
#: This parameter holds the reason why a catalog cannot read a table, which then has nothing but its name. So
#: one such table is left out, too.
WHY_UNREADABLE = "hive.federation.unreadable"
#: This parameter holds the name of a table as its catalog writes it, if that has upper case: a catalog other
#: than Hive's finds the table by this name only.
NAME_AT_THE_CATALOG = "iceberg.table.name"


@runtime_checkable
class Reader(Protocol):
    """A catalog that reads databases, tables and partitions; several threads may use it."""

    def identity(self) -> str | None:
        """Return the catalog's own id, which does not depend on the route to it; ``None`` if it has none.

        It is the id of the catalog that answers now: an address may lead to another one later.
        """

    def get_database(self, name: str) -> types.Database:
        """Read a database.

        :raises NoSuchObjectError: if the database does not exist.
        """

    def list_tables(self, database: str) -> list[str]:
        """List the names of a database's tables and views.

        :raises NoSuchObjectError: if the database does not exist; a Hive metastore then lists none.
        """

    def get_table(self, database: str, table: str) -> types.Table:
        """Read a table, with its column statistics if the catalog returns any with a table.

        :raises NoSuchObjectError: if the table does not exist.
        """

    def get_tables(self, database: str, names: Sequence[str]) -> list[types.Table]:
        """Read many tables, without column statistics; those that do not exist are left out.

        One that the catalog cannot read comes as :func:`unreadable` makes it.
        """

    def list_partition_names(self, database: str, table: str) -> list[str]:
        """List the names of all partitions as Hive writes them."""

    def get_partitions(
        self, database: str, table: str, names: Sequence[str] | None = None
    ) -> list[types.Partition]:
        """Read partitions; names that do not exist are left out.

        :param names: names of the partitions; ``None`` means all.
        """

    def close(self) -> None:
        """Release all connections without raising an error."""


@runtime_checkable
class TableLister(Protocol):
    """A catalog whose list of a database's names costs as much as a list of its tables."""

    def iter_tables(self, database: str) -> Iterator[types.Table]:
        """Yield the tables and views of a database, in one listing.

        :raises NoSuchObjectError: if the database does not exist.
        """


@runtime_checkable
class EventSource(Protocol):
    """A catalog that reports its changes as events."""

    def last_event_id(self) -> int | None:
        """Return the id of the newest event; ``None`` if the catalog is configured to keep none."""

    def events(self, after: int, up_to: int) -> Iterator[types.NotificationEvent]:
        """Yield the events with ids above ``after`` and not above ``up_to``, in order.

        They are events of all databases, because a table that moves has its event in its new database.
        """

    def has_events_after(self, event_id: int) -> bool:
        """Return true if the catalog still has all events above an id."""


@runtime_checkable
class PartitionFilter(Protocol):
    """A catalog that finds partitions by a condition."""

    def find_partitions(self, database: str, table: str, where: str) -> list[types.Partition]:
        """Read the partitions that meet a condition.

        :param where: condition on partition keys in the syntax of Hive's metastore, ``day >= '2026-01-01'``.
        :raises NoSuchObjectError: if the table does not exist.
        :raises ConfigurationError: or another error of the catalog, if it cannot parse the condition.
        """


@runtime_checkable
class TableStatistics(Protocol):
    """A catalog whose tables neither include their column statistics nor mark that they have some."""

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
    """The smallest role that a remote needs."""


def unreadable(database: str, table: str, reason: str) -> types.Table:
    """Return a table that its catalog cannot read.

    :param reason: a clause without a full stop, with the remedy.
    """
    return types.Table(dbName=database.lower(), tableName=table.lower(), parameters={WHY_UNREADABLE: reason})
