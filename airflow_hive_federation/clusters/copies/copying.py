"""Copies tables and partitions to secondary clusters, and drops such copies.

The files go to a new directory of the cluster, whose name contains a digest of the copied files, so that the
next run can continue an interrupted one. Once all files have arrived, and if the primary is still the same,
one change of the object's parameters publishes the copy. The metadata names the previous copy until the next
one. The directories of copies that were replaced or dropped stay for statements that were planned before,
until a sweep.

Of a transactional table, it copies the files that a reader of a snapshot opens. A reader's transaction and
lock preserve them until the copy is published together with the snapshot's write ids.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from airflow_hive_federation.clusters.acid_snapshots import brought_up
from airflow_hive_federation.clusters.altering import (
    Change,
    alter_partition_metadata,
    alter_table_metadata,
    full_name,
    partitions_by_name,
    requested_table,
)
from airflow_hive_federation.clusters.copies.directories import (
    DropNotes,
    copies_home,
    release,
    remove_released,
)
from airflow_hive_federation.clusters.copies.holding import Held, holding
from airflow_hive_federation.clusters.copies.objects import (
    CopyObject,
    chosen_partitions,
    copy_objects,
    copyable,
    pending_objects,
)
from airflow_hive_federation.clusters.locking import copies_lock
from airflow_hive_federation.clusters.metadata import ClusterMetadata, Secondary, source_mark
from airflow_hive_federation.clusters.notes import (
    COPY,
    Kind,
    Note,
    forget,
    noted,
    state_of,
    take_note,
)
from airflow_hive_federation.clusters.registry import Cluster, ClusterRegistry
from airflow_hive_federation.errors import CopySourceChangedError, StorageError
from airflow_hive_federation.metastore import MetastoreClient
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.model.content_marks import content_mark
from airflow_hive_federation.model.files import CopyItem
from airflow_hive_federation.storage.filesystem import join, open_filesystem, storage_errors
from airflow_hive_federation.storage.listing import list_many
from airflow_hive_federation.storage.options import StorageOptions
from airflow_hive_federation.storage.plan_files import write_plan
from airflow_hive_federation.storage.trees import remove_tree
from airflow_hive_federation.transactions.transaction import Transaction

#: Executes a copy plan: (URI of the plan, URI of the directory for outcomes).
RunCopy = Callable[[str, str], None]


@dataclass(frozen=True, kw_only=True)
class CopyReport:
    """The result of a copy.

    :param table: ``database.table``.
    :param cluster: the cluster of the copies.
    :param copied: the objects (the table, or partitions by name) with a new published copy.
    :param current: the objects whose copy was up to date.
    :param files: the number of files of the new copies.
    :param size_bytes: the size of these files.
    :param removed: the removed directories of copies that were replaced or dropped.
    :param left: the directories of such copies that are left to a sweep, because statements may read them.
    """

    table: str
    cluster: str
    copied: list[str] = field(default_factory=list)
    current: list[str] = field(default_factory=list)
    files: int = 0
    size_bytes: int = 0
    removed: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)


def copy_to_cluster(
    client: MetastoreClient,
    registry: ClusterRegistry,
    table: str,
    cluster: str,
    run_copy: RunCopy,
    *,
    partitions: Sequence[str] | None = None,
    where: str | None = None,
    at_once: bool = False,
    options: StorageOptions | None = None,
) -> CopyReport:
    """Copy a table, or some of its partitions, to a cluster, except objects that are up to date there.

    :param table: ``database.table``.
    :param cluster: a cluster that is not the table's primary.
    :param run_copy: executes the copy plan.
    :param partitions: names of partitions (``day=2026-01-01``); all if neither ``partitions`` nor ``where``
        is given.
    :param where: a condition on partition keys, in the metastore's syntax (``day >= '2026-01-01'``).
    :param at_once: remove replaced copies now, although statements that were planned before may read them.
    :param options: the storage options of both clusters.
    :raises CopyRefusedError: the table, or a partition, cannot be copied there; nothing was copied.
    :raises CopySourceChangedError: objects changed during the copy; the copies of all others were published.
    :raises UnknownClusterError: the cluster does not exist.
    :raises NoSuchObjectError: the table does not exist.
    :raises StorageError: files cannot be listed, read or written.
    :raises ReadTransactionLostError: the metastore aborted the reader's transaction, so that files of a
        transactional table may have been removed; run the copy again.
    """
    target_cluster = registry.cluster(cluster)
    described = copyable(client, registry, table, target_cluster)
    with holding(client, described) as held:
        chosen = chosen_partitions(client, described, partitions, where)
        objects = copy_objects(described, chosen, options, held.snapshot)
        report, changed = _copied(
            client, target_cluster, described, objects, run_copy, options=options, held=held
        )
    if at_once:
        report = _removed_at_once(client, target_cluster, described, report, options)
    if changed:
        raise CopySourceChangedError(
            f"{report.table} changed while it was copied to {report.cluster}: "
            f"{', '.join(sorted(changed)[:5]) if any(changed) else 'the table'}.",
            remedy="Run the copy again; what did not change is copied.",
            table=report.table,
            partition=next((name for name in sorted(changed) if name), None),
            cluster=report.cluster,
        )
    return report


def _removed_at_once(
    client: MetastoreClient,
    place: Cluster,
    table: types.Table,
    report: CopyReport,
    options: StorageOptions | None,
) -> CopyReport:
    """Remove the directories that a copy or a drop has left; return the report of both."""
    if not report.left:
        return report
    partitions = report.copied if table.partitionKeys else ()
    removed, left = remove_released(client, report.left, place, table, partitions=partitions, options=options)
    return replace(report, removed=[*report.removed, *removed], left=left)


def _copied(
    client: MetastoreClient,
    place: Cluster,
    described: types.Table,
    objects: Sequence[CopyObject],
    run_copy: RunCopy,
    *,
    options: StorageOptions | None,
    held: Held,
) -> tuple[CopyReport, set[str]]:
    """Copy the objects that are not current, and publish the copies.

    :return: the report, and the names of the objects that changed meanwhile, whose copies were not published.
    """
    pending = list(pending_objects(objects, place.name, options))
    report = CopyReport(table=full_name(described), cluster=place.name)
    if pending:
        is_former = noted(place, Kind.FORMER_PRIMARY, options)
        targets = {item.partition: _target(place, described, item, is_former) for item in pending}
        _carry_out(place, pending, targets, run_copy, table=described, options=options)
        _check_copies(pending, targets, place.name, full_name(described), options)
        held.prove(client)
        changed, replaced = _publish(client, described, pending, targets, place, options=options)
        published = [item for item in pending if item.partition not in changed]
        changed |= _withdraw_changed(client, described, published, place, options)
        published = [item for item in published if item.partition not in changed]
        removed, left = release(
            [uri for item in published for uri in replaced.get(item.partition, ())],
            place,
            described,
            primaries={item.location for item in published},
            at_once=False,
            options=options,
        )
        report = replace(
            report,
            copied=[item.partition or report.table for item in published],
            files=sum(item.mark.files for item in published),
            size_bytes=sum(item.mark.size_bytes for item in published),
            removed=removed,
            left=left,
        )
        if changed:
            return report, changed
    waiting = {item.partition for item in pending}
    _note_unchanged(
        client, described, [item for item in objects if item.partition not in waiting], place.name
    )
    current = [item.partition or report.table for item in objects if item.partition not in waiting]
    return replace(report, current=current), set()


def drop_copies(
    client: MetastoreClient,
    registry: ClusterRegistry,
    table: str,
    cluster: str,
    *,
    partitions: Sequence[str] | None = None,
    where: str | None = None,
    at_once: bool = False,
    options: StorageOptions | None = None,
) -> CopyReport:
    """Drop the copies of a table, or of some of its partitions, in a cluster; the primary stays.

    :param table: ``database.table``.
    :param partitions: see :func:`copy_to_cluster`, also for ``where``.
    :param at_once: remove the files now, although statements that were planned before may read them;
        otherwise a sweep removes them.
    :return: the report: ``copied`` names objects without a copy now, ``removed`` and ``left`` directories.
    :raises UnknownClusterError: the cluster does not exist.
    :raises NoSuchObjectError: the table does not exist.
    :raises LockTimeoutError: another process changes the primary of the table.
    :raises NoSuchLockError: the lock for the removal expired; a sweep removes the other directories.
    :raises StorageError: a directory cannot be removed; the metadata no longer names it.
    """
    target_cluster = registry.cluster(cluster)
    described = requested_table(client, table)
    with Transaction(client, read_only=True) as transaction:
        transaction.lock_to_read([copies_lock(full_name(described))])
        report = _dropped(client, target_cluster, described, partitions, where, options=options)
    # The lock of the transaction, which others share, would exclude the one for the removal.
    return _removed_at_once(client, target_cluster, described, report, options) if at_once else report


def _dropped(
    client: MetastoreClient,
    place: Cluster,
    described: types.Table,
    partitions: Sequence[str] | None,
    where: str | None,
    *,
    options: StorageOptions | None,
) -> CopyReport:
    """Drop copies, leave their directories, and return the report."""
    had: dict[str, Secondary] = {}
    notes = DropNotes(place, described, options)

    def dropping(name: str) -> Change:
        def drop(now: ClusterMetadata) -> ClusterMetadata:
            if place.name in now.secondaries:
                had[name] = now.secondaries[place.name]
                notes.take(had[name])
            return now.with_secondary(place.name, None)

        return drop

    altered: Sequence[types.Table | types.Partition]
    if described.partitionKeys:
        chosen = chosen_partitions(client, described, partitions, where)
        notes.take_seen(chosen.values())
        altered = alter_partition_metadata(client, described, {name: dropping(name) for name in chosen})
    else:
        altered = [alter_table_metadata(client, described, dropping(full_name(described)))]
    primaries = {item.sd.location for item in altered if item.sd is not None and item.sd.location}
    directories = [uri for copy in had.values() for uri in copy.directories]
    removed, left = release(
        directories, place, described, primaries=primaries, at_once=False, options=options
    )
    return CopyReport(
        table=full_name(described), cluster=place.name, copied=sorted(had), removed=removed, left=left
    )


# -- copying -------------------------------------------------------------------------------------------------


def _target(cluster: Cluster, table: types.Table, item: CopyObject, is_former: Callable[[str], bool]) -> str:
    """Return the URI of the directory of a new copy.

    :param is_former: returns whether a directory is a former primary's. It is no place for a copy: by the
        note of a copy, a sweep would remove the files that others have written there, too.
    """
    key = [item.location, item.mark.listing]
    if (present := item.metadata.secondaries.get(cluster.name)) is not None:
        # A damaged copy gets a new directory instead of a repair, because somebody may be reading the old
        # one.
        key.append(present.location)
    while True:
        digest = hashlib.sha256("\0".join(key).encode("utf-8", "surrogateescape")).hexdigest()[:24]
        target = join(copies_home(cluster, table), item.partition, COPY + digest)
        if not is_former(target):
            return target
        key.append(target)


def _carry_out(
    cluster: Cluster,
    objects: Sequence[CopyObject],
    targets: Mapping[str, str],
    run_copy: RunCopy,
    *,
    table: types.Table,
    options: StorageOptions | None,
) -> None:
    items = [
        CopyItem(
            source=join(item.location, file.path),
            target=join(targets[item.partition], file.path),
            size_bytes=file.size_bytes,
            source_levels=file.path.count("/") + 1,
            target_levels=file.path.count("/") + 1,
            prefix=file.path in item.growing,
        )
        for item in objects
        for file in item.files
    ]
    for item in objects:  # without files, too: only its note shows later that a directory is a copy's
        note = Note.of(table, Kind.COPY, targets[item.partition])
        if item.write_ids is None:
            note = replace(
                note,
                primary=item.location,
                primary_listing=item.mark.listing,
                content=item.mark.content,
            )
        take_note(cluster, note, options)
    if not items:
        return
    run = hashlib.sha256("\0".join(sorted(targets.values())).encode()).hexdigest()[:24]
    state = join(state_of(cluster), run)
    take_note(cluster, Note.of(table, Kind.PLAN, state), options)
    plan = join(state, "copy_plan.jsonl")
    write_plan(plan, items, options=options)
    run_copy(plan, join(state, "outcomes"))
    remove_state(state, options)
    forget(cluster, Kind.PLAN, state, options)


def remove_state(state: str, options: StorageOptions | None = None) -> None:
    """Remove the plan and the outcomes of a copy whose files have all arrived.

    :raises StorageError: they cannot be removed.
    """
    with storage_errors(state):
        remove_tree(*open_filesystem(state, options))


def _check_copies(
    objects: Sequence[CopyObject],
    targets: Mapping[str, str],
    cluster: str,
    table: str,
    options: StorageOptions | None,
) -> None:
    listings = list_many(targets.values(), options=options, missing_ok=True)
    for item in objects:
        target = targets[item.partition]
        name = f"{table}/{item.partition}".rstrip("/")
        if content_mark(listings[target]) != item.mark.content:
            raise StorageError(
                f"The copy of {name} in cluster {cluster}, {target}, has files other than those copied.",
                remedy="Find and stop the writer, remove the directory, and run the copy again.",
                path=target,
            )


def _publish(
    client: MetastoreClient,
    table: types.Table,
    objects: Sequence[CopyObject],
    targets: Mapping[str, str],
    place: Cluster,
    *,
    options: StorageOptions | None,
) -> tuple[set[str], dict[str, list[str]]]:
    """Publish the copies whose primary has not changed since.

    :return: the names of the other objects; per published object, the directories no longer named.
    """
    replaced: dict[str, list[str]] = {}
    notes = DropNotes(place, table, options)

    def publishing(item: CopyObject) -> Change:
        def publish(now: ClusterMetadata) -> ClusterMetadata:
            former, target = None, targets[item.partition]
            if (before := now.secondaries.get(place.name)) is not None:
                former = before.former if before.location == target else before.location
                replaced[item.partition] = notes.take(before, keep={former, target})
            made = Secondary(location=target, source=item.mark, former=former, snapshot=item.write_ids)
            return now.with_secondary(place.name, made)

        return publish

    changed = _with_other_files(objects, options)
    fresh = [item for item in objects if item.partition not in changed]
    if not table.partitionKeys:
        for item in fresh:
            again = client.get_table(table.dbName or "", table.tableName or "")
            if not item.is_unchanged(again):
                changed.add(item.partition)
                continue
            alter_table_metadata(client, again, publishing(item))
        return changed, replaced
    again_by_name = partitions_by_name(client, table, [item.partition for item in fresh])
    notes.take_seen(again_by_name.values(), only_former=True)
    changes: dict[str, Change] = {}
    for item in fresh:
        partition = again_by_name.get(item.partition)
        if partition is None or not item.is_unchanged(partition):
            changed.add(item.partition)
        else:
            changes[item.partition] = publishing(item)
    alter_partition_metadata(client, table, changes)
    return changed, replaced


def _withdraw_changed(
    client: MetastoreClient,
    table: types.Table,
    published: Sequence[CopyObject],
    place: Cluster,
    options: StorageOptions | None,
) -> set[str]:
    """Withdraw copies whose primary changed during the publication; return the names of these objects.

    If a writer moved its files earlier, and altered the object at the same time as this run, this run has
    overwritten the writer's alteration. Then the metastore does not know of the write, and the copy would
    count as fresh.
    """
    changed = _with_other_files(published, options)

    def withdraw(present: ClusterMetadata) -> ClusterMetadata:
        if place.name in present.secondaries:
            DropNotes(place, table, options).take(present.secondaries[place.name])
        return present.with_secondary(place.name, None)

    if not changed:
        return changed
    if table.partitionKeys:
        alter_partition_metadata(client, table, dict.fromkeys(changed, withdraw))
    else:
        again = client.get_table(table.dbName or "", table.tableName or "")
        alter_table_metadata(client, again, withdraw)
    return changed


def _with_other_files(objects: Sequence[CopyObject], options: StorageOptions | None) -> set[str]:
    """Return the names of the objects whose files are no longer those that were copied.

    The files of a snapshot stay the same, whatever is written meanwhile.
    """
    by_files = [item for item in objects if item.write_ids is None]
    now = list_many([item.location for item in by_files], options=options, missing_ok=True)
    return {
        item.partition
        for item in by_files
        if source_mark(item.described, now[item.location]).listing != item.mark.listing
    }


def _note_unchanged(
    client: MetastoreClient, table: types.Table, objects: Sequence[CopyObject], cluster: str
) -> None:
    """Update the marks of copies if only the metastore's description of their primary has changed."""

    def noting(seen: Secondary, wanted: Secondary) -> Change:
        def note(now: ClusterMetadata) -> ClusterMetadata:
            return now.with_secondary(cluster, wanted) if now.secondaries.get(cluster) == seen else now

        return note

    changes: dict[str, Change] = {}
    for item in objects:
        seen = item.metadata.secondaries[cluster]
        if seen.snapshot is not None and item.write_ids is not None:
            wanted = replace(seen, snapshot=brought_up(seen.snapshot, item.write_ids))
        else:
            wanted = replace(seen, source=item.mark)
        if wanted != seen:
            changes[item.partition] = noting(seen, wanted)
    if not table.partitionKeys:
        for change in changes.values():
            alter_table_metadata(client, table, change)
    elif changes:
        alter_partition_metadata(client, table, changes)
