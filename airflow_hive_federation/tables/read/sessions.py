"""Reads several tables as of one moment, keeps their files by a lock, and registers views for SQL.

>>> with reading(spark, client, ["sales.orders", "sales.lines"]) as tables:  # doctest: +SKIP
...     tables.register()
...     spark.sql("SELECT * FROM orders JOIN lines USING (order_id)").write.parquet("…")

**Protection of files.** Hive's cleaner removes the files that a compaction has replaced. In Hive 4.2 the
cleaner by default waits only for readers that have an entry in the metastore's minimum history of write ids
(``metastore.txn.use.minhistorywriteid``, ``ReadyToCleanHandler``); there, an open transaction or a lock
protects no files. In Hive 4.0, and with that setting off, an open transaction protects the files if it is
not the newest one. In Hive 3.1, only a lock on the table, or on each partition, protects them. A reader here
therefore has all of these: a read-only transaction with heartbeats, Hive's SHARED_READ lock (against DROP and
INSERT OVERWRITE), and the entry, or the locks of partitions (``MetastoreClient.keep_history``). Hive makes
the entry for its snapshot, and only *after* it has taken that snapshot: the reader misses files that are
cleaned in between. Our reader makes the entry before the snapshot, and for all write ids.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.metastore import MetastoreClient
from airflow_hive_federation.storage.options import StorageOptions
from airflow_hive_federation.tables.read.reader import read_table
from airflow_hive_federation.transactions.snapshots import Snapshot, is_transactional, take_snapshots
from airflow_hive_federation.transactions.transaction import LOCK_POLICY, Transaction
from airflow_hive_federation.waiting import PollPolicy


@dataclass(frozen=True, kw_only=True)
class Tables:
    """A set of tables as of one moment.

    :param names: ``database.table``, in lower case.
    :param snapshots: snapshots of the transactional tables, by name.
    :param storage_options: options of the tables' store.
    """

    spark: SparkSession
    client: MetastoreClient
    names: tuple[str, ...]
    snapshots: Mapping[str, Snapshot]
    storage_options: StorageOptions | None = field(default=None, repr=False)
    _views: list[str] = field(default_factory=list)

    @property
    def taken_at(self) -> datetime | None:
        """Return this machine's time of the snapshots; ``None`` without a transactional table."""
        return next((snapshot.taken_at for snapshot in self.snapshots.values()), None)

    def __getitem__(self, name: str) -> DataFrame:
        return self.read(name)

    def read(self, name: str, **choice: Any) -> DataFrame:
        """Read one of the tables as of the moment.

        :param choice: arguments of :func:`~.reader.read_table`: ``partitions``, ``columns``, ``where``,
            ``row_ids``.
        :raises ConfigurationError: if the table is not among :attr:`names`.
        """
        key = name.lower()
        if key not in self.names:
            raise ConfigurationError(
                f"{name} is not among the tables of this moment: {', '.join(self.names)}.",
                remedy="Name it when the moment is taken.",
            )
        return read_table(
            self.spark,
            self.client,
            key,
            snapshot=self.snapshots.get(key),
            storage_options=self.storage_options,
            **choice,
        )

    def register(self, views: Mapping[str, str] | None = None) -> dict[str, str]:
        """Create temporary views, by which SQL of this Spark session reads the tables.

        Spark's temporary views belong to no database: ``sales.orders`` becomes ``orders``. A view that has
        the name already is replaced.

        :param views: names of views by name of table; ``None`` registers all tables under their own names.
        :return: names of views by name of table.
        :raises ConfigurationError: if two tables would get the same view.
        """
        wanted = {name: name.partition(".")[2] for name in self.names} if views is None else dict(views)
        taken: dict[str, str] = {}
        for name, view in wanted.items():
            other = taken.setdefault(view.lower(), name)
            if other != name:
                raise ConfigurationError(
                    f"{other} and {name} cannot both be the view {view}.",
                    remedy="Give names: {'database.table': 'view', …}.",
                )
        for name, view in wanted.items():
            self.read(name).createOrReplaceTempView(_quoted(view))
            self._views.append(view)
        return wanted

    def drop_views(self) -> None:
        """Drop the views that :meth:`register` created."""
        while self._views:
            self.spark.catalog.dropTempView(self._views.pop())


def read_tables(
    spark: SparkSession,
    client: MetastoreClient,
    names: Sequence[str],
    *,
    snapshots: Mapping[str, Snapshot] | None = None,
    storage_options: StorageOptions | None = None,
) -> Tables:
    """Read several tables as of one moment: a transaction is visible in all of them or in none.

    The files are not protected: if the tables may be compacted meanwhile, use :func:`reading`.

    :param client: client of the metastore that *owns* the tables.
    :param names: ``database.table`` names.
    :param snapshots: snapshots from :func:`take_snapshots`; ``None`` takes new ones.
    :param storage_options: options of the tables' store, for listing the directories.
    :raises NoSuchObjectError: if a table does not exist.
    :raises ConfigurationError: if ``snapshots`` lacks a transactional table.
    """
    keys = _keys(names)
    transactional = _transactional(client, keys)
    if snapshots is None:
        snapshots = take_snapshots(client, transactional) if transactional else {}
    lacking = sorted(set(transactional) - {name.lower() for name in snapshots})
    if lacking:
        raise ConfigurationError(
            f"There is no snapshot of {', '.join(lacking)}.", remedy="Take it together with the others."
        )
    return Tables(
        spark=spark, client=client, names=keys, snapshots=snapshots, storage_options=storage_options
    )


@contextmanager
def reading(
    spark: SparkSession,
    client: MetastoreClient,
    names: Sequence[str],
    *,
    lock_policy: PollPolicy = LOCK_POLICY,
    storage_options: StorageOptions | None = None,
) -> Iterator[Tables]:
    """Read several tables as of one moment, and keep their files while the block runs.

    DataFrames are lazy: collect or write them before the block ends. Registered views are dropped at its end.

    :param client: client of the metastore that owns the tables, used by the thread that enters the block.
        Heartbeats have a connection of their own.
    :param lock_policy: intervals and time limit of the wait for the locks.
    :raises LockTimeoutError: if the locks are not granted in time.
    :raises TransactionAbortedError: at the end of the block, if the metastore has aborted the transaction
        meanwhile, so that files may have been removed before they were read.

    The other parameters and exceptions are those of :func:`read_tables`.
    """
    keys = _keys(names)
    transactional = _transactional(client, keys)
    with Transaction(client, lock_policy=lock_policy, read_only=True) as transaction:
        snapshots: Mapping[str, Snapshot] = {}
        if transactional:
            transaction.lock_to_read(transactional)
            snapshots = transaction.snapshots(transactional)
        tables = read_tables(spark, client, keys, snapshots=snapshots, storage_options=storage_options)
        try:
            yield tables
        finally:
            tables.drop_views()


def register(
    spark: SparkSession,
    client: MetastoreClient,
    names: Sequence[str] | Mapping[str, str],
    *,
    snapshots: Mapping[str, Snapshot] | None = None,
    storage_options: StorageOptions | None = None,
) -> Tables:
    """Create temporary views of tables, by which a ``SELECT`` reads their present rows.

    A view always shows the moment of its registration. Register again to see newer rows, and use
    :func:`reading` if the tables may be compacted meanwhile.

    :param names: ``database.table`` names, for which the views are called ``table``; or names of views by
        name of table.
    :raises ConfigurationError: if two tables would get the same view.

    The other parameters and exceptions are those of :func:`read_tables`.
    """
    tables = read_tables(spark, client, list(names), snapshots=snapshots, storage_options=storage_options)
    views = {key.lower(): view for key, view in names.items()} if isinstance(names, Mapping) else None
    tables.register(views)
    return tables


def _keys(names: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name.lower() for name in names))


def _transactional(client: MetastoreClient, names: Sequence[str]) -> list[str]:
    transactional = []
    for name in names:
        database, _, table = name.partition(".")
        if is_transactional(client.get_table(database, table)):
            transactional.append(name)
    return transactional


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"
