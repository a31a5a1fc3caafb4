"""Turns published documents into what the page shows: filtered, sorted, and a part at a time. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from itertools import chain

from airflow_hive_federation.errors import divided
from airflow_hive_federation.published.documents import (
    FAILED,
    FAILOVER,
    PolicyCycles,
    PolicyName,
    PolicyPosition,
    PolicyTables,
    PolicyVerification,
    PublishedCycle,
    Publisher,
    VerifiedTables,
)
from airflow_hive_federation.published.remotes import RemoteState
from airflow_hive_federation.published.work import CompactionState, IngestState

#: A row of a list: the values of its columns.
Row = Mapping[str, object]

#: The most tables that are not replicated which the page shows.
_SKIPPED = 200


_REPAIR = (
    "Stop the writer of the target. Then run hive-federation replicate repair POLICY_FILE, or a "
    "RepairReplicaOperator."
)
_UNREADABLE_ROWS = (
    "Read these tables with Hive. If Hive cannot read them either, write them anew on the source: a repair "
    "does not change them."
)


class Health(StrEnum):
    """The state of a policy, a remote or a table in one word; the worst comes first."""

    BROKEN = "broken"
    UNREADABLE = "unreadable"
    BLOCKED = "blocked"
    DIFFERS = "differs"
    STALE = "stale"
    SOURCE_AWAY = "source away"
    NOT_PUBLISHED = "not published"
    BEHIND = "behind"
    RUNNING = "running"
    IN_STEP = "in step"
    NO_COPY = "no copy"
    FAILED_OVER = "failed over"
    DROPPED = "dropped"


@dataclass(frozen=True, kw_only=True)
class PolicyState:
    """All that is published about one policy.

    :param problem: the reason for which a document cannot be read.
    """

    key: str
    position: PolicyPosition | None = None
    cycles: PolicyCycles | None = None
    verification: PolicyVerification | None = None
    problem: str = ""

    @property
    def policy(self) -> PolicyName:
        """The names of the policy, from any of the documents."""
        for document in (self.position, self.cycles, self.verification):
            if document is not None:
                return document.policy
        return PolicyName(name=self.key, source_database="", target_database="")

    @property
    def last_cycle(self) -> PublishedCycle | None:
        """The last cycle, or the last failure."""
        return self.cycles.cycles[-1] if self.cycles and self.cycles.cycles else None

    @property
    def publishers(self) -> Sequence[Publisher]:
        """The publishers of the documents, that of the last cycle first."""
        documents = (self.cycles, self.verification, self.position)
        return [document.by for document in documents if document is not None]

    @property
    def cycle_publisher(self) -> Publisher | None:
        """The publisher of the last cycle that was loaded; ``None`` after a failover.

        A failure may be one of the DAG that exchanges the roles, which nobody should repeat by mistake.
        """
        if self.cycles is None or (self.last_cycle is not None and self.last_cycle.kind == FAILOVER):
            return None
        loaded = [cycle.by for cycle in self.cycles.cycles if cycle.kind not in {FAILED, FAILOVER}]
        return loaded[-1] if loaded else None

    @property
    def dag_ids(self) -> frozenset[str]:
        """The DAGs whose tasks have published a part of this state."""
        cycles = [cycle.by for cycle in self.cycles.cycles] if self.cycles else []
        return frozenset(by.dag_id for by in (*self.publishers, *cycles) if by.dag_id)

    @property
    def published_s(self) -> float:
        """The time of the last publication, in seconds since 1970."""
        documents = (self.position, self.cycles, self.verification)
        return max((document.published_s for document in documents if document is not None), default=0.0)


#: A state, its reason, and the remedy.
Judgement = tuple[Health, str, str]


def health(state: PolicyState) -> Judgement:
    """Return the state of a policy, its reason, and the remedy."""
    if state.problem:
        return Health.UNREADABLE, *divided(state.problem)
    return next(chain(_by_results(state), _by_position(state.position), [(Health.IN_STEP, "", "")]))


def _by_results(state: PolicyState) -> Iterator[Judgement]:
    """Judge by the last cycle and the last verification."""
    last, position, verified = state.last_cycle, state.position, state.verification
    if last is not None and last.kind == FAILED:
        yield Health.BROKEN, last.error, last.remedy
    if last is not None and last.kind == FAILOVER:
        yield Health.FAILED_OVER, "", ""
    if position is not None and position.blocked:
        yield Health.BLOCKED, *divided(position.blocked)
    if verified is not None and (verified.differences or verified.failures):
        yield (
            Health.DIFFERS,
            "; ".join(verified.lines[:3]),
            _REPAIR if verified.differences else _UNREADABLE_ROWS,
        )


def _by_position(position: PolicyPosition | None) -> Iterator[Judgement]:
    """Judge by the last look at both sides."""
    if position is None:
        return
    if position.source_error:
        yield Health.SOURCE_AWAY, *divided(position.source_error)
    if position.running:
        yield Health.RUNNING, position.running, ""
    if position.event_id is None:
        yield Health.NOT_PUBLISHED, "", ""
    if position.lag is not None and position.lag.events:
        yield Health.BEHIND, "", ""


def policy_row(state: PolicyState) -> dict[str, object]:
    """Return the row of a policy in the list of policies."""
    condition, reason, remedy = health(state)
    position, lag = state.position, state.position.lag if state.position else None
    return {
        "key": state.key,
        **asdict(state.policy),
        "health": condition,
        "reason": reason,
        "remedy": remedy,
        "event_id": position.event_id if position else None,
        "source_event_id": position.source_event_id if position else None,
        "lag_events": lag.events if lag else None,
        "lag_s": lag.seconds if lag else None,
        "lag_bytes": lag.size_bytes if lag else None,
        "last_cycle": asdict(state.last_cycle) if state.last_cycle else None,
        "verification": _verification(state.verification),
        "published_s": state.published_s,
        "by": asdict(next(iter(state.publishers), Publisher())),
    }


def policy_detail(state: PolicyState, tables: PolicyTables | None) -> dict[str, object]:
    """Return all about one policy but its tables."""
    skipped = dict(tables.skipped or {}) if tables else {}
    retained = set(tables.retained) if tables else set()
    return {
        **policy_row(state),
        "cycle_by": asdict(state.cycle_publisher) if state.cycle_publisher else None,
        "running": state.position.running if state.position else "",
        "dump": state.position.dump if state.position else "",
        "dump_url": state.position.dump_url if state.position else "",
        "history": [asdict(point) for point in state.position.history] if state.position else [],
        "cycles": [asdict(cycle) for cycle in reversed(state.cycles.cycles)] if state.cycles else [],
        "verification_lines": list(state.verification.lines) if state.verification else [],
        "skipped_total": len(skipped),
        "skipped": [
            {"name": name, "reason": skipped[name], "retained": name in retained}
            for name in sorted(skipped)[:_SKIPPED]
        ],
    }


def table_rows(tables: PolicyTables | None, verified: VerifiedTables | None) -> list[Row]:
    """Return a row per table that lags behind or that was ever verified."""
    rows: dict[str, dict[str, object]] = {}
    for compared in verified.tables if verified else ():
        rows[compared.name] = {
            "name": compared.name,
            "kind": compared.kind,
            "lag_events": 0,
            "lag_s": 0.0,
            "lag_bytes": 0,
            "source_rows": compared.source_rows,
            "target_rows": compared.target_rows,
            "size_bytes": compared.size_bytes,
            "equal": compared.equal,
            "verified_s": compared.verified_s,
            "note": compared.note,
        }
    for table in tables.lagging if tables else ():
        row = rows.setdefault(table.name, {"name": table.name})
        row |= {"lag_events": table.events, "lag_s": table.seconds, "lag_bytes": table.size_bytes}
    return list(rows.values())


@dataclass(frozen=True, kw_only=True)
class Part:
    """A request for a part of a list.

    :param search: text that a row's texts contain, in whatever case.
    :param sort: the column to sort by; a leading ``-`` puts the highest first.
    """

    search: str = ""
    sort: str = ""
    limit: int = 50
    offset: int = 0


def part_of(
    rows: Iterable[Row], part: Part, *, searched: Sequence[str], fill: Callable[[Row], Row] = dict
) -> dict[str, object]:
    """Return the requested part of a list, and the number of all rows that match.

    :param searched: the columns that a search looks into.
    :param fill: completes a row of the part.
    """
    wanted = part.search.strip().lower()
    found = [
        row
        for row in rows
        if not wanted or any(wanted in str(row.get(column, "")).lower() for column in searched)
    ]
    column = part.sort.removeprefix("-")
    if column:
        # Rows without a value come last, in both orders.
        empty = [row for row in found if row.get(column) is None]
        filled = sorted(
            (row for row in found if row.get(column) is not None),
            key=_by(column),
            reverse=part.sort[:1] == "-",
        )
        found = [*filled, *empty]
    rows_of_part = [fill(row) for row in found[part.offset : part.offset + part.limit]]
    return {"total": len(found), "rows": rows_of_part}


def remote_row(key: str, state: RemoteState | None, problem: str) -> dict[str, object]:
    """Return the row of a remote.

    :param problem: the reason for which its document cannot be read.
    """
    if state is None:
        reason, remedy = divided(problem)
        return {"key": key, "name": key, "health": Health.UNREADABLE, "reason": reason, "remedy": remedy}
    condition = Health.IN_STEP
    if state.is_dropped:
        condition = Health.DROPPED
    elif state.error:
        condition = Health.BROKEN
    elif state.gone or state.skipped_total:
        condition = Health.DIFFERS
    row = asdict(state)
    return {**row, "key": key, "name": state.remote, "health": condition, "reason": state.error}


def ingest_row(key: str, state: IngestState | None, problem: str) -> dict[str, object]:
    """Return the row of ingest into one table from one source.

    :param problem: the reason for which its document cannot be read.
    """
    if state is None:
        reason, remedy = divided(problem)
        return {"key": key, "name": key, "health": Health.UNREADABLE, "reason": reason, "remedy": remedy}
    condition = Health.BROKEN if state.error else Health.IN_STEP
    if condition is Health.IN_STEP and state.dead_letters:
        condition = Health.DIFFERS
    rate = round(state.records / state.seconds) if state.seconds else None
    row = {**asdict(state), "key": key, "name": state.table, "records_per_s": rate}
    return {**row, "health": condition, "reason": state.error}


def compaction_row(key: str, state: CompactionState | None, problem: str) -> dict[str, object]:
    """Return the state of a metastore's compaction queue and transactions, without its requests.

    :param problem: the reason for which its document cannot be read.
    """
    if state is None:
        reason, remedy = divided(problem)
        return {"key": key, "name": key, "reason": reason, "remedy": remedy}
    row = {**asdict(state), "key": key, "name": state.metastore, "reason": ""}
    del row["waiting"], row["finished"]
    return row


def request_rows(state: CompactionState) -> list[Row]:
    """Return the requests of a queue: those that wait, and those that were served, the last one first."""
    waiting = [asdict(request) | {"at_s": request.since_s} for request in state.waiting]
    finished = [asdict(request) | {"at_s": request.ended_s} for request in reversed(state.finished)]
    return [*waiting, *finished]


_SEVERITY = {condition: place for place, condition in enumerate(Health)}


def worst_first(row: Row) -> tuple[int, str]:
    """Sort policies by their state, and by their names."""
    return _SEVERITY[Health(str(row["health"]))], str(row["name"])


def _by(column: str) -> Callable[[Row], tuple[bool, float, str]]:
    def key(row: Row) -> tuple[bool, float, str]:
        value = row[column]
        if isinstance(value, int | float):
            return False, value, ""
        return True, 0.0, str(value).lower()

    return key


def _verification(verification: PolicyVerification | None) -> dict[str, object] | None:
    if verification is None:
        return None
    names = ("event_id", "tables", "differences", "failures", "not_compared", "published_s")
    return {name: getattr(verification, name) for name in names} | {"by": asdict(verification.by)}
