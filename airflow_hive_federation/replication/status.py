"""Reads a target's position, its lag behind the source, and the records of its last cycles.

The target keeps its position and these records in the parameters of its database, so they can be read while
the source does not answer.
"""

from __future__ import annotations

import logging
import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from airflow_hive_federation.errors import (
    HiveFederationError,
    MetastoreError,
    SourceDirectoryMissingError,
    UnexplainedRemovalError,
)
from airflow_hive_federation.model.event_messages import read_event
from airflow_hive_federation.model.events import (
    Event,
    TableAltered,
    TableEvent,
    TxnEnded,
    TxnsOpened,
    UnreadableEvent,
    WriteIdsAllocated,
)
from airflow_hive_federation.replication.cycle_plan import CyclePlan, plan_cycle
from airflow_hive_federation.replication.dump.event_fold import check_source
from airflow_hive_federation.replication.format.directory import DumpDirectory
from airflow_hive_federation.replication.format.manifest import OpenWrites
from airflow_hive_federation.replication.metadata.table_names import named_event
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.replication.replica import markers
from airflow_hive_federation.replication.replica.cycle_history import CycleRecord, read_cycles
from airflow_hive_federation.replication.replica.cycle_lock import described, holder_of
from airflow_hive_federation.replication.replica.database import find_target
from airflow_hive_federation.replication.replica.markers import TargetState
from airflow_hive_federation.replication.replica.position import loaded_dump

if TYPE_CHECKING:
    from airflow_hive_federation.metastore import MetastoreClient, MetastorePool

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Lag:
    """The lag of a target, or of one of its tables, behind the source.

    :param events: number of events of the source's database that the target does not have.
    :param seconds: age of the oldest of them, by the clocks of this machine and the source; 0 without such
        events.
    """

    events: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class TableLag:
    """A table that the next cycle would change.

    :param events: number of events of the table; 0 if only its files have changed.
    :param seconds: age of the oldest of them.
    :param size_bytes: bytes that the next cycle would copy.
    """

    name: str
    events: int
    seconds: float
    size_bytes: int


@dataclass(frozen=True, kw_only=True)
class ReplicationStatus:
    """The status of a policy's target.

    :param state: ``absent``, ``loading``, ``loaded`` or ``adoptable``, as
        :class:`~.replica.markers.TargetState`.
    :param event_id: last event of the target, if it is published.
    :param dump: the dump from which the target was last loaded.
    :param running: a description of the cycle at work; empty if none is.
    :param source_event_id: last event of the source; ``None`` if the source does not answer.
    :param lag: ``None`` if the target is not published or the source does not answer.
    :param cycles: the records of the last cycles, oldest first.
    :param source_error: the error of the call to the source; empty if the source answers.
    :param skipped: the tables of the source that the policy selects but that are not replicated, each with
        the reason.
    :param retained: those of the skipped tables whose earlier replica the target keeps.
    :param blocked: the reason for which the next cycle would stop before it removes anything.
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
        cycles = [{**asdict(record), "bytes_per_s": round(record.bytes_per_s)} for record in self.cycles]
        return {**asdict(self), "cycles": cycles}


def read_status(source: MetastorePool, target: MetastorePool, policy: ReplicationPolicy) -> ReplicationStatus:
    """Read the status from both metastores.

    :param source: connections to the source, which need not answer.
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
            with target.client() as of_target:
                counted = _Counted.read(client, policy, state.last_id, _open_at(of_target, policy))
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


@dataclass(frozen=True, kw_only=True)
class Lags:
    """The lags of a published target and of its tables, by their events alone.

    :param event_id: last event of the target.
    :param source_event_id: last event of the source.
    :param tables: the lags of the tables with events that the target does not have.
    """

    event_id: int
    source_event_id: int
    total: Lag
    tables: Mapping[str, Lag]


def read_lags(source: MetastoreClient, target: MetastoreClient, policy: ReplicationPolicy) -> Lags | None:
    """Return the lags of the target, or ``None`` if it is not published yet. No file is listed.

    The transactions that were open at the target's position are those of its last dump. If a transaction has
    ended that may be one of them, and the dump cannot be read, a warning is logged, and the lag may be low.

    :raises TargetNotOursError: the target database belongs to another policy, or to nobody.
    :raises SourceWentBackError: the source knows fewer events than the target has seen.
    """
    last_id = find_target(target, policy).last_id
    if last_id is None:
        return None
    return _Counted.read(source, policy, last_id, _open_at(target, policy)).lags(last_id)


def read_lag(source: MetastoreClient, target: MetastoreClient, policy: ReplicationPolicy) -> Lag | None:
    """Return the lag of the target alone; see :func:`read_lags`."""
    lags = read_lags(source, target, policy)
    return None if lags is None else lags.total


def _open_at(target: MetastoreClient, policy: ReplicationPolicy) -> Callable[[], OpenWrites]:
    """Return a function that reads the writes that were open at the target's position, by its last dump."""

    def read() -> OpenWrites:
        dump = loaded_dump(target, policy)
        try:
            return DumpDirectory(dump, policy.storage_options).manifest().open_writes
        except HiveFederationError as error:
            logger.warning(
                "Transactions that were open at the last event of %s are left out of its lag: %s",
                policy.target_database,
                error,
            )
            return {}

    return read


def _table_lags(plan: CyclePlan, counted: _Counted) -> Iterable[TableLag]:
    for table in plan.tables:
        lag = counted.of(table.name)
        yield TableLag(name=table.name, events=lag.events, seconds=lag.seconds, size_bytes=table.size_bytes)


class _Writers:
    """Knows the tables to which each transaction has write ids.

    :param open_at: returns the writes that were open at the target's position; it is called once, if a
        transaction ends that began before.
    """

    def __init__(self, database: str, open_at: Callable[[], OpenWrites]) -> None:
        self._database = database
        self._open_at: Callable[[], OpenWrites] | None = open_at
        self._tables: dict[int, set[str]] = {}
        self._first_opened = math.inf

    def add(self, event: Event) -> None:
        """Read the next event."""
        if isinstance(event, TxnsOpened):
            self._first_opened = min(self._first_opened, event.first)
        if isinstance(event, WriteIdsAllocated) and event.database == self._database:
            for txn, _ in event.write_ids:
                self._tables.setdefault(txn, set()).add(event.table)

    def tables_of(self, txn: int) -> set[str] | None:
        """Return the tables of a transaction that ends; ``None`` if it has written to none of ours."""
        if txn < self._first_opened and self._open_at is not None:
            for each, writes in self._open_at().items():
                self._tables.setdefault(each, set()).update(writes)
            self._open_at = None
        return self._tables.get(txn)


class _Counted:
    """Holds the times of the events that the target does not have, by table, in seconds since 1970."""

    def __init__(self, now_s: float, source_id: int) -> None:
        self._now_s = now_s
        self._source_id = source_id
        self._all: list[int] = []
        self._tables: defaultdict[str, list[int]] = defaultdict(list)

    @classmethod
    def read(
        cls,
        client: MetastoreClient,
        policy: ReplicationPolicy,
        last_id: int,
        open_at: Callable[[], OpenWrites],
    ) -> _Counted:
        """Read the events after the target's position.

        :param open_at: see :class:`_Writers`.
        """
        source_id = client.get_current_notification_event_id()
        check_source(last_id, source_id)
        counted = cls(time.time(), source_id)
        writers = _Writers(policy.source_database, open_at)
        for raw in client.iter_notification_events(last_id):
            event, when = named_event(policy, read_event(raw)), int(raw.eventTime or 0)
            writers.add(event)
            if isinstance(event, UnreadableEvent) and event.ends_transaction:
                counted._add((), when, of_ours=True)  # The transaction may have written to this database.
            elif isinstance(event, TxnEnded):
                tables = writers.tables_of(event.txn_id)
                counted._add(tables or (), when, of_ours=tables is not None)
            elif event.database == policy.source_database:
                names = {event.table} if isinstance(event, TableEvent) else set()
                if isinstance(event, TableAltered) and event.old_database == event.database:
                    names.add(event.old_table)
                counted._add(names, when, of_ours=True)
        return counted

    def lags(self, last_id: int) -> Lags:
        return Lags(
            event_id=last_id,
            source_event_id=self._source_id,
            total=self.lag(),
            tables={name: self._lag(times_s) for name, times_s in self._tables.items()},
        )

    def lag(self) -> Lag:
        return self._lag(self._all)

    def of(self, table: str) -> Lag:
        return self._lag(self._tables.get(table, []))

    def _add(self, tables: Iterable[str], when_s: int, *, of_ours: bool) -> None:
        if of_ours:
            self._all.append(when_s)
        for table in tables:
            self._tables[table].append(when_s)

    def _lag(self, times_s: Sequence[int]) -> Lag:
        if not times_s:
            return Lag()
        # The clocks of the two machines differ, so an event may carry a time in this machine's future.
        return Lag(events=len(times_s), seconds=max(0.0, round(self._now_s - min(times_s), 1)))
