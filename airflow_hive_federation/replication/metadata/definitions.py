"""Translates definitions of the source to definitions of the target. Pure.

The functions work on the wire's own structs, because these carry every field of every version, and a replica
must lose none.
"""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Mapping
from typing import TypeVar

from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.metastore.wire import to_json
from airflow_hive_federation.model.partitions import partition_name
from airflow_hive_federation.model.remote_links import remote_of
from airflow_hive_federation.model.side_parameters import (
    as_stored,
    is_side_parameter,
    without_side_parameters,
)
from airflow_hive_federation.model.view_text import Renaming
from airflow_hive_federation.model.views import rewrite_view, text_claim
from airflow_hive_federation.model.write_ids import ValidWriteIds
from airflow_hive_federation.remotes.definitions import UNREADABLE
from airflow_hive_federation.replication.format.kinds import TableKind
from airflow_hive_federation.replication.metadata import locations, spark_tables
from airflow_hive_federation.storage.filesystem import canonical, join

#: A table or a partition.
Made = TypeVar("Made", types.Table, types.Partition)

#: Any engine may change these parameters without changing the table itself.
_VOLATILE = frozenset(
    {
        "COLUMN_STATS_ACCURATE",
        "numFiles",
        "numFilesErasureCoded",
        "numPartitions",
        "numRows",
        "rawDataSize",
        "totalSize",
        "transient_lastDdlTime",
        "last_modified_by",
        "last_modified_time",
        "STATS_GENERATED_VIA_STATS_TASK",
        "STATS_GENERATED",
        "bucketing_version",
        "discover.partitions",
        "TRANSLATED_TO_EXTERNAL",
    }
)


_STORAGE_FIELDS = (
    "cols",
    "location",
    "inputFormat",
    "outputFormat",
    "numBuckets",
    "serdeInfo",
    "bucketCols",
    "sortCols",
    "skewedInfo",
)


def table_kind(table: types.Table) -> TableKind:
    """Classify a table as Hive does (``TableType``, ``AcidUtils.isFullAcidTable``)."""
    by_type = {
        "VIRTUAL_VIEW": TableKind.VIEW,
        "MATERIALIZED_VIEW": TableKind.MATERIALIZED_VIEW,
        "EXTERNAL_TABLE": TableKind.EXTERNAL,
    }
    if (kind := by_type.get(table.tableType or "")) is not None:
        return kind
    parameters = {key.lower(): value.lower() for key, value in (table.parameters or {}).items()}
    if parameters.get("external") == "true":
        return TableKind.EXTERNAL
    if parameters.get("transactional") != "true":
        return TableKind.MANAGED
    insert_only = parameters.get("transactional_properties") == "insert_only"
    return TableKind.INSERT_ONLY if insert_only else TableKind.FULL_ACID


def not_replicated(table: types.Table) -> str | None:
    """Return the reason for which a table stays out of replication; ``None`` if it is replicated.

    A materialized view is rebuilt on the target from the replicated tables, as in Hive's own replication,
    because its contents belong to the transactions of the source. The data of a storage handler (Iceberg,
    Kudu, JDBC) is not in the table's files, or is named in them by its place on the source, so that a copy
    would read the source's data. The same holds for data sources of Spark that are not plain files. A link to
    a transactional table has no files that any engine may read, and its properties stay on its side.
    """
    if table_kind(table) is TableKind.MATERIALIZED_VIEW:
        return "it is a materialized view"
    parameters = {key.lower(): value for key, value in (table.parameters or {}).items()}
    if table.sd is not None and table.sd.inputFormat == UNREADABLE:
        return f"it stands for the transactional table {remote_of(table.parameters)} of another metastore"
    handler = parameters.get("storage_handler")
    if handler or parameters.get("table_type", "").lower() == "iceberg":
        return f"it is kept by {handler or 'Iceberg'}"
    return spark_tables.reason_to_leave_out(table)


def target_table(
    table: types.Table,
    *,
    database: str,
    location: str | None,
    parameters: Mapping[str, str],
    table_names: Mapping[str, str] | None = None,
) -> types.Table:
    """Return the table as the target gets it.

    :param table: wire ``Table`` of the source, with its column statistics if it has any.
    :param database: target database.
    :param location: URI of its directory on the target; ``None`` for a view.
    :param parameters: the policy's markers.
    :param table_names: names on the target of tables that a view may read, by their names on the source.
    :raises DumpCorruptError: a view that cannot be rewritten.
    """
    target = _copied(table)
    target.dbName = database
    target.parameters = {**without_side_parameters(table.parameters), **parameters}
    # Each metastore sets these fields itself.
    for name in (
        "id",
        "txnId",
        "privileges",
        "accessType",
        "requiredReadCapabilities",
        "requiredWriteCapabilities",
    ):
        setattr(target, name, None)
    if target.sd is not None:
        _move_storage(target.sd, table.sd.location if table.sd else None, location)
    _move_statistics(target, database)
    if target.tableType == "VIRTUAL_VIEW":
        names = Renaming(
            source_database=(table.dbName or "").lower(), target_database=database, tables=table_names or {}
        )
        rewrite_view(target, names)
    return target


def target_partition(
    partition: types.Partition, *, database: str, location: str, parameters: Mapping[str, str]
) -> types.Partition:
    """Return the partition as the target gets it; see :func:`target_table`."""
    target = _copied(partition)
    target.dbName = database
    target.parameters = {**without_side_parameters(partition.parameters), **parameters}
    target.privileges = None
    if target.sd is not None:
        _move_storage(target.sd, partition.sd.location if partition.sd else None, location)
    _move_statistics(target, database)
    return target


def with_honest_statistics(made: Made, write_ids: ValidWriteIds | None) -> Made:
    """Take statistics away that speak of write ids that are not copied.

    A table is cut below its lowest open write id. If later ones had committed, its statistics count their
    rows; marked as accurate, Hive would answer ``count(*)`` from them (``StatsSetupConst``). Those of an
    aborted write id no reader of the source believes, but the target will not know that it was aborted.

    :param made: wire ``Table`` or ``Partition`` for the target.
    :param write_ids: the table's write ids in the dump; ``None`` for a table without.
    """
    if write_ids and not write_ids.is_valid(made.writeId or 0):
        (made.parameters or {}).pop("COLUMN_STATS_ACCURATE", None)
        made.colStats = None
    return made


def definition(table: types.Table | types.Partition) -> dict[str, str]:
    """Return the lasting definition of a table by field: columns, keys, format, location, text, parameters.

    Statistics, times and the policy's markers stay outside, because they change while the table stays the
    same. So do the SerDe's properties of a full ACID table: Hive 4 drops them, and ORC does not read them.
    """
    values = to_json(table)
    parameters = as_stored(values.get("parameters"))
    kept = {name: values.get(name) for name in ("dbName", "tableName", "owner", "partitionKeys", "tableType")}
    storage = values.get("sd") or {}
    fields = {
        **kept,
        **{f"storage.{name}": storage.get(name) for name in _STORAGE_FIELDS},
        **{f"parameters.{name}": parameters[name] for name in parameters if _lasts(name)},
    }
    if serde := storage.get("serdeInfo"):
        drops = isinstance(table, types.Table) and table_kind(table) is TableKind.FULL_ACID
        lasting = {} if drops else without_side_parameters(serde.get("parameters"))
        properties = spark_tables.comparable_properties(lasting)
        fields["storage.serdeInfo"] = {**serde, "parameters": properties}
    if location := spark_tables.data_location(table):
        fields["storage.location"] = canonical(location)
    if isinstance(table, types.Table) and table.tableType == "VIRTUAL_VIEW":
        fields["text"] = text_claim(table)
    return {name: json.dumps(value, sort_keys=True, ensure_ascii=False) for name, value in fields.items()}


def definition_digest(table: types.Table) -> str:
    """Return the digest of a table's :func:`definition`."""
    text = json.dumps(definition(table), sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def name_of(table: types.Table, partition: types.Partition) -> str:
    """Return the name of a wire ``Partition`` of a wire ``Table``."""
    return partition_name([key.name or "" for key in table.partitionKeys or ()], partition.values or ())


def _lasts(parameter: str) -> bool:
    return parameter not in _VOLATILE and not is_side_parameter(parameter)


def _copied(original: Made) -> Made:
    """Copy a wire ``Table`` or ``Partition``, deeply only as far as the copy is changed.

    A whole deep copy would be most of the work on a partition.
    """
    copied = copy.copy(original)
    if copied.sd is not None:
        copied.sd = copy.copy(copied.sd)
        copied.sd.skewedInfo = copy.copy(copied.sd.skewedInfo)
    if copied.colStats is not None:
        copied.colStats = copy.copy(copied.colStats)
        copied.colStats.statsDesc = copy.copy(copied.colStats.statsDesc)
    return copied


def _move_statistics(target: types.Table | types.Partition, database: str) -> None:
    if target.colStats is not None and target.colStats.statsDesc is not None:
        target.colStats.statsDesc.dbName = database


def _move_storage(
    storage: types.StorageDescriptor, source_location: str | None, location: str | None
) -> None:
    storage.location = location
    if storage.parameters:
        storage.parameters = without_side_parameters(storage.parameters)
    serde = storage.serdeInfo
    if serde:
        properties = without_side_parameters(serde.parameters)
        moved = spark_tables.moved_properties(properties, source_location, location) or properties
        if moved != (serde.parameters or {}):
            storage.serdeInfo = copy.copy(serde)
            storage.serdeInfo.parameters = moved
    skewed = storage.skewedInfo
    if skewed is not None and skewed.skewedColValueLocationMaps and source_location and location:
        inside = {
            values: locations.relative_to(directory, source_location)
            for values, directory in skewed.skewedColValueLocationMaps.items()
        }
        # Hive lets these maps point elsewhere: a partition that was renamed names its former directories. A
        # replica must not read there; without any map, Hive reads all of the partition
        # (``ListBucketingPrunerUtils``).
        whole = all(path is not None for path in inside.values())
        skewed.skewedColValueLocationMaps = (
            {values: join(location, path) for values, path in inside.items() if path is not None}
            if whole
            else {}
        )
