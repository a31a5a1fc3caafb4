"""Reads from the metastore the facts of a table that a compaction needs."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from airflow_hive_federation.compaction.plan import CompactedTable, FileFormat
from airflow_hive_federation.errors import ConfigurationError, NoSuchObjectError, StorageError
from airflow_hive_federation.metastore import MetastoreClient
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.model.remote_links import WRITE_THERE, remote_of
from airflow_hive_federation.orc.properties import (
    bloom_filters,
    merged_properties,
    orc_compression,
    requested_properties,
)
from airflow_hive_federation.storage.filesystem import local_path, open_filesystem, storage_errors
from airflow_hive_federation.storage.options import StorageOptions

_FORMATS = {
    "org.apache.hadoop.hive.ql.io.orc.OrcInputFormat": FileFormat.ORC,
    "org.apache.hadoop.hive.ql.io.parquet.MapredParquetInputFormat": FileFormat.PARQUET,
    "org.apache.hadoop.mapred.TextInputFormat": FileFormat.TEXT,
}


@dataclass(frozen=True, kw_only=True)
class FoundTable:
    """A table that a request of the queue names.

    :param table: the table as the metastore describes it.
    :param location: URI of the table's or partition's directory.
    :param compacted: the table or partition to compact; ``None`` for a partitioned table as a whole.
    """

    table: types.Table
    location: str
    compacted: CompactedTable | None


def compacted_table(
    client: MetastoreClient,
    database: str,
    name: str,
    partition: str | None,
    *,
    properties: str | None = None,
) -> FoundTable:
    """Look up a table and its partition, if the request names one.

    :param properties: properties of the request, in the form of ``CompactionInfoStruct``.
    :raises NoSuchObjectError: the table or partition does not exist.
    :raises ConfigurationError: the table is not transactional, is sorted, or has a format that is not merged
        here; or a property of ORC has an invalid value.
    """
    table = client.get_table(database, name)
    full_name = f"{database}.{name}"
    parameters = {key.lower(): value for key, value in (table.parameters or {}).items()}
    if remote := remote_of(parameters):
        raise ConfigurationError(f"{full_name} stands for the remote table {remote}.", remedy=WRITE_THERE)
    if parameters.get("transactional", "").lower() != "true":
        raise ConfigurationError(
            f"{full_name} is not transactional: there is nothing to compact.",
            remedy="Name a transactional table.",
        )
    storage = _storage(client, table, partition) if partition else table.sd
    if storage.sortCols:
        raise ConfigurationError(
            f"Attempt to compact sorted table {full_name}, which is not yet supported!",
            remedy="Hive does not compact sorted tables either.",
        )
    if table.partitionKeys and not partition:
        return FoundTable(table=table, location=storage.location, compacted=None)
    for lines in ("header", "footer"):
        # In a merged file, readers would skip those of the first or last file only.
        if parameters.get(f"skip.{lines}.line.count", "0") != "0":
            raise ConfigurationError(
                f"{full_name} has {lines} lines in its files: they are not merged here.",
                remedy="Let Hive's own worker compact it.",
            )
    insert_only = parameters.get("transactional_properties", "").lower() == "insert_only"
    columns = tuple((column.name, column.type) for column in table.sd.cols)
    of_serde = table.sd.serdeInfo.parameters if table.sd.serdeInfo else None
    orc_properties = merged_properties(of_serde, parameters, requested_properties(properties))
    compacted = CompactedTable(
        name=full_name,
        partition=partition or "",
        location=storage.location,
        columns=columns,
        file_format=_format(full_name, storage) if insert_only else FileFormat.ACID,
        bucket_count=max(0, storage.numBuckets or 0),
        compression=orc_compression(full_name, orc_properties),
        filters=bloom_filters(full_name, orc_properties, columns),
    )
    return FoundTable(table=table, location=storage.location, compacted=compacted)


def run_as(table: types.Table, location: str, options: StorageOptions | None, client: MetastoreClient) -> str:
    """Return the user that the cleaner acts for: the owner of the directory, else of the table.

    Hive's ``TxnUtils.findUserToRunAs`` returns the owner of the directory.
    """
    path = local_path(location)
    if path is not None:
        import pwd
        from pathlib import Path

        with suppress(KeyError, OSError):
            return pwd.getpwuid(Path(path).stat().st_uid).pw_name
    else:
        filesystem, known_as = open_filesystem(location, options)
        with suppress(StorageError), storage_errors(location):
            owner = filesystem.info(known_as).get("owner")
            if owner:
                return str(owner)
    return str(table.owner or client.settings.effective_user())


def _storage(client: MetastoreClient, table: types.Table, partition: str) -> types.StorageDescriptor:
    partitions: list[types.Partition] = list(
        client.iter_partitions(table.dbName, table.tableName, names=[partition])
    )
    if not partitions:
        raise NoSuchObjectError(
            f"{table.dbName}.{table.tableName} has no partition {partition}.",
            remedy="Compare with SHOW PARTITIONS.",
        )
    return partitions[0].sd


def _format(name: str, storage: types.StorageDescriptor) -> FileFormat:
    file_format = _FORMATS.get(storage.inputFormat)
    if file_format is None:
        raise ConfigurationError(
            f"{name} is insert-only in a format that is not merged here: {storage.inputFormat}.",
            remedy="ORC, Parquet and text are; Hive's own worker does all.",
        )
    return file_format
