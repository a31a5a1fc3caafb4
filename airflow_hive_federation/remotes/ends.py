"""What a refresh works between, and what it does to single local tables."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_hive_federation.catalog.breaker import CircuitBreaker
from airflow_hive_federation.catalog.hive import HiveCatalog
from airflow_hive_federation.catalog.roles import Catalog
from airflow_hive_federation.errors import NoSuchObjectError
from airflow_hive_federation.metastore import MetastoreClient
from airflow_hive_federation.remotes.statement import Name

#: The metastore must not count files: that would list the remote's store.
KEEP_STATISTICS = {"DO_NOT_UPDATE_STATS": "true"}


@dataclass(frozen=True, kw_only=True)
class Ends:
    """What a refresh works between.

    :param local: the local metastore.
    :param here: its id.
    :param owner: who makes the links.
    :param remote: the remote's catalog.
    :param breaker: its circuit breaker.
    """

    local: HiveCatalog
    here: str | None
    owner: str
    remote: Catalog
    breaker: CircuitBreaker


def names_of(name: Name) -> tuple[str, str]:
    """Database and table, as calls take them."""
    return name.database or "", name.table or ""


def drop_link(client: MetastoreClient, name: Name) -> None:
    """Drop a local table that is a link, and no file.

    The partitions go first: told to leave the data alone, Hive 4.2 forgets them, and then fails on its own
    foreign key (``HMSHandler.drop_table_core``). Told to delete the data it would rely on the table's
    ``external.table.purge``, which anybody may have altered.
    """
    database, table = names_of(name)
    try:
        names = client.list_partition_names(database, table)
    except NoSuchObjectError:
        return
    client.drop_partitions(database, table, names, delete_data=False)
    client.drop_table(database, table, delete_data=False, if_exists=True)
