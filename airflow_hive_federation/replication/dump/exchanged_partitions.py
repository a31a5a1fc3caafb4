"""Finds partitions whose names have passed to others after the moment of a dump.

``DROP PARTITION p`` and ``RENAME q TO p`` after the moment leave a partition with the files of ``q``, whose
write ids are valid at the moment, too. If the load took it for the former one, it would add these files to
those of ``p`` that the target has. So a partition that was listed after its name was lost replaces the one of
the target. A name that is lost while the table is listed may be in the list twice, as ``p`` and as ``q``, or
with half of its files. Then the table is listed again.

Only a table that the target goes on with needs this: any other one is copied as it was listed, and the copy
fails if a listed file is gone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Protocol, TypeVar

from airflow_hive_federation.errors import FileVanishedError
from airflow_hive_federation.replication.dump.later_events import LaterEvents
from airflow_hive_federation.replication.dump.source import ReplicatedSource
from airflow_hive_federation.replication.format.directory import DumpDirectory
from airflow_hive_federation.replication.format.manifest import TableEntry

#: A table is listed so many times before the attempt is given up.
_LISTINGS = 10


class Written(Protocol):
    """A table whose documents are written."""

    @property
    def entry(self) -> TableEntry: ...


W = TypeVar("W", bound=Written)


def written_at_once(
    source: ReplicatedSource, directory: DumpDirectory, write: Callable[[], W]
) -> tuple[W, int]:
    """Write the documents of a table until none of its partitions loses its name meanwhile.

    :param directory: the dump that is being written.
    :param write: lists the table, and writes its documents.
    :return: its result, and the event after which the table was listed.
    :raises FileVanishedError: partitions were dropped or renamed during each of the attempts.
    """
    for _ in range(_LISTINGS):
        with source.pool.client() as client:
            began = client.get_current_notification_event_id()
        written = write()
        with source.pool.client() as client:
            later = source.later(client, began)
        if not (lost := _lost(directory, written.entry, later)):
            return written, began
    table = f"{source.database}.{written.entry.name}"
    raise FileVanishedError(
        f"Partitions of {table} were dropped or renamed while they were listed, {_LISTINGS} times in a row; "
        f"the last one was {min(lost)}.",
        remedy="Run the cycle again when fewer partitions are dropped.",
        table=table,
        partitions=sorted(lost),
    )


def with_exchanged(
    directory: DumpDirectory, entry: TableEntry, later: LaterEvents, *, listed_after: int
) -> TableEntry:
    """Return the entry of a table, with the partitions that must replace those of the target.

    :param directory: the dump that is being written.
    :param later: the events after the dump's moment.
    :param listed_after: the event after which the table was listed; 0 if its partitions replace none.
    """
    lost = _lost(directory, entry, later, up_to=listed_after)
    if not lost:
        return entry
    renewed = tuple(sorted(lost.union(entry.changes.renewed)))
    return replace(entry, recorded_changes=replace(entry.changes, renewed=renewed))


def _lost(
    directory: DumpDirectory, entry: TableEntry, later: LaterEvents, up_to: int | None = None
) -> frozenset[str]:
    lost = later.partitions_lost(entry.name, up_to=up_to)
    if not lost:
        return lost
    # The lines of other partitions may be those of an earlier dump.
    concerned = entry.changes.concerned
    lost = lost if concerned is None else lost.intersection(concerned)
    return lost.intersection(line.name for line in directory.partitions(entry.name, sealed=False))
