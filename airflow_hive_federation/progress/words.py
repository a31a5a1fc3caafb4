"""Turns events of progress into words, for logs and terminals alike."""

from __future__ import annotations

from collections.abc import Sequence
from functools import singledispatch

from airflow_hive_federation.progress import cycle_events as cev
from airflow_hive_federation.progress import events as ev
from airflow_hive_federation.progress import job_events as jev
from airflow_hive_federation.progress.kinds import Activity, FileJob
from airflow_hive_federation.progress.quantities import (
    count_rate,
    duration,
    first_of,
    part_of_size,
    rate,
    several,
    size,
)

#: The number of transactions that a line names.
_NAMED = 20

_ACTIVITIES = {
    Activity.READ: "read",
    Activity.CREATED: "created",
    Activity.COMPARED: "compared, and altered where they differ,",
}
_VERBS = {FileJob.COPY: "copied", FileJob.DIGEST: "compared"}


@singledispatch
def words(event: ev.Event) -> str:
    """Return the event as a line of text.

    :raises NotImplementedError: the class of the event has no words.
    """
    raise NotImplementedError(f"{type(event).__name__} has no words.")


@words.register
def _step_starting(event: ev.StepStarting) -> str:
    return f"{event.database}: {event.name}"


@words.register
def _partitions_counted(event: ev.PartitionsCounted) -> str:
    per_s = count_rate(event.partitions / max(event.seconds, 1e-3), "partitions")
    work = _ACTIVITIES[event.activity]
    return f"{event.table}: {several(event.partitions, 'partition')} {work} so far, {per_s}"


@words.register
def _files_processed(event: ev.FilesProcessed) -> str:
    files = f"{event.files:,} of {several(event.all_files, 'file')}"
    sizes = part_of_size(event.size_bytes, event.all_bytes)
    return f"{_VERBS[event.job]} {files}, {sizes}, {rate(event.bytes_per_s)}"


@words.register
def _drain_started(event: ev.DrainStarted) -> str:
    start = f"{event.database}: event {event.event_id}"
    if not event.transactions:
        return f"{start}; no transaction to wait for"
    count = several(len(event.transactions), "transaction")
    return f"{start}; {count} to wait for: {_listed(event.transactions)}"


@words.register
def _transactions_open(event: ev.TransactionsOpen) -> str:
    count = several(len(event.transactions), "transaction")
    return f"{event.database}: {count} still open: {_listed(event.transactions)}"


@words.register
def _transactions_ended(event: ev.TransactionsEnded) -> str:
    return f"{event.database}: all transactions have ended"


@words.register
def _transactions_aborted(event: ev.TransactionsAborted) -> str:
    count = several(len(event.transactions), "transaction")
    return f"{event.database}: aborted {count} that did not end in time: {_listed(event.transactions)}"


@words.register
def _cycle_chosen(event: ev.CycleChosen) -> str:
    return f"{event.database} is {'published: an increment' if event.published else 'new: a bootstrap'}."


@words.register
def _table_left_out(event: ev.TableLeftOut) -> str:
    replica = "; its replica stays as it was" if event.replica_stays else ""
    return f"{event.table} is not replicated: {event.reason}{replica}."


@words.register
def _table_vanished(event: ev.TableVanished) -> str:
    return f"{event.table} was dropped meanwhile and is left out."


@words.register
def _table_exchanged(event: ev.TableExchanged) -> str:
    until_then = "its replica stays as it was" if event.replica_stays else "it is left out"
    return f"{event.table} was dropped or exchanged meanwhile: {until_then} until the next increment."


@words.register
def _table_dumped(event: ev.TableDumped) -> str:
    """Return the dumped contents; an unpartitioned table has no partitions, and a view no files."""
    counts = ((event.partitions, "partition"), (event.files, "file"))
    contents = [several(count, noun) for count, noun in counts if count]
    contents += [size(event.size_bytes)] if event.size_bytes else []
    work = [event.work] if event.work else []
    return f"{event.table}: {', '.join([*work, *(contents or ['its definition'])])}"


@words.register
def _bootstrap_dumped(event: ev.BootstrapDumped) -> str:
    if event.earlier:
        return f"Dump {event.dump} is finished already."
    counts = ((event.tables, "table"), (event.partitions, "partition"), (event.files, "file"))
    return f"{event.dump}: {', '.join(several(count, noun) for count, noun in counts)}"


@words.register
def _increment_dumped(event: ev.IncrementDumped) -> str:
    counts = ((event.events, "event"), (event.transactions, "transaction"), (event.tables, "table"))
    return f"{event.dump}: {', '.join(several(count, noun) for count, noun in counts)}"


@words.register
def _nothing_changed(event: ev.NothingChanged) -> str:
    return f"{event.database}: nothing to do up to event {event.event_id}"


@words.register
def _dump_removed(event: ev.DumpRemoved) -> str:
    return f"Dump {event.dump} is needed no more and is removed."


@words.register
def _lock_contended(event: ev.LockContended) -> str:
    return f"{event.database} is locked by {event.holder}; checking whether it is alive."


@words.register
def _lock_removed(event: ev.LockRemoved) -> str:
    return f"{event.holder} is dead: its lock of {event.database} is removed."


@words.register
def _files_copied(event: ev.FilesCopied) -> str:
    return f"{event.database}: {several(event.files, 'file')} copied"


@words.register
def _file_removed(event: ev.FileRemoved) -> str:
    return f"Removed {event.uri}, left by an earlier load"


@words.register
def _table_created(event: ev.TableCreated) -> str:
    return f"{event.table}: created with {several(event.partitions, 'partition')}"


@words.register
def _dangling_aborted(event: ev.DanglingAborted) -> str:
    return f"{event.database}: aborted transactions of earlier runs: {_listed(event.transactions)}"


@words.register
def _compactions_requested(event: cev.CompactionsRequested) -> str:
    return f"{event.database}: requested compactions of {several(event.partitions, 'partition')}"


@words.register
def _published(event: ev.Published) -> str:
    published = f"{event.database} is published at event {event.event_id}"
    if not event.seconds:
        return f"{published}{' already' if event.earlier else ''}."
    copied = f"{several(event.files, 'file')}, {size(event.size_bytes)} in {duration(event.seconds)}"
    return f"{published}: {copied}"


@words.register
def _up_to_date(event: ev.UpToDate) -> str:
    return f"{event.database} is up to date at event {event.event_id}."


@words.register
def _table_not_compared(event: ev.TableNotCompared) -> str:
    return f"{event.table} is not compared, because {event.reason}."


@words.register
def _compared_by_digests(event: ev.ComparedByDigests) -> str:
    return f"{event.table}: {event.reason}; compared by digests alone"


@words.register
def _replica_compared(event: ev.ReplicaCompared) -> str:
    text = (
        f"{event.database}: {several(event.tables, 'table')} compared, "
        f"{several(event.differences, 'difference')}"
    )
    return f"{text}, {event.unreadable:,} that cannot be read" if event.unreadable else text


@words.register
def _repair_starting(event: ev.RepairStarting) -> str:
    return f"{event.database}: repairing {', '.join(event.tables)}"


@words.register
def _source_is_replica(event: ev.SourceIsReplica) -> str:
    return f"{event.database} is a replica already."


@words.register
def _source_marked(event: ev.SourceMarked) -> str:
    return f"{event.database} is marked; waiting for {several(event.transactions, 'transaction')}."


@words.register
def _target_not_checked(event: ev.TargetNotChecked) -> str:
    return f"The target of policy {event.policy!r} is not checked: {event.reason}"


@words.register
def _no_failover_started(event: ev.NoFailoverStarted) -> str:
    return f"{event.database}: no failover was started, so none is rolled back."


@words.register
def _source_writable(event: ev.SourceWritable) -> str:
    return f"{event.database} may be written again."


@words.register
def _failed_over(event: ev.FailedOver) -> str:
    return (
        f"Failed over: {event.database} of the former target may be written; {event.replica} of the former "
        f"source is its replica at event {event.event_id}, by policy {event.policy!r}."
    )


@words.register
def _taken_over(event: ev.TakenOver) -> str:
    missing = f" Of what it had then, it lacks {first_of(event.missing)}." if event.missing else ""
    return (
        f"Taken over without its source: {event.database} may be written. It has the source's events up "
        f"to {event.event_id}; what the source did after is lost with it.{missing}"
    )


@words.register
def _copy_planned(event: cev.CopyPlanned) -> str:
    return f"{event.database}: {several(event.files, 'file')}, {size(event.size_bytes)} to copy"


@words.register
def _table_copied(event: cev.TableCopied) -> str:
    return f"{event.table}: {several(event.files, 'file')}, {size(event.size_bytes)} copied"


@words.register
def _snapshot_not_used(event: cev.SnapshotNotUsed) -> str:
    return f"{event.table}: {event.directory} is listed as a whole: {event.reason}"


@words.register
def _snapshot_removed(event: cev.SnapshotRemoved) -> str:
    return f"Snapshot {event.snapshot} of {event.directory} is removed: a later cycle has replaced it"


@words.register
def _follow_started(event: cev.FollowStarted) -> str:
    return f"{event.database} is followed from event {event.event_id} on"


@words.register
def _lag_seen(event: cev.LagSeen) -> str:
    if not event.events:
        return f"{event.database} lacks no event"
    return f"{event.database} lacks {several(event.events, 'event')}, {duration(event.seconds)}"


@words.register
def _cycle_followed(event: cev.CycleFollowed) -> str:
    counts = ((event.events, "event"), (event.transactions, "transaction"), (event.tables, "table"))
    parts = [several(count, noun) for count, noun in counts if count]
    if event.files:
        parts.append(f"{several(event.files, 'file')}, {size(event.size_bytes)}, {rate(event.bytes_per_s)}")
    work = f"{event.database} at event {event.event_id}: {', '.join([event.cycle, *parts])}"
    lag = f", lag {duration(event.lag_s)}" if event.lag_s else ""
    return f"{work} in {duration(event.seconds)}{lag}"


@words.register
def _cycle_failed(event: cev.CycleFailed) -> str:
    if not event.pause_s:
        return event.error
    return f"Trying again in {duration(event.pause_s)}: {event.error}"


@words.register
def _follow_ended(event: cev.FollowEnded) -> str:
    return f"{event.database} is at event {event.event_id} after {several(event.cycles, 'cycle')}"


@words.register
def _target_unpublished(event: ev.TargetUnpublished) -> str:
    return f"{event.database} is not published yet"


@words.register
def _target_behind(event: ev.TargetBehind) -> str:
    return f"{event.database} is behind by {several(event.events, 'event')}, {duration(event.seconds)}"


@words.register
def _spark_job_seen(event: jev.SparkJobSeen) -> str:
    application = f"application {event.application}" if event.application else "the Spark application"
    return f"{application}, which reports to {event.report}, {event.state}"


@words.register
def _application_started(event: jev.ApplicationStarted) -> str:
    return f"Spark application {event.application} has begun"


@words.register
def _remote_checked(event: ev.RemoteChecked) -> str:
    if not event.partition:
        return f"{event.remote}: the remote has {'' if event.ready else 'not '}changed"
    if event.condition:
        return f"{event.remote}: {'a' if event.ready else 'no'} partition with {event.partition} exists"
    return f"{event.remote}: partition {event.partition} {'exists' if event.ready else 'does not exist'}"


@words.register
def _tables_processed(event: ev.TablesProcessed) -> str:
    return f"{event.tables:,} of {several(event.all_tables, 'table')}"


@words.register
def _records_ingested(event: ev.RecordsIngested) -> str:
    read = part_of_size(event.read_bytes, event.all_bytes)
    committed = f"{several(event.committed, 'record')} committed"
    return f"{event.table}: {committed}, {read} read, {count_rate(event.records_per_s, 'records')}"


def beside_bar(event: ev.RecordsIngested) -> str:
    """Return the progress of an ingest in few words, beside which a bar fits into 80 columns."""
    read = part_of_size(event.read_bytes, event.all_bytes)
    return f"{several(event.committed, 'record')}, {read}, {count_rate(event.records_per_s, 'records')}"


def _listed(ids: Sequence[int]) -> str:
    text = ", ".join(map(str, ids[:_NAMED]))
    return f"{text} and {len(ids) - _NAMED:,} more" if len(ids) > _NAMED else text
