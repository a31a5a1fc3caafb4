"""What differs between a dump and the target's metastore: no file is opened for it.

A load asks before it goes on, for a target that somebody else has changed is refused; a verification asks
first, for files need not be compared where the tables are not the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_hive_federation.model.write_ids import ValidWriteIds
from airflow_hive_federation.replication.contents import readable_write_ids
from airflow_hive_federation.replication.definitions import definition
from airflow_hive_federation.replication.dump_directory import DumpDirectory, table_file
from airflow_hive_federation.replication.homes import Homes
from airflow_hive_federation.replication.layout import TargetLayout
from airflow_hive_federation.replication.transactions import valid_transactions

if TYPE_CHECKING:
    from airflow_hive_federation.metastore import MetastoreClient


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
        place = f"{self.table} {self.where}".strip()
        return f"{place}: {self.what}: expected {self.expected}, found {self.found}"


def metadata_differences(client: MetastoreClient, layout: TargetLayout, homes: Homes) -> list[Difference]:
    """Compare a loaded dump with the target's tables, partitions and write ids.

    :param client: client of the target.
    :param layout: where the dump's tables lie on the target.
    :param homes: the dump's tables.
    """
    database = layout.policy.target_database
    tables = set(homes)
    found: dict[str, Any] = {
        str(table.tableName): table for table in client.get_tables(database, client.list_tables(database))
    }
    differences = [
        Difference(table=name, what="table", expected="none", found="a table")
        for name in sorted(found.keys() - tables)
    ]
    write_ids = readable_write_ids(client, found.values(), valid_transactions(client.get_open_txns()))
    for name in sorted(tables):
        if name not in found:
            differences.append(Difference(table=name, what="table", expected="a table", found="none"))
            continue
        directory = homes.of(name)
        document = directory.read_json(table_file("tables", name, ".json"))
        differences += definition_differences(layout.table(document, {}), found[name])
        differences += _write_id_differences(name, document["write_ids"], write_ids.get(name))
        if found[name].partitionKeys:
            differences += _partition_differences(client, found[name], directory)
    return differences


def definition_differences(expected: Any, found: Any) -> list[Difference]:
    """Compare two wire ``Table`` objects, field by field of their definitions."""
    wanted, seen = definition(expected), definition(found)
    return [
        Difference(
            table=found.tableName,
            what=name,
            expected=wanted.get(name, "nothing"),
            found=seen.get(name, "nothing"),
        )
        for name in sorted(wanted.keys() | seen.keys())
        if wanted.get(name) != seen.get(name)
    ]


def _write_id_differences(name: str, dumped: str | None, found: ValidWriteIds | None) -> Iterator[Difference]:
    if dumped is None or found is None:
        return
    expected = ValidWriteIds.parse(dumped).high_watermark
    if expected != found.high_watermark:
        yield Difference(
            table=name,
            what="highest write id (somebody wrote there)",
            expected=str(expected),
            found=str(found.high_watermark),
        )


def _partition_differences(
    client: MetastoreClient, table: Any, directory: DumpDirectory
) -> Iterator[Difference]:
    name = table.tableName
    expected = {line["name"] for line in directory.read_lines(table_file("partitions", name, ".jsonl"))}
    found = set(client.list_partition_names(table.dbName, name))
    for partition in sorted(expected - found):
        yield Difference(table=name, where=partition, what="partition", expected="present", found="missing")
    for partition in sorted(found - expected):
        yield Difference(table=name, where=partition, what="partition", expected="none", found="present")
