"""Holds the local and the remote end of a refresh, and drops single links."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass

from airflow_hive_federation.catalog.breaker import CircuitBreaker
from airflow_hive_federation.catalog.hive import HiveCatalog
from airflow_hive_federation.catalog.roles import Catalog
from airflow_hive_federation.errors import NameTakenError, NoSuchObjectError, NotARemoteError, RemoteError
from airflow_hive_federation.metastore import MetastoreClient
from airflow_hive_federation.model.remote_links import remote_of
from airflow_hive_federation.remotes.statement import Kind, Name

#: Stops the metastore from counting files, which would list the remote's store.
KEEP_STATISTICS = {"DO_NOT_UPDATE_STATS": "true"}


@dataclass(frozen=True, kw_only=True)
class Ends:
    """The two ends of a refresh: the local metastore and the remote's catalog.

    :param local: the local metastore.
    :param here: id of the local metastore.
    :param owner: user who makes the links.
    :param breaker: circuit breaker of the remote's catalog.
    """

    local: HiveCatalog
    here: str | None
    owner: str
    remote: Catalog
    breaker: CircuitBreaker


def names_of(name: Name) -> tuple[str, str]:
    """Return the database and the table of a name as arguments of metastore calls."""
    return name.database or "", name.table or ""


def drop_link(client: MetastoreClient, name: Name) -> None:
    """Drop a local table that is a link, without deleting a file.

    The partitions are dropped first: Hive 4.2 does not drop them with a table whose data it has to keep, and
    then fails on its own foreign key (``HMSHandler.drop_table_core``). With ``delete_data`` it would rely on
    the table's ``external.table.purge``, which any user may have altered.
    """
    database, table = names_of(name)
    try:
        names = client.list_partition_names(database, table)
    except NoSuchObjectError:
        return
    client.drop_partitions(database, table, names, delete_data=False)
    client.drop_table(database, table, delete_data=False, if_exists=True)


def drop_remote(client: MetastoreClient, local: Name, links: Set[str | None]) -> None:
    """Drop a link, or a local database whose tables are all links, without deleting a file.

    :param links: of a database, the names of its tables that are links.
    :raises RemoteError: if a database holds other tables.
    """
    if local.table is None:
        _drop_database(client, local.database or "", links)
    else:
        drop_link(client, local)


def _drop_database(client: MetastoreClient, database: str, members: Set[str | None]) -> None:
    names = client.list_tables(database)
    if others := sorted(set(names) - members):
        raise RemoteError(
            f"Remote database {database} holds tables that are not remotes: {', '.join(others)}.",
            remedy="Drop or move them first.",
            remote=database,
        )
    for name in names:
        drop_link(client, Name(database=database, table=name))
    client.drop_database(database, delete_data=False, if_exists=True)


def is_droppable(kind: Kind, local: Name, parameters: Mapping[str, str] | None, *, if_exists: bool) -> bool:
    """Return whether a name belongs to a remote, or is free where a statement allows that.

    :param parameters: those of the local table or database; ``None`` if the name is free.
    :return: false if the name is free.
    :raises NotARemoteError: if the name belongs to another object, or is free without ``if_exists``.
    """
    if parameters is None and if_exists:
        return False
    if remote_of(parameters) is None:
        raise not_a_remote(kind, local, exists=parameters is not None)
    return True


def name_taken(label: str) -> NameTakenError:
    """Return the error for a local name that belongs to another object."""
    return NameTakenError(
        f"{label} exists, and is not this remote.", remedy="Choose another name, or drop it.", remote=label
    )


def not_a_remote(kind: Kind, local: Name, *, exists: bool) -> NotARemoteError:
    """Return the error for a local name that is no remote."""
    reason = "is not a remote" if exists else "does not exist"
    return NotARemoteError(
        f"{kind.value.title()} {local} {reason}.",
        remedy="SHOW REMOTES lists the remotes.",
        remote=str(local),
    )
