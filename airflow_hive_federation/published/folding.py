"""Folds the results of cycles, looks and verifications into published documents. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from airflow_hive_federation.published.documents import (
    FAILED,
    FAILOVER,
    LaggingTable,
    LagPoint,
    PolicyCycles,
    PolicyName,
    PolicyPosition,
    PolicyTables,
    PolicyVerification,
    PublishedCycle,
    Publisher,
    VerifiedTable,
    VerifiedTables,
)

if TYPE_CHECKING:
    from airflow_hive_federation.replication.policy import ReplicationPolicy
    from airflow_hive_federation.replication.replica.cycle_history import CycleRecord
    from airflow_hive_federation.replication.status import Lags, ReplicationStatus
    from airflow_hive_federation.replication.verify.report import VerificationReport

#: The most points of a lag's history, one per so many seconds: those of four hours at least.
POINTS = 240
_SPACING_S = 60.0
#: The most cycles of a policy that are kept.
CYCLES = 100
#: The most descriptions of differences, and the most characters of a description.
LINES = 50
_LINE = 500
_ERROR = 2_000

#: The state of a target that nobody has looked at.
ABSENT = "absent"
#: Kinds of cycles that targets do not record.
_UNRECORDED = frozenset({FAILED, FAILOVER})


@dataclass(frozen=True, kw_only=True)
class Publication:
    """The circumstances of a publication.

    :param at_s: its time, in seconds since 1970.
    """

    policy: PolicyName
    at_s: float
    by: Publisher


def name_of(policy: ReplicationPolicy) -> PolicyName:
    """Return the names of a policy."""
    return PolicyName(
        name=policy.name, source_database=policy.source_database, target_database=policy.target_database
    )


def position_of_status(
    before: PolicyPosition | None, status: ReplicationStatus, now: Publication
) -> PolicyPosition:
    """Return the position that a status describes."""
    history = before.history if before else ()
    if status.lag:
        planned = not status.blocked
        point = LagPoint(
            at_s=now.at_s,
            events=status.lag.events,
            seconds=status.lag.seconds,
            size_bytes=sum(table.size_bytes for table in status.tables) if planned else None,
        )
        history = with_point(history, point)
    return PolicyPosition(
        policy=now.policy,
        state=status.state,
        event_id=status.event_id,
        source_event_id=status.source_event_id,
        running=status.running,
        source_error=shortened(status.source_error),
        blocked=shortened(status.blocked),
        dump=status.dump,
        history=history,
        published_s=now.at_s,
        by=now.by,
    )


def position_of_lags(before: PolicyPosition | None, lags: Lags, now: Publication) -> PolicyPosition:
    """Return the position of a published target whose lags were counted; no cycle was planned."""
    point = LagPoint(
        at_s=now.at_s,
        events=lags.total.events,
        seconds=lags.total.seconds,
        size_bytes=None if lags.total.events else 0,
    )
    moved = before is None or before.event_id != lags.event_id
    return PolicyPosition(
        policy=now.policy,
        state="loaded",
        event_id=lags.event_id,
        source_event_id=lags.source_event_id,
        # A cycle that has ended was not blocked.
        blocked="" if moved or before is None else before.blocked,
        dump=before.dump if before else "",
        dump_url=before.dump_url if before else "",
        history=with_point(before.history if before else (), point),
        published_s=now.at_s,
        by=now.by,
    )


def position_of_wait(before: PolicyPosition | None, text: str, now: Publication) -> PolicyPosition:
    """Return the position with the wait of a task for the source's transactions.

    :param text: a description of the wait; empty at its end.
    """
    known = before or PolicyPosition(policy=now.policy, state=ABSENT, published_s=now.at_s)
    return replace(known, running=shortened(text, _LINE), published_s=now.at_s, by=now.by)


def with_point(history: Sequence[LagPoint], point: LagPoint) -> tuple[LagPoint, ...]:
    """Return a history with one more point: the last one of each minute, and at most :data:`POINTS`."""
    kept = [earlier for earlier in history if earlier.at_s < point.at_s]
    if kept and kept[-1].at_s // _SPACING_S == point.at_s // _SPACING_S:
        del kept[-1]
    return (*kept[-(POINTS - 1) :], point)


def tables_of_status(status: ReplicationStatus, now: Publication) -> PolicyTables | None:
    """Return the tables of a status; ``None`` if no cycle could be planned."""
    if status.source_error or status.blocked or status.event_id is None:
        return None
    return PolicyTables(
        policy=now.policy,
        lagging=tuple(LaggingTable(**asdict(table)) for table in status.tables),
        skipped={name: shortened(reason, _LINE) for name, reason in status.skipped.items()},
        retained=tuple(status.retained),
        published_s=now.at_s,
        by=now.by,
    )


def tables_of_lags(
    before: PolicyTables | None, lags: Lags, now: Publication, *, skipped: dict[str, str] | None = None
) -> PolicyTables:
    """Return the tables with events that the target lacks.

    :param skipped: the tables that are not replicated; by default those of the document before.
    """
    known = before.skipped if before and skipped is None else skipped
    return PolicyTables(
        policy=now.policy,
        lagging=tuple(
            LaggingTable(name=name, events=lag.events, seconds=lag.seconds)
            for name, lag in sorted(lags.tables.items())
        ),
        skipped=None if known is None else {name: shortened(why, _LINE) for name, why in known.items()},
        retained=before.retained if before else (),
        published_s=now.at_s,
        by=now.by,
    )


def with_records(
    before: PolicyCycles | None, records: Sequence[CycleRecord], now: Publication, *, ours: bool
) -> PolicyCycles:
    """Return the cycles with those that the target has recorded.

    The target's records replace the published ones of the same time; failures are known here alone.

    :param ours: the publisher has run the last one of these cycles, which comes after all that is known,
        whatever the clocks of the machines show.
    """
    known = before.cycles if before else ()
    if not records:
        return PolicyCycles(policy=now.policy, cycles=known, published_s=now.at_s, by=now.by)
    by = {(cycle.kind, cycle.event_id): cycle.by for cycle in known if cycle.kind not in _UNRECORDED}
    if ours:
        by[records[-1].kind, records[-1].event_id] = now.by
    recorded = [
        PublishedCycle(**asdict(record), by=by.get((record.kind, record.event_id), Publisher()))
        for record in records
    ]
    since_s = recorded[0].ended_s
    kept = [cycle for cycle in known if cycle.kind in _UNRECORDED or cycle.ended_s < since_s]
    until_s = recorded[-1].ended_s if ours else float("inf")
    cycles = sorted([*kept, *recorded], key=lambda cycle: min(cycle.ended_s, until_s))
    return PolicyCycles(policy=now.policy, cycles=tuple(cycles[-CYCLES:]), published_s=now.at_s, by=now.by)


def with_failure(
    before: PolicyCycles | None, error: str, remedy: str, now: Publication, *, seconds: float
) -> PolicyCycles:
    """Return the cycles with one more that failed; the same error in a row is one entry.

    :param error: the class and the message of the error.
    """
    failed = PublishedCycle(
        kind=FAILED,
        ended_s=now.at_s,
        seconds=round(seconds, 1),
        error=shortened(error),
        remedy=shortened(remedy),
        by=now.by,
    )
    cycles = list(before.cycles) if before else []
    if cycles and (cycles[-1].kind, cycles[-1].error) == (FAILED, failed.error):
        failed = replace(failed, cycles=cycles.pop().cycles + 1)
    return PolicyCycles(
        policy=now.policy, cycles=(*cycles, failed)[-CYCLES:], published_s=now.at_s, by=now.by
    )


def with_failover(before: PolicyCycles | None, event_id: int, now: Publication) -> PolicyCycles:
    """Return the cycles with the failover that ends them.

    :param event_id: last event of the target.
    """
    last = PublishedCycle(kind=FAILOVER, event_id=event_id, ended_s=now.at_s, by=now.by)
    cycles = (*(before.cycles if before else ()), last)
    return PolicyCycles(policy=now.policy, cycles=cycles[-CYCLES:], published_s=now.at_s, by=now.by)


def verification_of(report: VerificationReport, now: Publication) -> PolicyVerification:
    """Return the summary of a verification."""
    lines = [*map(str, report.differences), *map(str, report.failures)]
    return PolicyVerification(
        policy=now.policy,
        event_id=report.event_id,
        tables=len(report.tables),
        differences=len(report.differences),
        failures=len(report.failures),
        not_compared=len(report.not_compared),
        lines=tuple(shortened(line, _LINE) for line in lines[:LINES]),
        published_s=now.at_s,
        by=now.by,
    )


def with_verified(
    before: VerifiedTables | None, report: VerificationReport, now: Publication, *, whole: bool
) -> VerifiedTables:
    """Return the tables with the results of a verification.

    :param whole: all tables were compared, so that those of earlier verifications are out of date.
    """
    unequal = {difference.table for difference in report.differences}
    unequal |= {failure.table for failure in report.failures}
    known = {} if whole or before is None else {table.name: table for table in before.tables}
    for table in report.tables:
        known[table.name] = VerifiedTable(
            name=table.name,
            kind=table.kind,
            source_rows=table.source_rows,
            target_rows=table.target_rows,
            files=table.files,
            size_bytes=table.size_bytes,
            equal=table.digest_equal and table.name not in unequal,
            note=shortened(table.note, _LINE),
            event_id=report.event_id,
            verified_s=now.at_s,
        )
    return VerifiedTables(
        policy=now.policy,
        tables=tuple(known[name] for name in sorted(known)),
        published_s=now.at_s,
        by=now.by,
    )


def shortened(text: str, size: int = _ERROR) -> str:
    """Return a text of at most ``size`` characters."""
    return text if len(text) <= size else f"{text[: size - 1]}…"
