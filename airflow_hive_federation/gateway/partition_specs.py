"""Gives each partition of a ``PartitionSpec`` a description of its own.

Hive 4 requests the partitions of a query by ``get_partitions_spec_by_expr``, and the metastore answers with
one storage descriptor for all partitions below the table's directory. A location elsewhere needs another form
of the answer (``PartitionListComposingSpec``), which all readers of such answers know.
"""

from __future__ import annotations

from collections.abc import Sequence

from airflow_hive_federation.metastore.idl import types

_NO_WRITE_ID = -1


def spread(spec: types.PartitionSpec) -> list[types.Partition]:
    """Return the partitions that share a description, each with its own, as ``PartitionSpecProxy`` does.

    :return: no partitions if the spec shares no description.
    """
    shared = spec.sharedSDPartitionSpec
    if shared is None:
        return []
    return [
        types.Partition(
            values=part.values,
            createTime=part.createTime,
            lastAccessTime=part.lastAccessTime,
            parameters=part.parameters,
            privileges=part.privileges,
            dbName=spec.dbName,
            tableName=spec.tableName,
            catName=spec.catName,
            # Such answers have no write ids; Hive 4 sends this one for partitions without transactions.
            writeId=_NO_WRITE_ID,
            sd=_descriptor(shared.sd, part.relativePath),
        )
        for part in shared.partitions or ()
    ]


def with_partitions(spec: types.PartitionSpec, partitions: Sequence[types.Partition]) -> None:
    """Replace the partitions that share a description."""
    spec.sharedSDPartitionSpec = None
    spec.partitionList = types.PartitionListComposingSpec(partitions=list(partitions))


def _descriptor(
    shared: types.StorageDescriptor | None, relative_path: str | None
) -> types.StorageDescriptor | None:
    if shared is None:
        return None
    descriptor = types.StorageDescriptor(**shared.set_fields())
    if shared.location is not None:
        descriptor.location = shared.location + (relative_path or "")
    if shared.serdeInfo is not None:
        # A partition's own location is also in these parameters, where Spark reads its tables.
        descriptor.serdeInfo = types.SerDeInfo(**shared.serdeInfo.set_fields())
        descriptor.serdeInfo.parameters = dict(shared.serdeInfo.parameters or {})
    return descriptor
