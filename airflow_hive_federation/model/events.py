"""Defines the notification events of Hive that replication handles.

An event's id, type, database and table are not part of its message. So they are known even if the message
cannot be read: the event is an :class:`UnreadableEvent` then. :mod:`.event_messages` parses the messages.
"""

from __future__ import annotations

from dataclasses import dataclass

from airflow_hive_federation.errors import EventCorruptError


@dataclass(frozen=True, kw_only=True, slots=True)
class Event:
    """The base of all events.

    :param event_id: its position in the source's history.
    :param event_type: Hive's name of the type (``EventMessage.EventType``).
    :param database: database of the changed object, lower case; empty for transactions.
    :param kept: pairs of an added file and its path in the change manager's root, to which the source moves
        the file if it is removed.
    """

    event_id: int
    event_type: str
    database: str = ""
    kept: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class DatabaseEvent(Event):
    """The event of a database that was created, altered or dropped."""

    @property
    def dropped(self) -> bool:
        """Return whether the database was dropped with all of its objects."""
        return self.event_type == "DROP_DATABASE"


@dataclass(frozen=True, kw_only=True, slots=True)
class TableEvent(Event):
    """The event of a table that was changed, or whose partitions, files or statistics were.

    :param table: its name after the event.
    """

    table: str


@dataclass(frozen=True, kw_only=True, slots=True)
class TableCreated(TableEvent):
    """The event of a table or view that was created."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TableDropped(TableEvent):
    """The event of a table or view that was dropped."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TableAltered(TableEvent):
    """The event of a table that was altered.

    :param old_database: its former database, which differs from ``database`` if the table was moved.
    :param old_table: its former name, which differs from ``table`` if the table was renamed.
    :param truncated: its rows were removed.
    """

    old_database: str
    old_table: str
    truncated: bool = False

    @property
    def renamed(self) -> bool:
        """Return whether the table had another name or database before."""
        return (self.old_database, self.old_table) != (self.database, self.table)


@dataclass(frozen=True, kw_only=True, slots=True)
class PartitionsChanged(TableEvent):
    """The event of partitions that were added, altered or dropped.

    :param named: names of all partitions that were changed, the former names of renamed ones included;
        ``None`` if the message does not name them.
    :param gone: names of partitions that were dropped or renamed.
    :param truncated: names of partitions whose rows were removed.
    """

    named: tuple[str, ...] | None = None
    gone: tuple[str, ...] = ()
    truncated: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Inserted(TableEvent):
    """The event of files that were added to a table that is not transactional.

    :param overwritten: the whole table was overwritten; this is false for an overwritten partition, whose
        Hive event has the same flag.
    """

    overwritten: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class ConstraintsChanged(TableEvent):
    """The event of a constraint that was added or dropped."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StatisticsChanged(TableEvent):
    """The event of column statistics that were written or deleted.

    :param named: names of the partitions that they describe, none for those of a table; ``None`` if the
        message does not name the partitions.
    """

    named: tuple[str, ...] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Compacted(TableEvent):
    """The event of a committed compaction, which replaces files and keeps the rows.

    :param partition: name of the partition; empty for a table without partitions.
    :param rebalanced: the rows have other places and numbers than before (``CompactionType.REBALANCE``), so
        that later deletes do not fit the former files.
    """

    partition: str = ""
    rebalanced: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Reloaded(TableEvent):
    """The event of a request to read a table's metadata again (``REFRESH``)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FunctionEvent(Event):
    """The event of a permanent function that was created or dropped.

    :param function: its name, lower case.
    """

    function: str

    @property
    def dropped(self) -> bool:
        """Return whether the function was dropped."""
        return self.event_type == "DROP_FUNCTION"


@dataclass(frozen=True, kw_only=True, slots=True)
class TxnsOpened(Event):
    """The event of transactions ``first`` to ``last``, which were opened."""

    first: int
    last: int


@dataclass(frozen=True, kw_only=True, slots=True)
class TxnEnded(Event):
    """The event of a transaction that was committed or aborted."""

    txn_id: int
    committed: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class WriteIdsAllocated(TableEvent):
    """The event of write ids allocated on a table, as pairs of transaction id and write id."""

    write_ids: tuple[tuple[int, int], ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class AcidWritten(TableEvent):
    """The event of a transaction's write to a table (``hive.metastore.dml.events`` of ACID tables)."""

    txn_id: int
    write_id: int


@dataclass(frozen=True, kw_only=True, slots=True)
class OtherEvent(Event):
    """An event of a known type about objects that are not replicated: catalogs, schemas, data connectors."""


@dataclass(frozen=True, kw_only=True, slots=True)
class UnknownEvent(Event):
    """An event of a type that this version does not know."""


@dataclass(frozen=True, kw_only=True, slots=True)
class UnreadableEvent(TableEvent):
    """An event of a known type whose message cannot be read, so that only its heading is known.

    :param table: the table in its heading; empty if the heading has none.
    :param reason: the error in the message.
    """

    reason: str

    @property
    def ends_transaction(self) -> bool:
        """Return whether the event is the end of a transaction, committed or aborted."""
        return self.event_type in {"COMMIT_TXN", "ABORT_TXN"}

    @property
    def of_transaction(self) -> bool:
        """Return whether the event belongs to a transaction, and so to no database."""
        return self.ends_transaction or self.event_type == "OPEN_TXN"

    def error(self) -> EventCorruptError:
        """Return the error to raise if replication needs the event's message."""
        return EventCorruptError(
            f"Notification event {self.event_id} ({self.event_type}) cannot be read: {self.reason}.",
            remedy="Inspect it in the source's NOTIFICATION_LOG; bootstrap again if it is damaged.",
            event_id=self.event_id,
            event_type=self.event_type,
        )
