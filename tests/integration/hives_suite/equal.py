"""Compares a scenario's tables on both sides by the metastores' answers, statistics included."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from airflow_hive_federation.metastore import MetastoreClient
from airflow_hive_federation.metastore.wire import to_json
from airflow_hive_federation.model.side_parameters import is_side_parameter
from tests.integration.hives_suite.scenario import Scene, Side

#: Given by each metastore itself, or compared in another way.
_OWN = {
    "dbName",
    "id",
    "txnId",
    "createTime",
    "lastAccessTime",
    "privileges",
    "accessType",
    "requiredReadCapabilities",
    "requiredWriteCapabilities",
    "colStats",
    # The text as typed; Hive reads the expanded text.
    "viewOriginalText",
    "writeId",
    "isStatsCompliant",
    "fileMetadata",
    "dictionary",
    "creationMetadata",
}
_OWN_PARAMETERS = {
    "transient_lastDdlTime",
    "last_modified_by",
    "last_modified_time",
}
#: Whether readers believe the statistics of rows.
_BELIEVED = "statistics are believed"


def unequal(scene: Scene, differs: Mapping[str, str]) -> Iterator[str]:
    """Yield the differences between source and target of a scenario's tables, as text.

    :param differs: ``table.field`` of what does differ, with the reason.
    """
    source, target = (dict(_tables(scene, side)) for side in (scene.source, scene.target))
    for name in sorted(source.keys() | target.keys()):
        if name in differs:
            continue
        ours, other = source.get(name), target.get(name)
        if ours is None or other is None:
            yield f"{scene.name}_{name}: only on the {'target' if ours is None else 'source'}"
            continue
        for field in sorted(ours.keys() | other.keys()):
            if f"{name}.{field}" in differs or _is_left_out(field, ours):
                continue
            if ours.get(field) != other.get(field):
                yield f"{scene.name}_{name}: {field}: {ours.get(field)} became {other.get(field)}"


def _is_left_out(field: str, source: Mapping[str, Any]) -> bool:
    """Return whether a field means nothing: accurate statistics that no source reader believes."""
    partition, _, name = field.rpartition(": ")
    believed = source.get(f"{partition}: {_BELIEVED}" if partition else _BELIEVED)
    return name == "parameters.COLUMN_STATS_ACCURATE" and not believed


def _tables(scene: Scene, side: Side) -> Iterator[tuple[str, dict[str, Any]]]:
    with side.pool.client() as client:
        names = [table for table in client.list_tables(side.database) if table.startswith(f"{scene.name}_")]
        for table in client.get_tables(side.database, names) if names else ():
            if table.tableType != "MATERIALIZED_VIEW":
                yield str(table.tableName).removeprefix(f"{scene.name}_"), dict(_table(client, side, table))


def _table(client: MetastoreClient, side: Side, table: Any) -> Iterator[tuple[str, Any]]:
    transactional = (table.parameters or {}).get("transactional") == "true"
    # No reader uses the row counts of a partitioned table itself.
    yield from _described(table, side, transactional and not table.partitionKeys)
    yield "constraints", _constraints(client, table)
    if table.partitionKeys and table.tableType != "VIRTUAL_VIEW":
        for partition in client.iter_partitions(table.dbName, table.tableName):
            for field, value in _described(partition, side, transactional):
                yield f"{'/'.join(partition.values or ())}: {field}", value


def _described(described: Any, side: Side, transactional: bool) -> Iterator[tuple[str, Any]]:
    # Of an ACID table readers believe statistics of a write id only, which a partition that was added empty
    # has not (``ObjectStore.isCurrentStatsValidForTheQuery``).
    yield _BELIEVED, not transactional or (described.writeId or 0) > 0
    for field, value in to_json(described).items():
        if field == "parameters":
            yield from (
                (f"parameters.{name}", text)
                for name, text in value.items()
                if name not in _OWN_PARAMETERS and not is_side_parameter(name)
            )
        elif field == "sd":
            yield from ((f"sd.{name}", part) for name, part in value.items() if name != "location")
        elif field == "viewExpandedText":
            yield field, re.sub(rf"\b{side.database}\b", "DATABASE", value)
        elif field not in _OWN:
            yield field, value


def _constraints(client: MetastoreClient, table: Any) -> Any:
    constraints = to_json(client.get_table_constraints(table.dbName, table.tableName))
    text = repr(
        sorted(
            (kind, sorted(map(repr, differences))) for kind, differences in constraints.items() if differences
        )
    )
    return re.sub(rf"\b{table.dbName}\b", "DATABASE", text)
