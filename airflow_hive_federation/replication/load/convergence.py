"""Brings a target's table to a definition of the source: what it is, its partitions, its statistics.

State by state, not event by event: whatever happened to a table in between, and wherever an earlier run was
killed, the target ends as the source is. Twice, because statistics hold for write ids: *before* the cycle's
transactions are replayed, a table gets its new shape, and what was said of its rows is taken back; *after*
them, it gets the statistics. In between nobody is told a number of rows that is not so.
"""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from airflow_hive_federation.errors import NoSuchObjectError, TargetChangedError
from airflow_hive_federation.metastore.calls.partition_pages import page_size
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.metastore.wire import from_json, to_json
from airflow_hive_federation.model.side_parameters import is_side_parameter
from airflow_hive_federation.model.write_ids import ValidWriteIds
from airflow_hive_federation.replication.format.directory import DumpDirectory, table_file
from airflow_hive_federation.replication.format.kinds import TableKind
from airflow_hive_federation.replication.load.creating import create_table
from airflow_hive_federation.replication.metadata import definitions, statistics
from airflow_hive_federation.replication.metadata.constraints import (
    add_foreign_keys,
    converge_constraints,
    is_constrained,
    target_constraints,
)
from airflow_hive_federation.replication.metadata.definitions import definition, name_of
from airflow_hive_federation.replication.progress import counted
from airflow_hive_federation.replication.replica import markers
from airflow_hive_federation.replication.replica.layout import TargetLayout
from airflow_hive_federation.storage.publishing import make_directory

if TYPE_CHECKING:
    from airflow_hive_federation.metastore import MetastoreClient

_ACCURATE = "COLUMN_STATS_ACCURATE"
#: A parameter that two equal tables may differ in, besides those of their sides.
_PASSING = "transient_lastDdlTime"


class TableConvergence:
    """One table of a dump and its counterpart on the target.

    :param client: client of the target.
    :param layout: where things lie on the target.
    :param directory: the dump.
    :param document: the table's document in it.
    :param parameters: our markers, for objects that are new.
    :param progress: told how far many partitions are.
    """

    def __init__(
        self,
        client: MetastoreClient,
        layout: TargetLayout,
        directory: DumpDirectory,
        *,
        document: Mapping[str, Any],
        parameters: Mapping[str, str],
        progress: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._client = client
        self._layout = layout
        self._directory = directory
        self._document = document
        self._parameters = parameters
        self._progress = progress
        self._database = layout.policy.target_database
        self._name: str = document["table"]["tableName"]
        self._constraints = target_constraints(document["constraints"], layout.policy)
        text = document["write_ids"]
        self._write_ids = ValidWriteIds.parse(text) if text else None
        self._surplus: list[str] = []

    def keep_shape(self) -> bool:
        """Take back what is said of the rows of a table that keeps its shape; return whether it keeps it.

        Nobody who reads the table can tell, so this may be done before its new files have arrived. A column
        that is another one now would be read from old files, for as long as it takes a copy to succeed.
        """
        wanted = _without_statistics(self._table())
        found = self._client.get_table(self._database, self._name)
        if definition(wanted) != definition(found) or not self._is_constrained():
            return False
        stale = self._stale_partitions() if wanted.partitionKeys else set()
        if stale is None:
            return False
        self._alter(found, wanted)
        for some in self._side_by_side(stale, only=stale) if stale else ():
            self._alter_partitions(
                [_without_statistics(_kept(one, found)) for _, one, found in some if found]
            )
        return True

    def shape(self) -> None:
        """Create the table or alter it; add partitions, alter those that changed. No statistics yet."""
        wanted = _without_statistics(self._table())
        try:
            found = self._client.get_table(self._database, self._name)
        except NoSuchObjectError:
            create_table(self._client, self._created(self._table()), copy.copy(self._constraints))
        else:
            self._alter(found, wanted)
            converge_constraints(self._client, self._layout.policy, self._name, self._constraints)
        if wanted.partitionKeys and TableKind(self._document["kind"]).has_files:
            self._shape_partitions()

    def describe(self) -> None:
        """Write the statistics of the table and its partitions, where they are others than there are."""
        if not TableKind(self._document["kind"]).has_files:
            return
        valid = self._valid_write_ids()
        wanted = statistics.without_stale_statistics(self._table())
        found = self._client.get_table(
            self._database, self._name, with_column_stats=True, valid_write_ids=valid
        )
        wanted = self._writable(wanted, found)
        if not _same(wanted, found):
            wanted.parameters = _keeping_ours(wanted.parameters, found.parameters)
            if self._write_ids is None:
                statistics.delete_column_statistics(self._client, wanted, found)
            self._describe_table(wanted, valid)
        if wanted.partitionKeys:
            self._describe_partitions(valid)

    def drop_partitions(self, gone: Collection[str] | None) -> None:
        """Drop the partitions that the source has no more, and that :meth:`shape` has met.

        :param gone: names of partitions that may go; ``None`` for all that the source does not have.
        """
        names = [one for one in self._surplus if gone is None or one in gone]
        if names:
            managed = self._document["kind"] != TableKind.EXTERNAL.value
            self._client.drop_partitions(self._database, self._name, names, delete_data=managed)

    def constrain(self) -> None:
        """Bring the constraints to those of the source once more.

        A metastore that drops a table deletes constraints by their names, those of other tables among them: a
        table that was renamed loses its own with the one of its former name.
        """
        converge_constraints(self._client, self._layout.policy, self._name, self._constraints)
        self.add_foreign_keys()

    def add_foreign_keys(self) -> None:
        """Add the foreign keys the table has not: every table they may refer to is there by now."""
        add_foreign_keys(self._client, self._layout.policy, self._name, self._constraints)

    def _is_constrained(self) -> bool:
        return is_constrained(self._client, self._layout.policy, self._name, self._constraints)

    # -- the table -------------------------------------------------------------------------------------

    def _table(self) -> Any:
        made = self._layout.table(self._document, self._parameters)
        return self._with_readable_statistics(made)

    def _alter(self, found: Any, wanted: Any) -> None:
        changed = definition(wanted) != definition(found)
        if not changed and _ACCURATE not in (found.parameters or {}):
            return
        if not changed and _same(self._table(), found, columns=False):
            return
        altered = copy.deepcopy(wanted)
        altered.parameters = _keeping_ours(altered.parameters, found.parameters)
        altered.id = found.id
        self._make_place(wanted, found)
        self._client.alter_table(self._database, self._name, altered, environment=statistics.KEEP_STATISTICS)

    def _describe_table(self, wanted: Any, valid: str | None) -> None:
        found_statistics, wanted.colStats = wanted.colStats, None
        write_id = _write_id(wanted) if valid else None
        written = [found_statistics] if found_statistics is not None else []
        if written:
            self._client.set_column_statistics(written, write_id=write_id, valid_write_ids=valid)
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
        found = self._client.get_valid_write_ids([name])[name]
        return ValidWriteIds.of(
            name,
            high_watermark=found.writeIdHighWaterMark or 0,
            invalid_ids=found.invalidWriteIds or (),
            aborted_bits=found.abortedBits or b"",
        ).text()

    def _with_readable_statistics(self, made: Any) -> Any:
        """Take statistics away that a reader of the dump's write ids must not believe.

        Hive writes statistics before it commits (``StatsTask``): they may be of a transaction that is open
        yet, or was aborted. Those without a write id, which what is new and empty has, hold for everybody
        (``ObjectStore.isCurrentStatsValidForTheQuery``); those of columns need one.
        """
        if self._write_ids is None:
            return made
        write_id = _write_id(made)
        if write_id is None:
            return _without_column_statistics(made) if _is_empty(made) else _without_statistics(made)
        return made if self._write_ids.is_valid(write_id) else _without_statistics(made)

    def _created(self, made: Any) -> Any:
        """A table or partition as it is created: what is known to be empty says so from the beginning.

        A metastore lets nobody call statistics of a transactional table accurate later, without a write id.
        """
        keeps = self._write_ids is not None and _write_id(made) is None
        return _without_column_statistics(made) if keeps else _without_statistics(made)

    def _writable(self, wanted: Any, found: Any) -> Any:
        """What is wanted, without what a metastore lets nobody write: see :meth:`_created`."""
        flags = [(one.parameters or {}).get(_ACCURATE) for one in (wanted, found)]
        refused = self._write_ids is not None and _write_id(wanted) is None and flags[0] != flags[1]
        return _without_statistics(wanted) if refused else wanted

    # -- partitions ------------------------------------------------------------------------------------

    def _shape_partitions(self) -> None:
        there = self._names_there()
        surplus = set(there)
        for some in self._side_by_side(there):
            surplus.difference_update(name for name, _, _ in some)
            new = [self._created(one) for _, one, found in some if found is None]
            if new:
                self._client.add_partitions(new, if_not_exists=True, environment=statistics.KEEP_STATISTICS)
            changed = [
                (one, found)
                for _, one, found in some
                if found is not None and not _same(one, found, columns=False)
            ]
            for one, found in changed:
                self._make_place(one, found)
            self._alter_partitions([_without_statistics(_kept(one, found)) for one, found in changed])
        self._surplus = sorted(surplus)

    def _stale_partitions(self) -> set[str] | None:
        """Partitions that are as they are wanted, but for what is said of their rows and may not hold.

        :return: ``None`` if they do not keep their shape. Most often one was added: names alone tell that.
        """
        there = self._names_there()
        if there != {line["name"] for line in self._partition_lines()}:
            return None
        stale = set()
        for some in self._side_by_side(there):
            for name, one, found in some:
                if found is None or definition(one) != definition(found):
                    return None
                if not _same(one, found, columns=False):
                    stale.add(name)
        return stale

    def _alter_partitions(self, changed: Sequence[Any]) -> None:
        if changed:
            self._client.alter_partitions(
                self._database, self._name, changed, environment=statistics.KEEP_STATISTICS
            )

    def _describe_partitions(self, valid: str | None) -> None:
        for some in self._side_by_side(self._names_there(), with_column_stats=True, valid_write_ids=valid):
            changed: defaultdict[int | None, list[Any]] = defaultdict(list)
            for name, one, found in some:
                if found is None:
                    raise TargetChangedError(
                        f"Partition {name} of {self._database}.{self._name} is not on the target any more.",
                        remedy="Somebody else dropped it during the load. Load again: it is made anew.",
                        differences=[name],
                    )
                wanted = self._writable(statistics.without_stale_statistics(_kept(one, found)), found)
                if not _same(wanted, found) or (valid and _write_id(wanted) not in {None, found.writeId}):
                    if self._write_ids is None:
                        statistics.delete_column_statistics(self._client, wanted, found, name)
                    changed[_write_id(wanted) if valid else None].append(wanted)
            for write_id, partitions in changed.items():
                self._write_partitions(partitions, write_id, valid)

    def _write_partitions(self, partitions: Sequence[Any], write_id: int | None, valid: str | None) -> None:
        found = [one.colStats for one in partitions if one.colStats is not None]
        for one in partitions:
            one.colStats = None
        if found:
            self._client.set_column_statistics(found, write_id=write_id, valid_write_ids=valid)
        self._client.alter_partitions(
            self._database,
            self._name,
            partitions,
            environment=statistics.KEEP_STATISTICS,
            valid_write_ids=valid if write_id else None,
            write_id=write_id,
        )

    def _make_place(self, wanted: Any, found: Any) -> None:
        """Make the directory that a table or partition moves to.

        A metastore makes those of new ones, not those of altered ones (``HiveAlterHandler``). Without files,
        the directory would not come into being by the copy either, and Hive's jobs fail on one that is not
        there (``FileInputFormat``).
        """
        place = wanted.sd.location if wanted.sd is not None else None
        if place and found.sd is not None and place != found.sd.location:
            make_directory(place, self._layout.policy.storage_options)

    def _names_there(self) -> set[str]:
        return set(self._client.list_partition_names(self._database, self._name))

    def _side_by_side(
        self, there: Collection[str], *, only: Collection[str] | None = None, **reading: Any
    ) -> Iterator[list[tuple[str, Any, Any]]]:
        """Yield the dump's partitions with the target's, by name, so many at a time.

        :param there: names of the target's partitions; of others there is ``None``.
        :param only: names of those wanted; all by default.
        :param reading: how the target's are read.
        """
        table: Any = from_json(types.Table, self._document["table"])
        what = f"{self._database}.{self._name}: partitions compared, and altered where they differ"
        waiting = counted(self._partitions(only), what, self._progress)
        size = page_size(len(table.sd.cols or ()), with_column_stats=True)
        while some := list(islice(waiting, size)):
            names = [name for name, _ in some if name in there]
            partitions = self._client.get_partitions_of(self._database, self._name, names, **reading)
            found = {name_of(table, one): one for one in partitions}
            yield [(name, one, found.get(name)) for name, one in some]

    def _partitions(self, only: Collection[str] | None) -> Iterator[tuple[str, Any]]:
        for line in self._partition_lines():
            if only is not None and line["name"] not in only:
                continue
            source: Any = from_json(types.Partition, line["partition"])
            made = definitions.target_partition(
                source,
                database=self._database,
                location=self._layout.directory(self._document, source.sd.location, line["name"]),
                parameters=self._parameters,
            )
            yield line["name"], self._with_readable_statistics(made)

    def _partition_lines(self) -> Iterator[Mapping[str, Any]]:
        return self._directory.read_lines(table_file("partitions", self._name, ".jsonl"))


def _without_statistics(made: Any) -> Any:
    stripped = copy.deepcopy(made)
    stripped.colStats = None
    if stripped.parameters:
        stripped.parameters.pop(_ACCURATE, None)
    return stripped


def _without_column_statistics(made: Any) -> Any:
    stripped = copy.copy(made)
    stripped.colStats = None
    return stripped


def _is_empty(one: Any) -> bool:
    return (one.parameters or {}).get("numRows") == "0"


def _kept(wanted: Any, found: Any) -> Any:
    made = copy.deepcopy(wanted)
    made.parameters = _keeping_ours(made.parameters, found.parameters)
    return made


def _keeping_ours(wanted: Mapping[str, str], found: Mapping[str, str] | None) -> dict[str, str]:
    """The wanted parameters; our markers as they were when the object was made."""
    ours = {key: value for key, value in (found or {}).items() if is_side_parameter(key)}
    return {**wanted, **ours, **{k: v for k, v in wanted.items() if k == markers.DEFINITION}}


def _same(wanted: Any, found: Any, *, columns: bool = True) -> bool:
    """Whether a table or partition of the target is as it is wanted, statistics included."""
    return _essence(wanted, columns=columns) == _essence(found, columns=columns)


def _essence(one: Any, *, columns: bool) -> dict[str, Any]:
    values = to_json(one)
    essence: dict[str, Any] = {
        "storage": definition(one),
        "parameters": {
            k: v
            for k, v in values.get("parameters", {}).items()
            if not (k == _PASSING or is_side_parameter(k))
        },
    }
    if columns:
        found = values.get("colStats", {}).get("statsObj", [])
        essence["columns"] = sorted(found, key=lambda column: str(column["colName"]))
    return essence


def _write_id(one: Any) -> int | None:
    return one.writeId if (one.writeId or 0) > 0 else None
