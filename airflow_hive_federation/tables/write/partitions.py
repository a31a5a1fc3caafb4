"""Describes and creates partitions with their table's storage, and refuses those with another storage."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence

from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.metastore import MetastoreClient
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.tables.read.formats.text import text_form
from airflow_hive_federation.tables.write.plan import TableLayout, partition_names

#: Without it, the metastore would list the files of a partition or table and write statistics itself.
NO_STATS_UPDATE = {"DO_NOT_UPDATE_STATS": "true"}


def new_partition(table: types.Table, values: Sequence[str], location: str, write_id: int) -> types.Partition:
    """Return a new partition with the table's storage and a location of its own."""
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


def partitions_of(
    client: MetastoreClient, layout: TableLayout, values: Sequence[tuple[str, ...]]
) -> dict[tuple[str, ...], types.Partition]:
    """Return the partitions that exist, by their value texts.

    :param values: the value texts of the wanted partitions, in the order of the keys.
    """
    names = partition_names(layout, values)
    partitions = client.iter_partitions(layout.database, layout.table, names=names)
    return {tuple(partition.values or ()): partition for partition in partitions}


def create_partitions(
    client: MetastoreClient, layout: TableLayout, missing: Mapping[tuple[str, ...], types.Partition]
) -> dict[tuple[str, ...], types.Partition]:
    """Create partitions, and return them as the metastore has them.

    Another writer may have created a partition first, in another location or with another storage, and the
    metastore keeps an existing partition. Files belong where the returned partitions are.

    :param missing: new partitions by their value texts.
    :raises ConfigurationError: if a partition was dropped again.
    """
    if not missing:
        return {}
    client.add_partitions(missing.values(), environment=NO_STATS_UPDATE)
    created = partitions_of(client, layout, list(missing))
    dropped = sorted(missing.keys() - created.keys())
    if dropped:
        (name,) = partition_names(layout, dropped[:1])
        raise ConfigurationError(
            f"Partition {name} of {layout.name} was dropped as soon as it was created.",
            remedy="Find out who drops it, and write again.",
            partition=name,
        )
    return created


def check_alike(layout: TableLayout, table: types.Table, partitions: Sequence[types.Partition]) -> None:
    """Check that partitions have the storage of their table, by which rows are written.

    ``ALTER TABLE`` of buckets or SerDe properties does not change existing partitions. Hive's INSERT into
    such a partition gives the partition the table's storage, and from then on Hive misreads its older rows:
    texts are split at other places, and a query by a bucket column looks into other buckets.

    :raises ConfigurationError: if a partition has another storage; the message lists the differences.
    """
    wanted = _storing(layout, table, table.sd)
    for partition in partitions:
        storage = _storing(layout, table, partition.sd)
        unlike = [
            f"{aspect}: {storage[aspect]} instead of {wanted[aspect]}"
            for aspect in wanted
            if storage[aspect] != wanted[aspect]
        ]
        if unlike:
            (name,) = partition_names(layout, [partition.values])
            raise ConfigurationError(
                f"Partition {name} of {layout.name} is not stored as its table: {'; '.join(unlike)}.",
                remedy="ALTER TABLE back to what its partitions have, or write its rows to a new table. "
                "(Hive's INSERT would make the partition like the table, and its present rows wrong.)",
                partition=name,
            )


def _storing(layout: TableLayout, table: types.Table, storage: types.StorageDescriptor) -> dict[str, str]:
    """Return the storage of rows as words for a message, by property."""
    bucketed = storage.bucketCols and storage.numBuckets > 0
    buckets = f"{storage.numBuckets} by {', '.join(storage.bucketCols).lower()}" if bucketed else "none"
    order = [
        f"{column.col.lower()} {'asc' if column.order == 1 else 'desc'}" for column in storage.sortCols or []
    ]
    description = {
        "format": storage.outputFormat,
        "SerDe": storage.serdeInfo.serializationLib,
        "buckets": buckets,
        "order": ", ".join(order) or "none",
    }
    if layout.text is not None:
        form = text_form(table, layout.columns, storage)
        description["text"] = f"{form.delimiter!r} between fields, null as {form.null!r}"
    return description
