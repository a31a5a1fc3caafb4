"""Defines further events of cycles: of their copies, and of followers, which run them for ever."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from airflow_hive_federation.progress.events import Event


@dataclass(frozen=True, kw_only=True)
class CopyPlanned(Event):
    """An increment knows the files that its target lacks.

    :param size_bytes: their total length.
    """

    level = logging.DEBUG
    database: str
    files: int
    size_bytes: int


@dataclass(frozen=True, kw_only=True)
class TableCopied(Event):
    """The new files of a table are in their places.

    :param table: the table of the target, with its database.
    """

    level = logging.DEBUG
    table: str
    files: int
    size_bytes: int


@dataclass(frozen=True, kw_only=True)
class SnapshotNotUsed(Event):
    """The directory of an external table is listed as a whole, although the policy asks for snapshots.

    :param directory: URI of the directory.
    :param reason: the rest of a sentence.
    """

    level = logging.WARNING
    table: str
    directory: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class SnapshotRemoved(Event):
    """A snapshot of an earlier cycle is removed from a directory of the source.

    :param directory: URI of the directory.
    :param snapshot: name of the snapshot.
    """

    directory: str
    snapshot: str


@dataclass(frozen=True, kw_only=True)
class FollowStarted(Event):
    """A follower has begun, from a published target.

    :param event_id: the source's event that the target shows.
    """

    database: str
    event_id: int


@dataclass(frozen=True, kw_only=True)
class LagSeen(Event):
    """A follower has looked at the source, or has published a cycle.

    :param events: the number of events that concern the policy and that the target lacks.
    :param seconds: the age of the oldest of them.
    """

    level = logging.DEBUG
    database: str
    events: int
    seconds: float


@dataclass(frozen=True, kw_only=True)
class CompactionsRequested(Event):
    """A load has added compactions of the target's tables to the metastore's queue.

    :param partitions: number of requests; a table without partitions counts as one.
    """

    database: str
    partitions: int


@dataclass(frozen=True, kw_only=True)
class CycleFollowed(Event):
    """A follower has published a cycle.

    :param cycle: ``bootstrap`` or ``increment``.
    :param event_id: the source's event that the target shows now.
    :param events: the number of the source's events in the cycle.
    :param transactions: the number of transactions that were replayed.
    :param tables: the number of tables that the cycle changed.
    :param files: the number of files that were copied.
    :param seconds: the time from the beginning of the cycle to its publication.
    :param lag_s: the age of the oldest event of the cycle at its publication.
    """

    database: str
    cycle: str
    event_id: int
    events: int
    transactions: int
    tables: int
    files: int
    size_bytes: int
    seconds: float
    lag_s: float

    @property
    def bytes_per_s(self) -> float:
        """Return the throughput of the cycle."""
        return self.size_bytes / max(self.seconds, 1e-3)


@dataclass(frozen=True, kw_only=True)
class CycleFailed(Event):
    """A follower could not look at the source, or its cycle failed.

    :param error: the text of the error.
    :param failures: the number of failures in a row.
    :param pause_s: seconds until the next try; 0 if none follows.
    """

    level = logging.WARNING
    database: str
    error: str
    failures: int
    pause_s: float


@dataclass(frozen=True, kw_only=True)
class FollowEnded(Event):
    """A follower has ended without an error: at a request, or at its limit.

    :param event_id: the source's event that the target shows.
    :param cycles: the number of published cycles.
    """

    database: str
    event_id: int
    cycles: int
