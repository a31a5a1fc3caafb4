"""Refuses tables, links and jars outside of the directories from which a policy may copy."""

from __future__ import annotations

from collections.abc import Iterable

from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.replication.metadata.definitions import table_kind
from airflow_hive_federation.replication.metadata.table_locations import TableLocations
from airflow_hive_federation.storage.sources import SourceRoots


def check_places(sources: SourceRoots, database: str, table: types.Table, places: TableLocations) -> None:
    """Refuse a table with a directory outside of the allowed roots, before the directory is listed.

    Partitions inside the table's directory need no check of their own, because each of their files is
    checked.

    :raises SourceNotAllowedError: names the table, the partition and the directory.
    """
    name = f"{database}.{table.tableName}"
    if not table_kind(table).has_files or not places.root:
        return
    sources.check(places.root, f"the location of table {name}")
    for place in places.outside():
        if place.partition:
            sources.check(place.location, f"the location of partition {place.partition} of table {name}")


def check_functions(
    sources: SourceRoots, functions: Iterable[types.Function], *, written: bool = False
) -> None:
    """Refuse functions with a jar or file outside of the allowed roots.

    :param functions: wire ``Function`` objects of the source.
    :param written: check their URIs alone: a load may run without access to the source's disk.
    :raises SourceNotAllowedError: names the function and the jar.
    """
    check = sources.check_written if written else sources.check
    for function in functions:
        for resource in function.resourceUris or ():
            check(resource.uri or "", f"a jar or file of function {function.functionName}")
