"""Defines the events of progress: facts of finished or beginning work, with names, counts, bytes and seconds.

An event holds plain values, so that it passes from a Spark job or a task to another process as JSON.
:mod:`.words` is the one place that turns an event into words.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, fields
from enum import Enum
from typing import ClassVar

from airflow_hive_federation.progress.kinds import Activity, FileJob, Step

#: The name of the class in the JSON of an event.
KIND = "kind"


@dataclass(frozen=True, kw_only=True)
class Event:
    """Base of the events; the name of its class identifies an event in JSON."""

    #: The level of the event in a log.
    level: ClassVar[int] = logging.INFO
    #: True for a count of work that goes on: the next event of the class replaces it.
    interim: ClassVar[bool] = False

    def to_json(self) -> dict[str, object]:
        """Return the class and the fields, from which :func:`.reading.event_of` makes the event again."""
        values = ((name, getattr(self, name)) for name in (field.name for field in fields(self)))
        return {KIND: type(self).__name__, **{name: _plain(value) for name, value in values}}


# -- steps and long work -------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class StepStarting(Event):
    """A step begins.

    :param database: the database that the step changes.
    :param subject: the table or transaction of the step; empty for a step of the whole database.
    """

    level = logging.DEBUG
    database: str
    step: Step
    subject: str = ""

    @property
    def name(self) -> str:
        """Return the step with its subject, for instance ``create orders``."""
        return f"{self.step.value} {self.subject}".rstrip()


@dataclass(frozen=True, kw_only=True)
class PartitionsCounted(Event):
    """Work on a table's partitions goes on.

    :param partitions: the number of partitions so far.
    :param seconds: the time since the beginning.
    """

    interim = True
    table: str
    activity: Activity
    partitions: int
    seconds: float


@dataclass(frozen=True, kw_only=True)
class FilesProcessed(Event):
    """A Spark job has processed files; at its end, ``files`` equals ``all_files`` unless some failed.

    :param bytes_per_s: the rate since the beginning.
    """

    interim = True
    job: FileJob
    files: int
    all_files: int
    size_bytes: int
    all_bytes: int
    bytes_per_s: float


# -- the drain -----------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class DrainStarted(Event):
    """A bootstrap has noted the transactions that it waits for."""

    database: str
    event_id: int
    transactions: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class TransactionsOpen(Event):
    """Transactions that a bootstrap or a failover waits for are open."""

    database: str
    transactions: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class TransactionsEnded(Event):
    """All transactions that a bootstrap or a failover waits for have ended."""

    database: str


@dataclass(frozen=True, kw_only=True)
class TransactionsAborted(Event):
    """Transactions of the source that did not end in time are aborted."""

    level = logging.WARNING
    database: str
    transactions: tuple[int, ...]


# -- dumps ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class CycleChosen(Event):
    """The kind of the next cycle is known.

    :param published: the target is published, so that an increment follows and not a bootstrap.
    """

    database: str
    published: bool


@dataclass(frozen=True, kw_only=True)
class TableLeftOut(Event):
    """The policy selects a table that is not replicated.

    :param reason: the rest of a sentence.
    :param replica_stays: the target keeps an earlier replica of the table.
    """

    table: str
    reason: str
    replica_stays: bool = False


@dataclass(frozen=True, kw_only=True)
class TableVanished(Event):
    """A table was dropped while its dump was written."""

    table: str


@dataclass(frozen=True, kw_only=True)
class TableExchanged(Event):
    """A table was dropped or renamed while its dump was written, or another kind of table took its place.

    :param replica_stays: the target keeps its replica as it was before; otherwise it has none for now.
    """

    table: str
    replica_stays: bool


@dataclass(frozen=True, kw_only=True)
class TableDumped(Event):
    """The documents of a table are written.

    :param work: the action of an increment on the table; empty in a bootstrap.
    :param partitions: the number of partitions in a bootstrap; zero for a table without partition keys.
    """

    table: str
    files: int
    size_bytes: int
    partitions: int = 0
    work: str = ""


@dataclass(frozen=True, kw_only=True)
class BootstrapDumped(Event):
    """The dump of a bootstrap is finished.

    :param earlier: an earlier run finished it.
    """

    dump: str
    tables: int
    partitions: int
    files: int
    earlier: bool = False


@dataclass(frozen=True, kw_only=True)
class IncrementDumped(Event):
    """The dump of an increment is finished."""

    dump: str
    events: int
    transactions: int
    tables: int


@dataclass(frozen=True, kw_only=True)
class NothingChanged(Event):
    """The source has no change for the target up to an event."""

    database: str
    event_id: int


@dataclass(frozen=True, kw_only=True)
class DumpRemoved(Event):
    """A loaded dump that describes no table any more is removed."""

    dump: str


# -- loads ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class LockContended(Event):
    """Another cycle holds the target's lock.

    :param holder: the description of the other cycle.
    """

    database: str
    holder: str


@dataclass(frozen=True, kw_only=True)
class LockRemoved(Event):
    """The target's lock of a dead cycle is removed.

    :param holder: the description of the dead cycle.
    """

    database: str
    holder: str


@dataclass(frozen=True, kw_only=True)
class FilesCopied(Event):
    """All new files of an increment are in their places."""

    database: str
    files: int


@dataclass(frozen=True, kw_only=True)
class FileRemoved(Event):
    """A file that an earlier load left is removed."""

    uri: str


@dataclass(frozen=True, kw_only=True)
class TableCreated(Event):
    """A table of the target exists, with its partitions."""

    table: str
    partitions: int


@dataclass(frozen=True, kw_only=True)
class DanglingAborted(Event):
    """Transactions that earlier runs left open on the target are aborted."""

    database: str
    transactions: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Published(Event):
    """The target shows the state of the source at an event.

    :param earlier: an earlier run published it.
    :param files: number of files of tables that the load copied.
    :param seconds: duration of the load.
    """

    database: str
    event_id: int
    earlier: bool = False
    files: int = 0
    size_bytes: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class UpToDate(Event):
    """The target has reached an event without a change."""

    database: str
    event_id: int


# -- verification and repair ---------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class TableNotCompared(Event):
    """A table takes no part in a verification.

    :param reason: the rest of a sentence.
    """

    table: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class ComparedByDigests(Event):
    """The rows of a table are not counted, because its source files are gone.

    :param reason: the sentence on these files.
    """

    table: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class ReplicaCompared(Event):
    """A verification has ended.

    :param unreadable: the number of tables or files that cannot be read.
    """

    database: str
    tables: int
    differences: int
    unreadable: int = 0


@dataclass(frozen=True, kw_only=True)
class RepairStarting(Event):
    """A repair of tables begins."""

    database: str
    tables: tuple[str, ...]


# -- failover ------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class SourceIsReplica(Event):
    """The source of a failover is a replica already."""

    database: str


@dataclass(frozen=True, kw_only=True)
class SourceMarked(Event):
    """The source is marked as failing over.

    :param transactions: the number of transactions to wait for.
    """

    database: str
    transactions: int


@dataclass(frozen=True, kw_only=True)
class TargetNotChecked(Event):
    """A lost target is not checked before a roll-back."""

    level = logging.WARNING
    policy: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class NoFailoverStarted(Event):
    """A roll-back finds no failover."""

    database: str


@dataclass(frozen=True, kw_only=True)
class SourceWritable(Event):
    """The source may be written again after a roll-back."""

    database: str


@dataclass(frozen=True, kw_only=True)
class FailedOver(Event):
    """The roles of source and target are exchanged.

    :param database: the database of the former target.
    :param replica: the database of the former source.
    :param policy: the name of the policy of the way back.
    """

    database: str
    replica: str
    event_id: int
    policy: str


@dataclass(frozen=True, kw_only=True)
class TakenOver(Event):
    """A target goes on without its source.

    :param missing: the names of tables that it had at that event and lacks, and of partitions, as
        ``table/partition``.
    """

    database: str
    event_id: int
    missing: tuple[str, ...] = ()


# -- waits ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class TargetUnpublished(Event):
    """A target whose lag is awaited is not published."""

    database: str


@dataclass(frozen=True, kw_only=True)
class TargetBehind(Event):
    """A target has this lag.

    :param events: the number of missing events.
    :param seconds: the age of the oldest missing event.
    """

    database: str
    events: int
    seconds: float


@dataclass(frozen=True, kw_only=True)
class RemoteChecked(Event):
    """A remote was examined for a partition, or for any change.

    :param partition: the name of the awaited partition, or the condition on it; empty for any change.
    :param condition: ``partition`` is a condition.
    """

    remote: str
    ready: bool
    partition: str = ""
    condition: bool = False


# -- clusters and ingest -------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class TablesProcessed(Event):
    """An assignment to a cluster has processed tables."""

    interim = True
    tables: int
    all_tables: int


@dataclass(frozen=True, kw_only=True)
class RecordsIngested(Event):
    """An ingest run has read bytes and committed records.

    :param read_bytes: bytes of the files, as they lie in their store.
    :param files: number of files that were read to their end.
    :param committed: number of committed records.
    :param seconds: the time since the beginning of the run.
    """

    interim = True
    table: str
    read_bytes: int
    all_bytes: int
    files: int
    committed: int
    seconds: float

    @property
    def records_per_s(self) -> float:
        """Return the number of committed records per second."""
        return self.committed / max(self.seconds, 1e-3)


def _plain(value: object) -> object:
    if isinstance(value, tuple):
        return list(value)
    return value.value if isinstance(value, Enum) else value
