"""Replaces transactional tables in an SQL statement with DataFrames that this package's reader makes.

The text of the statement stays unchanged. Spark parses it; then the relations of these tables in its plan are
replaced, before Spark analyses the plan. Temporary views stand for names without a database, which common
table expressions may hide. The session is guarded: it refuses transactional tables that were not replaced,
for instance those in the text of a view.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from pyspark.sql import DataFrame, SparkSession

from airflow_hive_federation.acid.markers import chosen
from airflow_hive_federation.errors import ConfigurationError, FileVanishedError
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.metastore.wire import WireFormatError
from airflow_hive_federation.model.content_marks import content_mark
from airflow_hive_federation.model.files import FileEntry
from airflow_hive_federation.model.types import Column
from airflow_hive_federation.storage.listing import list_many
from airflow_hive_federation.storage.options import StorageOptions
from airflow_hive_federation.tables.read import scan
from airflow_hive_federation.tables.read.acid_description import (
    DescribedDirectory,
    DescribedRead,
    DescribedTable,
)
from airflow_hive_federation.tables.read.formats.plain import plain_table
from airflow_hive_federation.tables.read.partition_scans import PartitionState
from airflow_hive_federation.tables.read.reader import visible_rows
from airflow_hive_federation.tables.spark_internals import Relation, sql_with_relations

_CATALOG = "spark_catalog"


def acid_frames(
    spark: SparkSession, described: Sequence[object], options: StorageOptions | None = None
) -> dict[tuple[str, str], DataFrame]:
    """Make a DataFrame of each transactional table.

    :param described: descriptions from :func:`airflow_hive_federation.clusters.acid_inputs.acid_inputs`.
    :return: DataFrames by database and table, in lower case.
    :raises ConfigurationError: a description cannot be read, or this package cannot read a table's format.
    :raises AcidFormatError: directories break Hive's layout.
    :raises FileVanishedError: a copy has lost files since the statement was planned.
    """
    frames = {}
    for item in described:
        try:
            described_table = DescribedTable.from_json(item)
        except (WireFormatError, ValueError) as error:
            raise ConfigurationError(
                f"The description of a transactional table cannot be read: {error}.",
                remedy="Run the task again.",
            ) from error
        table = described_table.table
        frame = scan.union([_rows(spark, table, read, options) for read in described_table.reads])
        frames[str(table.dbName).lower(), str(table.tableName).lower()] = frame
    return frames


def _rows(
    spark: SparkSession, table: types.Table, read: DescribedRead, options: StorageOptions | None
) -> DataFrame:
    """Return the rows of all directories that one snapshot covers."""
    listings = list_many(
        [directory.location for directory in read.directories],
        options=options,
        missing_ok=True,
        empty_directories=True,
    )
    _check_copies(read.directories, listings)
    directories = [
        PartitionState(
            location=directory.location,
            state=chosen(
                directory.location, listings[directory.location], read.write_ids, read.txns, options
            ),
            values=directory.values,
            storage=table.sd if directory.storage is None else directory.storage,
        )
        for directory in read.directories
    ]
    storage = table.sd
    columns = [Column.of(item.name, item.type) for item in storage.cols]
    keys = [Column.of(str(item.name), str(item.type)) for item in table.partitionKeys or ()]
    properties = str((table.parameters or {}).get("transactional_properties", ""))
    if properties.lower() == "insert_only":
        return plain_table(spark, table, directories, columns, keys, storage_options=options)
    return visible_rows(
        spark, directories, columns, write_ids=read.write_ids, partition_keys=keys, storage_options=options
    )


def _check_copies(
    directories: Iterable[DescribedDirectory], listings: Mapping[str, Sequence[FileEntry]]
) -> None:
    """Check that copies still hold all their files.

    A job may begin long after its statement was planned, when a sweep may have removed the copy: the reader
    would take its directory for one without rows.
    """
    for directory in directories:
        files = [entry for entry in listings[directory.location] if not entry.path.endswith("/")]
        if directory.content is not None and content_mark(files) != directory.content:
            raise FileVanishedError(
                f"{directory.location} does not hold exactly the files of the copy any more.",
                remedy="Run the task again: it is then planned anew, by the copies that are there.",
                path=directory.location,
            )


def sql_with_frames(
    spark: SparkSession, sql: str, frames: Mapping[tuple[str, str], DataFrame], database: str
) -> DataFrame:
    """Run a statement in which DataFrames stand for tables.

    :param spark: a guarded session, whose temporary views this function may replace.
    :param sql: the statement.
    :param frames: DataFrames by database and table, in lower case.
    :param database: database of table names without one.
    """
    if not frames:
        return spark.sql(sql)
    for (home, name), frame in frames.items():
        if home == database.lower():
            frame.createOrReplaceTempView(f"`{name}`")

    def relation_of(parts: tuple[str, ...]) -> Relation | None:
        names = [part.lower() for part in parts]
        if len(names) == 3 and names[0] == _CATALOG:
            del names[0]
        frame = frames.get((names[0], names[1])) if len(names) == 2 else None
        if frame is None:
            return None
        return Relation(name=names[1], qualifier=(_CATALOG, names[0]), frame=frame)

    return sql_with_relations(spark, sql, relation_of)
