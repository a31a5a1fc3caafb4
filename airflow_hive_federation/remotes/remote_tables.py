"""Reads the tables of a remote database, and asks by name for each one that a list lacks.

A list is no evidence that a table was dropped. A gateway may leave out the part of a metastore that does not
answer (``on_missing = "partial"``), and a listing in pages may miss a table. So a link is dropped only after
the remote, asked for the table by its name, has answered that it does not exist.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import TypeVar

from airflow_hive_federation.catalog.roles import NAME_AT_THE_CATALOG, TableLister
from airflow_hive_federation.errors import NoSuchObjectError, RemoteDroppedError
from airflow_hive_federation.metastore.calls.base import batches
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.remotes.changes import TableChange
from airflow_hive_federation.remotes.ends import Ends
from airflow_hive_federation.remotes.links import Link, readable_link
from airflow_hive_federation.remotes.positions import TABLES_PER_CALL
from airflow_hive_federation.remotes.statement import Kind, Name

EVERYTHING = TableChange(all_partitions=True)
#: Holds a name, the remote's table, the local tables by name, and the change.
Found = tuple[str, types.Table | None, Mapping[str, types.Table], TableChange]
T = TypeVar("T")


def ask(ends: Ends, question: Callable[[], T]) -> T | None:
    """Call the remote for one object; return ``None`` if the object does not exist."""
    with ends.breaker.guard():
        try:
            return question()
        except NoSuchObjectError:
            return None


def remote_database(ends: Ends, link: Link) -> types.Database:
    """Read the database of a remote.

    :raises RemoteDroppedError: if it does not exist any more.
    """
    found = ask(ends, lambda: ends.remote.get_database(link.remote.database or ""))
    if found is None:
        raise _dropped(link)
    return found


def named_table(ends: Ends, link: Link, name: str) -> types.Table | None:
    """Read a table of a remote database by its name; return ``None`` if the database has no such table.

    :param link: the link of the database.
    :raises RemoteDroppedError: if the database does not exist either: then its tables keep their links.
    """
    table = ask(ends, lambda: ends.remote.get_table(link.remote.database or "", name))
    if table is None:
        remote_database(ends, link)
    return table


def every_table(ends: Ends, link: Link, listed: list[str]) -> Iterator[Found]:
    """Yield the tables of a remote database, then the local tables that it may have no more.

    :param link: the link of the database.
    :param listed: gets the names that the remote lists.
    :raises RemoteDroppedError: if the database does not exist any more.
    :raises RemoteUnavailableError: if the remote does not answer, also for one table that its list lacks.
    """
    with ends.local.client() as client:
        here = {name.lower() for name in client.list_tables(link.local.database or "")}
    missing = set(here)
    for batch in _listed(ends, link):
        listed.extend(batch)
        present = local_tables(ends, link, [name for name in batch if name in here])
        missing.difference_update(name for name, table in batch.items() if table is not None)
        missing.update(name for name, table in batch.items() if table is None)
        yield from ((name, table, present, EVERYTHING) for name, table in batch.items() if table is not None)
    for names in batches(sorted(missing), TABLES_PER_CALL):
        present = local_tables(ends, link, [name for name in names if name in here])
        for name in names:
            asked = name not in present or _is_member(link, present[name])
            there = _name_there(name, present)
            yield name, named_table(ends, link, there) if asked else None, present, EVERYTHING


def local_tables(ends: Ends, link: Link, names: list[str]) -> dict[str, types.Table]:
    """Read those of the local tables that exist, by name.

    :param link: the link of their database, or of one of them.
    """
    with ends.local.client() as client:
        tables = client.get_tables(link.local.database or "", names)
    return {(table.tableName or "").lower(): table for table in tables}


def _listed(ends: Ends, link: Link) -> Iterator[dict[str, types.Table | None]]:
    """Yield the listed tables by name, in batches; ``None`` stands for one that the remote did not return."""
    remote, database = ends.remote, link.remote.database or ""
    try:
        if isinstance(remote, TableLister):
            yield from _in_one_listing(ends, remote.iter_tables(database))
            return
        with ends.breaker.guard():
            names = sorted({name.lower() for name in remote.list_tables(database)})
        for batch in batches(names, TABLES_PER_CALL):
            with ends.breaker.guard():
                tables = {
                    (table.tableName or "").lower(): table for table in remote.get_tables(database, batch)
                }
            yield {name: tables.get(name) for name in batch}
    except NoSuchObjectError as error:
        raise _dropped(link) from error


def _in_one_listing(ends: Ends, tables: Iterator[types.Table]) -> Iterator[dict[str, types.Table | None]]:
    seen: set[str] = set()
    while True:
        with ends.breaker.guard():
            batch = list(islice(tables, TABLES_PER_CALL))
        if not batch:
            return
        # A table that is renamed while it is listed may come twice.
        by_name = {(table.tableName or "").lower(): table for table in batch}
        yield {name: table for name, table in by_name.items() if name not in seen}
        seen.update(by_name)


def _is_member(link: Link, table: types.Table) -> bool:
    local = Name(database=link.local.database, table=table.tableName)
    stored = readable_link(Kind.TABLE, local, table.parameters)
    return isinstance(stored, Link) and stored.member


def _name_there(name: str, present: Mapping[str, types.Table]) -> str:
    """Return the name of a table at the remote, whose list lacks it."""
    parameters = present[name].parameters if name in present else None
    written = (parameters or {}).get(NAME_AT_THE_CATALOG, name)
    return written if written.lower() == name else name


def _dropped(link: Link) -> RemoteDroppedError:
    return RemoteDroppedError(
        f"Database {link.remote.database}, to which {link.local} is linked, no longer exists at the remote.",
        remedy=f"DROP REMOTE DATABASE {link.local}, or restore it.",
        remote=str(link.local),
    )
