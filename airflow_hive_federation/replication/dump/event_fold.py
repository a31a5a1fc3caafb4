"""Folds the events of a cycle into a summary per table. Pure.

Events show *where* the source changed and *in which order* its transactions ended; the present state of a
table is read from the source itself. So the fold keeps little: write ids given to transactions, ends of
transactions in their order, names of tables to examine, and the names that stand for other tables than
before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from airflow_hive_federation.errors import SourceWentBackError, UnknownEventError
from airflow_hive_federation.model import events as ev
from airflow_hive_federation.model.write_ids import ValidTxns
from airflow_hive_federation.replication.dump.evidence import Evidence
from airflow_hive_federation.replication.dump.named_partitions import NamedPartitions
from airflow_hive_federation.replication.dump.pairs import Pairs
from airflow_hive_federation.replication.dump.unreadable_events import Concern, concern_of
from airflow_hive_federation.replication.format.manifest import OpenWrites
from airflow_hive_federation.storage.filesystem import canonical


@dataclass(frozen=True, kw_only=True)
class EventFold:
    """The result of folding the events of a cycle, for one database.

    :param from_id: last event that the target has.
    :param to_id: last event of the cycle.
    :param writes: table → pairs of transaction and write id, ascending by write id, of the table that bears
        the name now; transactions left open by earlier cycles included.
    :param ends: transactions that wrote to the database and ended, in the source's order; 1 if committed.
    :param open_writes: those that have not ended.
    :param looked_at: tables whose definition, partitions, statistics or plain files may have changed.
    :param created: table → event that made the table that bears the name now, or its rows (see
        :attr:`~.events.Compacted.rebalanced`).
    :param partitions_gone: table → partitions that were dropped, renamed or rebalanced; their names may stand
        for others.
    :param partitions_named: table → partitions that events name; ``None`` if an event may concern others.
    :param database_changed: the database's own properties changed.
    :param functions_changed: permanent functions were created or dropped.
    :param lost: events of the cycle are gone, so every table must be examined.
    :param doubtful: tables with an event that cannot be read. They are compared anew, as all tables are if
        events are lost.
    :param unreadable: the events of the database, and of transactions, that cannot be read.
    :param kept: canonical URI of a file of the source → its place in the change manager's root, if the file
        is removed before it is copied.
    :param evidence: the removals that the events record.
    """

    from_id: int
    to_id: int
    writes: Mapping[str, Sequence[tuple[int, int]]] = field(default_factory=dict)
    ends: Sequence[tuple[int, int]] = ()
    open_writes: OpenWrites = field(default_factory=dict)
    looked_at: frozenset[str] = frozenset()
    created: Mapping[str, int] = field(default_factory=dict)
    partitions_gone: Mapping[str, frozenset[str]] = field(default_factory=dict)
    partitions_named: Mapping[str, frozenset[str] | None] = field(default_factory=dict)
    database_changed: bool = False
    functions_changed: bool = False
    lost: bool = False
    doubtful: frozenset[str] = frozenset()
    unreadable: Sequence[ev.UnreadableEvent] = ()
    kept: Mapping[str, str] = field(default_factory=dict)
    evidence: Evidence = field(default_factory=lambda: Evidence(""), compare=False)

    def is_doubtful(self, table: str) -> bool:
        """Return whether events of a table may be missing, so that it must be compared anew."""
        return self.lost or table in self.doubtful

    def committed_writers(self, table: str) -> list[int]:
        """Return the transactions with a write id of a table that were committed in the cycle."""
        writers = {txn for txn, _ in self.writes.get(table, ())}
        return [txn for txn, committed in self.ends if committed and txn in writers]


def check_source(from_id: int, source_id: int) -> None:
    """Refuse a source whose history is shorter than the part that the target has.

    :raises SourceWentBackError: the source's last event precedes the target's.
    """
    if source_id < from_id:
        raise SourceWentBackError(
            f"The source's last event is {source_id}, but the target has its events up to {from_id}.",
            remedy="The source was restored from a backup or is another metastore: bootstrap anew.",
            event_id=source_id,
            seen_id=from_id,
        )


class EventReading:
    """Reads the events of a cycle once, and keeps none of them, because there may be millions.

    :param events: events after ``from_id``, as the source gives them.
    :param from_id: last event that the target has.
    :param transactions: the source's transactions at the cycle's moment, where the events end.
    :param on_event: receives each event.
    """

    def __init__(
        self,
        events: Iterable[ev.Event],
        from_id: int,
        transactions: ValidTxns,
        on_event: Callable[[ev.Event], object] = lambda _: None,
    ) -> None:
        self.count = 0
        self.from_id = from_id
        self._events = events
        self._transactions = transactions
        self._on_event = on_event
        self._last_id = self._seen_id = from_id
        self._gap = self._ended = False

    def __iter__(self) -> Iterator[ev.Event]:
        for event in events_at(self._seen(), self._transactions):
            self.count += 1
            self._gap = self._gap or event.event_id != self._last_id + 1
            self._last_id = event.event_id
            self._on_event(event)
            yield event

    def to_id(self, source_id: int) -> int:
        """Return the event at which the cycle ends, once all have been read."""
        if self._ended:
            # No event was cut off: the cycle ends with the source's last event, even if the last events are
            # lost.
            return source_id
        return self._last_id if self.count else self._seen_id - 1

    def has_gap(self, source_id: int) -> bool:
        """Return whether events are missing (expired, or deleted) or out of order, once all have been read.

        Ids are dense: a listener takes them from one counter, in the transaction in which it writes the event
        (``ObjectStore.addNotificationEvent``).
        """
        return self._gap or self._last_id < self.to_id(source_id)

    def _seen(self) -> Iterator[ev.Event]:
        for event in self._events:
            self._seen_id = event.event_id
            yield event
        self._ended = True


def events_at(events: Iterable[ev.Event], transactions: ValidTxns) -> Iterator[ev.Event]:
    """Yield the events up to the moment of a list of transactions.

    That list and the events are read one after the other. If the events are cut before the first end of a
    transaction that the list calls open, they are those of the list's moment: a table's files by the list
    then match its write ids by the events.
    """
    open_ids = set(transactions.open_ids)
    for event in events:
        if isinstance(event, ev.TxnEnded) and event.txn_id in open_ids:
            return
        if any(txn > transactions.high_watermark for txn in _transactions_of(event)):
            return
        yield event


def fold(
    reading: EventReading,
    database: str,
    *,
    source_id: int,
    open_writes: OpenWrites,
    transactions: ValidTxns,
) -> EventFold:
    """Fold the events of a cycle. Transactions that have ended without an event have ended all the same.

    Events may be missing. Hive 3.1 also aborts transactions by their timeout without an event
    (``TxnHandler.performTimeOuts``). An event that is there precedes the list of transactions, because the
    listener writes it in the database transaction that ends the transaction.

    :param database: database that is replicated; events of others are ignored.
    :param source_id: the source's last event.
    :param open_writes: write ids that earlier cycles left open.
    :param transactions: the source's transactions at the cycle's moment.
    :raises UnknownEventError: events of the database have types this version does not know.
    :raises EventCorruptError: an event cannot be read, and its heading names no database.
    """
    folding = _Folding(database, open_writes)
    for event in reading:
        folding.add(event)
    if folding.unknown:
        raise UnknownEventError(
            f"Events of database {database} have types this version does not know: "
            f"{', '.join(sorted(folding.unknown))}.",
            remedy="Update airflow-hive-federation; until then the replica stays at its last event.",
            event_types=sorted(folding.unknown),
        )
    lost = reading.has_gap(source_id) or folding.lost
    folding.end_unseen(transactions)
    return folding.result(reading.from_id, reading.to_id(source_id), lost=lost)


class _Folding:
    def __init__(self, database: str, open_writes: OpenWrites) -> None:
        self._database = database
        self._open: dict[int, dict[str, int]] = {txn: dict(writes) for txn, writes in open_writes.items()}
        self._writes: dict[str, Pairs] = {}  # by table: transactions and write ids
        for txn, writes in self._open.items():
            for table, write in writes.items():
                self._writes.setdefault(table, Pairs()).append(txn, write)
        self._ends = Pairs()
        self._looked_at: set[str] = set()
        self._created: dict[str, int] = {}
        self._partitions_gone: dict[str, set[str]] = {}
        self._partitions_named = NamedPartitions()
        self._database_changed = self._functions_changed = False
        self._kept: dict[str, str] = {}
        self._evidence = Evidence(database)
        self._doubtful: set[str] = set()
        self._unreadable: list[ev.UnreadableEvent] = []
        self.unknown: set[str] = set()
        self.lost = False

    def add(self, event: ev.Event) -> None:
        self._kept.update((canonical(uri), place) for uri, place in event.kept)
        self._evidence.add(event)
        if isinstance(event, ev.UnreadableEvent):
            self._cannot_read(event)
        elif isinstance(event, ev.TxnEnded):
            if event.txn_id in self._open:
                del self._open[event.txn_id]
                self._ends.append(event.txn_id, int(event.committed))
        elif isinstance(event, ev.TableAltered) and event.renamed:
            self._renamed(event)
        elif isinstance(event, ev.UnknownEvent) and event.database in {"", self._database}:
            self.unknown.add(event.event_type)
        elif event.database == self._database:
            self._of_ours(event)

    def end_unseen(self, transactions: ValidTxns) -> None:
        """End the transactions that the source lists no more as open, in the way in which its readers see it.

        A source that has forgotten an aborted transaction shows its write ids as valid ones without files.
        Transactions above the list's high watermark stay open.
        """
        listed = {txn for txn in self._open if txn <= transactions.high_watermark}
        for txn in sorted(listed - set(transactions.open_ids)):
            del self._open[txn]
            self._ends.append(txn, int(not transactions.is_aborted(txn)))

    def result(self, from_id: int, to_id: int, *, lost: bool) -> EventFold:
        for txn in [txn for txn, writes in self._open.items() if not writes]:
            # All its tables are gone: no reader of the target waits for its end.
            del self._open[txn]
            self._ends.append(txn, 1)
        return EventFold(
            from_id=from_id,
            to_id=to_id,
            writes={table: writes.ascending() for table, writes in self._writes.items() if writes},
            ends=self._ends,
            open_writes=self._open,
            looked_at=frozenset(self._looked_at),
            created=self._created,
            partitions_gone={table: frozenset(names) for table, names in self._partitions_gone.items()},
            partitions_named=self._partitions_named.by_table(),
            database_changed=self._database_changed or lost,
            functions_changed=self._functions_changed or lost,
            lost=lost,
            doubtful=frozenset(self._doubtful),
            unreadable=self._unreadable,
            kept=self._kept,
            evidence=self._evidence,
        )

    def _cannot_read(self, event: ev.UnreadableEvent) -> None:
        concern = concern_of(event, self._database)
        if concern is not Concern.NOTHING:
            self._unreadable.append(event)
        if concern is Concern.TABLE:
            self._doubtful.add(event.table)
        self._functions_changed = self._functions_changed or concern is Concern.FUNCTIONS
        self.lost = self.lost or concern is Concern.DATABASE

    def _of_ours(self, event: ev.Event) -> None:
        if isinstance(event, ev.WriteIdsAllocated):
            for txn, write in event.write_ids:
                self._writes.setdefault(event.table, Pairs()).append(txn, write)
                self._open.setdefault(txn, {})[event.table] = write
        elif isinstance(event, ev.TableCreated | ev.TableDropped):
            self._forget(event.table)
            self._created[event.table] = event.event_id
        elif isinstance(event, ev.Compacted) and event.rebalanced:
            self._rebalanced(event)
        elif isinstance(event, ev.Compacted | ev.AcidWritten):
            pass  # The rows stay the same, and the commit brings the files.
        elif isinstance(event, ev.TableEvent):
            self._looked_at.add(event.table)
            self._partitions_named.add(event)
            if isinstance(event, ev.PartitionsChanged) and event.gone:
                self._partitions_gone.setdefault(event.table, set()).update(event.gone)
        elif isinstance(event, ev.FunctionEvent):
            self._functions_changed = True
        elif isinstance(event, ev.DatabaseEvent):
            self._database_changed = True

    def _renamed(self, event: ev.TableAltered) -> None:
        if event.old_database == self._database:
            self._forget(event.old_table)
            self._created[event.old_table] = event.event_id
        if event.database == self._database:
            self._forget(event.table)
            self._created[event.table] = event.event_id

    def _rebalanced(self, event: ev.Compacted) -> None:
        """Have the table or partition made anew: its base may have the name of the former one.

        Rows have other numbers in it (``RebalanceQueryCompactor``). A target that kept its former files, or
        results of its own compactions, would apply the deletes that follow to other rows.
        """
        self._looked_at.add(event.table)
        self._partitions_named.add(event)
        if event.partition:
            self._partitions_gone.setdefault(event.table, set()).add(event.partition)
        else:
            self._created[event.table] = event.event_id

    def _forget(self, table: str) -> None:
        """Forget a name's writes: from here on, it stands for no table, or for another one."""
        for txn, write in self._writes.pop(table, ()):
            if self._open.get(txn, {}).get(table) == write:
                del self._open[txn][table]
        self._partitions_gone.pop(table, None)
        self._partitions_named.add_all(table)
        self._looked_at.add(table)


def _transactions_of(event: ev.Event) -> Sequence[int]:
    if isinstance(event, ev.TxnEnded):
        return (event.txn_id,)
    if isinstance(event, ev.WriteIdsAllocated):
        return [txn for txn, _ in event.write_ids]
    return ()
