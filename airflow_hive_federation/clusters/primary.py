"""Makes a secondary cluster the primary of a table.

The secondary cluster already holds the data of each object, in a fresh copy: ``sd.location`` becomes the
location of the copy, and the former primary becomes a copy or is removed. An unpartitioned table changes by
one atomic call of the metastore. Of a partitioned table, the location changes first, with a note in its
parameters: if the metastore refuses it, nothing has changed. Its partitions follow in batches, and its
primary changes last. At every moment, readers and writers use ``sd.location``. The next run finishes the work
of a killed one.

Hive plans a statement before it locks the table. One that waits for the lock of this change has planned to
read the former location, and reads it afterwards; but it moves its own files into the location that the table
has then (``MoveTask``). So the files of a former primary stay until the readers of that time have ended, and
the change is refused while a writer waits, which may read rows as they were.

A user may drop a partition between a killed run and the next one. Hive then leaves the files of an external
partition where it lay, and the note of an earlier run must not remove them.

Transactional tables are refused. Hive compiles a statement, with the table's location, before it locks the
table: an INSERT that waits for the exclusive lock of this change would write its delta to the former location
afterwards, and commit it. Hive's streaming connections keep the location as long as they live, and hold no
lock between two transactions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import NoReturn

from airflow_hive_federation.clusters.altering import (
    alter_partitions,
    alter_table,
    full_name,
    partitions_by_name,
    relocate,
    requested_table,
    split_name,
)
from airflow_hive_federation.clusters.assignment import reason_to_stay
from airflow_hive_federation.clusters.copies.directories import (
    DropNotes,
    home_of,
    is_among_copies,
    mark_becoming_primary,
    notes_of_copies,
    release,
)
from airflow_hive_federation.clusters.copies.objects import CopyObject, copy_objects
from airflow_hive_federation.clusters.former import (
    forget_dropped_partitions,
    forget_primaries,
    former_directories,
    remedy_for_former,
    remove_former_primaries,
)
from airflow_hive_federation.clusters.locking import copies_lock, exclusive, waiting_writers
from airflow_hive_federation.clusters.metadata import (
    ClusterMetadata,
    Secondary,
    read_metadata,
    source_mark,
    write_metadata,
)
from airflow_hive_federation.clusters.notes import Kind, Note, forget, take_note
from airflow_hive_federation.clusters.registry import Cluster, ClusterRegistry
from airflow_hive_federation.clusters.sweeping import FORMER_S
from airflow_hive_federation.errors import MetastoreServerError, PrimaryRefusedError
from airflow_hive_federation.metastore import MetastoreClient
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.model.content_marks import content_mark
from airflow_hive_federation.model.partitions import partition_name
from airflow_hive_federation.storage.filesystem import canonical, is_below
from airflow_hive_federation.storage.listing import list_many
from airflow_hive_federation.storage.options import StorageOptions
from airflow_hive_federation.transactions.snapshots import is_transactional
from airflow_hive_federation.transactions.transaction import Transaction

Described = types.Table | types.Partition
_MANAGED = "MANAGED_TABLE"


@dataclass(frozen=True, kw_only=True)
class PrimaryReport:
    """The result of a change of the primary.

    :param table: ``database.table``.
    :param cluster: its present primary cluster.
    :param former: its former primary cluster; the same cluster if nothing had to change.
    :param moved: the objects (the table, or partitions by name) whose location changed in this run.
    :param removed: the directories of former primaries whose files were removed, and those of previous
        copies that lay where partitions of the present primary lie.
    :param left: the directories of former primaries that no metadata names, with the reasons.
    """

    table: str
    cluster: str
    former: str
    moved: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    left: dict[str, str] = field(default_factory=dict)


def change_primary(
    client: MetastoreClient,
    registry: ClusterRegistry,
    table: str,
    cluster: str,
    *,
    keep_former: bool = True,
    former_older_than_s: float = FORMER_S,
    options: StorageOptions | None = None,
) -> PrimaryReport:
    """Make a cluster the primary of a table; its copies of the table and of all partitions must be fresh.

    Locks exclude Hive statements and copies of the table. Writers without locks, such as Spark, have to be
    stopped first: files that they write to the former location stay there, and this run reports them, or a
    later one.

    :param table: ``database.table``.
    :param keep_former: make the former primary a secondary; otherwise a later run, or a sweep, removes its
        files.
    :param former_older_than_s: the age in seconds of a change below which former primaries are left, because
        statements that began before it may read them.
    :param options: the storage options of both clusters.
    :raises PrimaryRefusedError: a copy is missing, is stale or lacks files; the table is in use; the table is
        transactional; the metastore does not allow the location; or others have written to the former
        location. Objects that this or an earlier run has moved stay moved.
    :raises UnknownClusterError: the cluster does not exist.
    :raises NoSuchObjectError: the table does not exist.
    :raises MetastoreError: the metastore refuses; run the change again.
    :raises StorageError: files cannot be listed or removed; run the change again.
    """
    new_primary = registry.cluster(cluster)
    name = ".".join(split_name(table))
    with _locked(client, name) as transaction:
        described = requested_table(client, table)
        present = read_metadata(described.parameters, name)
        former = present.primary or registry.default_cluster().name
        _refuse_kind(described, present, new_primary, registry, former)
        change = _Change(
            client=client,
            transaction=transaction,
            place=new_primary,
            former=former,
            keep_former=keep_former,
            options=options,
        )
        moved, removed, kept = ([], [], {}) if former == new_primary.name else change.run(described, registry)
        removed_former, left = remove_former_primaries(
            client, registry, name, new_primary, former_older_than_s, options=options
        )
        return PrimaryReport(
            table=name,
            cluster=new_primary.name,
            former=former,
            moved=moved,
            removed=[*removed, *removed_former],
            left={**left, **kept},
        )


@contextmanager
def _locked(client: MetastoreClient, name: str) -> Iterator[Transaction]:
    """Hold an exclusive lock on a table, which also excludes readers.

    :raises PrimaryRefusedError: another process uses the table, or makes copies of it.
    """
    with Transaction(client) as transaction:
        answer = client.lock([exclusive(copies_lock(name)), exclusive(name)], txn_id=transaction.id)
        if answer.state != types.LockState.ACQUIRED:
            raise PrimaryRefusedError(
                f"The primary of {name} cannot be changed: another process reads, writes or copies it.",
                remedy="Find the process with SHOW LOCKS. Run the change again when it has ended.",
                table=name,
                partition=None,
            )
        yield transaction


def _refuse_kind(
    table: types.Table, present: ClusterMetadata, place: Cluster, registry: ClusterRegistry, former: str
) -> None:
    """Refuse tables whose primary cannot change, whatever copies they have."""
    name = full_name(table)
    if refusal := reason_to_stay(table):
        _refuse(name, place, *refusal)
    if is_transactional(table):
        _refuse(
            name,
            place,
            "it is transactional, and its writers know its location before they lock it: no lock keeps them "
            "from committing rows to the former one",
            f"Stop its writers, copy it to the cluster, and run USE CLUSTER {place.name}; "
            "CREATE TABLE ... AS SELECT.",
        )
    if former not in registry.clusters:
        _refuse(
            name,
            place,
            f"its primary cluster, {former}, is not configured",
            "Add that cluster to the registry until the table has left it.",
        )
    if present.next_primary not in {None, place.name}:
        _refuse(
            name,
            place,
            f"cluster {present.next_primary} is being made its primary",
            f"Make {present.next_primary} the primary first: some partitions may be there.",
        )


def _refuse(table: str, place: Cluster, why: str, remedy: str, partition: str = "") -> NoReturn:
    where = f"{table}: {table}/{partition}" if partition else table
    raise PrimaryRefusedError(
        f"Cluster {place.name} cannot become the primary of {where}: {why}.",
        remedy=remedy,
        table=table,
        partition=partition or None,
        cluster=place.name,
    )


@dataclass(frozen=True, kw_only=True)
class _Change:
    """A change of one table's primary, under its lock.

    :param transaction: the transaction that holds the lock.
    """

    client: MetastoreClient
    transaction: Transaction
    place: Cluster
    former: str
    keep_former: bool
    options: StorageOptions | None = field(repr=False)

    def run(
        self, table: types.Table, registry: ClusterRegistry
    ) -> tuple[list[str], list[str], dict[str, str]]:
        """Change all objects, and the table last.

        :return: the changed objects, the removed directories, and the directories of partitions that were
            dropped during the change, with the reasons why they are left.
        """
        home = registry.cluster(self.former)
        kept: dict[str, str] = {}
        parts = partitions_by_name(self.client, table) if table.partitionKeys else {}
        objects = copy_objects(table, parts, self.options)
        pending = [item for item in objects if not self._is_there(item.location)]
        self._refuse_remains(table, objects)
        self._check(table, pending)
        self._refuse_waiting_writers(table)
        there = [item.location for item in objects if self._is_there(item.location)]
        forget_primaries(self.place, there, self.options)
        if not table.partitionKeys:
            copies = self._copies(pending)
            notes = notes_of_copies(copies, self.place, table, self.options)
            self._note(table, pending, home)
            try:
                self._move_table(table, pending)
            except PrimaryRefusedError:
                # Nothing has moved, so no note may let these files be removed later.
                for item in pending:
                    forget(home, Kind.FORMER_PRIMARY, item.location, self.options)
                for note in notes:
                    take_note(self.place, note, self.options)
                raise
            forget_primaries(self.place, copies, self.options)
        else:
            self._begin(table)
            self._note(table, pending, home)
            moved = self._move_partitions(table, pending)
            pending = [item for item in pending if item.partition in moved]
            forget_primaries(self.place, self._copies(pending), self.options)
            kept = forget_dropped_partitions(self.client, table, home, self.place, self.options)
            self._end(table)
        removed = self._remove_previous(table, pending)
        self._check_left_alone(table, pending)
        self._report_waiting_writers(table)
        return [item.partition or full_name(table) for item in pending], removed, kept

    def _copies(self, objects: Iterable[CopyObject]) -> list[str]:
        return [item.metadata.secondaries[self.place.name].location for item in objects]

    def _is_there(self, location: str) -> bool:
        return is_below(location, self.place.root)

    def _check(self, table: types.Table, pending: Sequence[CopyObject]) -> None:
        """Refuse unless each object has a complete and fresh copy."""
        copies = [item.metadata.secondaries.get(self.place.name) for item in pending]
        locations = [copy.location for copy in copies if copy is not None]
        listings = list_many(locations, options=self.options, missing_ok=True)
        for item, copy in zip(pending, copies, strict=True):
            reason = ""
            if copy is None:
                reason = f"it has no copy in {self.place.name}"
            elif not item.has_current(copy):
                reason = f"its copy in {self.place.name} is stale"
            elif content_mark(listings[copy.location]) != copy.source.content:
                reason = f"its copy in {self.place.name} lacks files"
            if reason:
                remedy = f"Copy it to {self.place.name}, and run this again."
                _refuse(full_name(table), self.place, reason, remedy, item.partition)

    def _refuse_remains(self, table: types.Table, objects: Sequence[CopyObject]) -> None:
        """Refuse a cluster where files remain of an earlier time as the primary.

        A partition that is dropped and added again at its default location would show their rows.
        """
        if read_metadata(table.parameters, full_name(table)).next_primary is not None:
            return
        described = [table, *(item.described for item in objects)]
        if notes := former_directories(self.place, table, described, self.options):
            directories = [note.directory for note in notes]
            reason = f"files of an earlier time as the primary remain in {', '.join(directories[:5])}"
            remedy = remedy_for_former(notes, table, self.place, self.former)
            _refuse(full_name(table), self.place, reason, remedy)

    def _refuse_waiting_writers(self, table: types.Table) -> None:
        """Refuse the change while Hive statements wait that have planned to read the present location."""
        if writers := waiting_writers(self.client, full_name(table)):
            _refuse(
                full_name(table),
                self.place,
                f"statements that write it wait for its lock ({', '.join(writers[:5])})",
                "Run the change again when they have ended.",
            )

    def _report_waiting_writers(self, table: types.Table) -> None:
        """Report statements that Hive planned before or during the change, and that now write the table."""
        if writers := waiting_writers(self.client, full_name(table)):
            raise PrimaryRefusedError(
                f"The primary of {full_name(table)} is {self.place.name} now, but statements that write it "
                f"waited for the change ({', '.join(writers[:5])}): those that read the table, too, read its "
                "rows as they were before.",
                remedy="Check the result of those that read and write the table, and run this again.",
                table=full_name(table),
                partition=None,
                cluster=self.place.name,
            )

    def _note(self, table: types.Table, pending: Sequence[CopyObject], home: Cluster) -> None:
        """Note in the former cluster that these files may be removed once no metadata names their directory.

        The directory of a copy becomes the directory of a primary, of which no note may remain: a sweep would
        remove its files if the partition was dropped, or the table renamed and its name taken by another. The
        note is only marked until the move, because a killed run leaves a copy, which needs its note.
        """
        for item in pending:
            copy = item.metadata.secondaries[self.place.name]
            mark_becoming_primary(self.place, copy.location, self.options)
            DropNotes(self.place, table, self.options).take(copy, keep={copy.location})
            if is_below(item.location, home.root):
                files = {file.path: (file.size_bytes, file.modified_ns) for file in item.files}
                directory = canonical(item.location)
                # A killed run may have left a note of the time as a copy.
                forget(home, Kind.COPY, directory, self.options)
                created_s = item.described.createTime or 0
                note = Note.of(table, Kind.FORMER_PRIMARY, directory, files=files)
                note = replace(note, partition=item.partition, partition_created_s=created_s)
                take_note(home, note, self.options)

    def _move_table(self, table: types.Table, pending: Sequence[CopyObject]) -> None:
        item_at = {canonical(item.location): item for item in pending}

        def moved(now: types.Table) -> types.Table | None:
            location = str(now.sd and now.sd.location)
            item = item_at.get(canonical(location))
            if item is not None:
                self._refuse_changed(table, item, now)
                self._move(now, item)
            elif not self._is_there(location):
                self._refuse_altered(table)
            parameters = read_metadata(now.parameters, full_name(now))
            self._set(now, replace(parameters, primary=self.place.name, next_primary=None))
            return now

        with self._unless_placed(table):
            alter_table(self.client, full_name(table), moved, check=self.transaction.check)

    def _begin(self, table: types.Table) -> None:
        """Note the change in a partitioned table, and move its location, where new partitions will lie."""
        name = full_name(table)

        def begun(now: types.Table) -> types.Table | None:
            present = read_metadata(now.parameters, name)
            if present.next_primary == self.place.name:
                return None
            relocate(now, home_of(self.place, now))
            self._set(now, replace(present, next_primary=self.place.name))
            return now

        with self._unless_placed(table):
            alter_table(self.client, name, begun, check=self.transaction.check)

    @contextmanager
    def _unless_placed(self, table: types.Table) -> Iterator[None]:
        """Refuse the change if the metastore does, because it places managed tables itself."""
        try:
            yield
        except MetastoreServerError as error:
            if "managed" not in error.message or table.tableType != _MANAGED:
                raise
            raise PrimaryRefusedError(
                f"Cluster {self.place.name} cannot become the primary of {full_name(table)}: the metastore "
                f"keeps managed tables below the managed location of their database ({error.message}).",
                remedy="Make an external table of it, or make a table in that cluster from it.",
                table=full_name(table),
                partition=None,
                cluster=self.place.name,
            ) from error

    def _move_partitions(self, table: types.Table, pending: Sequence[CopyObject]) -> set[str]:
        """Move the partitions that still exist; return their names."""
        keys = [key.name or "" for key in table.partitionKeys or ()]
        by_name = {item.partition: item for item in pending}

        def moved(now: types.Partition) -> types.Partition | None:
            item = by_name[partition_name(keys, now.values or [])]
            self._refuse_changed(table, item, now)
            self._move(now, item)
            return now

        written = alter_partitions(
            self.client, table, list(by_name), moved, locked=True, check=self.transaction.check
        )
        return {partition_name(keys, partition.values or []) for partition in written}

    def _end(self, table: types.Table) -> None:
        """Make the cluster the primary of a table whose partitions have moved."""
        name = full_name(table)

        def ended(now: types.Table) -> types.Table | None:
            relocate(now, home_of(self.place, now))
            present = read_metadata(now.parameters, name)
            self._set(now, replace(present, primary=self.place.name, next_primary=None))
            return now

        alter_table(self.client, name, ended, check=self.transaction.check)

    def _refuse_changed(self, table: types.Table, item: CopyObject, now: Described) -> None:
        self.transaction.check()
        copies = read_metadata(now.parameters, full_name(table)).secondaries
        same_copy = copies.get(self.place.name) == item.metadata.secondaries[self.place.name]
        if not item.is_unchanged(now) or not same_copy:
            self._refuse_altered(table, item.partition)

    def _refuse_altered(self, table: types.Table, partition: str = "") -> NoReturn:
        remedy = f"Copy it to {self.place.name}, and run this again."
        _refuse(full_name(table), self.place, "it has just been altered", remedy, partition)

    def _move(self, now: Described, item: CopyObject) -> None:
        """Exchange the locations of an object and of its copy."""
        copy = item.metadata.secondaries[self.place.name]
        former = str(now.sd and now.sd.location)
        relocate(now, copy.location)
        object_title = f"{now.dbName}.{now.tableName}/{item.partition}".rstrip("/")
        metadata = read_metadata(now.parameters, object_title).with_secondary(self.place.name, None)
        if self.keep_former:
            mark = source_mark(now, list_many([copy.location], options=self.options)[copy.location])
            metadata = metadata.with_secondary(self.former, Secondary(location=former, source=mark))
        self._set(now, metadata)

    def _set(self, now: Described, metadata: ClusterMetadata) -> None:
        now.parameters = write_metadata(now.parameters, metadata)

    def _remove_previous(self, table: types.Table, pending: Sequence[CopyObject]) -> list[str]:
        """Remove former primaries that preceded the present ones as copies; leave other copies to a sweep.

        A former primary lies in the default directory of its partition. If the partition is dropped and added
        again, its readers would find these rows.
        """
        copies = [item.metadata.secondaries[self.place.name] for item in pending]
        formers = [copy.former for copy in copies if copy.former]
        removed, _ = release(
            [former for former in formers if not is_among_copies(self.place, former)],
            self.place,
            table,
            primaries=[copy.location for copy in copies],
            at_once=True,
            options=self.options,
        )
        return removed

    def _check_left_alone(self, table: types.Table, pending: Sequence[CopyObject]) -> None:
        """Report files that others have written to the former locations meanwhile."""
        locations = [item.location for item in pending]
        now = list_many(locations, options=self.options, missing_ok=True)
        for item in pending:
            if source_mark(item.described, now[item.location]).listing != item.mark.listing:
                raise PrimaryRefusedError(
                    f"The primary of {full_name(table)} is {self.place.name} now, but another writer "
                    f"has changed {item.location} meanwhile.",
                    remedy="Stop that writer. Move its files into the present location of the table, or "
                    "remove them and repeat the write there.",
                    table=full_name(table),
                    partition=item.partition or None,
                    cluster=self.place.name,
                )
