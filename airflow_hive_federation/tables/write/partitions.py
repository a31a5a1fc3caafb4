"""Partitions to write to: those to be made are stored as their table, the others have to be."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.tables.read.formats.text import text_form
from airflow_hive_federation.tables.write.plan import TableLayout, partition_names


def new_partition(table: Any, values: Sequence[str], location: str, write_id: int) -> Any:
    """Describe a partition to be made: as its table is, elsewhere."""
    storage = copy.deepcopy(table.sd)
    storage.location = location
    return types.Partition(
        dbName=table.dbName,
        tableName=table.tableName,
        values=list(values),
        sd=storage,
        parameters={},
        writeId=write_id,
    )


def check_alike(layout: TableLayout, table: Any, partitions: Sequence[Any]) -> None:
    """Make sure that partitions are stored as their table is, by which rows are written.

    ``ALTER TABLE`` of buckets or SerDe properties leaves the partitions there are as they were. Hive's INSERT
    into such a one makes the partition like the table, and from then on takes the rows that were there for
    what they are not: texts are split elsewhere, and a query by a bucket column looks into other buckets.

    :raises ConfigurationError: if one is not; it says in what.
    """
    wanted = _storing(layout, table, table.sd)
    for one in partitions:
        found = _storing(layout, table, one.sd)
        unlike = [
            f"{what}: {found[what]} instead of {wanted[what]}"
            for what in wanted
            if found[what] != wanted[what]
        ]
        if unlike:
            (name,) = partition_names(layout, [one.values])
            raise ConfigurationError(
                f"Partition {name} of {layout.name} is not stored as its table: {'; '.join(unlike)}.",
                remedy="ALTER TABLE back to what its partitions have, or write its rows to a new table. "
                "(Hive's INSERT would make the partition like the table, and its present rows wrong.)",
                partition=name,
            )


def _storing(layout: TableLayout, table: Any, storage: Any) -> dict[str, str]:
    """How rows are stored, in words."""
    bucketed = storage.bucketCols and storage.numBuckets > 0
    buckets = f"{storage.numBuckets} by {', '.join(storage.bucketCols).lower()}" if bucketed else "none"
    order = [f"{one.col.lower()} {'asc' if one.order == 1 else 'desc'}" for one in storage.sortCols or []]
    found = {
        "format": storage.outputFormat,
        "SerDe": storage.serdeInfo.serializationLib,
        "buckets": buckets,
        "order": ", ".join(order) or "none",
    }
    if layout.text is not None:
        form = text_form(table, layout.columns, storage)
        found["text"] = f"{form.delimiter!r} between fields, null as {form.null!r}"
    return found
