"""Where a target stands, how far it is behind its source, and what its last cycles did.

What the target says of itself is in its database's parameters: it can be read while the source is away.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from airflow_hive_federation.errors import (
    MetastoreError,
    SourceDirectoryMissingError,
    UnexplainedRemovalError,
)
from airflow_hive_federation.model.events import (
    TableAltered,
    TableEvent,
    TxnEnded,
    UnreadableEvent,
    WriteIdsAllocated,
    read_event,
)
from airflow_hive_federation.replication.cycle_plan import CyclePlan, plan_cycle
from airflow_hive_federation.replication.dump.increment_plan import check_source
from airflow_hive_federation.replication.metadata.table_names import named_event
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.replication.replica import markers
from airflow_hive_federation.replication.replica.cycle_history import CycleRecord, read_cycles
from airflow_hive_federation.replication.replica.cycle_lock import described, holder_of
from airflow_hive_federation.replication.replica.database import find_target
from airflow_hive_federation.replication.replica.markers import TargetState

if TYPE_CHECKING:
    from airflow_hive_federation.metastore import MetastoreClient, MetastorePool

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Lag:
    """How far a target, or one table of it, is behind.

    :param events: events of the source's database that the target does not have.
    :param seconds: age of the oldest of them, by this machine's clock and the source's; 0 if there is none.
    """

    events: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class TableLag:
    """A table that the next cycle is concerned with.

    :param events: events of the table; 0 where only its files have changed.
    :param seconds: age of the oldest of them.
    :param size_bytes: bytes that the next cycle would copy.
    """

    name: str
    events: int
    seconds: float
    size_bytes: int


@dataclass(frozen=True, kw_only=True)
class ReplicationStatus:
    """Status of a policy's target.

    :param state: ``absent``, ``loading``, ``loaded`` or ``adoptable``, as
        :class:`~.replica.markers.TargetState`.
    :param event_id: last event of the target, if it is published.
    :param dump: the dump that it was loaded from last.
    :param running: the cycle that is at work, in words; empty if there is none.
    :param source_event_id: last event of the source; ``None`` if it does not answer.
    :param lag: ``None`` if the target is not published or the source does not answer.
    :param cycles: the last ones, oldest first.
    :param source_error: why the source does not answer.
    :param skipped: tables of the source that are not replicated although the policy asks for them, with the
        reason.
    :param retained: those of them of which the target keeps what they were before.
    :param blocked: why the next cycle would stop before it removes anything.
    """

    database: str
    state: str
    event_id: int | None = None
    dump: str = ""
    running: str = ""
    source_event_id: int | None = None
    lag: Lag | None = None
    tables: Sequence[TableLag] = field(default_factory=tuple)
    cycles: Sequence[CycleRecord] = field(default_factory=tuple)
    source_error: str = ""
    skipped: Mapping[str, str] = field(default_factory=dict)
    retained: Sequence[str] = ()
    blocked: str = ""

    def to_json(self) -> dict[str, Any]:
        cycles = [{**asdict(one), "bytes_per_s": round(one.bytes_per_s)} for one in self.cycles]
        return {**asdict(self), "cycles": cycles}


def read_status(source: MetastorePool, target: MetastorePool, policy: ReplicationPolicy) -> ReplicationStatus:
    """Ask both sides.

    :param source: connections to the source; it may be away.
    :param target: connections to the target.
    :raises TargetNotOursError: the target database belongs to another policy, or to nobody.
    :raises SourceWentBackError: the source knows fewer events than the target has seen.
    """
    with target.client() as client:
        state = find_target(client, policy)
        parameters: dict[str, str] = {}
        if state.state is not TargetState.ABSENT:
            parameters = dict(client.get_database(policy.target_database).parameters or {})
        holder = holder_of(client, policy.target_database)
    known: dict[str, Any] = {
        "database": policy.target_database,
        "state": state.state.value,
        "event_id": state.last_id,
        "dump": parameters.get(markers.CHECKPOINT, ""),
        "running": described(holder) if holder else "",
        "cycles": read_cycles(parameters),
    }
    try:
        with source.client() as client:
            source_id = client.get_current_notification_event_id()
            if state.last_id is None:
                return ReplicationStatus(**known, source_event_id=source_id)
            counted = _Counted.read(client, policy, state.last_id)
        known |= {"source_event_id": source_id, "lag": counted.lag()}
        plan = plan_cycle(source, target, policy)
    except (SourceDirectoryMissingError, UnexplainedRemovalError) as error:
        return ReplicationStatus(**known, blocked=str(error))
    except MetastoreError as error:
        return ReplicationStatus(**{**known, "source_event_id": None, "lag": None}, source_error=str(error))
    return ReplicationStatus(
        **known,
        tables=list(_table_lags(plan, counted)),
        skipped=plan.skipped,
        retained=plan.retained,
    )


def read_lag(source: MetastoreClient, target: MetastoreClient, policy: ReplicationPolicy) -> Lag | None:
    """How far the target is behind; ``None`` if it is not published yet. No file is listed.

    :raises TargetNotOursError: the target database belongs to another policy, or to nobody.
    :raises SourceWentBackError: the source knows fewer events than the target has seen.
    """
    last_id = find_target(target, policy).last_id
    return None if last_id is None else _Counted.read(source, policy, last_id).lag()


def _table_lags(plan: CyclePlan, counted: _Counted) -> Iterable[TableLag]:
    for table in plan.tables:
        lag = counted.of(table.name)
        yield TableLag(name=table.name, events=lag.events, seconds=lag.seconds, size_bytes=table.size_bytes)


class _Counted:
    """Events that the target does not have: when each of a table's happened, in seconds since 1970."""

    def __init__(self, now_s: float) -> None:
        self._now_s = now_s
        self._all: list[int] = []
        self._tables: defaultdict[str, list[int]] = defaultdict(list)

    @classmethod
    def read(cls, client: MetastoreClient, policy: ReplicationPolicy, last_id: int) -> _Counted:
        check_source(last_id, client.get_current_notification_event_id())
        counted = cls(time.time())
        ours: dict[int, set[str]] = {}  # transaction → tables
        for raw in client.iter_notification_events(last_id):
            event, when = named_event(policy, read_event(raw)), int(raw.eventTime or 0)
            if isinstance(event, WriteIdsAllocated) and event.database == policy.source_database:
                for txn, _ in event.write_ids:
                    ours.setdefault(txn, set()).add(event.table)
            if isinstance(event, UnreadableEvent) and event.ends_transaction:
                counted._add((), when, of_ours=True)  # perhaps
            elif isinstance(event, TxnEnded):
                counted._add(ours.get(event.txn_id, ()), when, of_ours=event.txn_id in ours)
            elif event.database == policy.source_database:
                names = {event.table} if isinstance(event, TableEvent) else set()
                if isinstance(event, TableAltered) and event.old_database == event.database:
                    names.add(event.old_table)
                counted._add(names, when, of_ours=True)
        return counted

    def lag(self) -> Lag:
        return self._lag(self._all)

    def of(self, table: str) -> Lag:
        return self._lag(self._tables.get(table, []))

    def _add(self, tables: Iterable[str], when_s: int, *, of_ours: bool) -> None:
        if of_ours:
            self._all.append(when_s)
        for table in tables:
            self._tables[table].append(when_s)

    def _lag(self, found: Sequence[int]) -> Lag:
        if not found:
            return Lag()
        # Clocks differ: what happened in this machine's future happened now.
        return Lag(events=len(found), seconds=max(0.0, round(self._now_s - min(found), 1)))
