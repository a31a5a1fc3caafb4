"""Loads a bootstrap dump into the target.

The load has these steps, in this order; each can be killed and repeated:

1. The target database is marked as the policy's (or found so marked; any other is refused).
2. The copy plan is written into the dump, and a Spark job carries it out. Files land under their final names
   only when they are whole, and no reader sees them, because no table points at them yet.
3. Functions and tables are created: each table with its write-id state before it can be read, then its
   partitions, then foreign keys and views.
4. The database's ``repl.last.id`` is set, which publishes the load.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import TYPE_CHECKING, Any

from airflow_hive_federation.errors import (
    AlreadyExistsError,
    DumpIncompleteError,
    FileVanishedError,
    TargetChangedError,
)
from airflow_hive_federation.metastore.calls.partition_pages import page_size
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.model.files import CopyItem
from airflow_hive_federation.model.write_ids import ValidWriteIds
from airflow_hive_federation.progress.events import FileRemoved, Published, TableCreated
from airflow_hive_federation.progress.kinds import Activity, Step
from airflow_hive_federation.progress.observers import LOGGED, Observer, Steps, counted
from airflow_hive_federation.replication.format.directory import DumpDirectory
from airflow_hive_federation.replication.format.kinds import TableKind
from airflow_hive_federation.replication.format.tables import TableDocument
from airflow_hive_federation.replication.format.unfinished import COPY_PLAN
from airflow_hive_federation.replication.load.copying import files_there
from airflow_hive_federation.replication.load.creating import (
    create_table,
    keep_managed,
    seed_text,
    seed_write_ids,
)
from airflow_hive_federation.replication.load.stages import Stage, StagedLoad, to_end
from airflow_hive_federation.replication.load.summary import CopyRunner, LoadSummary, acknowledge
from airflow_hive_federation.replication.load.survey import Survey, is_noted, note_placed
from airflow_hive_federation.replication.load.target_places import TargetPlaces
from airflow_hive_federation.replication.load.whole_dump import check_dump
from airflow_hive_federation.replication.metadata import definitions, statistics
from airflow_hive_federation.replication.metadata.constraints import (
    add_foreign_keys,
    target_constraints,
)
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.replication.replica import database as target
from airflow_hive_federation.replication.replica import markers
from airflow_hive_federation.replication.replica.cycle_history import BOOTSTRAP, CycleRecord
from airflow_hive_federation.replication.replica.differences import (
    Difference,
    definition_differences,
    metadata_differences,
)
from airflow_hive_federation.replication.replica.foreign_writes import SHOWN, ForeignWrite
from airflow_hive_federation.replication.replica.functions import (
    function_items,
    put_function,
    target_function,
)
from airflow_hive_federation.replication.replica.layout import TargetLayout
from airflow_hive_federation.replication.replica.markers import TargetState
from airflow_hive_federation.replication.replica.table_index import TableIndex
from airflow_hive_federation.storage.durable import sync_directories
from airflow_hive_federation.storage.filesystem import canonical, join, open_filesystem, storage_errors
from airflow_hive_federation.storage.plan_files import read_plan, write_bound_plan
from airflow_hive_federation.storage.publishing import remove_file
from airflow_hive_federation.transactions.lease import LeaseKeeper

if TYPE_CHECKING:
    from airflow_hive_federation.metastore import MetastoreClient, MetastorePool


def load_bootstrap(
    source: MetastorePool,
    target_pool: MetastorePool,
    policy: ReplicationPolicy,
    dump: str,
    *,
    run_copy: CopyRunner,
    threads: int = 4,
    observer: Observer = LOGGED,
    check: Callable[[], None] = lambda: None,
) -> LoadSummary:
    """Load a finished dump; a load that was published already changes nothing.

    :param source: connections to the source: its cleaner is held back while files are copied.
    :param target_pool: connections to the target.
    :param dump: URI of the dump.
    :param run_copy: carries out a copy plan (URI of the plan, URI of the directory for outcomes).
    :param threads: number of tables created in parallel.
    :param observer: receives the events of progress.
    :param check: runs before each step and before each file is removed, and raises if the cycle must end.
    :raises DumpIncompleteError: the dump is not finished, or the source has removed files it lists.
    :raises DumpCorruptError: the dump is not as it was written.
    :raises TargetNotOursError: the target database is not this policy's.
    :raises TargetChangedError: a table of the target was changed by someone else, or is not the policy's.
    :raises LocationConflictError: tables would share or nest directories of the target.
    :raises HiddenLocationError: Hive would hide tables of the target.
    """
    return to_end(
        bootstrap_stages(
            source,
            target_pool,
            policy,
            dump,
            run_copy=run_copy,
            threads=threads,
            observer=observer,
            check=check,
        )
    )


def bootstrap_stages(
    source: MetastorePool,
    target_pool: MetastorePool,
    policy: ReplicationPolicy,
    dump: str,
    *,
    run_copy: CopyRunner,
    threads: int = 4,
    observer: Observer = LOGGED,
    check: Callable[[], None] = lambda: None,
) -> StagedLoad:
    """Load a bootstrap as :func:`load_bootstrap` does, and pause before it is published."""
    directory = DumpDirectory(dump, policy.storage_options)
    step = Steps(observer, policy.target_database, check)
    load = _Load(target_pool, policy, directory, observer=observer, step=step)
    with target_pool.client() as client:
        state = target.find_target(client, policy)
    if state.state is TargetState.LOADED and state.last_id is not None:
        load.refuse_changes(state.last_id)
        observer(Published(database=policy.target_database, event_id=state.last_id, earlier=True))
    else:
        check_dump(directory, policy.sources)
        load.check_other_plans()
        load.reserve()
        with LeaseKeeper(source, load.lease):
            load.copy(run_copy)
        load.sweep(check)
        load.create(threads)
        yield Stage.PREPARED
        load.publish()
    return acknowledge(source, directory, load.lease, load.summary(), step=step)


class _Load:
    def __init__(
        self,
        pool: MetastorePool,
        policy: ReplicationPolicy,
        directory: DumpDirectory,
        *,
        observer: Observer,
        step: Steps,
    ) -> None:
        self._pool = pool
        self._policy = policy
        self._directory = directory
        self._manifest = directory.manifest()
        self._observer = observer
        self._step = step
        self._event_id = self._manifest.event_id
        self._functions = list(directory.functions())
        self._layout = TargetLayout(policy=policy, managed="")
        self._places: TargetPlaces
        self._began_s = time.time()

    @property
    def lease(self) -> int:
        return self._manifest.lease

    @property
    def _copy_plan(self) -> str:
        return f"{self._directory.uri}/{COPY_PLAN}"

    def _is_checkpoint(self) -> bool:
        """Return whether the database was loaded from this very dump."""
        with self._pool.client() as client:
            database = client.get_database(self._policy.target_database)
        return bool((database.parameters or {}).get(markers.CHECKPOINT) == self._directory.uri)

    def refuse_changes(self, last_id: int) -> None:
        """Refuse a published target that differs from the dump.

        :raises TargetChangedError: somebody else has changed the target, or the source has moved on since.
        """
        with self._pool.client() as client:
            layout = target.find_layout(client, self._policy)
            differences = metadata_differences(client, layout, TableIndex(self._directory))
        if not differences:
            return
        if self._is_checkpoint():
            raise _changed(f"Target database {self._policy.target_database}", differences)
        raise TargetChangedError(
            f"Target database {self._policy.target_database} is published at event {last_id}; dump "
            f"{self._directory.uri} is of event {self._event_id} and differs in:\n  "
            + "\n  ".join(map(str, differences)),
            remedy="A bootstrap is loaded once: go on by increments, or drop the target to bootstrap anew.",
            differences=[str(difference) for difference in differences],
        )

    def check_other_plans(self) -> None:
        """Read the copy plans of earlier loads, by which :meth:`sweep` removes files.

        :raises DumpCorruptError: a plan has names that lead elsewhere.
        """
        for plan in self._other_plans():
            for _ in read_plan(plan, options=self._policy.storage_options):
                pass

    def reserve(self) -> None:
        self._step(Step.RESERVE)
        source = self._directory.database()
        with self._pool.client() as client:
            target.reserve_target(client, self._policy, source, checkpoint=self._directory.uri)
            self._layout = target.find_layout(client, self._policy)
            self._refuse_foreign_tables(client)
            self._places = TargetPlaces(self._directory, self._layout)
            self._places.claim(client, anew=True)

    def copy(self, run_copy: CopyRunner) -> None:
        self._step(Step.COPY_PLAN)
        if not self._policy.into_existing:
            self._refuse_foreign_files()
        plan, count = write_bound_plan(
            self._copy_plan, self._places.each_once(self._copy_items()), options=self._policy.storage_options
        )
        self._step(Step.COPY)
        if not count:
            return
        try:
            run_copy(plan, f"{self._directory.uri}/load/outcomes")
        except FileVanishedError as error:
            raise DumpIncompleteError(
                f"Dump {self._directory.uri} is out of date: {error.message}",
                remedy="Begin again with the drain and the dump (in Airflow: run the DAG, or clear its first "
                "task). Files that were copied are not copied again.",
                dump=self._directory.uri,
                path=error.facts.get("path"),
            ) from error

    def sweep(self, check: Callable[[], None]) -> None:
        """Remove files that earlier loads of this policy planned to copy and that this load does not copy.

        Such a load was given up (because its dump had gone out of date, for example) before it created a
        table. Its files lie in the directories of tables that are about to be created, and readers would see
        them. Files elsewhere do not belong to this target: the policy may have had another target database
        before, which is still read.
        """
        self._step(Step.SWEEP)
        options = self._policy.storage_options
        others = self._other_plans()
        if not others:
            return
        wanted = {canonical(item.target) for item in read_plan(self._copy_plan, options=options)}
        emptied = set()
        for plan in others:
            for item in read_plan(plan, options=options):
                if canonical(item.target) not in wanted and self._places.owns(item.target):
                    check()
                    if remove_file(item.target, options):
                        emptied.add(item.target.rpartition("/")[0])
                        self._observer(FileRemoved(uri=item.target))
        # A crash must not bring these files back below a table that exists by then.
        sync_directories(emptied)

    def create(self, threads: int) -> None:
        self._step(Step.FUNCTIONS)
        with self._pool.client() as client:
            for function in self._functions:
                put_function(client, target_function(function, self._layout))
        tables = [entry for entry in self._manifest.tables if entry.kind.has_files]
        views = [entry for entry in self._manifest.tables if not entry.kind.has_files]
        with ThreadPoolExecutor(max_workers=threads, thread_name_prefix="load") as workers:
            for make, group in (
                (self._create_table, tables),
                (self._add_foreign_keys, tables),
                (self._create_table, views),
            ):
                for job in [workers.submit(make, entry.name) for entry in group]:
                    job.result()

    def publish(self) -> None:
        for entry in self._manifest.tables:
            if is_noted(entry.kind):
                document = self._directory.table(entry.name)
                note_placed(self._directory, self._layout, document)
        self._step(Step.PUBLISH)
        with self._pool.client() as client:
            target.publish_target(client, self._policy, self._record())
        self._observer(Published(database=self._policy.target_database, event_id=self._event_id))

    def _record(self) -> CycleRecord:
        now_s = time.time()
        return CycleRecord(
            kind=BOOTSTRAP,
            event_id=self._event_id,
            ended_s=int(now_s),
            seconds=round(now_s - self._began_s, 1),
            tables=len(self._manifest.tables),
            files=self._manifest.dumped_files,
            size_bytes=self._manifest.size_bytes,
        )

    def summary(self) -> LoadSummary:
        return LoadSummary(
            dump=self._directory.uri,
            database=self._policy.target_database,
            event_id=self._event_id,
            tables=len(self._manifest.tables),
            partitions=self._manifest.partitions,
            functions=len(self._functions),
            skipped=TableIndex(self._directory).skipped,
        )

    # -- items and plans -------------------------------------------------------------------------------

    def _copy_items(self) -> Iterator[CopyItem]:
        for entry in self._manifest.tables:
            document = self._directory.table(entry.name)
            for file in self._directory.files(entry.name):
                yield self._layout.item(document, file)
        for function in self._functions:
            yield from function_items(function, self._layout)

    def _other_plans(self) -> list[str]:
        """Return the URIs of the copy plans of the policy's other dumps."""
        options = self._policy.storage_options
        filesystem, path = open_filesystem(self._policy.directory, options)
        with storage_errors(self._policy.directory):
            plan_paths = filesystem.glob(f"{path}/*/{COPY_PLAN}")
        plans = {canonical(join(self._policy.directory, *plan.split("/")[-3:])) for plan in plan_paths}
        return sorted(plans - {canonical(self._copy_plan)})

    # -- steps -----------------------------------------------------------------------------------------

    def _refuse_foreign_tables(self, client: MetastoreClient) -> None:
        """Refuse tables without a marker of the policy: a load must not overwrite somebody else's table."""
        if self._policy.into_existing:
            return
        names = client.list_tables(self._policy.target_database)
        tables: list[Any] = list(client.get_tables(self._policy.target_database, names)) if names else []
        foreign = [
            table.tableName
            for table in tables
            if (table.parameters or {}).get(markers.POLICY) != self._policy.name
        ]
        if foreign:
            raise TargetChangedError(
                f"Target database {self._policy.target_database} holds tables that policy "
                f"{self._policy.name!r} did not make: {', '.join(sorted(foreign))}.",
                remedy="Drop or move them, or set into_existing to adopt what is identical.",
                differences=sorted(foreign),
            )

    def _refuse_foreign_files(self) -> None:
        """Refuse files in the directories of new tables: they would become rows, or be replaced."""
        foreign: list[ForeignWrite] = []
        with self._pool.client() as client:
            survey = Survey(client, self._layout, self._directory, None)
        for entry in self._manifest.tables:
            if entry.kind.has_files:
                document = self._directory.table(entry.name)
                present = files_there(self._layout, document, self._policy.storage_options)
                foreign += survey.files(document, present)
        if foreign:
            writes = sorted(map(str, foreign))
            raise TargetChangedError(
                f"The directories for tables of target database {self._policy.target_database} contain files "
                f"that policy {self._policy.name!r} did not place:\n  " + "\n  ".join(writes[:SHOWN]),
                remedy="Move them elsewhere, or set into_existing to replace those that have the name of a "
                "file of the source.",
                differences=writes,
            )

    def _create_table(self, name: str) -> None:
        self._step(Step.TABLE, name)
        document = self._directory.table(name)
        target_table = statistics.without_stale_statistics(
            self._layout.table(
                document, markers.object_markers(self._policy.name, self._directory.uri, self._event_id)
            )
        )
        with self._pool.client() as client:
            if document.write_ids:
                self._seed_write_ids(client, name, document.write_ids)
            self._step(Step.CREATE, name)
            self._create_or_keep(client, target_table, document.constraints)
            self._step(Step.PARTITIONS, name)
            count = self._add_partitions(client, document)
        self._observer(TableCreated(table=f"{self._policy.target_database}.{name}", partitions=count))

    def _seed_write_ids(self, client: MetastoreClient, name: str, write_ids: ValidWriteIds) -> None:
        if write_ids.high_watermark > 0:
            seed_write_ids(client, self._policy.target_database, name, write_ids.high_watermark)

    def _create_or_keep(
        self, client: MetastoreClient, made: Any, constraints: types.SQLAllTableConstraints
    ) -> None:
        try:
            create_table(client, made, target_constraints(constraints, self._policy))
        except AlreadyExistsError:
            keep_managed(client, made)
            current = client.get_table(made.dbName, made.tableName)
            differences = definition_differences(made, current)
            if not differences:
                return  # An earlier run of this load has created it.
            if not self._policy.into_existing:
                raise _changed(f"Table {made.dbName}.{made.tableName}", differences) from None
            made.id = current.id
            client.alter_table(made.dbName, made.tableName, made, environment=statistics.KEEP_STATISTICS)

    def _add_partitions(self, client: MetastoreClient, document: TableDocument) -> int:
        name, count = document.name, 0
        waiting = counted(
            self._partitions(document),
            f"{self._policy.target_database}.{name}",
            Activity.CREATED,
            self._observer,
        )
        storage = document.table.sd
        size = page_size(len(storage.cols or ()) if storage else 0, with_column_stats=True)
        while batch := list(islice(waiting, size)):
            count += len(batch)
            statistics.add_partitions(
                client,
                batch,
                valid_write_ids=(
                    seed_text(self._policy.target_database, name, document.write_ids.high_watermark)
                    if document.write_ids
                    else None
                ),
                insert_only=document.kind is TableKind.INSERT_ONLY,
                # Existing partitions keep their data if it is identical, and take the dump's definition.
                replace=self._policy.into_existing,
            )
        return count

    def _partitions(self, document: TableDocument) -> Iterator[Any]:
        for line in self._directory.partitions(document.name):
            target_partition = definitions.target_partition(
                line.partition(),
                database=self._policy.target_database,
                location=self._layout.directory(document, line.location, line.name),
                parameters=markers.object_markers(self._policy.name, self._directory.uri, self._event_id),
            )
            yield definitions.with_honest_statistics(target_partition, document.write_ids)

    def _add_foreign_keys(self, table: str) -> None:
        """Add the foreign keys that a table lacks: every table to which they can refer exists now."""
        document = self._directory.table(table)
        wanted = target_constraints(document.constraints, self._policy)
        if not wanted.foreignKeys:
            return
        self._step(Step.FOREIGN_KEYS, table)
        with self._pool.client() as client:
            add_foreign_keys(client, self._policy, table, wanted)


def _changed(what: str, differences: Sequence[Difference]) -> TargetChangedError:
    lines = "\n  ".join(map(str, differences))
    return TargetChangedError(
        f"{what} was changed on the target, by somebody else than this policy:\n  {lines}",
        remedy="Undo the changes, or drop the target database and bootstrap it anew.",
        differences=[str(difference) for difference in differences],
    )
