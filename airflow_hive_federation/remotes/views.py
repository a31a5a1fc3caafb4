"""Finds the tables that views of a remote database read, and the linked ones among them, without any I/O."""

from __future__ import annotations

from collections.abc import Mapping

from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.model.view_text import Renaming, UnreadableViewError
from airflow_hive_federation.model.views import read_by_view
from airflow_hive_federation.remotes.links import READ_BY, Link, readable_link
from airflow_hive_federation.remotes.statement import Kind, Name


def renaming(link: Link) -> Renaming:
    """Return the renaming from the remote database of a link to its local database."""
    return Renaming(source_database=link.remote.database or "", target_database=link.local.database or "")


def names_read(view: types.Table) -> set[str]:
    """Return the names of the tables, of any database, that a wire view reads; none if unreadable."""
    try:
        return {table for _, table in read_by_view(view).tables}
    except UnreadableViewError:
        return set()


def linked(tables: Mapping[str, types.Table], database: Link) -> dict[str, str]:
    """Return the way that engines read each local table of a remote database (:data:`.links.READ_BY`).

    :param tables: wire tables of the local database, by name.
    """
    read_by = {}
    for name, table in tables.items():
        local = Name(database=database.local.database, table=name)
        link = readable_link(Kind.TABLE, local, table.parameters)
        if isinstance(link, Link) and link.member:
            read_by[name] = table.parameters.get(READ_BY, "")
    return read_by
