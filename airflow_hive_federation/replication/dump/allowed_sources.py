"""Refuses tables, links and jars that lie where a policy may not copy from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from airflow_hive_federation.replication.metadata.definitions import table_kind
from airflow_hive_federation.replication.metadata.places import Places
from airflow_hive_federation.storage.sources import SourceRoots


def check_places(sources: SourceRoots, database: str, table: Any, places: Places) -> None:
    """Refuse a table of which a directory lies elsewhere, before it is listed.

    Partitions inside the table's directory need no question of their own: of their files, each is asked for.

    :param table: wire ``Table``.
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
    sources: SourceRoots, functions: Iterable[Mapping[str, Any]], *, written: bool = False
) -> None:
    """Refuse functions of which a jar or file lies elsewhere.

    :param functions: functions of the source, as a dump has them.
    :param written: by their URIs alone: a load may run where the source's disk is not.
    :raises SourceNotAllowedError: names the function and the jar.
    """
    check = sources.check_written if written else sources.check
    for function in functions:
        for resource in function.get("resourceUris") or ():
            check(resource["uri"], f"a jar or file of function {function['functionName']}")
