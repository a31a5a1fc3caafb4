"""Takes the cut of a dump: the list of the source's transactions at one moment, and the last event then."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_hive_federation.model.write_ids import ValidTxns
from airflow_hive_federation.replication.metadata.write_ids import valid_transactions
from airflow_hive_federation.transactions.keeping import KeptFiles

if TYPE_CHECKING:
    from airflow_hive_federation.metastore import MetastoreClient, MetastorePool


@dataclass(frozen=True, kw_only=True)
class Cut:
    """A moment of the source, which the dumps of several databases may share.

    :param lease: the read transaction that keeps the source's cleaner from removing files of the moment.
    :param event_id: the source's last event, read after the transactions.
    :param transactions: the transactions whose rows are of the moment.
    """

    lease: int
    event_id: int
    transactions: ValidTxns

    @classmethod
    def now(cls, client: MetastoreClient, lease: int) -> Cut:
        """Take the cut at this moment, for tables whose history the lease keeps already."""
        transactions = valid_transactions(client.get_open_txns())
        event_id = client.get_current_notification_event_id()
        return cls(lease=lease, event_id=event_id, transactions=transactions)


def take_cut(pool: MetastorePool, databases: Collection[str], lease: int) -> Cut:
    """Take one cut for several databases, after the lease keeps the history of their tables.

    :param pool: connections to the source.
    :raises NoSuchObjectError: a database does not exist.
    """
    with pool.client() as client:

        def tables() -> list[str]:
            names = []
            for database in databases:
                # An empty list of tables would hide that the database is gone.
                client.get_database(database)
                names += [f"{database}.{table}" for table in client.list_tables(database)]
            return names

        return KeptFiles(client, lease).take(tables, lambda: Cut.now(client, lease))
