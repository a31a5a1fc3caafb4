"""Defines the results of refreshing and dropping remotes."""

from __future__ import annotations

from dataclasses import dataclass, field

from airflow_hive_federation.remotes.links import NO_EVENT


@dataclass(frozen=True, kw_only=True)
class RefreshReport:
    """The result of a refresh.

    :param remote: local name of the remote.
    :param event_id: last event of the remote that the link contains now; -1 for a catalog without events, or
        if the next refresh has to compare everything.
    :param whole: every table was compared, not only the tables that events name.
    :param created: local names of the created tables; ``altered`` and ``dropped`` likewise.
    :param gone: tables that the remote has dropped and whose links were kept.
    :param skipped: tables that were left out, with the reason; also those that the remote hides and refuses
        to read, whose links were kept.
    :param with_partitions: tables whose partitions were added, altered or dropped.
    :param named: linked tables that events name, whether or not this refresh has changed them: one that was
        interrupted before it wrote its position has done so. In a task that is tried again, so may have an
        earlier try: its events count, and if it may have compared all tables, all linked ones are named.
    """

    remote: str
    event_id: int = NO_EVENT
    whole: bool = False
    created: list[str] = field(default_factory=list)
    altered: list[str] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    with_partitions: list[str] = field(default_factory=list)
    named: list[str] = field(default_factory=list)
    partitions_added: int = 0
    partitions_altered: int = 0
    partitions_dropped: int = 0

    @property
    def changed(self) -> bool:
        """Return true if the refresh has changed a table or a partition."""
        counts = self.partitions_added + self.partitions_altered + self.partitions_dropped
        return bool(self.created or self.altered or self.dropped or counts)


@dataclass(frozen=True, kw_only=True)
class DropReport:
    """The result of dropping a remote.

    :param existed: false if there was no such remote.
    """

    remote: str
    existed: bool
