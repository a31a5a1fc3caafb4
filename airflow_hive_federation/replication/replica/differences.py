"""What differs between a dump and the target's metastore: no file is opened for it.

A load asks before it goes on, for a target that somebody else has changed is refused; a verification asks
first, for files need not be compared where the tables are not the same.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from airflow_hive_federation.metastore.calls.partitions import PARTITIONS_A_CALL
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.metastore.wire import from_json
from airflow_hive_federation.model.write_ids import ValidWriteIds
from airflow_hive_federation.replication.format.directory import table_file
from airflow_hive_federation.replication.metadata import statistics
from airflow_hive_federation.replication.metadata.constraints import (
    claims,
    found_constraints,
    target_constraints,
)
from airflow_hive_federation.replication.metadata.database_properties import database_claims
from airflow_hive_federation.replication.metadata.definitions import (
    definition,
    name_of,
    table_kind,
    target_partition,
    with_honest_statistics,
)
from airflow_hive_federation.replication.metadata.table_names import is_left_from_before
from airflow_hive_federation.replication.metadata.write_ids import (
    max_allocated_write_id,
    readable_write_ids,
    valid_transactions,
)
from airflow_hive_federation.replication.replica import markers
from airflow_hive_federation.replication.replica.functions import function_claim, target_function
from airflow_hive_federation.replication.replica.homes import Homes
from airflow_hive_federation.replication.replica.layout import TargetLayout

if TYPE_CHECKING:
    from airflow_hive_federation.metastore import MetastoreClient


#: What differs where somebody else has written to a transactional table.
WRITE_IDS = "highest write id (somebody wrote there)"

#: What differs where rows are as many, and others.
ROW_DIGEST = "digest of rows"
#: What differs of a table that the target keeps although the source has something else under its name.
RETAINED = "replicated table"
#: What differs of a table that does not carry the policy's marker.
OWNER = "policy"


@dataclass(frozen=True, kw_only=True)
class Difference:
    """One difference between source and replica.

    :param table: the table, empty for the database itself.
    :param what: what was compared.
    :param expected: the source's side.
    :param found: the target's side.
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
    client: MetastoreClient, layout: TargetLayout, homes: Homes, *, closely: Collection[str] = ()
) -> list[Difference]:
    """Compare a loaded dump with the target's tables, partitions and write ids.

    :param client: client of the target.
    :param layout: where the dump's tables lie on the target.
    :param homes: the dump's tables.
    :param closely: tables of which each partition's definition and the statistics are compared as well.
    """
    database = layout.policy.target_database
    tables = set(homes)
    found: dict[str, Any] = {
        str(table.tableName): table for table in client.get_tables(database, client.list_tables(database))
    }
    differences = [
        _retained(name, homes.skipped.get(name, ""))
        if name in homes.retained
        else Difference(table=name, what="table", expected="none", found="a table")
        for name in sorted(found.keys() - tables)
        if layout.policy.replicates(name) and not is_left_from_before(layout.policy, found[name])
    ]
    write_ids = readable_write_ids(client, found.values(), valid_transactions(client.get_open_txns()))
    for name in sorted(tables):
        if name not in found:
            differences.append(Difference(table=name, what="table", expected="a table", found="none"))
            continue
        comparison = _Comparison(client, layout, homes, found[name], write_ids.get(name))
        differences += comparison.closely() if name in closely else comparison.roughly()
    return differences


def database_differences(client: MetastoreClient, layout: TargetLayout, homes: Homes) -> list[Difference]:
    """Compare the database's properties and its permanent functions.

    An adopted database keeps properties and functions of its own beside the source's. Functions of one that
    was a source itself, before a failover, keep their jars where they are until they are altered.

    :param client: client of the target.
    """
    database, adopted = layout.policy.target_database, layout.policy.into_existing
    source: Any = from_json(types.Database, homes.directory.read_json("database.json"))
    wanted, seen = database_claims(source), database_claims(client.get_database(database))
    compared = {name for name in wanted if name.startswith("parameters.")} if adopted else {*wanted, *seen}
    differences = [
        Difference(table="", what=name, expected=wanted.get(name, "nothing"), found=seen.get(name, "nothing"))
        for name in sorted(compared)
        if wanted.get(name) != seen.get(name)
    ]
    resources = not homes.adopted
    expected = {
        values["functionName"]: function_claim(target_function(values, layout), resources=resources)
        for values in homes.directory.read_lines("functions.jsonl")
    }
    found = {
        str(one.functionName): function_claim(one, resources=resources)
        for one in client.get_functions(database)
        if not adopted or one.functionName in expected
    }
    return differences + [
        Difference(
            table="",
            where=name,
            what="function",
            expected=expected.get(name, "none"),
            found=found.get(name, "none"),
        )
        for name in sorted(expected.keys() | found.keys())
        if expected.get(name) != found.get(name)
    ]


def _retained(table: str, why: str) -> Difference:
    return Difference(
        table=table,
        what=RETAINED,
        expected=f"none: on the source, {why}",
        found="the replica of what it was",
    )


def definition_differences(expected: Any, found: Any) -> list[Difference]:
    """Compare two wire ``Table`` objects, field by field of their definitions."""
    return _field_differences(found.tableName, "", expected, found)


class _Comparison:
    """One table of a dump beside the target's."""

    def __init__(
        self,
        client: MetastoreClient,
        layout: TargetLayout,
        homes: Homes,
        found: Any,
        write_ids: ValidWriteIds | None,
    ) -> None:
        self._client = client
        self._layout = layout
        self._homes = homes
        self._found = found
        self._write_ids = write_ids
        self._name: str = found.tableName
        self._directory = homes.of(self._name)
        self._document = self._directory.read_json(table_file("tables", self._name, ".json"))

    def roughly(self) -> Iterator[Difference]:
        """Definition, write ids, names of partitions."""
        yield from self._table()
        if self._found.partitionKeys:
            names = set(self._client.list_partition_names(self._found.dbName, self._name))
            yield from self._partition_names(names)

    def closely(self) -> Iterator[Difference]:
        """The same, constraints, statistics, and the definition of each partition."""
        yield from self._table()
        yield from self._constraints()
        if table_kind(self._found).has_files:
            yield from self._statistics()
        if self._found.partitionKeys:
            names = self._client.list_partition_names(self._found.dbName, self._name)
            yield from self._partition_names(names)
            yield from self._partitions()

    def _table(self) -> Iterator[Difference]:
        policy = self._layout.policy.name
        owner = (self._found.parameters or {}).get(markers.POLICY)
        if owner != policy and self._name not in self._homes.adopted:
            yield Difference(table=self._name, what=OWNER, expected=policy, found=str(owner))
        yield from definition_differences(self._layout.table(self._document, {}), self._found)
        yield from self._write_id_differences()

    def _write_id_differences(self) -> Iterator[Difference]:
        if not self._document["write_ids"] or self._write_ids is None:
            return
        expected, found = (
            ValidWriteIds.parse(self._document["write_ids"]).high_watermark,
            self._write_ids.high_watermark,
        )
        # A table that was the source once has forgotten its last write ids if they were aborted.
        if found < expected:
            found = max_allocated_write_id(self._client, self._found.dbName, self._name)
        if expected != found:
            yield Difference(table=self._name, what=WRITE_IDS, expected=str(expected), found=str(found))

    def _constraints(self) -> Iterator[Difference]:
        wanted = claims(target_constraints(self._document["constraints"], self._layout.policy))
        found = claims(found_constraints(self._client, self._layout.policy, self._name))
        for key in sorted(wanted.keys() | found.keys()):
            if wanted.get(key) != found.get(key):
                kind, name = key
                yield Difference(
                    table=self._name,
                    where=name,
                    what=f"constraint ({kind})",
                    expected=wanted.get(key, "none"),
                    found=found.get(key, "none"),
                )

    def _statistics(self) -> Iterator[Difference]:
        wanted = self._layout.table(self._document, {})
        found = self._client.get_table(
            self._found.dbName,
            self._name,
            with_column_stats=True,
            valid_write_ids=self._write_ids.text() if self._write_ids else None,
        )
        return _wrong_statistics(self._name, "", wanted, found)

    def _partition_names(self, found: Collection[str]) -> Iterator[Difference]:
        wanted = {line["name"] for line in self._lines()}
        for one in sorted(wanted.difference(found)):
            yield Difference(
                table=self._name, where=one, what="partition", expected="present", found="missing"
            )
        for one in sorted(set(found) - wanted):
            yield Difference(table=self._name, where=one, what="partition", expected="none", found="present")

    def _partitions(self) -> Iterator[Difference]:
        # Digests first: of a million partitions only those are kept that differ.
        found = {name_of(self._found, one): _claims(one) for one in self._on_target(None)}
        wanted = {
            line["name"]: line
            for line in self._lines()
            if line["name"] in found and _claims(self._wanted(line)) != found[line["name"]]
        }
        del found
        for one in self._on_target(list(wanted) if len(wanted) <= PARTITIONS_A_CALL else None):
            name = name_of(self._found, one)
            if name in wanted:
                expected = self._wanted(wanted[name])
                yield from _field_differences(self._name, name, expected, one)
                yield from _wrong_statistics(self._name, name, expected, one)

    def _on_target(self, names: Sequence[str] | None) -> Iterator[Any]:
        return self._client.iter_partitions(self._found.dbName, self._name, names=names)

    def _wanted(self, line: Mapping[str, Any]) -> Any:
        source: Any = from_json(types.Partition, line["partition"])
        location = self._layout.directory(self._document, source.sd.location, line["name"])
        made = target_partition(
            source, database=self._layout.policy.target_database, location=location, parameters={}
        )
        return with_honest_statistics(made, self._document["write_ids"])

    def _lines(self) -> Iterator[Mapping[str, Any]]:
        return self._directory.read_lines(table_file("partitions", self._name, ".jsonl"))


def _claims(one: Any) -> bytes:
    """Digest of all that is compared of a wire ``Partition``."""
    text = json.dumps([definition(one), statistics.accurate_claims(one)], sort_keys=True)
    return blake2b(text.encode(), digest_size=16).digest()


def _field_differences(table: str, where: str, expected: Any, found: Any) -> list[Difference]:
    wanted, seen = definition(expected), definition(found)
    return [
        Difference(
            table=table,
            where=where,
            what=name,
            expected=wanted.get(name, "nothing"),
            found=seen.get(name, "nothing"),
        )
        for name in sorted(wanted.keys() | seen.keys())
        if wanted.get(name) != seen.get(name)
    ]


def _wrong_statistics(table: str, where: str, expected: Any, found: Any) -> Iterator[Difference]:
    """Statistics that both sides call accurate, and that say different things.

    One that the target has not, or does not call accurate, deceives nobody: Hive then reads the rows.
    """
    wanted, seen = statistics.accurate_claims(expected), statistics.accurate_claims(found)
    for what in sorted(wanted.keys() & seen.keys()):
        if wanted[what] != seen[what]:
            yield Difference(
                table=table, where=where, what=f"statistics {what}", expected=wanted[what], found=seen[what]
            )
