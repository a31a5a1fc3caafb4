"""What views of a remote database read, and which of that is linked. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow_hive_federation.model.view_text import Renaming, UnreadableViewError
from airflow_hive_federation.model.views import read_by_view
from airflow_hive_federation.remotes.links import READ_BY, Link, link_of
from airflow_hive_federation.remotes.statement import Kind, Name


def renaming(link: Link) -> Renaming:
    """The databases of a link: the one at the remote, and the local one."""
    return Renaming(source_database=link.remote.database or "", target_database=link.local.database or "")


def names_read(view: Any) -> set[str]:
    """Names of the tables that a wire view reads, of whatever database; none if it cannot be parsed."""
    try:
        return {table for _, table in read_by_view(view).tables}
    except UnreadableViewError:
        return set()


def linked(tables: Mapping[str, Any], database: Link) -> dict[str, str]:
    """How engines read each local table that came with a remote database.

    :param tables: wire tables of the local database, by name.
    :param database: the link of the database.
    """
    found = {}
    for name, table in tables.items():
        link = link_of(Kind.TABLE, Name(database=database.local.database, table=name), table.parameters)
        if link is not None and link.member:
            found[name] = table.parameters.get(READ_BY, "")
    return found
