"""Reads the tables of a remote database, and asks by name for each one that a list lacks.

A list is no evidence that a table was dropped. A gateway may leave out the part of a metastore that does not
answer (``on_missing = "partial"``), and a listing in pages may miss a table. So a link is dropped only after
the remote, asked for the table by its name, has answered that it does not exist.

A metastore's filter may also hide tables from its lists. If the remote refuses to read such a table, its link
stays, and the other tables are refreshed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TypeVar

from airflow_hive_federation.catalog.hive import POOL_SIZE
from airflow_hive_federation.catalog.roles import NAME_AT_THE_CATALOG, TableLister
from airflow_hive_federation.errors import (
    ConfigurationError,
    HiveFederationError,
    InvalidObjectError,
    InvalidOperationError,
    MetastoreServerError,
    NoSuchObjectError,
    RemoteDroppedError,
)
from airflow_hive_federation.metastore.calls.base import batches
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.remotes.changes import TableChange
from airflow_hive_federation.remotes.ends import Ends
from airflow_hive_federation.remotes.links import Link, readable_link
from airflow_hive_federation.remotes.positions import TABLES_PER_CALL
from airflow_hive_federation.remotes.statement import Kind, Name

EVERYTHING = TableChange(all_partitions=True)
#: By these errors, a remote answers that it does not let its caller read one table, or cannot read it.
_REFUSALS = (MetastoreServerError, InvalidObjectError, InvalidOperationError, ConfigurationError)
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Refused:
    """A table that the remote refuses to read.

    :param error: the remote's answer.
    """

    error: HiveFederationError

    @property
    def reason(self) -> str:
        """Describe the refusal."""
        return f"the remote hides it, and refuses to read it: {self.error}"


#: Stands for a table at the remote; ``None`` means that the table does not exist.
Answer = types.Table | Refused | None
#: Holds a name, the remote's table, the local tables by name, and the change.
Found = tuple[str, Answer, Mapping[str, types.Table], TableChange]


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
        asked = [name for name in names if name not in present or _is_member(link, present[name])]
        yield from ((name, None, present, EVERYTHING) for name in names if name not in asked)
        for name, answer in _asked(ends, link, asked, present):
            yield name, answer, present, EVERYTHING


def changed_tables(ends: Ends, link: Link, changes: Mapping[str, TableChange]) -> Iterator[Found]:
    """Yield the tables of a remote database that events name.

    :param link: the link of the database.
    :param changes: the changes by the tables' names.
    :raises RemoteDroppedError: if the database does not exist any more.
    :raises RemoteUnavailableError: if the remote does not answer.
    :raises HiveFederationError: if the remote lists a table, and refuses to read it.
    """
    for names in batches(sorted(changes), TABLES_PER_CALL):
        present, refused = local_tables(ends, link, names), {}
        for name, answer in _asked(ends, link, names, present):
            if isinstance(answer, Refused):
                refused[name] = answer
            else:
                yield name, answer, present, changes[name]
        _raise_for_listed(ends, link, refused)
        yield from ((name, answer, present, changes[name]) for name, answer in refused.items())


def name_at_the_catalog(name: str, table: types.Table | None) -> str:
    """Return the name of a table as its catalog writes it.

    :param name: the name in lower case.
    :param table: the local table that is linked to it.
    """
    written = ((table and table.parameters) or {}).get(NAME_AT_THE_CATALOG, name)
    return written if written.lower() == name else name


def local_tables(ends: Ends, link: Link, names: list[str]) -> dict[str, types.Table]:
    """Read those of the local tables that exist, by name.

    :param link: the link of their database, or of one of them.
    """
    with ends.local.client() as client:
        tables = client.get_tables(link.local.database or "", names)
    return {(table.tableName or "").lower(): table for table in tables}


def _asked(
    ends: Ends, link: Link, names: list[str], present: Mapping[str, types.Table]
) -> Iterator[tuple[str, Answer]]:
    """Read tables of a remote database, each by its name, several at a time; missing ones come last.

    :raises RemoteDroppedError: if the database does not exist either: then its tables keep their links.
    """
    there = [name_at_the_catalog(name, present.get(name)) for name in names]
    gone = []
    with ThreadPoolExecutor(POOL_SIZE, thread_name_prefix="remote-names") as threads:
        for name, answer in zip(names, threads.map(partial(_read, ends, link), there), strict=True):
            if answer is None:
                gone.append(name)
            else:
                yield name, answer
    if gone:
        remote_database(ends, link)
    yield from ((name, None) for name in gone)


def _read(ends: Ends, link: Link, name: str) -> Answer:
    try:
        return ask(ends, lambda: ends.remote.get_table(link.remote.database or "", name))
    except _REFUSALS as error:
        return Refused(error=error)


def _raise_for_listed(ends: Ends, link: Link, refused: Mapping[str, Refused]) -> None:
    """Raise the refusal of a table that the remote lists: its change would be lost if it were left out."""
    if not refused:
        return
    with ends.breaker.guard():
        listed = {name.lower() for name in ends.remote.list_tables(link.remote.database or "")}
    for name in sorted(refused.keys() & listed):
        raise refused[name].error


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


def _dropped(link: Link) -> RemoteDroppedError:
    return RemoteDroppedError(
        f"Database {link.remote.database}, to which {link.local} is linked, no longer exists at the remote.",
        remedy=f"DROP REMOTE DATABASE {link.local}, or restore it.",
        remote=str(link.local),
    )
