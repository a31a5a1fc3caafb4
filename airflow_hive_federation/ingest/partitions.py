"""Partitions under streaming: found or created, told to the transaction, and their statistics disclaimed.

All of it is done before the first byte of a partition is written in a transaction. What a transaction wrote
stays invisible when it is aborted only if the metastore knows where it wrote ("components"): it forgets
aborted transactions that wrote nowhere, and their write ids become valid.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from airflow_hive_federation.errors import ConfigurationError, MetastoreServerError
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
from airflow_hive_federation.tables.write.partitions import check_alike, new_partition
from airflow_hive_federation.tables.write.plan import TableLayout, partition_names
from airflow_hive_federation.tables.write.publish import claiming_accuracy, withdraw_accuracy
from airflow_hive_federation.transactions.locks import WriteKind, operation_type
from airflow_hive_federation.transactions.snapshots import take_snapshots

_NO_STATS_UPDATE = {"DO_NOT_UPDATE_STATS": "true"}


class Partitions:
    """The partitions of one table, as far as a connection has met them.

    :param table: the metastore's table.
    :param dynamic: partition values come from the records.
    """

    def __init__(self, client: MetastoreClient, table: Any, layout: TableLayout, *, dynamic: bool) -> None:
        self._client, self._table, self._layout, self._dynamic = client, table, layout, dynamic
        self._locations: dict[Values, str] = {}
        self._told: set[Values] = set()
        self.created = 0

    @property
    def met(self) -> int:
        """How many partitions were written to."""
        return len(self._locations)

    @property
    def names(self) -> list[str] | None:
        """Names of the partitions that were written to; ``None`` for a table without partitions."""
        return partition_names(self._layout, sorted(self._locations)) if self._layout.partition_keys else None

    def location(self, values: Values) -> str:
        """Where a partition that was prepared lies."""
        return self._locations[values]

    def begin(self) -> None:
        """Begin another transaction."""
        self._told.clear()

    def prepare(self, values: Iterable[Values], *, txn_id: int, write_id: int) -> None:
        """Make partitions ready to be written to in a transaction.

        :raises InvalidTable: one is not stored as the table is.
        :raises PartitionCreationFailed: one cannot be created.
        :raises TransactionError: the metastore does not take note of them.
        """
        fresh = sorted(set(values) - self._told)
        if not fresh:
            return
        described = self._described(fresh, write_id)
        with metastore_errors(TransactionError, f"{self._layout.name}: statistics", txn_id=txn_id):
            self._disclaim(described, write_id)
            if self._dynamic:
                self._tell(fresh, txn_id, write_id)
        self._told.update(fresh)

    def _described(self, values: Sequence[Values], write_id: int) -> list[Any]:
        layout, client = self._layout, self._client
        with metastore_errors(PartitionCreationFailed, f"Partitions of {layout.name}"):
            if not layout.partition_keys:
                table: Any = client.get_table(layout.database, layout.table)
                self._locations[()] = layout.location
                return [table]
            found = self._existing(values)
            missing = [one for one in values if one not in found]
            if missing:
                names = partition_names(layout, missing)
                made = [
                    new_partition(self._table, one, f"{layout.location}/{name}", write_id)
                    for one, name in zip(missing, names, strict=True)
                ]
                client.add_partitions(made, environment=_NO_STATS_UPDATE)
                self.created += len(missing)
                # Somebody else may have been first, and elsewhere.
                found |= self._existing(missing)
        try:
            check_alike(layout, self._table, list(found.values()))
        except ConfigurationError as error:
            raise InvalidTable(error.message, remedy=error.remedy, table=layout.name) from error
        self._locations |= {one: found[one].sd.location.rstrip("/") for one in values}
        return [found[one] for one in values]

    def _existing(self, values: Sequence[Values]) -> dict[Values, Any]:
        layout = self._layout
        found: Any = self._client.iter_partitions(
            layout.database, layout.table, names=partition_names(layout, values)
        )
        return {tuple(one.values): one for one in found}

    def _disclaim(self, described: Sequence[Any], write_id: int) -> None:
        stale = claiming_accuracy(described)
        if not stale:
            return
        layout = self._layout
        seen = take_snapshots(self._client, [layout.name])[layout.name].write_ids.text()
        for _ in range(_ATTEMPTS):
            expected = None if layout.partition_keys else a_position(stale[0])
            try:
                withdraw_accuracy(
                    self._client, layout, stale, write_id=write_id, seen=seen, expected_parameter=expected
                )
                return
            except MetastoreServerError as error:
                if expected is None or "has been modified" not in str(error):
                    raise
            # Another stream has committed its position meanwhile, which we would have set back.
            stale = claiming_accuracy([self._client.get_table(layout.database, layout.table)])
            if not stale:
                return
        raise TransactionError(f"{layout.name} is altered all the time.", remedy="Try again.")

    def _tell(self, values: Sequence[Values], txn_id: int, write_id: int) -> None:
        request = types.AddDynamicPartitions(
            txnid=txn_id,
            writeid=write_id,
            dbname=self._layout.database,
            tablename=self._layout.table,
            partitionnames=partition_names(self._layout, values),
            operationType=operation_type(WriteKind.INSERT),
        )
        self._client.call("add_dynamic_partitions", request)


_ATTEMPTS = 5


def a_position(table: Any) -> tuple[str, str] | None:
    """Return a committed position of the table's parameters, to compare with when they are replaced."""
    return next(
        ((key, value) for key, value in sorted((table.parameters or {}).items()) if key.startswith("_meta")),
        None,
    )


def partition_values(name: str) -> Values:
    """Take the values out of a partition's name (``Warehouse.getPartValuesFromPartName``)."""
    return tuple(unescape(part.partition("=")[2]) for part in name.split("/"))
