"""Carries out the steps of a load, in the order of :mod:`.load`."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import TYPE_CHECKING

from airflow_hive_federation.errors import TargetChangedError
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.model.files import CopyItem
from airflow_hive_federation.progress.events import DanglingAborted, FilesCopied
from airflow_hive_federation.progress.kinds import Step
from airflow_hive_federation.progress.observers import Observer, Steps
from airflow_hive_federation.replication.format.directory import DumpDirectory
from airflow_hive_federation.replication.format.kinds import TableWork
from airflow_hive_federation.replication.format.manifest import TableEntry
from airflow_hive_federation.replication.format.tables import TableDocument
from airflow_hive_federation.replication.format.unfinished import COPY_PLAN, UnfinishedLoads
from airflow_hive_federation.replication.load.convergence import TableConvergence
from airflow_hive_federation.replication.load.copying import (
    EarlierCopies,
    TableCopy,
    move_renamed,
    plan_copy,
    remove_extraneous,
    report_copies,
    report_plan,
    total,
)
from airflow_hive_federation.replication.load.creating import give_write_ids, is_ours
from airflow_hive_federation.replication.load.digests import note_digests
from airflow_hive_federation.replication.load.making_room import PartitionRoom, made_before, needs_room
from airflow_hive_federation.replication.load.placing import Placing
from airflow_hive_federation.replication.load.remains import Remains
from airflow_hive_federation.replication.load.replay import OpenedTransactions, Replay
from airflow_hive_federation.replication.load.replayed_writes import ReplayedWrites
from airflow_hive_federation.replication.load.summary import CopyRunner, LoadSummary
from airflow_hive_federation.replication.load.survey import Survey
from airflow_hive_federation.replication.load.target_compactions import TargetCompactions
from airflow_hive_federation.replication.load.target_files import TargetFiles, content_there
from airflow_hive_federation.replication.load.target_functions import TargetFunctions
from airflow_hive_federation.replication.load.target_places import TargetPlaces
from airflow_hive_federation.replication.load.whole_dump import check_dump
from airflow_hive_federation.replication.metadata.database_properties import take_properties
from airflow_hive_federation.replication.metadata.directories import tables_with_files
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.replication.replica import markers
from airflow_hive_federation.replication.replica.cycle_history import CycleRecord, published
from airflow_hive_federation.replication.replica.database import find_layout, publish_target
from airflow_hive_federation.replication.replica.foreign_writes import ForeignWrite, refuse_foreign_writes
from airflow_hive_federation.replication.replica.layout import TargetLayout
from airflow_hive_federation.replication.replica.position import (
    TableState,
    read_position,
    refuse_later_writes,
)
from airflow_hive_federation.replication.replica.table_index import TableIndex
from airflow_hive_federation.storage.plan_files import write_bound_plan

if TYPE_CHECKING:
    from airflow_hive_federation.metastore import MetastoreClient, MetastorePool


class TargetLoad:
    """A load of an increment's dump; a bootstrap's is a :class:`~.first_load.FirstLoad`.

    :param client: client of the target.
    :param directory: the dump.
    :param pool: connections to the target, for work on many tables at once.
    :param threads: number of tables that are created in parallel.
    :param observer: receives the events of progress.
    :param step: announces the steps.
    :param check: runs before each file is moved or removed, and raises if the cycle must end.
    :param opened: the transactions of the policy's group, which are open already.
    :param given_up: URIs of dumps whose loads may have begun since this one's dump was made.
    """

    def __init__(
        self,
        client: MetastoreClient,
        policy: ReplicationPolicy,
        directory: DumpDirectory,
        *,
        pool: MetastorePool,
        threads: int,
        observer: Observer,
        step: Steps,
        check: Callable[[], None],
        opened: OpenedTransactions | None,
        given_up: Collection[str] = (),
    ) -> None:
        self._check = check
        self._given_up = given_up
        self._client = client
        self._pool, self._threads = pool, threads
        self._policy = policy
        self._database = policy.target_database
        self._directory = directory
        self._manifest = directory.manifest()
        self._repair_plan = self._manifest.repair_plan
        self._observer = observer
        self._step = step
        self._replay = Replay(client, policy, opened=opened)
        self._replayed = ReplayedWrites(directory)
        # Views come last, because Hive reads them through the tables.
        self._concerned = sorted(self._manifest.changed_tables, key=lambda entry: not entry.kind.has_files)
        self._entries = {entry.name: entry for entry in self._concerned}
        self._tables = frozenset(entry.name for entry in self._manifest.tables)
        self._documents: dict[str, TableDocument] = {}
        self._copies: dict[str, TableCopy] = {}
        self._states: Mapping[str, TableState] = {}
        self._unfinished: UnfinishedLoads | None = None
        self._is_resumed = False
        self._convergences: dict[str, TableConvergence] = {}
        self._shaped: set[str] = set()
        self._began_s = time.time()

    @property
    def is_increment(self) -> bool:
        """Return whether the target has had a load before."""
        return self._manifest.is_increment

    @property
    def lease(self) -> int:
        """Return the source's transaction that holds its cleaner back."""
        return self._manifest.lease

    def published_event(self) -> int | None:
        """Return the event at which the target is published if it has the dump; ``None`` if it lacks it.

        :raises CycleRunningError: a load of another dump has begun since this one was made.
        :raises TargetChangedError: the target does not stand where the dump goes on, or somebody wrote to it.
        """
        position = read_position(self._client, self._policy, also=self._repair_plan.tables)
        if position.dump == self._directory.uri:
            return self._manifest.event_id
        self._states = position.tables
        self._unfinished = position.unfinished(self._policy, besides=self._directory.uri)
        self._is_resumed = bool(position.unfinished(self._policy).dumps)
        if position.last_id != self._manifest.from_id or position.dump != self._manifest.previous:
            raise TargetChangedError(
                f"Target database {self._database} stands at event {position.last_id} (loaded from "
                f"{position.dump}); dump {self._directory.uri} goes on from event "
                f"{self._manifest.from_id} ({self._manifest.previous}).",
                remedy="Dump the next increment from where the target stands.",
                differences=[],
            )
        position.refuse_loads_since(self._policy, self._directory, given_up=self._given_up)
        position.refuse_foreign_writes(self._policy, replaced=self._repair_plan.replaced)
        return None

    def check_dump(self) -> None:
        """Read the whole dump, before anything is changed by a part of it."""
        check_dump(self._directory, self._policy.sources)

    def claim_places(self) -> None:
        """Refuse a dump by which tables would share or nest directories, before anything is dropped."""
        self._places.claim(self._client)

    def survey(self) -> None:
        """Find foreign writes before anything is placed or dropped, and plan the copies.

        :raises TargetChangedError: the target holds foreign writes.
        """
        self._step(Step.SURVEY)
        survey = Survey(self._client, self._layout, self._directory, self._manifest.previous)
        foreign: list[ForeignWrite] = []
        if not (self._repair_plan.database or self._policy.into_existing):
            functions = self._client.get_functions(self._database)
            foreign += survey.functions(str(function.functionName) for function in functions)
        for entry in self._concerned:
            foreign += self._surveyed(survey, entry)
        for name in self._manifest.dropped:
            if name not in self._repair_plan.tables:
                foreign += survey.dropped(name)
        refuse_foreign_writes(self._database, self._policy.name, foreign)

    def make_room(self) -> None:
        """Drop tables and partitions whose names now stand for others that this load has not made yet."""
        for entry in self._concerned:
            name = entry.name
            if entry.work is TableWork.REPLACE:
                if made_before(self._client.get_tables(self._database, [name]), self._directory.uri):
                    self._step(Step.REPLACE, name)
                    self._room.note()
                    self._places.drop_table(self._client, name)
                    self._states = {key: state for key, state in self._states.items() if key != name}
            elif needs_room(entry):
                self._room.make(self._document(name), entry)

    def copy(self, run_copy: CopyRunner) -> None:
        self._step(Step.COPY_PLAN)
        self._plan_copies()
        items = self._places.each_once(self._copy_items())
        plan, count = write_bound_plan(self._copy_plan, items, options=self._policy.storage_options)
        report_plan(self._database, self._copies, self._observer)
        self._step(Step.COPY)
        with ThreadPoolExecutor(max_workers=1, thread_name_prefix="prepare") as preparer:
            # The copy job runs in this thread, which has Airflow's context; it makes no call to the target.
            prepared = preparer.submit(self._prepare)
            if count:
                run_copy(plan, f"{self._directory.uri}/load/outcomes")
        prepared.result()
        for name, copy in self._copies.items():
            if copy.staged:
                self._step(Step.PLACE, name)
                self._placing.place(name, copy)
        self._observer(FilesCopied(database=self._database, files=count))
        report_copies(self._database, self._copies, self._observer)

    def shape(self) -> None:
        self._remains.remove(self._step, observer=self._observer, check=self._check)
        self._step(Step.FUNCTIONS)
        self._functions.converge()
        self._shape_tables()
        for name in self._with_foreign_keys():
            self._step(Step.FOREIGN_KEYS, name)
            self._table(name).add_foreign_keys()

    def allocate(self) -> None:
        others = [entry for entry in self._concerned if not self._goes_on(entry)]
        self._replay.allocate(self._replayed.missing(others, self._states), self._step)

    def keep_compactions_away(self) -> None:
        """Abort compactions of the target beside placed results of the source's; see :mod:`.placing`."""
        self._placing.refuse_overlaps()

    def end_transactions(self) -> None:
        for txn in self._replay.to_end(self._replayed.merging, self._replayed.ends()):
            self._step(Step.END_TRANSACTION, txn)
            self._replay.end(txn)

    def drop(self) -> None:
        for entry in self._concerned:
            self._step(Step.DROP_PARTITIONS, entry.name)
            repaired = entry.name in self._repair_plan.tables
            self._table(entry.name).drop_partitions(None if repaired else frozenset(entry.changes.gone))
        for name in self._manifest.dropped:
            self._step(Step.DROP, name)
            self._places.drop_table(self._client, name)
        for entry in self._concerned if self._manifest.dropped else ():
            if self._document(entry.name).constraints.set_fields():
                self._step(Step.CONSTRAIN, entry.name)
                self._table(entry.name).constrain()
        for name, copy in self._copies.items():
            if copy.extraneous:
                self._step(Step.REMOVE_FILES, name)
                remove_extraneous(copy, self._policy.storage_options, check=self._check)
        self._placing.let_readers_in(() if self._given_up else self._entries)

    def describe(self) -> None:
        for entry in self._concerned:
            self._step(Step.DESCRIBE, entry.name)
            self._table(entry.name).describe()

    def note_files(self) -> None:
        """Record the files of the tables concerned, for later loads and verifications."""
        self._step(Step.DIGESTS)
        previous = DumpDirectory(self._manifest.previous, self._policy.storage_options)
        note_digests(self._directory, self._layout, previous, self._document, self._manifest.changed_tables)

    def request_compactions(self) -> None:
        """Request the compactions that the target's tables need."""
        self._compactions.request(self._step, self._observer)

    def publish(self) -> None:
        self._step(Step.PUBLISH)
        self._refuse_later_writes()
        record = self._record()
        publish_target(self._client, self._policy, record, self._before_switch)
        self._observer(published(self._database, record))

    def sweep(self) -> None:
        self._step(Step.SWEEP)
        dangling = self._replay.sweep(list(self._manifest.open_writes))
        if dangling:
            self._observer(DanglingAborted(database=self._database, transactions=tuple(dangling)))

    def summary(self) -> LoadSummary:
        return LoadSummary(
            dump=self._directory.uri,
            database=self._database,
            event_id=self._manifest.event_id,
            tables=len(self._concerned),
            partitions=sum(entry.partitions for entry in self._concerned),
            functions=0 if self.is_increment else len(list(self._directory.functions())),
            skipped=TableIndex(self._directory).skipped,
        )

    # -- inside ----------------------------------------------------------------------------------------

    @property
    def _copy_plan(self) -> str:
        return f"{self._directory.uri}/{COPY_PLAN}"

    @cached_property
    def _layout(self) -> TargetLayout:
        return find_layout(self._client, self._policy)

    @cached_property
    def _places(self) -> TargetPlaces:
        leaving = set()
        if self._manifest.dropped:
            before = DumpDirectory(self._manifest.previous, self._policy.storage_options).manifest().tables
            leaving = {*self._manifest.dropped} & {*tables_with_files(before, external=False)}
        return TargetPlaces(self._directory, self._layout, leaving)

    @cached_property
    def _room(self) -> PartitionRoom:
        return PartitionRoom(self._client, self._directory, self._layout, step=self._step)

    @cached_property
    def _remains(self) -> Remains:
        return Remains(self._client, self._directory, self._layout)

    @cached_property
    def _compactions(self) -> TargetCompactions:
        return TargetCompactions(self._client, self._directory, self._layout, database=self._database)

    @cached_property
    def _placing(self) -> Placing:
        return Placing(self._client, self._directory, self._layout, check=self._check)

    @cached_property
    def _functions(self) -> TargetFunctions:
        return TargetFunctions(self._client, self._layout, self._directory, self._manifest)

    def _document(self, name: str) -> TableDocument:
        if name not in self._documents:
            self._documents[name] = self._directory.table(name)
        return self._documents[name]

    def _surveyed(self, survey: Survey, entry: TableEntry) -> list[ForeignWrite]:
        """Return foreign writes to a table, and plan its copy unless room for it is made first."""
        name = entry.name
        foreign: list[ForeignWrite] = []
        trusted = name in self._repair_plan.tables
        if name not in self._states and entry.kind.transactional:
            foreign += survey.adopted_write_ids(name, entry.changes.seed or 0)
        if name in self._states and not trusted:
            replaced = entry.work is TableWork.REPLACE
            foreign += survey.dropped(name) if replaced else survey.partitions(name)
        if entry.kind.has_files:
            present = self._content_there(entry)
            # The remains that the load removes are not suspect.
            foreign += () if needs_room(entry) else self._plan_copy(entry, present)
            files = self._remains.without(name, present.files)
            foreign += () if trusted else survey.files(self._document(name), files)
        return foreign

    def _content_there(self, entry: TableEntry) -> TargetFiles:
        document, only = self._document(entry.name), self._only(entry)
        return content_there(self._directory, self._layout, document, only, total=entry.partitions)

    def _only(self, entry: TableEntry) -> frozenset[str] | None:
        """Return the partitions of a table that the load works on; ``None`` for all of them.

        Partitions that the cycle does not concern are as an earlier load left them. If somebody else has
        changed them, a verification finds that.
        """
        concerned = entry.changes.concerned
        has_table = entry.work is TableWork.CONTINUE and entry.name in self._states
        return frozenset(concerned) if has_table and concerned is not None else None

    def _plan_copies(self) -> None:
        """Plan the copies that were not planned before room was made."""
        foreign: list[ForeignWrite] = []
        for entry in self._concerned:
            if entry.kind.has_files and entry.name not in self._copies:
                foreign += self._plan_copy(entry, self._content_there(entry))
        refuse_foreign_writes(self._database, self._policy.name, foreign)
        self._places.spare_shared(self._copies)
        move_renamed(self._copies, self._earlier_copies)

    def _plan_copy(self, entry: TableEntry, present: TargetFiles) -> Sequence[ForeignWrite]:
        """Plan the copy of a table; return the files of others that readers would see in new directories."""
        name, document = entry.name, self._document(entry.name)
        remains = self._remains.find(document, present, self._only(entry))
        there = remains.there
        state = self._states.get(name)
        complete = state.complete if state else 0
        self._copies[name] = plan_copy(
            self._directory,
            self._layout,
            document,
            there=there,
            visible=state.high_watermark if state else None,
            before=self._earlier_copies.files(document),
            repaired=self._repair_plan.files | self._earlier_copies.overwritten(document),
            complete=complete,
            only=self._only(entry),
            transactions=self._placing.transactions,
            resumed=self._is_resumed,
            unread=remains.unread,
        )
        self._compactions.note(document, there, self._copies[name], self._only(entry))
        self._placing.note(document, self._copies[name], complete, self._only(entry))
        return () if name in {*self._repair_plan.tables, *self._manifest.adopted} else remains.foreign

    def _prepare(self) -> None:
        """Do the work that is possible while files are copied."""
        self._replay.open(self._replayed.missing(self._concerned, self._states), self._step)
        continued = [entry for entry in self._concerned if self._goes_on(entry)]
        for name in [entry.name for entry in continued]:
            self._step(Step.KEEP_SHAPE, name)
            if self._table(name).keep_shape():
                self._shaped.add(name)
        self._replay.allocate(self._replayed.missing(continued, self._states), self._step)

    def _shape_tables(self) -> None:
        for entry in self._concerned:
            if entry.name not in self._shaped:
                self._step(Step.SEED, entry.name)
                self._seed(entry)
                self._step(Step.SHAPE, entry.name)
                self._table(entry.name).shape()

    def _with_foreign_keys(self) -> list[str]:
        return [entry.name for entry in self._concerned if self._document(entry.name).constraints.foreignKeys]

    def _goes_on(self, entry: TableEntry) -> bool:
        """Return whether the target has the table, and its readers see only committed write ids."""
        return entry.work is TableWork.CONTINUE and entry.kind.transactional

    def _refuse_later_writes(self) -> None:
        refuse_later_writes(self._client, self._policy, self._directory)

    def _before_switch(self, database: types.Database) -> None:
        """Bring what the target database holds besides its position to the state of the dump."""
        self._places.release(self._client, database.parameters)
        take_properties(database, self._directory.database(), adopted=self._policy.into_existing)
        database.parameters = {
            **self._places.recorded(dict(database.parameters or {})),
            markers.CHECKPOINT: self._directory.uri,
        }

    def _record(self) -> CycleRecord:
        now_s = time.time()
        files, size_bytes = self._copied()
        return CycleRecord(
            kind=self._manifest.kind.value.lower(),
            event_id=self._manifest.event_id,
            ended_s=int(now_s),
            seconds=round(now_s - self._began_s, 1),
            events=self._manifest.events,
            tables=len(self._concerned),
            files=files,
            size_bytes=size_bytes,
            transactions=self._manifest.transactions,
        )

    def _copied(self) -> tuple[int, int]:
        """Return the number of files of tables that are copied, and their size."""
        return total(self._copies)

    def _table(self, name: str) -> TableConvergence:
        if name not in self._convergences:
            self._convergences[name] = self._convergence(
                self._document(name), self._client, self._only(self._entries[name])
            )
        return self._convergences[name]

    def _convergence(
        self, document: TableDocument, client: MetastoreClient, only: Collection[str] | None = None
    ) -> TableConvergence:
        return TableConvergence(
            client,
            self._layout,
            self._directory,
            document=document,
            parameters=markers.object_markers(
                self._policy.name, self._directory.uri, self._manifest.event_id
            ),
            tables=self._tables,
            observer=self._observer,
            only=only,
        )

    def _seed(self, entry: TableEntry) -> None:
        """Give a table that is new, or is about to be adopted, its initial write ids before it is read."""
        present = self._client.get_tables(self._database, [entry.name]) if entry.changes.seed else ()
        if entry.changes.seed and not any(is_ours(table, self._policy) for table in present):
            give_write_ids(self._client, self._policy, entry.name, entry.changes.seed)

    def _copy_items(self) -> Iterator[CopyItem]:
        for copy in self._copies.values():
            yield from copy.items
        yield from self._functions.copy_items()

    @cached_property
    def _earlier_copies(self) -> EarlierCopies:
        options = self._policy.storage_options
        return EarlierCopies(self._manifest.previous, options, unfinished=self._unfinished)
