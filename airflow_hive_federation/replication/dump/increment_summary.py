"""Summarizes an incremental dump in numbers that Airflow tasks pass on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from airflow_hive_federation.replication.format.manifest import Manifest
from airflow_hive_federation.replication.metadata.table_names import asked_for

if TYPE_CHECKING:
    from airflow_hive_federation.replication.dump.source_moment import SourceMoment
    from airflow_hive_federation.replication.replica.position import TargetPosition


@dataclass(frozen=True, kw_only=True)
class IncrementSummary:
    """The numbers of an incremental dump. XCom-safe by :func:`dataclasses.asdict`.

    :param dump: URI of the dump; for an idle cycle, of the dump from which the target was last loaded.
    :param from_id: last event that the target had.
    :param event_id: last event of the dump.
    :param events: number of events in between.
    :param tables: number of tables concerned.
    :param transactions: number of transactions that ended.
    :param lost: events were missing, so every table was examined.
    :param unreadable: messages of at most 20 events that cannot be read, so that their tables were compared
        anew.
    :param idle: the cycle only has to record on the target the event that it has reached; no dump was
        written.
    :param skipped: the tables of the source that the policy selects but that are not replicated, each with
        the reason.
    :param retained: those of the skipped tables whose earlier replica the target keeps.
    :param dropped: tables that the target loses.
    """

    dump: str
    from_id: int
    event_id: int
    events: int
    tables: int
    files: int
    size_bytes: int
    transactions: int
    lease: int
    lost: bool
    idle: bool = False
    skipped: dict[str, str] = field(default_factory=dict)
    retained: list[str] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)
    unreadable: Sequence[str] = ()


def summary_of(uri: str, manifest: Manifest) -> IncrementSummary:
    """Return the summary of an incremental dump."""
    concerned = manifest.changed_tables
    return IncrementSummary(
        dump=uri,
        from_id=manifest.from_id,
        event_id=manifest.event_id,
        events=manifest.events,
        tables=len(concerned),
        files=sum(entry.files for entry in concerned),
        size_bytes=sum(entry.size_bytes for entry in concerned),
        transactions=manifest.transactions,
        lease=manifest.lease,
        lost=manifest.lost,
        skipped=asked_for(manifest.skipped),
        retained=list(manifest.retained),
        dropped=list(manifest.dropped),
        unreadable=list(manifest.unreadable),
    )


def idle_summary(moment: SourceMoment, position: TargetPosition) -> IncrementSummary:
    """Return the summary of a cycle without a dump, which only moves the target to a later event."""
    return IncrementSummary(
        dump=position.dump,
        from_id=moment.folded.from_id,
        event_id=moment.folded.to_id,
        events=moment.events,
        tables=0,
        files=0,
        size_bytes=0,
        transactions=0,
        lease=0,
        lost=False,
        idle=True,
        skipped=asked_for(moment.skipped),
        retained=sorted(moment.absent.kept),
    )
