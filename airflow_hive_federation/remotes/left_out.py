"""Lists the tables and views of a remote database that are not linked, with the reasons."""

from __future__ import annotations

from collections.abc import Mapping

from airflow_hive_federation.catalog.breaker import CircuitBreaker
from airflow_hive_federation.catalog.hive import HiveCatalog
from airflow_hive_federation.catalog.roles import Catalog
from airflow_hive_federation.metastore.calls.base import batches
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.remotes import definitions, views
from airflow_hive_federation.remotes.definitions import UNREADABLE
from airflow_hive_federation.remotes.links import DamagedLink, Link, readable_link
from airflow_hive_federation.remotes.positions import TABLES_PER_CALL
from airflow_hive_federation.remotes.statement import Kind, Name

_LATER = (
    "it was created after the last refresh, or that refresh could not link it: "
    "REFRESH REMOTE DATABASE reports the reason"
)


def find_left_out(local: HiveCatalog, remote: Catalog, link: Link, breaker: CircuitBreaker) -> dict[str, str]:
    """Return the tables and views of a remote database that have no link, each with the reason.

    :param link: the link of the database.
    :raises RemoteUnavailableError: if the remote does not answer.
    """
    name, database = link.local.database or "", link.remote.database or ""
    with local.client() as client:
        local_tables = {
            str(table.tableName).lower(): table for table in client.get_tables(name, client.list_tables(name))
        }
    linked = views.linked(local_tables, link)
    with breaker.guard():
        missing = sorted({table_name.lower() for table_name in remote.list_tables(database)} - linked.keys())
        left_out = [
            remote_table
            for batch in batches(missing, TABLES_PER_CALL)
            for remote_table in remote.get_tables(database, batch)
        ]
    return {
        str(remote_table.tableName).lower(): _reason(remote_table, link, local_tables, linked)
        for remote_table in left_out
    }


def find_guarded(local: HiveCatalog, link: Link) -> list[str]:
    """Return the transactional tables of a remote database, which ordinary engines cannot read.

    :param link: the link of the database.
    """
    name = link.local.database or ""
    with local.client() as client:
        tables = client.get_tables(name, client.list_tables(name))
    return sorted(
        str(table.tableName)
        for table in tables
        if table.sd is not None and table.sd.inputFormat == UNREADABLE
    )


def _reason(
    remote_table: types.Table,
    link: Link,
    local_tables: Mapping[str, types.Table],
    linked: Mapping[str, str],
) -> str:
    name = str(remote_table.tableName).lower()
    if name in local_tables:
        local = Name(database=link.local.database, table=name)
        present = readable_link(Kind.TABLE, local, local_tables[name].parameters)
        if isinstance(present, DamagedLink):
            return str(present.error)
        return "the local name belongs to another table"
    if definitions.is_view(remote_table):
        return definitions.why_not_view(remote_table, views.renaming(link), linked) or _LATER
    return definitions.why_not(remote_table) or _LATER
