"""Carries out the load of a bootstrap, from an empty position: the target has nothing yet.

The target database is marked as the policy's (or found so marked; any other is refused). Every file of the
dump is copied: no reader sees it, because no table points at it yet. Tables are created with all that they
have, many at once: first those with files, then views.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

from airflow_hive_federation.errors import TargetChangedError
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.model.files import CopyItem
from airflow_hive_federation.progress.events import TableCreated
from airflow_hive_federation.progress.kinds import Step
from airflow_hive_federation.replication.format.tables import TableDocument
from airflow_hive_federation.replication.load.creating import changed_by_others, is_ours
from airflow_hive_federation.replication.load.given_up import check_given_up, remove_given_up
from airflow_hive_federation.replication.load.kept_out import end_left
from airflow_hive_federation.replication.load.making_room import made_before
from airflow_hive_federation.replication.load.survey import Survey, is_noted, note_placed
from airflow_hive_federation.replication.load.target_files import files_there
from airflow_hive_federation.replication.load.target_load import TargetLoad
from airflow_hive_federation.replication.metadata.definitions import table_kind
from airflow_hive_federation.replication.replica import markers
from airflow_hive_federation.replication.replica.database import find_target, reserve_target
from airflow_hive_federation.replication.replica.differences import metadata_differences
from airflow_hive_federation.replication.replica.foreign_writes import SHOWN, ForeignWrite
from airflow_hive_federation.replication.replica.table_index import TableIndex
from airflow_hive_federation.transactions.write_id_counts import max_allocated_write_id

if TYPE_CHECKING:
    from airflow_hive_federation.metastore import MetastoreClient

_REMEDY = (
    "Move them elsewhere, or set into_existing to replace those that have the name of a file of the source."
)
_REMEDY_OF_ADOPTED = (
    "Copy their rows elsewhere if they are needed, then drop these tables on the target: the load copies "
    "them anew."
)


class FirstLoad(TargetLoad):
    """The load of a bootstrap's dump. See :class:`~.target_load.TargetLoad` for the parameters."""

    #: The tables that have foreign keys, as their creation has found.
    _referring: list[str]

    def published_event(self) -> int | None:
        """Return the event at which the target is published; ``None`` if it is not published.

        :raises TargetChangedError: the target is published, and somebody else has changed it or the source
            has moved on since.
        """
        last_id = find_target(self._client, self._policy).last_id
        if last_id is None:
            return None
        differences = metadata_differences(self._client, self._layout, TableIndex(self._directory))
        if not differences:
            return last_id
        loaded = (self._client.get_database(self._database).parameters or {}).get(markers.CHECKPOINT)
        if loaded == self._directory.uri:
            raise changed_by_others(f"Target database {self._database}", differences)
        raise TargetChangedError(
            f"Target database {self._database} is published at event {last_id}; dump {self._directory.uri} "
            f"is of event {self._manifest.event_id} and differs in:\n  " + "\n  ".join(map(str, differences)),
            remedy="A bootstrap is loaded once: go on by increments, or drop the target to bootstrap anew.",
            differences=[str(difference) for difference in differences],
        )

    def claim_places(self) -> None:
        """Mark the target database as the policy's, and refuse tables there that are not the policy's."""
        check_given_up(self._policy, self._copy_plan)
        self._step(Step.RESERVE)
        source = self._directory.database()
        reserve_target(self._client, self._policy, source, checkpoint=self._directory.uri)
        if not self._policy.into_existing:
            self._refuse_foreign_tables()
        self._places.claim(self._client, anew=True)

    def survey(self) -> None:
        """Refuse files in the directories of new tables: they would become rows, or be replaced.

        Of adopted tables, only transactional ones are examined, for other write ids than the source's: their
        rows would appear when the source gives them out, or hide the source's.

        :raises TargetChangedError: the directories contain files that no load of the policy placed, or an
            adopted table has other write ids.
        """
        adopting = self._policy.into_existing
        self._step(Step.SURVEY)
        survey = Survey(self._client, self._layout, self._directory, None)
        foreign: list[ForeignWrite] = []
        for entry in self._concerned:
            if entry.kind.transactional or (entry.kind.has_files and not adopting):
                document = self._document(entry.name)
                present = files_there(self._layout, document, self._policy.storage_options)
                foreign += survey.files(document, present)
                if document.write_ids:
                    foreign += survey.adopted_write_ids(entry.name, document.write_ids.high_watermark)
        if foreign:
            writes = sorted(map(str, foreign))
            raise TargetChangedError(
                f"The tables of target database {self._database}, or their directories, hold writes "
                f"that policy {self._policy.name!r} did not make:\n  " + "\n  ".join(writes[:SHOWN]),
                remedy=_REMEDY_OF_ADOPTED if adopting else _REMEDY,
                differences=writes,
            )

    def make_room(self) -> None:
        """Drop the tables that loads which were given up have made, before files are copied.

        Such a load had another dump: its definitions, partitions, statistics and write ids are older. The
        files stay if this load may copy them, and the copy passes over those that are in place.
        """
        names = self._client.list_tables(self._database)
        tables: list[types.Table] = list(self._client.get_tables(self._database, names)) if names else []
        for table in made_before(tables, self._directory.uri):
            # A table without the name of its dump was made by no load.
            if is_ours(table, self._policy) and markers.CHECKPOINT in (table.parameters or {}):
                self._step(Step.REPLACE, table.tableName)
                self._drop_given_up(table)

    def shape(self) -> None:
        """Create functions and tables, after the files of loads that were given up are gone.

        Readers come in again where a killed load of an earlier target with this name has kept them out.
        """
        self._step(Step.SWEEP)
        remove_given_up(
            self._policy, self._copy_plan, self._places, observer=self._observer, check=self._check
        )
        super().shape()
        # All files are in place, but for those of tables that the target had before, and the source lacks.
        lacking = {*self._client.list_tables(self._database)} - self._entries.keys()
        end_left(self._client, self._policy, keep=lacking)

    def note_files(self) -> None:
        """Record the times of files without write ids, by which later loads notice foreign writes.

        The outcomes of the copy have the digests of all files.
        """
        self._step(Step.DIGESTS)
        for entry in filter(lambda entry: is_noted(entry.kind), self._concerned):
            note_placed(self._directory, self._layout, self._document(entry.name))

    # -- inside ----------------------------------------------------------------------------------------

    def _drop_given_up(self, table: types.Table) -> None:
        name, adopting = str(table.tableName), self._policy.into_existing
        entry = self._entries.get(name)
        if entry is None and adopting:
            # Perhaps somebody's own: the cycle does not know whether the source has dropped it.
            return
        is_same = entry is not None and table_kind(table) is entry.kind
        if is_same and table_kind(table).transactional and not adopting:
            # The source gives out lower write ids than before only for another table.
            write_ids = self._document(name).write_ids
            reached = max_allocated_write_id(self._client, self._database, name)
            is_same = reached <= (write_ids.high_watermark if write_ids else 0)
        if is_same or adopting:
            self._client.drop_table(self._database, name, delete_data=False, if_exists=True)
        else:
            self._places.drop_table(self._client, name)

    def _document(self, name: str) -> TableDocument:
        # A bootstrap's tables are too many to keep all documents in memory.
        return self._directory.table(name)

    def _refuse_foreign_tables(self) -> None:
        names = self._client.list_tables(self._database)
        tables: list[types.Table] = list(self._client.get_tables(self._database, names)) if names else []
        foreign = sorted(
            table.tableName
            for table in tables
            if (table.parameters or {}).get(markers.POLICY) != self._policy.name
        )
        if foreign:
            raise TargetChangedError(
                f"Target database {self._database} holds tables that policy {self._policy.name!r} did not "
                f"make: {', '.join(foreign)}.",
                remedy="Drop or move them, or set into_existing to adopt what is identical.",
                differences=foreign,
            )

    def _plan_copies(self) -> None:
        """Compare nothing: the plan lists each file of the dump, and the copy passes over those in place."""

    def _copy_items(self) -> Iterator[CopyItem]:
        for entry in self._concerned:
            document = self._document(entry.name)
            for file in self._directory.files(entry.name):
                yield self._layout.item(document, file)
        yield from self._functions.copy_items()

    def _prepare(self) -> None:
        """Do nothing while files are copied: there is no table whose readers could go on."""

    def _shape_tables(self) -> None:
        self._referring = []
        clients: SimpleQueue[MetastoreClient] = SimpleQueue()
        clients.put(self._client)

        @contextmanager
        def borrowed() -> Iterator[MetastoreClient]:
            # This thread only waits meanwhile: its client serves, too.
            try:
                own = clients.get_nowait()
            except Empty:
                own = None
            if own is None:
                with self._pool.client() as client:
                    yield client
                return
            try:
                yield own
            finally:
                clients.put(own)

        def create(name: str) -> None:
            self._step(Step.TABLE, name)
            document = self._document(name)
            with borrowed() as client:
                partitions = self._convergence(document, client).create(self._step)
            if document.constraints.foreignKeys:
                self._referring.append(name)
            self._observer(TableCreated(table=f"{self._database}.{name}", partitions=partitions))

        # The pool lends this thread's client already, so a further worker would wait for it in vain.
        threads = min(self._threads, self._pool.size)
        with ThreadPoolExecutor(max_workers=threads, thread_name_prefix="load") as workers:
            for has_files in (True, False):
                names = [entry.name for entry in self._concerned if entry.kind.has_files is has_files]
                for job in [workers.submit(create, name) for name in names]:
                    job.result()

    def _with_foreign_keys(self) -> list[str]:
        return sorted(self._referring)

    def _refuse_later_writes(self) -> None:
        """Refuse nothing: an adopted table may have had write ids of its own."""

    def _before_switch(self, database: types.Database) -> None:
        """Change nothing: the database has been the dump's since it was reserved."""

    def _copied(self) -> tuple[int, int]:
        return self._manifest.dumped_files, self._manifest.size_bytes
