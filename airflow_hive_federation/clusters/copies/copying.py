"""Copies tables and partitions to secondary clusters, and drops such copies.

Files go to a new directory of the cluster, whose name is made of a digest of what is copied, so that a run
that was interrupted is taken up by the next one. When all files are there, and the primary is still what was
copied, the copy is published by one change of the object's parameters. The directory of the copy before it
stays, for those who read it, until the next copy.

Of transactional tables, the files are copied that a reader of a snapshot opens. A reader's transaction and
lock keep them until the copy is published, with the snapshot's write ids.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from airflow_hive_federation.clusters.acid_snapshots import brought_up, is_transactional
from airflow_hive_federation.clusters.altering import (
    Change,
    alter_partition_metadata,
    alter_table_metadata,
    full_name,
    partitions_by_name,
)
from airflow_hive_federation.clusters.copies.objects import (
    CopyObject,
    chosen_partitions,
    copy_objects,
    copyable,
    pending_objects,
    split_name,
)
from airflow_hive_federation.clusters.locking import copies_lock
from airflow_hive_federation.clusters.metadata import (
    ClusterMetadata,
    Secondary,
    content_mark,
    source_mark,
)
from airflow_hive_federation.clusters.notes import (
    COPY,
    Kind,
    Note,
    forget,
    note_of,
    remove_noted,
    state_of,
    take_note,
)
from airflow_hive_federation.clusters.registry import Cluster, ClusterRegistry
from airflow_hive_federation.errors import CopySourceChangedError, StorageError, TransactionAbortedError
from airflow_hive_federation.metastore import MetastoreClient
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.model.files import CopyItem
from airflow_hive_federation.storage.filesystem import is_below, join, open_filesystem, storage_errors
from airflow_hive_federation.storage.listing import list_many
from airflow_hive_federation.storage.plan_files import write_plan
from airflow_hive_federation.transactions.snapshots import Snapshot
from airflow_hive_federation.transactions.transaction import Transaction

#: Carries out a copy plan: (URI of the plan, URI of the directory for outcomes).
RunCopy = Callable[[str, str], None]


@dataclass(frozen=True, kw_only=True)
class CopyReport:
    """The result of a copy.

    :param table: ``database.table``.
    :param cluster: where to.
    :param copied: objects (the table, or partitions by name) of which a new copy was published.
    :param current: objects whose copy was up to date.
    :param files: files of the new copies.
    :param size_bytes: their size.
    :param removed: directories of former copies that were removed.
    """

    table: str
    cluster: str
    copied: list[str] = field(default_factory=list)
    current: list[str] = field(default_factory=list)
    files: int = 0
    size_bytes: int = 0
    removed: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """JSON values."""
        return asdict(self)


def copy_to_cluster(
    client: MetastoreClient,
    registry: ClusterRegistry,
    table: str,
    cluster: str,
    run_copy: RunCopy,
    *,
    partitions: Sequence[str] | None = None,
    where: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> CopyReport:
    """Copy a table, or some of its partitions, to a cluster; what is up to date there is not copied again.

    :param table: ``database.table``.
    :param cluster: a cluster that is not the table's primary.
    :param run_copy: carries out the copy plan.
    :param partitions: names (``day=2026-01-01``); all if neither they nor ``where`` are given.
    :param where: a condition on partition keys, as the metastore reads it (``day >= '2026-01-01'``).
    :param options: storage options of both clusters.
    :raises CopyRefusedError: the table, or a partition, cannot be copied there; nothing was copied.
    :raises CopySourceChangedError: objects changed meanwhile; the copies of all others were published.
    :raises UnknownClusterError: there is no such cluster.
    :raises StorageError: files cannot be listed, read or written.
    :raises TransactionAbortedError: the metastore took the files of a transactional table for unread; run the
        copy again.
    """
    place = registry.cluster(cluster)
    described = copyable(client, registry, table, place)
    with _holding(client, described) as held:
        chosen = chosen_partitions(client, described, partitions, where)
        objects = copy_objects(described, chosen, options, held.snapshot)
        return _copied(client, place, described, objects, run_copy, options=options, held=held)


@dataclass(frozen=True, kw_only=True)
class _Held:
    """A transaction during which nobody removes copies of a table, and nobody cleans a transactional one.

    :param snapshot: of a transactional table, whose files it keeps; ``None`` for others.
    """

    transaction: Transaction
    snapshot: Snapshot | None

    def prove(self, client: MetastoreClient) -> None:
        """Have the metastore confirm that the transaction is open.

        :raises TransactionAbortedError: it was aborted, so that files may have been removed.
        """
        self.transaction.check()
        txn_id = self.transaction.id
        answer = client.heartbeat_txn_range(txn_id, txn_id)
        if txn_id in {*(answer.aborted or ()), *(answer.nosuch or ())}:
            raise TransactionAbortedError(
                f"Transaction {txn_id}, which kept the files of a copy, was aborted.",
                remedy="Run the copy again.",
                txn_id=txn_id,
            )


@contextmanager
def _holding(client: MetastoreClient, table: types.Table) -> Iterator[_Held]:
    name = full_name(table).lower()
    with Transaction(client, read_only=True) as transaction:
        if is_transactional(table):
            transaction.lock_to_read([copies_lock(name), name])
            yield _Held(transaction=transaction, snapshot=transaction.snapshot(*name.split(".", 1)))
        else:
            transaction.lock_to_read([copies_lock(name)])
            yield _Held(transaction=transaction, snapshot=None)


def _copied(
    client: MetastoreClient,
    place: Cluster,
    described: types.Table,
    objects: Sequence[CopyObject],
    run_copy: RunCopy,
    *,
    options: Mapping[str, Any] | None,
    held: _Held,
) -> CopyReport:
    """Copy what is not current, publish it, and report."""
    pending = list(pending_objects(objects, place.name, options))
    report = CopyReport(table=full_name(described), cluster=place.name)
    if pending:
        targets = {one.partition: _target(place, described, one) for one in pending}
        _carry_out(place, pending, targets, run_copy, table=report.table, options=options)
        _check_copies(pending, targets, place.name, full_name(described), options)
        held.prove(client)
        changed = _publish(client, described, pending, targets, place.name, options=options)
        published = [one for one in pending if one.partition not in changed]
        changed |= _withdraw_changed(client, described, published, place.name, options)
        published = [one for one in published if one.partition not in changed]
        report = replace(
            report,
            copied=[one.partition or report.table for one in published],
            files=sum(one.mark.files for one in published),
            size_bytes=sum(one.mark.size_bytes for one in published),
            removed=_remove_former(published, place, described, options),
        )
        if changed:
            raise CopySourceChangedError(
                f"{report.table} changed while it was copied to {place.name}: "
                f"{', '.join(sorted(changed)[:5]) if any(changed) else 'the table'}.",
                remedy="Run the copy again; what did not change is copied.",
                table=report.table,
                partition=next((name for name in sorted(changed) if name), None),
                cluster=place.name,
            )
    waiting = {one.partition for one in pending}
    _note_unchanged(client, described, [one for one in objects if one.partition not in waiting], place.name)
    current = [one.partition or report.table for one in objects if one.partition not in waiting]
    return replace(report, current=current)


def drop_copies(
    client: MetastoreClient,
    registry: ClusterRegistry,
    table: str,
    cluster: str,
    *,
    partitions: Sequence[str] | None = None,
    where: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> CopyReport:
    """Drop the copies of a table, or of some of its partitions, in a cluster. The primary is not touched.

    :param table: ``database.table``.
    :param partitions: see :func:`copy_to_cluster`.
    :param where: see :func:`copy_to_cluster`.
    :return: the objects under ``copied`` have no copy any more; ``removed`` are its directories.
    :raises UnknownClusterError: there is no such cluster.
    :raises LockTimeoutError: the primary of the table is being changed.
    :raises StorageError: a directory cannot be removed; the metadata no longer names it.
    """
    place = registry.cluster(cluster)
    described = client.get_table(*split_name(table))
    with Transaction(client, read_only=True) as transaction:
        transaction.lock_to_read([copies_lock(full_name(described))])
        return _dropped(client, place, described, partitions, where, options=options)


def _dropped(
    client: MetastoreClient,
    place: Cluster,
    described: types.Table,
    partitions: Sequence[str] | None,
    where: str | None,
    *,
    options: Mapping[str, Any] | None,
) -> CopyReport:
    """Drop copies, and report."""
    had: dict[str, Secondary] = {}

    def dropping(name: str) -> Change:
        def drop(now: ClusterMetadata) -> ClusterMetadata:
            if place.name in now.secondaries:
                had[name] = now.secondaries[place.name]
            return now.with_secondary(place.name, None)

        return drop

    if described.partitionKeys:
        names = list(chosen_partitions(client, described, partitions, where))
        alter_partition_metadata(client, described, {name: dropping(name) for name in names})
    else:
        alter_table_metadata(client, described, dropping(full_name(described)))
    directories = [uri for one in had.values() for uri in (one.location, one.former) if uri]
    removed = [uri for uri in directories if _remove_former_place(uri, place, described, options)]
    return CopyReport(table=full_name(described), cluster=place.name, copied=sorted(had), removed=removed)


def remove_copy_directory(uri: str, home: str, options: Mapping[str, Any] | None = None) -> bool:
    """Remove the directory of a copy that no metadata names any more; return whether there was one.

    A directory that lies elsewhere, or whose name is not that of a copy, stays: everybody who may alter a
    table may write its parameters.

    :param home: the directory in the cluster that holds the copies of the table.
    :raises StorageError: it cannot be removed.
    """
    name = uri.rstrip("/").rpartition("/")[2]
    if not name.startswith(COPY) or not is_below(uri, home):
        return False
    filesystem, path = open_filesystem(uri, options)
    with storage_errors(uri):
        if not filesystem.exists(path):
            return False
        filesystem.rm(path, recursive=True)
    return True


# -- copying -------------------------------------------------------------------------------------------------


def home_of(cluster: Cluster, table: types.Table) -> str:
    """URI of the directory of a cluster for the copies of a table."""
    return join(cluster.root, f"{table.dbName}.db", str(table.tableName))


def _target(cluster: Cluster, table: types.Table, one: CopyObject) -> str:
    key = [one.location, one.mark.listing]
    if (present := one.metadata.secondaries.get(cluster.name)) is not None:
        # The directory of a copy that is damaged is not mended: somebody may read it.
        key.append(present.location)
    digest = hashlib.sha256("\0".join(key).encode("utf-8", "surrogateescape")).hexdigest()[:24]
    return join(home_of(cluster, table), one.partition, COPY + digest)


def _carry_out(
    cluster: Cluster,
    objects: Sequence[CopyObject],
    targets: Mapping[str, str],
    run_copy: RunCopy,
    *,
    table: str,
    options: Mapping[str, Any] | None,
) -> None:
    items = [
        CopyItem(
            source=join(one.location, file.path),
            target=join(targets[one.partition], file.path),
            size_bytes=file.size_bytes,
            source_levels=file.path.count("/") + 1,
            target_levels=file.path.count("/") + 1,
        )
        for one in objects
        for file in one.files
    ]
    if not items:
        return
    for target in targets.values():
        take_note(cluster, Note(kind=Kind.COPY, directory=target, table=table), options)
    run = hashlib.sha256("\0".join(sorted(targets.values())).encode()).hexdigest()[:24]
    state = join(state_of(cluster), run)
    take_note(cluster, Note(kind=Kind.PLAN, directory=state, table=table), options)
    plan = join(state, "copy_plan.jsonl")
    write_plan(plan, items, options=options)
    run_copy(plan, join(state, "outcomes"))
    remove_state(state, options)
    forget(cluster, Kind.PLAN, state, options)


def remove_state(state: str, options: Mapping[str, Any] | None = None) -> None:
    """Remove the plan and the outcomes of a copy whose files are all there.

    :raises StorageError: they cannot be removed.
    """
    filesystem, path = open_filesystem(state, options)
    with storage_errors(state):
        filesystem.rm(path, recursive=True)


def _check_copies(
    objects: Sequence[CopyObject],
    targets: Mapping[str, str],
    cluster: str,
    table: str,
    options: Mapping[str, Any] | None,
) -> None:
    there = list_many(targets.values(), options=options, missing_ok=True)
    for one in objects:
        target = targets[one.partition]
        name = f"{table}/{one.partition}".rstrip("/")
        if content_mark(there[target]) != one.mark.content:
            raise StorageError(
                f"The copy of {name} in cluster {cluster}, {target}, has other files than were copied.",
                remedy="See who writes there, remove the directory, and run the copy again.",
                path=target,
            )


def _publish(
    client: MetastoreClient,
    table: types.Table,
    objects: Sequence[CopyObject],
    targets: Mapping[str, str],
    cluster: str,
    *,
    options: Mapping[str, Any] | None,
) -> set[str]:
    """Publish the copies whose primary is as it was copied; return the names of the others."""
    changed = _with_other_files(objects, options)
    fresh = [one for one in objects if one.partition not in changed]
    if not table.partitionKeys:
        for one in fresh:
            again = client.get_table(table.dbName or "", table.tableName or "")
            if not one.is_unchanged(again):
                changed.add(one.partition)
                continue
            alter_table_metadata(client, again, _publishing(one, targets[""], cluster))
        return changed
    again_by_name = partitions_by_name(client, table, [one.partition for one in fresh])
    changes: dict[str, Change] = {}
    for one in fresh:
        found = again_by_name.get(one.partition)
        if found is None or not one.is_unchanged(found):
            changed.add(one.partition)
        else:
            changes[one.partition] = _publishing(one, targets[one.partition], cluster)
    alter_partition_metadata(client, table, changes)
    return changed


def _withdraw_changed(
    client: MetastoreClient,
    table: types.Table,
    published: Sequence[CopyObject],
    cluster: str,
    options: Mapping[str, Any] | None,
) -> set[str]:
    """Withdraw copies whose primary changed while they were published; return the names of these objects.

    A writer that moved its files before, and altered the object while this run did, has had its alteration
    overwritten: the metastore knows nothing of the write, and the copy would pass for fresh.
    """
    changed = _with_other_files(published, options)

    def withdraw(present: ClusterMetadata) -> ClusterMetadata:
        return present.with_secondary(cluster, None)

    if not changed:
        return changed
    if table.partitionKeys:
        alter_partition_metadata(client, table, dict.fromkeys(changed, withdraw))
    else:
        again = client.get_table(table.dbName or "", table.tableName or "")
        alter_table_metadata(client, again, withdraw)
    return changed


def _with_other_files(objects: Sequence[CopyObject], options: Mapping[str, Any] | None) -> set[str]:
    """The names of the objects whose files are no longer those that were copied.

    Those of a snapshot stay what they are, whatever is written meanwhile.
    """
    by_files = [one for one in objects if one.write_ids is None]
    now = list_many([one.location for one in by_files], options=options, missing_ok=True)
    return {
        one.partition
        for one in by_files
        if source_mark(one.described, now[one.location]).listing != one.mark.listing
    }


def _publishing(one: CopyObject, target: str, cluster: str) -> Change:
    def publish(now: ClusterMetadata) -> ClusterMetadata:
        before = now.secondaries.get(cluster)
        former = None if before is None else before.former if before.location == target else before.location
        made = Secondary(location=target, source=one.mark, former=former, snapshot=one.write_ids)
        return now.with_secondary(cluster, made)

    return publish


def _note_unchanged(
    client: MetastoreClient, table: types.Table, objects: Sequence[CopyObject], cluster: str
) -> None:
    """Note that copies are of the primary as the metastore describes it now: only its description changed."""

    def noting(seen: Secondary, wanted: Secondary) -> Change:
        def note(now: ClusterMetadata) -> ClusterMetadata:
            return now.with_secondary(cluster, wanted) if now.secondaries.get(cluster) == seen else now

        return note

    changes: dict[str, Change] = {}
    for one in objects:
        seen = one.metadata.secondaries[cluster]
        if seen.snapshot is not None and one.write_ids is not None:
            wanted = replace(seen, snapshot=brought_up(seen.snapshot, one.write_ids))
        else:
            wanted = replace(seen, source=one.mark)
        if wanted != seen:
            changes[one.partition] = noting(seen, wanted)
    if not table.partitionKeys:
        for change in changes.values():
            alter_table_metadata(client, table, change)
    elif changes:
        alter_partition_metadata(client, table, changes)


def _remove_former(
    objects: Sequence[CopyObject], cluster: Cluster, table: types.Table, options: Mapping[str, Any] | None
) -> list[str]:
    former = [
        copy.former
        for one in objects
        if (copy := one.metadata.secondaries.get(cluster.name)) is not None and copy.former
    ]
    return [uri for uri in former if _remove_former_place(uri, cluster, table, options)]


def _remove_former_place(
    uri: str, cluster: Cluster, table: types.Table, options: Mapping[str, Any] | None
) -> bool:
    """Remove a directory that metadata has named, if it is one of copies, or noted as a former primary's."""
    if is_below(uri, cluster.root):
        note = note_of(cluster, Kind.FORMER_PRIMARY, uri, options)
        if note is not None and note.table == full_name(table):
            return remove_noted(cluster, note, options)
    removed = remove_copy_directory(uri, home_of(cluster, table), options)
    if removed:
        forget(cluster, Kind.COPY, uri, options)
    return removed
