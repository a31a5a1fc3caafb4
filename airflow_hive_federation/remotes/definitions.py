"""Converts the table definitions of a remote to definitions of local tables, without any I/O.

A table whose files any engine may read becomes an external table over the remote's location. A transactional
table would return wrong rows that way, because only the owning metastore knows its valid rows. It gets an
input format that does not exist and whose name points the user to ``read_remote_table``. Hive, Spark and
other engines fail on it; its description stays right.
"""

from __future__ import annotations

import copy
import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence, Set

from airflow_hive_federation.catalog.roles import HIVE_LACKS, WHY_UNREADABLE
from airflow_hive_federation.metastore.calls.base import ENGINE
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.metastore.objects import TableOrPartition
from airflow_hive_federation.metastore.wire import to_json
from airflow_hive_federation.model.side_parameters import without_side_parameters
from airflow_hive_federation.model.view_text import NamesRead, Renaming, UnreadableViewError
from airflow_hive_federation.model.views import (
    read_by_view,
    reason_to_leave_out,
    rewrite_view,
    text_claim,
)
from airflow_hive_federation.remotes.links import (
    DEFINITION,
    EVENT,
    MEMBER,
    NAME,
    PATH,
    PREFIX,
    READ_BY,
    STATISTICS,
)

#: Engines show this name when they fail to load the input format.
UNREADABLE = "airflow_hive_federation.RemoteAcidTable_ReadItWith_read_remote_table"
#: Hive cannot construct this class of its own without arguments: a writer fails before it touches any file.
#: Readers do not load the output format.
READ_ONLY = "org.apache.hadoop.hive.ql.io.HivePassThroughOutputFormat"
#: Spark passes this property of the SerDe to its own writers as an option. They refuse this value before they
#: touch any file (``InsertIntoHadoopFsRelationCommand``), and show it. Readers do not read the property.
SPARKS_MODE, SPARKS_REFUSAL = "partitionOverwriteMode", "NONE: A LINK TO A REMOTE TABLE IS FOR READING"
#: These values of :data:`.links.READ_BY` name the way that engines read the rows.
READ_AS_FILES, READ_BY_US, READ_AS_VIEW = "files", "read_table", "view"
#: Hive and Spark take the schema of this SerDe from the metastore, so that DESCRIBE works.
_PLAIN_SERDE = "org.apache.hadoop.hive.serde2.lazy.LazySimpleSerDe"
FORMAT = f"{PREFIX}format"
ACCURATE = "COLUMN_STATS_ACCURATE"

#: These parameters belong to the remote, or would make a local service change its data; in lower case.
_DROPPED = frozenset(
    {
        ACCURATE.lower(),
        "external",
        "translated_to_external",
        "auto.purge",
        "discover.partitions",
        "external.table.purge",
        "last_modified_by",
        "last_modified_time",
        "partition.retention.period",
        "transactional",
        "transactional_properties",
        "transient_lastddltime",
    }
)
_COUNTED = frozenset({"numFiles", "numFilesErasureCoded", "numRows", "rawDataSize", "totalSize"})
_DROPPED_PREFIXES = ("compactor.", "compactorthreshold.")
_LINK_STATE = frozenset({NAME, PATH, EVENT, DEFINITION, MEMBER})


def why_not(table: types.Table) -> str | None:
    """Return the reason why a remote's table cannot be linked; ``None`` if it can be linked."""
    return (table.parameters or {}).get(WHY_UNREADABLE) or _why_not_linked(table)


def _why_not_linked(table: types.Table) -> str | None:
    if table.tableType == "MATERIALIZED_VIEW":
        return "it is a materialized view, whose rows belong to the remote's transactions"
    if is_view(table):
        return "it is a view, whose text names databases of the remote"
    handler = _lower(table.parameters).get("storage_handler")
    if handler and not is_iceberg(table):
        return f"it is kept by {handler}, not in files"
    if table.sd is None or not table.sd.location:
        return "it has no location"
    if alike := _one_to_hive(table):
        return f"its columns {alike} differ only in case, which Hive ignores"
    return _of_another_type(table)


def _of_another_type(table: types.Table) -> str | None:
    """Return the reason why a table cannot be linked one of whose columns has no Hive type."""
    for column in table.sd.cols or []:
        _, lacking, rest = (column.type or "").partition(HIVE_LACKS)
        if lacking:
            return f"its column {column.name} is of type {re.split('[,>]', rest)[0]}, which Hive lacks"
    return None


def _one_to_hive(table: types.Table) -> str:
    """Return the names of columns that differ in upper and lower case only."""
    seen: dict[str, list[str]] = {}
    for column in (*(table.sd.cols or []), *(table.partitionKeys or [])):
        seen.setdefault(column.name.lower(), []).append(column.name)
    return ", ".join(" and ".join(names) for names in seen.values() if len(names) > 1)


def is_view(table: types.Table) -> bool:
    """Return true if a wire ``Table`` is a view that is not materialized."""
    return bool(table.tableType == "VIRTUAL_VIEW")


def why_not_view(view: types.Table, names: Renaming, linked: Mapping[str, str]) -> str | None:
    """Return the reason why a view of a remote database cannot be linked; ``None`` if it can be linked.

    :param view: wire ``Table`` of the remote.
    :param names: the remote's database and the local one.
    :param linked: the way that engines read each linked table (:data:`.links.READ_BY`), by remote name.
    """
    if view.partitionKeys:
        return "it is a view with partitions"
    try:
        names_read = read_by_view(view)
    except UnreadableViewError as error:
        return str(error)
    reasons = (
        *_read_from_no_table(names_read),
        *(_why_not_read(database, table, names, linked) for database, table in sorted(names_read.tables)),
        reason_to_leave_out(view, names),
    )
    return next((reason for reason in reasons if reason is not None), None)


def _read_from_no_table(names: NamesRead) -> Iterator[str]:
    """Yield a reason for each source that the view reads and that is not a table of its metastore."""
    for catalog, table in sorted(names.elsewhere):
        yield f"it reads {table} of the catalog {catalog}"
    for table in sorted(names.of_session):
        yield f"it reads {table} without the name of its database"
    for database, function in sorted(names.functions):
        yield f"it calls {database}.{function}, a function of a database"
    if names.table_functions:
        yield "it reads the rows of a table function"


def _why_not_read(database: str, table: str, names: Renaming, linked: Mapping[str, str]) -> str | None:
    if database != names.source_database:
        return f"it reads {database}.{table}, which is of another database"
    if table not in linked:
        return f"it reads {table}, which is not linked"
    if linked[table] == READ_BY_US:
        return f"it reads {table}, which is transactional and read by read_remote_table only"
    return None


def local_view(
    view: types.Table, names: Renaming, *, name: str, owner: str, link: Mapping[str, str]
) -> types.Table:
    """Make the local view that stands for a remote view; its text reads the linked tables.

    :param view: wire ``Table`` of the remote, for which :func:`why_not_view` returns ``None``.
    :param names: the remote's database and the local one.
    :param name: local name.
    :param owner: user who makes the link.
    :param link: parameters of the link.
    """
    made = type(view)(
        dbName=names.target_database,
        tableName=name,
        owner=owner,
        tableType=view.tableType,
        sd=_storage(view.sd),
        partitionKeys=[],
        parameters=_kept(view.parameters),
        viewExpandedText=view.viewExpandedText,
        viewOriginalText=view.viewOriginalText,
    )
    rewrite_view(made, names)
    made.parameters = {**made.parameters, READ_BY: READ_AS_VIEW, **link}
    return made


def is_iceberg(table: types.Table) -> bool:
    """Return true if a wire ``Table`` is the entry of an Iceberg table."""
    return _lower(table.parameters).get("table_type", "").lower() == "iceberg"


def is_acid(table: types.Table) -> bool:
    """Return true if a wire ``Table`` is transactional: only its metastore knows the valid rows."""
    return _lower(table.parameters).get("transactional", "").lower() == "true"


def local_table(
    table: types.Table, *, database: str, name: str, owner: str, link: Mapping[str, str]
) -> types.Table:
    """Make the local table that stands for a remote table.

    Partitions have their own locations. The local metastore then chooses the directory of a partitioned table
    (``sd.location`` is ``None``), and new partitions, and those of ``EXCHANGE PARTITION``, go below it. It
    also chooses the directory of a transactional table, which no engine can read here: so no engine finds the
    remote's files through it.

    :param table: wire ``Table`` of the remote, with its column statistics if it has any.
    :param database: local database.
    :param name: local name.
    :param owner: user who makes the link.
    :param link: parameters of the link.
    """
    made = type(table)(
        dbName=database,
        tableName=name,
        owner=owner,
        tableType="EXTERNAL_TABLE",
        sd=_storage(table.sd),
        partitionKeys=copy.deepcopy(table.partitionKeys or []),
        retention=table.retention,
    )
    made.parameters = {
        **_kept(table.parameters),
        "EXTERNAL": "TRUE",
        # Dropping the table drops the link and no file.
        "external.table.purge": "false",
        # Hive refuses INSERT INTO an immutable table at once.
        "immutable": "true",
        READ_BY: READ_BY_US if is_acid(table) else READ_AS_FILES,
        **link,
    }
    if not is_iceberg(table):
        # Hive then refuses LOAD DATA, which would move files to the remote (LoadSemanticAnalyzer). Readers
        # check it only if hive.optimize.listbucketing is set, and find no skewed column.
        made.sd.storedAsSubDirectories = True
        if made.partitionKeys or is_acid(table):
            made.sd.location = None
        if made.sd.serdeInfo is not None:
            serde_parameters = made.sd.serdeInfo.parameters or {}
            made.sd.serdeInfo.parameters = {**serde_parameters, SPARKS_MODE: SPARKS_REFUSAL}
    if is_acid(table):
        _make_unreadable(made.sd)
        made.parameters[FORMAT] = str(table.sd.inputFormat)
        return made
    if not is_iceberg(table):
        made.sd.outputFormat = READ_ONLY
    if table.colStats is not None and table.colStats.statsObj:
        made.colStats = copy.deepcopy(table.colStats)
        made.colStats.statsDesc.dbName = database
        made.colStats.statsDesc.tableName = name
        made.colStats.statsDesc.catName = None
    return made


def local_partition(partition: types.Partition, *, database: str, name: str, acid: bool) -> types.Partition:
    """Make the local partition that stands for a remote partition.

    A partition of a transactional table gets no location.

    :param partition: wire ``Partition`` of the remote.
    :param acid: the table is transactional at the remote.
    """
    made = type(partition)(
        values=list(partition.values),
        dbName=database,
        tableName=name,
        createTime=partition.createTime,
        sd=_storage(partition.sd),
        parameters=_kept(partition.parameters),
    )
    if acid:
        _make_unreadable(made.sd)
        made.sd.location = None
    else:
        made.sd.outputFormat = READ_ONLY
    return made


def has_column_statistics(table: TableOrPartition) -> bool:
    """Return true if the remote has marked column statistics of a wire ``Table`` as accurate."""
    return bool("COLUMN_STATS" in (table.parameters or {}).get(ACCURATE, ""))


def table_statistics(
    objects: Sequence[types.ColumnStatisticsObj], made: types.Table
) -> types.ColumnStatistics:
    """Wrap column statistics as a local wire ``Table`` carries them."""
    return types.ColumnStatistics(
        statsDesc=types.ColumnStatisticsDesc(isTblLevel=True, dbName=made.dbName, tableName=made.tableName),
        statsObj=list(objects),
        engine=ENGINE,
    )


def partition_statistics(
    objects: Sequence[types.ColumnStatisticsObj], made: types.Partition, name: str
) -> types.ColumnStatistics:
    """Wrap column statistics as a local wire ``Partition`` carries them.

    :param name: name of the partition.
    """
    return types.ColumnStatistics(
        statsDesc=types.ColumnStatisticsDesc(
            isTblLevel=False, dbName=made.dbName, tableName=made.tableName, partName=name
        ),
        statsObj=list(objects),
        engine=ENGINE,
    )


def statistics_digest(objects: Sequence[types.ColumnStatisticsObj]) -> str:
    """Return a digest of column statistics in any order."""
    texts = sorted(json.dumps(to_json(column), sort_keys=True) for column in objects)
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:16]


def digest(made: types.Table, table: types.Table) -> str:
    """Return a digest of the remote's definition as far as a local table copies it, without the link's state.

    Only the remote's flag of accurate statistics enters the digest, and changes with the statistics: a read
    of many tables returns no column statistics.

    :param made: the local table that :func:`local_table` made of the remote's.
    :param table: wire ``Table`` of the remote.
    """
    described = to_json(made)
    parameters = {
        key: value
        for key, value in (made.parameters or {}).items()
        if key not in _LINK_STATE and key.lower() not in _DROPPED
    }
    facts = {
        "sd": described.get("sd"),
        "keys": described.get("partitionKeys"),
        "parameters": parameters,
        "statistics": (table.parameters or {}).get(ACCURATE, ""),
    }
    if is_view(made):
        facts["text"] = text_claim(made)
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]


def same_partition(made: types.Partition, present: types.Partition) -> bool:
    """Return true if a local partition is up to date, without regard to the metastore's own parameters.

    :param made: the partition that :func:`local_partition` made.
    :param present: the partition of the local metastore, which adds file counts to new partitions that have
        none (``MetaStoreServerUtils.updatePartitionStatsFast``).
    """
    counted = _COUNTED - (made.parameters or {}).keys()
    if made.sd.location is not None and made.sd.location != present.sd.location:
        return False
    return bool(_partition_facts(made) == _partition_facts(present, ignored=counted))


def schema_changed(left: types.Table, right: types.Table) -> bool:
    """Return true if two wire ``Table`` objects differ in columns or formats, which partitions repeat."""

    def facts(table: types.Table) -> tuple[object, ...]:
        sd = table.sd
        return (_columns(sd), sd.inputFormat, sd.outputFormat, sd.serdeInfo and sd.serdeInfo.serializationLib)

    return bool(facts(left) != facts(right))


def keys_changed(left: types.Table, right: types.Table) -> bool:
    """Return true if two wire ``Table`` objects differ in partition keys, which no metastore can alter."""

    def keys(table: types.Table) -> list[tuple[str, str]]:
        return [(key.name.lower(), key.type) for key in table.partitionKeys or []]

    return keys(left) != keys(right)


def _partition_facts(partition: types.Partition, *, ignored: Set[str] = frozenset()) -> tuple[object, ...]:
    sd = partition.sd
    return (
        _columns(sd),
        sd.inputFormat,
        sd.outputFormat,
        bool(sd.compressed),
        sd.serdeInfo.serializationLib if sd.serdeInfo else None,
        dict((sd.serdeInfo.parameters if sd.serdeInfo else None) or {}),
        *_order_of_rows(sd),
        dict(sd.parameters or {}),
        (partition.parameters or {}).get(STATISTICS, ""),
        {key: value for key, value in _kept(partition.parameters).items() if key not in ignored},
    )


def _order_of_rows(sd: types.StorageDescriptor) -> tuple[object, ...]:
    """Return buckets, sort order and skewed values; a metastore has empty lists where a client has none."""
    skewed = sd.skewedInfo or types.SkewedInfo()
    return (
        sd.numBuckets or 0,
        list(sd.bucketCols or []),
        [(column.col, column.order) for column in sd.sortCols or []],
        list(skewed.skewedColNames or []),
        [list(values) for values in skewed.skewedColValues or []],
        dict(skewed.skewedColValueLocationMaps or {}),
        bool(sd.storedAsSubDirectories),
    )


def _columns(sd: types.StorageDescriptor) -> list[tuple[str, str, str]]:
    return [(column.name.lower(), column.type, column.comment or "") for column in sd.cols or []]


def _storage(remote: types.StorageDescriptor) -> types.StorageDescriptor:
    made = copy.deepcopy(remote)
    made.parameters = without_side_parameters(made.parameters)
    if made.serdeInfo is not None:
        made.serdeInfo.parameters = without_side_parameters(made.serdeInfo.parameters)
    return made


def _make_unreadable(sd: types.StorageDescriptor) -> None:
    sd.inputFormat = UNREADABLE
    sd.outputFormat = UNREADABLE
    if sd.serdeInfo is not None:
        sd.serdeInfo.serializationLib = _PLAIN_SERDE


def _kept(parameters: Mapping[str, str] | None) -> dict[str, str]:
    return {
        key: value
        for key, value in without_side_parameters(parameters).items()
        if key.lower() not in _DROPPED and not key.lower().startswith(_DROPPED_PREFIXES)
    }


def _lower(parameters: Mapping[str, str] | None) -> dict[str, str]:
    return {key.lower(): value for key, value in (parameters or {}).items()}
