"""Reads the columns of a replicated table, and the number of its rows, from the dump that describes it."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_hive_federation.errors import HiveFederationError
from airflow_hive_federation.replication.format.directory import DumpDirectory
from airflow_hive_federation.replication.metadata.statistics import is_accurate
from airflow_hive_federation.storage.options import StorageOptions


@dataclass(frozen=True, kw_only=True)
class DescribedTable:
    """The columns of a table.

    :param columns: the names of its columns, and of those by which it is partitioned.
    :param rows: the number of rows that a bootstrap copied, of a table without partitions whose statistics
        the source calls accurate; otherwise ``None``.
    """

    columns: tuple[str, ...]
    rows: int | None = None


def described_table(dump: str, table: str, options: StorageOptions | None = None) -> DescribedTable | None:
    """Return the columns of a table that a dump's own cycle worked on; ``None`` if the dump is gone.

    :param dump: URI of the dump.
    """
    directory = DumpDirectory(dump, options)
    try:
        document, is_increment = directory.table(table), directory.manifest().is_increment
    except HiveFederationError:
        return None
    columns = document.table.sd.cols if document.table.sd is not None else None
    names = tuple(column.name or "" for column in columns or ())
    keys = document.partition_keys
    counted = ""
    if not is_increment and not keys and is_accurate(document.table.parameters, ()):
        counted = (document.table.parameters or {}).get("numRows", "")
    rows = int(counted) if counted.isascii() and counted.isdigit() else None
    return DescribedTable(columns=(*names, *keys), rows=rows)
