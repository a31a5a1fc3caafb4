"""Prepares partitions for a transaction: creates and registers them and invalidates their statistics.

A transaction prepares a partition before it writes the first byte of it. The rows of an aborted transaction
stay invisible only if the metastore knows the partitions that the transaction wrote to (its "components"):
the metastore forgets aborted transactions without components, and their write ids become valid.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from airflow_hive_federation.acid.names import DirectoryKind, is_acid_directory, parse_directory
from airflow_hive_federation.errors import ConfigurationError, UnsupportedMethodError
from airflow_hive_federation.ingest.errors import (
    InvalidTable,
    PartitionCreationFailed,
    TransactionError,
    metastore_errors,
)
from airflow_hive_federation.ingest.grouping import Values
from airflow_hive_federation.metastore import MetastoreClient
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.model.partitions import unescape
from airflow_hive_federation.storage.listing import list_children
from airflow_hive_federation.storage.options import StorageOptions
from airflow_hive_federation.tables.write.partitions import (
    check_alike,
    create_partitions,
    new_partition,
    partitions_of,
)
from airflow_hive_federation.tables.write.plan import TableLayout, partition_names
from airflow_hive_federation.tables.write.publish import claiming_accuracy, withdraw_accuracy
from airflow_hive_federation.transactions.locks import WriteKind, operation_type
from airflow_hive_federation.transactions.snapshots import take_snapshots


class Partitions:
    """The partitions of one table that a connection has prepared.

    :param table: the table as the metastore describes it.
    :param dynamic: partition values come from the records.
    :param position_key: key of the position whose fence each transaction of the connection holds.
    """

    def __init__(
        self,
        client: MetastoreClient,
        table: types.Table,
        layout: TableLayout,
        *,
        dynamic: bool,
        position_key: str | None,
    ) -> None:
        self._client, self._table, self._layout, self._dynamic = client, table, layout, dynamic
        self._own_positions = () if position_key is None else (position_key,)
        self._directory = layout.location
        self._locations: dict[Values, str] = {}
        self._prepared: set[Values] = set()
        self._counts_write_ids = True
        self.created = 0

    @property
    def met(self) -> int:
        """Return the number of partitions that were written to."""
        return len(self._locations)

    @property
    def names(self) -> list[str] | None:
        """Return the names of the written partitions; ``None`` for a table without partitions."""
        return partition_names(self._layout, sorted(self._locations)) if self._layout.partition_keys else None

    def location(self, values: Values) -> str:
        """Return the location of a prepared partition."""
        return self._locations[values]

    def highest_write_id(self) -> int:
        """Return the highest write id that was allocated on the table, by one call of the metastore.

        The high-water mark of readers may be lower: the metastore forgets write ids of committed transactions
        that are older than all open ones.
        """
        layout = self._layout
        if self._counts_write_ids:
            request = types.MaxAllocatedTableWriteIdRequest(dbName=layout.database, tableName=layout.table)
            try:
                return int(self._client.call("get_max_allocated_table_write_id", request).maxWriteId)
            except UnsupportedMethodError:
                self._counts_write_ids = False
        # Hive 3.1.
        (found,) = self._client.get_valid_write_ids([layout.name]).values()
        return int(found.writeIdHighWaterMark)

    def has_base(self, values: Values, write_id: int, options: StorageOptions | None) -> bool:
        """Return whether a partition that was once prepared has a base that hides rows of a write id.

        An overwrite makes a base of its own write id, and so does a truncation. A compaction makes one only
        below the lowest open write id.

        :raises StorageError: the partition cannot be listed.
        """
        if values not in self._locations:
            return False
        names = filter(is_acid_directory, list_children(self._locations[values], options=options)[1])
        return any(
            found.kind is DirectoryKind.BASE and found.max_write_id >= write_id
            for found in map(parse_directory, names)
        )

    def look_again(self) -> bool:
        """Read the table again; return whether it is another one than when the connection was made.

        The table's id shows it; before Hive 4, tables have none. The caller holds a lock on the table, which
        keeps others from dropping it.
        """
        present = self._client.get_table(self._layout.database, self._layout.table)
        self._directory = present.sd.location.rstrip("/")
        return bool(present.id and self._table.id) and present.id != self._table.id

    def begin(self) -> None:
        """Begin another transaction."""
        self._prepared.clear()

    def prepare(
        self, values: Iterable[Values], *, txn_id: int, write_id: int, check: Callable[[], None]
    ) -> None:
        """Prepare partitions so that a transaction may write to them.

        :param check: raises if the transaction may have ended.
        :raises InvalidTable: a partition is not stored as the table is.
        :raises PartitionCreationFailed: a partition cannot be created.
        :raises TransactionError: the metastore does not register the partitions or their statistics.
        """
        fresh = sorted(set(values) - self._prepared)
        if not fresh:
            return
        described = self._described(fresh, write_id)
        with metastore_errors(TransactionError, f"{self._layout.name}: statistics", txn_id=txn_id):
            self._disclaim(described, write_id, check)
            if self._dynamic:
                self._announce(fresh, txn_id, write_id)
        self._prepared.update(fresh)

    def _described(self, values: Sequence[Values], write_id: int) -> list[object]:
        layout, client = self._layout, self._client
        with metastore_errors(PartitionCreationFailed, f"Partitions of {layout.name}"):
            if not layout.partition_keys:
                table = client.get_table(layout.database, layout.table)
                self._locations[()] = table.sd.location.rstrip("/")
                return [table]
            partitions = partitions_of(client, layout, values)
        # Records that are refused create no partition.
        self._check_alike(partitions.values())
        with metastore_errors(PartitionCreationFailed, f"Partitions of {layout.name}"):
            created = self._created([key for key in values if key not in partitions], write_id)
        self._check_alike(created.values())
        partitions |= created
        self._locations |= {key: partitions[key].sd.location.rstrip("/") for key in values}
        return [partitions[key] for key in values]

    def _check_alike(self, partitions: Iterable[types.Partition]) -> None:
        try:
            check_alike(self._layout, self._table, list(partitions))
        except ConfigurationError as error:
            raise InvalidTable(error.message, remedy=error.remedy, table=self._layout.name) from error

    def _created(self, missing: Sequence[Values], write_id: int) -> dict[Values, types.Partition]:
        layout = self._layout
        made = {
            key: new_partition(self._table, key, f"{self._directory}/{name}", write_id)
            for key, name in zip(missing, partition_names(layout, missing), strict=True)
        }
        try:
            created = create_partitions(self._client, layout, made)
        except ConfigurationError as error:
            raise PartitionCreationFailed(error.message, remedy=error.remedy) from error
        self.created += len(created)
        return created

    def _disclaim(self, described: Sequence[Any], write_id: int, check: Callable[[], None]) -> None:
        stale = claiming_accuracy(described)
        if not stale:
            return
        layout = self._layout
        seen = take_snapshots(self._client, [layout.name])[layout.name].write_ids.text()
        withdraw_accuracy(
            self._client,
            layout,
            stale,
            write_id=write_id,
            seen=seen,
            own_positions=self._own_positions,
            check=check,
        )

    def _announce(self, values: Sequence[Values], txn_id: int, write_id: int) -> None:
        request = types.AddDynamicPartitions(
            txnid=txn_id,
            writeid=write_id,
            dbname=self._layout.database,
            tablename=self._layout.table,
            partitionnames=partition_names(self._layout, values),
            operationType=operation_type(WriteKind.INSERT),
        )
        self._client.call("add_dynamic_partitions", request)


def partition_values(name: str) -> Values:
    """Parse the values of a partition's name (``Warehouse.getPartValuesFromPartName``)."""
    return tuple(unescape(part.partition("=")[2]) for part in name.split("/"))
