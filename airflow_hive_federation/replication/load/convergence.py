"""Brings a target's table to a definition of the source: its own, its partitions' and its statistics.

It compares states, not events: whatever happened to a table in between, and wherever an earlier run was
killed, the target ends in the source's state. It works in two passes, because statistics hold for write ids.
*Before* the cycle's transactions are replayed, a table gets its new shape, and statistics of its rows are
withdrawn; *after* them, it gets the new statistics. In between, no reader gets a wrong number of rows.
"""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from airflow_hive_federation.errors import NoSuchObjectError, TargetChangedError
from airflow_hive_federation.metastore.calls.partition_pages import page_size
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.metastore.objects import Described, TableOrPartition
from airflow_hive_federation.metastore.wire import to_json
from airflow_hive_federation.model.side_parameters import is_side_parameter
from airflow_hive_federation.model.write_ids import ValidWriteIds
from airflow_hive_federation.progress.kinds import Activity, Step
from airflow_hive_federation.progress.observers import Observer, Steps, counted, unobserved
from airflow_hive_federation.replication.format.directory import DumpDirectory
from airflow_hive_federation.replication.format.kinds import TableKind
from airflow_hive_federation.replication.format.tables import PartitionLine, TableDocument
from airflow_hive_federation.replication.load.creating import (
    create_or_keep,
    create_table,
    give_write_ids,
    is_ours,
    seed_text,
)
from airflow_hive_federation.replication.metadata import definitions, statistics
from airflow_hive_federation.replication.metadata.constraints import (
    add_foreign_keys,
    converge_constraints,
    is_constrained,
    report_left_out,
    target_constraints,
)
from airflow_hive_federation.replication.metadata.definitions import definition, name_of
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.replication.replica import markers
from airflow_hive_federation.replication.replica.layout import TargetLayout
from airflow_hive_federation.storage.publishing import make_directory

if TYPE_CHECKING:
    from airflow_hive_federation.metastore import MetastoreClient

T = TypeVar("T")

_ACCURATE = "COLUMN_STATS_ACCURATE"
#: Two equal tables may differ in this parameter, besides those of their sides.
_PASSING = "transient_lastDdlTime"


class TableConvergence:
    """Converges one table of the target to its definition in a dump.

    :param client: client of the target.
    :param layout: maps tables to the target.
    :param parameters: the policy's markers, for objects that are new.
    :param tables: names of the dump's tables.
    :param observer: receives counts of partitions.
    :param only: names of the partitions that the dump's cycle concerned, those that are gone included: the
        others stay as they are. ``None`` for all.
    """

    def __init__(
        self,
        client: MetastoreClient,
        layout: TargetLayout,
        directory: DumpDirectory,
        *,
        document: TableDocument,
        parameters: Mapping[str, str],
        tables: Collection[str],
        observer: Observer = unobserved,
        only: Collection[str] | None = None,
    ) -> None:
        self._client = client
        self._only = only
        self._layout = layout
        self._directory = directory
        self._document = document
        self._parameters = parameters
        self._observer = observer
        self._database = layout.policy.target_database
        self._name = document.name
        self._tables = tables
        self._constraints = target_constraints(document.constraints, layout.policy, tables)
        self._write_ids = document.write_ids
        self._surplus: list[str] = []

    def create(self, step: Steps) -> int:
        """Create the table and its partitions with all that the dump has of them; return their number.

        No transaction is replayed into such a table: its files are there, and its statistics hold at once.
        Its write ids come first, before a reader can read it.

        :raises TargetChangedError: somebody else has made a table of its name.
        """
        if self._write_ids and self._write_ids.high_watermark > 0:
            give_write_ids(self._client, self._layout.policy, self._name, self._write_ids.high_watermark)
        step(Step.CREATE, self._name)
        wanted = statistics.without_stale_statistics(self._layout.table(self._document, self._parameters))
        if not create_or_keep(self._client, self._layout.policy, wanted, copy.copy(self._constraints)):
            statistics.add_of_table(self._client, wanted, valid_write_ids=self._seed())
        step(Step.PARTITIONS, self._name)
        return self._create_partitions()

    def keep_shape(self) -> bool:
        """Withdraw the statistics of a table that keeps its shape; return whether it keeps its shape.

        No reader of the table notices this, so it may happen before its new files have arrived. A changed
        shape may not: readers would read a new column from old files for as long as it takes a copy to
        succeed.
        """
        wanted = _without_statistics(self._table())
        current = self._client.get_table(self._database, self._name)
        if definition(wanted) != definition(current) or not is_constrained(*self._constrained()):
            return False
        stale = self._stale_partitions() if wanted.partitionKeys else set()
        if stale is None:
            return False
        self._alter(current, wanted)
        for batch in self._side_by_side(stale, only=stale) if stale else ():
            self._alter_partitions(
                [_without_statistics(_kept(dumped, current)) for _, dumped, current in batch if current]
            )
        return True

    def shape(self) -> None:
        """Create or alter the table, add partitions, and alter changed ones, all without statistics."""
        wanted = _without_statistics(self._table())
        try:
            current = self._client.get_table(self._database, self._name)
        except NoSuchObjectError:
            create_table(self._client, self._created(self._table()), copy.copy(self._constraints))
        else:
            self._alter(current, wanted)
            converge_constraints(*self._constrained())
        if wanted.partitionKeys and self._document.kind.has_files:
            self._shape_partitions()

    def describe(self) -> None:
        """Write the statistics of the table and its partitions that differ from the present ones."""
        if not self._document.kind.has_files:
            return
        valid = self._valid_write_ids()
        wanted = statistics.without_stale_statistics(self._table())
        current = self._client.get_table(
            self._database, self._name, with_column_stats=True, valid_write_ids=valid
        )
        wanted = self._writable(wanted, current)
        if not _same(wanted, current):
            wanted.parameters = _keeping_ours(wanted.parameters, current.parameters)
            if self._write_ids is None:
                statistics.delete_column_statistics(self._client, wanted, current)
            self._describe_table(wanted, valid)
        if wanted.partitionKeys:
            self._describe_partitions(valid)

    def drop_partitions(self, gone: Collection[str] | None) -> None:
        """Drop the partitions that the source no longer has, and that :meth:`shape` has found.

        :param gone: names of partitions that may go; ``None`` for all that the source does not have.
        """
        names = [name for name in self._surplus if gone is None or name in gone]
        if names:
            managed = self._document.kind is not TableKind.EXTERNAL
            self._client.drop_partitions(self._database, self._name, names, delete_data=managed)

    def constrain(self) -> None:
        """Converge the constraints to those of the source once more.

        A metastore that drops a table deletes constraints by their names, including those of other tables: a
        table that was renamed loses its own together with the table of its former name.
        """
        converge_constraints(*self._constrained())
        self.add_foreign_keys()

    def add_foreign_keys(self) -> None:
        """Add the foreign keys that the table lacks: every table to which they may refer exists by now."""
        report_left_out(self._name, self._document.constraints, self._layout.policy, self._tables)
        add_foreign_keys(*self._constrained())

    def _constrained(
        self,
    ) -> tuple[MetastoreClient, ReplicationPolicy, str, types.SQLAllTableConstraints, Collection[str]]:
        return self._client, self._layout.policy, self._name, self._constraints, self._tables

    # -- the table -------------------------------------------------------------------------------------

    def _table(self) -> types.Table:
        target = self._layout.table(self._document, self._parameters)
        return self._with_readable_statistics(target)

    def _alter(self, current: types.Table, wanted: types.Table) -> None:
        is_adopted = not is_ours(current, self._layout.policy)
        changed = is_adopted or definition(wanted) != definition(current)
        if not changed and _ACCURATE not in (current.parameters or {}):
            return
        if not changed and _same(self._table(), current, columns=False):
            return
        altered = copy.copy(wanted)
        altered.parameters = _keeping_ours(altered.parameters, current.parameters)
        altered.id = current.id
        self._make_place(wanted, current)
        self._client.alter_table(self._database, self._name, altered, environment=statistics.KEEP_STATISTICS)

    def _describe_table(self, wanted: types.Table, valid: str | None) -> None:
        write_id = _write_id(wanted) if valid else None
        self._move_column_statistics([wanted], write_id, valid)
        self._client.alter_table(
            self._database,
            self._name,
            wanted,
            environment=statistics.KEEP_STATISTICS,
            valid_write_ids=valid if write_id else None,
            write_id=write_id,
        )

    def _valid_write_ids(self) -> str | None:
        if self._write_ids is None:
            return None
        name = f"{self._database}.{self._name}"
        answer = self._client.get_valid_write_ids([name])[name]
        return ValidWriteIds.of(
            name,
            high_watermark=answer.writeIdHighWaterMark or 0,
            invalid_ids=answer.invalidWriteIds or (),
            aborted_bits=answer.abortedBits or b"",
        ).text()

    def _with_readable_statistics(self, made: Described) -> Described:
        """Remove statistics that a reader of the dump's write ids must not believe.

        Hive writes statistics before it commits (``StatsTask``): they may belong to a transaction that is
        still open or was aborted. Statistics without a write id, which new and empty objects have, hold for
        every reader (``ObjectStore.isCurrentStatsValidForTheQuery``); column statistics need a write id.
        """
        if self._write_ids is None:
            return made
        write_id = _write_id(made)
        if write_id is None:
            return _without_column_statistics(made) if _is_empty(made) else _without_statistics(made)
        return made if self._write_ids.is_valid(write_id) else _without_statistics(made)

    def _created(self, made: Described) -> Described:
        """Return a table or partition for its creation: an empty one has accurate statistics from the
        beginning.

        A metastore refuses to mark statistics of a transactional table as accurate later without a write id.
        """
        keeps = self._write_ids is not None and _write_id(made) is None
        return _without_column_statistics(made) if keeps else _without_statistics(made)

    def _writable(self, wanted: Described, current: Described) -> Described:
        """Return the wanted object without statistics that a metastore refuses to write: see
        :meth:`_created`.
        """
        flags = [(side.parameters or {}).get(_ACCURATE) for side in (wanted, current)]
        refused = self._write_ids is not None and _write_id(wanted) is None and flags[0] != flags[1]
        return _without_statistics(wanted) if refused else wanted

    # -- partitions ------------------------------------------------------------------------------------

    def _seed(self) -> str | None:
        """Return the write ids with which a transactional table starts, in Hive's text form."""
        if not self._write_ids:
            return None
        return seed_text(self._database, self._name, self._write_ids.high_watermark)

    def _create_partitions(self) -> int:
        partitions = (
            definitions.with_honest_statistics(partition, self._write_ids)
            for _, partition in self._target_partitions()
        )
        count, seed = 0, self._seed()
        for batch in self._batches(partitions, Activity.CREATED):
            count += len(batch)
            statistics.add_partitions(
                self._client,
                batch,
                valid_write_ids=seed,
                insert_only=self._document.kind is TableKind.INSERT_ONLY,
                # Existing partitions keep their data if it is identical, and take the dump's definition.
                replace=self._layout.policy.into_existing,
            )
        return count

    def _shape_partitions(self) -> None:
        present = self._names_there()
        surplus = set(present)
        for batch in self._side_by_side(present):
            surplus.difference_update(name for name, _, _ in batch)
            new = [self._created(wanted) for _, wanted, current in batch if current is None]
            if new:
                self._client.add_partitions(new, if_not_exists=True, environment=statistics.KEEP_STATISTICS)
            changed = [
                (wanted, current)
                for _, wanted, current in batch
                if current is not None and not _same(wanted, current, columns=False)
            ]
            for wanted, current in changed:
                self._make_place(wanted, current)
            self._alter_partitions(
                [_without_statistics(_kept(wanted, current)) for wanted, current in changed]
            )
        self._surplus = sorted(surplus)

    def _stale_partitions(self) -> set[str] | None:
        """Return the partitions that match the wanted ones except for statistics that may not hold.

        :return: ``None`` if some do not keep their shape. Most often one was added: names alone show that.
        """
        present = self._names_there()
        if present != {line.name for line in self._partition_lines()}:
            return None
        stale = set()
        for batch in self._side_by_side(present):
            for name, wanted, current in batch:
                if current is None or definition(wanted) != definition(current):
                    return None
                if not _same(wanted, current, columns=False):
                    stale.add(name)
        return stale

    def _alter_partitions(self, changed: Sequence[types.Partition]) -> None:
        if changed:
            self._client.alter_partitions(
                self._database, self._name, changed, environment=statistics.KEEP_STATISTICS
            )

    def _describe_partitions(self, valid: str | None) -> None:
        for batch in self._side_by_side(self._names_there(), with_column_stats=True, valid_write_ids=valid):
            changed: defaultdict[int | None, list[types.Partition]] = defaultdict(list)
            for name, dumped, current in batch:
                if current is None:
                    raise TargetChangedError(
                        f"Partition {name} of {self._database}.{self._name} is not on the target any more.",
                        remedy="Somebody else dropped it during the load. Load again: it is made anew.",
                        differences=[name],
                    )
                wanted = self._writable(statistics.without_stale_statistics(_kept(dumped, current)), current)
                if not _same(wanted, current) or (valid and _write_id(wanted) not in {None, current.writeId}):
                    if self._write_ids is None:
                        statistics.delete_column_statistics(self._client, wanted, current, name)
                    changed[_write_id(wanted) if valid else None].append(wanted)
            for write_id, partitions in changed.items():
                self._write_partitions(partitions, write_id, valid)

    def _write_partitions(
        self, partitions: Sequence[types.Partition], write_id: int | None, valid: str | None
    ) -> None:
        self._move_column_statistics(partitions, write_id, valid)
        self._client.alter_partitions(
            self._database,
            self._name,
            partitions,
            environment=statistics.KEEP_STATISTICS,
            valid_write_ids=valid if write_id else None,
            write_id=write_id,
        )

    def _move_column_statistics(
        self, owners: Sequence[TableOrPartition], write_id: int | None, valid: str | None
    ) -> None:
        """Write the column statistics of the table or of partitions by a call of their own."""
        column_statistics = [owner.colStats for owner in owners if owner.colStats is not None]
        for owner in owners:
            owner.colStats = None
        if column_statistics:
            self._client.set_column_statistics(column_statistics, write_id=write_id, valid_write_ids=valid)

    def _make_place(self, wanted: TableOrPartition, current: TableOrPartition) -> None:
        """Make the directory to which a table or partition moves.

        A metastore makes the directories of new objects, not those of altered ones (``HiveAlterHandler``).
        Without files, the copy would not make the directory either, and Hive's jobs fail on a missing one
        (``FileInputFormat``).
        """
        location = wanted.sd.location if wanted.sd is not None else None
        if location and current.sd is not None and location != current.sd.location:
            make_directory(location, self._layout.policy.storage_options)

    def _names_there(self) -> set[str]:
        """Return the names of the target's partitions, among them perhaps some that it does not have."""
        if self._only is not None:
            return set(self._only)
        return set(self._client.list_partition_names(self._database, self._name))

    def _side_by_side(
        self, there: Collection[str], *, only: Collection[str] | None = None, **reading: Any
    ) -> Iterator[list[tuple[str, types.Partition, types.Partition | None]]]:
        """Yield the dump's partitions with the target's, by name, in batches.

        :param there: names of the target's partitions; the target's side of others is ``None``.
        :param only: names of the wanted partitions; all by default.
        :param reading: options for reading the target's partitions.
        """
        for batch in self._batches(self._partitions(only), Activity.COMPARED):
            names = [name for name, _ in batch if name in there]
            partitions = self._client.get_partitions_of(self._database, self._name, names, **reading)
            on_target = {name_of(self._document.table, partition): partition for partition in partitions}
            yield [(name, dumped, on_target.get(name)) for name, dumped in batch]

    def _batches(self, partitions: Iterable[T], activity: Activity) -> Iterator[list[T]]:
        waiting = counted(partitions, f"{self._database}.{self._name}", activity, self._observer)
        storage = self._document.table.sd
        size = page_size(len((storage and storage.cols) or ()), with_column_stats=True)
        while batch := list(islice(waiting, size)):
            yield batch

    def _partitions(self, only: Collection[str] | None) -> Iterator[tuple[str, types.Partition]]:
        for name, partition in self._target_partitions(only):
            yield name, self._with_readable_statistics(partition)

    def _target_partitions(
        self, only: Collection[str] | None = None
    ) -> Iterator[tuple[str, types.Partition]]:
        for line in self._partition_lines():
            if only is None or line.name in only:
                yield (
                    line.name,
                    definitions.target_partition(
                        line.partition(),
                        database=self._database,
                        location=self._layout.directory(self._document, line.location, line.name),
                        parameters=self._parameters,
                    ),
                )

    def _partition_lines(self) -> Iterator[PartitionLine]:
        return self._directory.partitions(self._name, only=self._only)


def _without_statistics(made: Described) -> Described:
    stripped = copy.copy(made)
    stripped.colStats = None
    if stripped.parameters:
        stripped.parameters = {
            name: value for name, value in stripped.parameters.items() if name != _ACCURATE
        }
    return stripped


def _without_column_statistics(made: Described) -> Described:
    stripped = copy.copy(made)
    stripped.colStats = None
    return stripped


def _is_empty(made: TableOrPartition) -> bool:
    return (made.parameters or {}).get("numRows") == "0"


def _kept(wanted: Described, current: Described) -> Described:
    kept = copy.copy(wanted)
    kept.parameters = _keeping_ours(kept.parameters, current.parameters)
    return kept


def _keeping_ours(wanted: Mapping[str, str], current: Mapping[str, str] | None) -> dict[str, str]:
    """Return the wanted parameters with the policy's markers as they were when the object was made."""
    kept = {key: value for key, value in (current or {}).items() if is_side_parameter(key)}
    return {
        **wanted,
        **kept,
        **{name: content for name, content in wanted.items() if name == markers.DEFINITION},
    }


def _same(wanted: TableOrPartition, current: TableOrPartition, *, columns: bool = True) -> bool:
    """Return whether a table or partition of the target equals the wanted one, statistics included."""
    return _essence(wanted, columns=columns) == _essence(current, columns=columns)


def _essence(made: TableOrPartition, *, columns: bool) -> dict[str, Any]:
    values = to_json(made)
    essence: dict[str, object] = {
        "storage": definition(made),
        "parameters": {
            name: value
            for name, value in values.get("parameters", {}).items()
            if not (name == _PASSING or is_side_parameter(name))
        },
    }
    if columns:
        column_statistics = values.get("colStats", {}).get("statsObj", [])
        essence["columns"] = sorted(column_statistics, key=lambda column: str(column["colName"]))
    return essence


def _write_id(made: TableOrPartition) -> int | None:
    return made.writeId if (made.writeId or 0) > 0 else None
