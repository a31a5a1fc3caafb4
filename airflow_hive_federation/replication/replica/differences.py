"""Compares a dump with the target's metastore, without opening a file.

A load makes this comparison before it continues, because it refuses a target that somebody else has changed.
A verification makes it first, because files need no comparison if the tables differ.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING

from airflow_hive_federation.metastore.calls.partitions import PARTITIONS_PER_CALL
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.metastore.objects import TableOrPartition
from airflow_hive_federation.model.write_ids import ValidWriteIds
from airflow_hive_federation.replication.format.tables import PartitionLine
from airflow_hive_federation.replication.metadata import statistics
from airflow_hive_federation.replication.metadata.constraints import (
    claims,
    found_constraints,
    target_constraints,
)
from airflow_hive_federation.replication.metadata.database_properties import OWNER_FIELDS, database_claims
from airflow_hive_federation.replication.metadata.definitions import (
    definition,
    name_of,
    table_kind,
    target_partition,
    with_honest_statistics,
)
from airflow_hive_federation.replication.metadata.table_names import is_left_from_before
from airflow_hive_federation.replication.metadata.write_ids import (
    readable_write_ids,
    valid_transactions,
)
from airflow_hive_federation.replication.replica import markers
from airflow_hive_federation.replication.replica.functions import function_claim, target_function
from airflow_hive_federation.replication.replica.layout import TargetLayout
from airflow_hive_federation.replication.replica.table_index import TableIndex
from airflow_hive_federation.transactions.write_id_counts import max_allocated_write_id

if TYPE_CHECKING:
    from airflow_hive_federation.metastore import MetastoreClient


#: A transactional table differs in this if another writer has written to it.
WRITE_IDS = "highest write id (changed by another writer)"

#: Tables with equal numbers of rows, but different rows, differ in this.
ROW_DIGEST = "digest of rows"
#: A table differs in this if the target keeps it although the source has another object under its name.
RETAINED = "replicated table"
#: A table differs in this if it does not carry the policy's marker.
OWNER = "policy"


@dataclass(frozen=True, kw_only=True)
class Difference:
    """One difference between source and replica.

    :param table: the table, empty for the database itself.
    :param what: the property that was compared.
    :param expected: its value on the source.
    :param found: its value on the target.
    :param where: partition or file.
    """

    table: str
    what: str
    expected: str
    found: str
    where: str = ""

    def __str__(self) -> str:
        place = f"{self.table} {self.where}".strip() or "database"
        return f"{place}: {self.what}: expected {self.expected}, found {self.found}"


def metadata_differences(
    client: MetastoreClient, layout: TargetLayout, table_index: TableIndex, *, closely: Collection[str] = ()
) -> list[Difference]:
    """Compare a loaded dump with the target's tables, partitions and write ids.

    :param client: client of the target.
    :param layout: maps the dump's tables to the target.
    :param table_index: the dump's tables.
    :param closely: tables whose statistics, constraints and partition definitions are compared as well.
    """
    database = layout.policy.target_database
    tables = set(table_index)
    on_target = {
        str(table.tableName): table for table in client.get_tables(database, client.list_tables(database))
    }
    differences = [
        _retained(name, table_index.skipped.get(name, ""))
        if name in table_index.retained
        else Difference(table=name, what="table", expected="none", found="a table")
        for name in sorted(on_target.keys() - tables)
        if layout.policy.replicates(name) and not is_left_from_before(layout.policy, on_target[name])
    ]
    write_ids = readable_write_ids(client, on_target.values(), valid_transactions(client.get_open_txns()))
    for name in sorted(tables):
        if name not in on_target:
            differences.append(Difference(table=name, what="table", expected="a table", found="none"))
            continue
        comparison = _Comparison(client, layout, table_index, on_target[name], write_ids.get(name))
        differences += comparison.closely() if name in closely else comparison.roughly()
    return differences


def database_differences(
    client: MetastoreClient, layout: TargetLayout, table_index: TableIndex
) -> list[Difference]:
    """Compare the database's properties and its permanent functions.

    An adopted database keeps properties and functions of its own beside the source's. If a database was a
    source itself before a failover, the jars of its functions stay in place until the functions are altered.

    :param client: client of the target.
    """
    database, adopted = layout.policy.target_database, layout.policy.into_existing
    wanted, present = (
        database_claims(table_index.directory.database()),
        database_claims(client.get_database(database)),
    )
    compared = {name for name in wanted if name.startswith("parameters.")} if adopted else {*wanted, *present}
    if not OWNER_FIELDS & wanted.keys():
        compared -= OWNER_FIELDS  # The source's database has no owner, and the target's has its own.
    differences = [
        Difference(
            table="", what=name, expected=wanted.get(name, "nothing"), found=present.get(name, "nothing")
        )
        for name in sorted(compared)
        if wanted.get(name) != present.get(name)
    ]
    resources = not table_index.adopted
    expected = {
        str(function.functionName): function_claim(target_function(function, layout), resources=resources)
        for function in table_index.directory.functions()
    }
    present_functions = {
        str(function.functionName): function_claim(function, resources=resources)
        for function in client.get_functions(database)
        if not adopted or function.functionName in expected
    }
    return differences + [
        Difference(
            table="",
            where=name,
            what="function",
            expected=expected.get(name, "none"),
            found=present_functions.get(name, "none"),
        )
        for name in sorted(expected.keys() | present_functions.keys())
        if expected.get(name) != present_functions.get(name)
    ]


def _retained(table: str, why: str) -> Difference:
    return Difference(
        table=table,
        what=RETAINED,
        expected=f"none: on the source, {why}",
        found="the replica of the former table",
    )


def definition_differences(expected: types.Table, actual: types.Table) -> list[Difference]:
    """Compare the definitions of two wire ``Table`` objects field by field."""
    return _field_differences(actual.tableName, "", expected, actual)


class _Comparison:
    """Compares one table of a dump with the target's."""

    def __init__(
        self,
        client: MetastoreClient,
        layout: TargetLayout,
        table_index: TableIndex,
        present: types.Table,
        write_ids: ValidWriteIds | None,
    ) -> None:
        self._client = client
        self._layout = layout
        self._table_index = table_index
        self._present = present
        self._write_ids = write_ids
        self._name: str = present.tableName
        self._directory = table_index.of(self._name)
        self._document = self._directory.table(self._name)

    def roughly(self) -> Iterator[Difference]:
        """Compare definition, write ids, and names of partitions."""
        yield from self._table()
        if self._present.partitionKeys:
            names = set(self._client.list_partition_names(self._present.dbName, self._name))
            yield from self._partition_names(names)

    def closely(self) -> Iterator[Difference]:
        """Compare the same, and constraints, statistics, and the definition of each partition."""
        yield from self._table()
        yield from self._constraints()
        if table_kind(self._present).has_files:
            yield from self._statistics()
        if self._present.partitionKeys:
            names = self._client.list_partition_names(self._present.dbName, self._name)
            yield from self._partition_names(names)
            yield from self._partitions()

    def _table(self) -> Iterator[Difference]:
        policy = self._layout.policy.name
        owner = (self._present.parameters or {}).get(markers.POLICY)
        if owner != policy and self._name not in self._table_index.adopted:
            yield Difference(table=self._name, what=OWNER, expected=policy, found=str(owner))
        yield from definition_differences(self._layout.table(self._document, {}), self._present)
        yield from self._write_id_differences()

    def _write_id_differences(self) -> Iterator[Difference]:
        if self._document.write_ids is None or self._write_ids is None:
            return
        expected, actual = self._document.write_ids.high_watermark, self._write_ids.high_watermark
        # A table that once belonged to a source has forgotten its last write ids if they were aborted.
        if actual < expected:
            actual = max_allocated_write_id(self._client, self._present.dbName, self._name)
        if expected != actual:
            yield Difference(table=self._name, what=WRITE_IDS, expected=str(expected), found=str(actual))

    def _constraints(self) -> Iterator[Difference]:
        policy, tables = self._layout.policy, self._table_index.entries
        wanted = claims(target_constraints(self._document.constraints, policy, tables))
        present = claims(found_constraints(self._client, policy, self._name, tables))
        for key in sorted(wanted.keys() | present.keys()):
            if wanted.get(key) != present.get(key):
                kind, name = key
                yield Difference(
                    table=self._name,
                    where=name,
                    what=f"constraint ({kind})",
                    expected=wanted.get(key, "none"),
                    found=present.get(key, "none"),
                )

    def _statistics(self) -> Iterator[Difference]:
        wanted = self._layout.table(self._document, {})
        current = self._client.get_table(
            self._present.dbName,
            self._name,
            with_column_stats=True,
            valid_write_ids=self._write_ids.text() if self._write_ids else None,
        )
        return _wrong_statistics(self._name, "", wanted, current)

    def _partition_names(self, present: Collection[str]) -> Iterator[Difference]:
        wanted = {line.name for line in self._lines()}
        for name in sorted(wanted.difference(present)):
            yield Difference(
                table=self._name, where=name, what="partition", expected="present", found="missing"
            )
        for name in sorted(set(present) - wanted):
            yield Difference(table=self._name, where=name, what="partition", expected="none", found="present")

    def _partitions(self) -> Iterator[Difference]:
        # Digests come first: of a million partitions, only those that differ are kept in memory.
        digests = {
            name_of(self._present, partition): _claims(partition) for partition in self._on_target(None)
        }
        wanted = {
            line.name: line
            for line in self._lines()
            if line.name in digests and _claims(self._wanted(line)) != digests[line.name]
        }
        del digests
        for candidate in self._on_target(list(wanted) if len(wanted) <= PARTITIONS_PER_CALL else None):
            name = name_of(self._present, candidate)
            if name in wanted:
                expected = self._wanted(wanted[name])
                yield from _field_differences(self._name, name, expected, candidate)
                yield from _wrong_statistics(self._name, name, expected, candidate)

    def _on_target(self, names: Sequence[str] | None) -> Iterator[types.Partition]:
        return self._client.iter_partitions(self._present.dbName, self._name, names=names)

    def _wanted(self, line: PartitionLine) -> types.Partition:
        location = self._layout.directory(self._document, line.location, line.name)
        target = target_partition(
            line.partition(), database=self._layout.policy.target_database, location=location, parameters={}
        )
        return with_honest_statistics(target, self._document.write_ids)

    def _lines(self) -> Iterator[PartitionLine]:
        return self._directory.partitions(self._name)


def _claims(partition: types.Partition) -> bytes:
    """Return a digest of all compared properties of a wire ``Partition``."""
    text = json.dumps([definition(partition), statistics.accurate_claims(partition)], sort_keys=True)
    return blake2b(text.encode(), digest_size=16).digest()


def _field_differences(
    table: str, where: str, expected: TableOrPartition, actual: TableOrPartition
) -> list[Difference]:
    wanted, present = definition(expected), definition(actual)
    return [
        Difference(
            table=table,
            where=where,
            what=name,
            expected=wanted.get(name, "nothing"),
            found=present.get(name, "nothing"),
        )
        for name in sorted(wanted.keys() | present.keys())
        if wanted.get(name) != present.get(name)
    ]


def _wrong_statistics(
    table: str, where: str, expected: TableOrPartition, actual: TableOrPartition
) -> Iterator[Difference]:
    """Yield statistics that both sides call accurate but that have different values.

    A statistic that the target lacks, or does not call accurate, misleads no reader: Hive then reads the
    rows.
    """
    wanted, present = statistics.accurate_claims(expected), statistics.accurate_claims(actual)
    for name in sorted(wanted.keys() & present.keys()):
        if wanted[name] != present[name]:
            yield Difference(
                table=table,
                where=where,
                what=f"statistics {name}",
                expected=wanted[name],
                found=present[name],
            )
