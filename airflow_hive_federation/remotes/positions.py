"""Reads the events after the position of a link, and writes the position.

The tries of a task's run are one refresh: a try may fail after it has written the position, and no event is
then left for the next try to read. So the position is written together with the run and the event before its
first try, from which each try of the run begins its report. Other runs may refresh the link between two
tries, so it keeps several.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from airflow_hive_federation.catalog.roles import Catalog, EventSource
from airflow_hive_federation.errors import LockLostError, MetastoreServerError, UnsupportedMethodError
from airflow_hive_federation.metastore import MetastoreClient
from airflow_hive_federation.metastore.calls.base import batches
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.remotes.changes import TableChange, changes_between
from airflow_hive_federation.remotes.ends import KEEP_STATISTICS, Ends
from airflow_hive_federation.remotes.links import (
    DEFINITION,
    MAX_RUNS,
    NO_EVENT,
    RUN,
    TABLE_NAMES,
    Link,
    Run,
    link_of,
    readable_link,
)
from airflow_hive_federation.remotes.statement import Kind, Name

log = logging.getLogger(__name__)

TABLES_PER_CALL = 100


@dataclass(frozen=True, kw_only=True)
class Try:
    """A try of a task's run.

    :param key: a hexadecimal text that all tries of the run share, and no other run has.
    :param number: number of the try, from 1.
    """

    key: str
    number: int = 1


def changes_after(remote: Catalog, link: Link, position: int) -> Mapping[str, TableChange] | None:
    """Return the tables that the remote has changed since a link's position; ``None`` for all tables.

    :param position: last event to read.
    """
    if not isinstance(remote, EventSource) or position == NO_EVENT:
        return None
    if link.event_id is None:
        return None
    if not remote.has_events_after(link.event_id):
        log.warning("%s: the remote has lost events after %s.", link.local, link.event_id)
        return None
    events, database = remote.events(link.event_id, position), link.remote.database or ""
    return changes_between(events, database, after=link.event_id, up_to=position)


def earlier_tries(
    ends: Ends, link: Link, tried: Try, *, linked: Sequence[str], whole: bool, moved: bool = False
) -> tuple[Link, Sequence[str]]:
    """Return the link with the run that refreshes it, and the tables that earlier tries may have changed.

    :param tried: the present try.
    :param linked: names of the linked tables that the present try has compared.
    :param whole: it has compared all tables, so nothing shows which of them an earlier try has changed.
    :param moved: the link led to another metastore before, whose events have other numbers.
    :raises RemoteUnavailableError: if the remote does not answer.
    """
    again = linked if whole and tried.number > 1 else ()
    if moved:
        # No metastore has all events since this number: so each later try of the run names all tables.
        return replace(link, runs=(Run(key=tried.key, since=NO_EVENT),)), again
    if link.event_id is None or link.event_id == NO_EVENT:
        return link, again
    run = next((run for run in link.runs if run.key == tried.key), None)
    if run is None:
        runs = Run(key=tried.key, since=link.event_id), *link.runs
        return replace(link, runs=runs[:MAX_RUNS]), again
    if whole or run.since == link.event_id:
        return link, again
    with ends.breaker.guard():
        changes = changes_after(ends.remote, replace(link, event_id=run.since), link.event_id)
    return link, list(_linked(ends, link, changes))


def _linked(ends: Ends, link: Link, changes: Mapping[str, TableChange] | None) -> Iterator[str]:
    """Yield the local names of those linked tables that changes name; ``None`` names all."""
    local = link.local
    if link.kind is Kind.TABLE:
        if changes is None or (link.remote.table or "") in changes:
            yield local.table or ""
        return
    with ends.local.client() as client:
        names = {name.lower() for name in client.list_tables(local.database or "")}
        named = names if changes is None else names.intersection(changes)
        for batch in batches(sorted(named), TABLES_PER_CALL):
            for table in client.get_tables(local.database or "", batch):
                name = Name(database=local.database, table=str(table.tableName).lower())
                stored = readable_link(Kind.TABLE, name, table.parameters)
                if isinstance(stored, Link) and stored.member:
                    yield str(name.table)


def publish_database(ends: Ends, link: Link, description: str | None) -> None:
    """Write a link, and the remote's description, into the local database if they differ from what it has.

    :param description: description of the remote's database. Metastores keep theirs if the new one is empty
        (``ObjectStore.alterDatabase``).
    """
    name = link.local.database or ""
    with ends.local.client() as client:
        database = client.get_database(name)
        present = database.parameters or {}
        kept = {key: value for key, value in present.items() if key not in {RUN, TABLE_NAMES}}
        parameters = {**kept, **link.parameters()}
        described = (description or "").strip() not in {"", (database.description or "").strip()}
        if parameters == present and not described:
            return
        database.parameters = parameters
        database.description = description if described else database.description
        client.alter_database(name, database)


def publish_table(ends: Ends, link: Link) -> None:
    """Write the position of a link into the local table, which is read again just before."""
    with ends.local.client() as client:
        table = client.get_table(link.local.database or "", link.local.table or "")
        kept = link_of(link.kind, link.local, table.parameters)
        if kept is not None:
            made = replace(link, path=kept.path, definition=kept.definition)
            kept_parameters = {key: value for key, value in (table.parameters or {}).items() if key != RUN}
            table.parameters = {**kept_parameters, **made.parameters()}
            alter(client, table, kept)


def alter(client: MetastoreClient, table: types.Table, before: Link | None = None) -> None:
    """Alter a local table, unless another refresh has altered its definition.

    Metastores before Hive 4 cannot compare the definition: there, the lock of the link alone excludes others.

    :param before: the link as it was read; without a definition, nothing is compared.
    :raises LockLostError: another refresh has altered it.
    """
    database, name = table.dbName, table.tableName
    expected = (DEFINITION, before.definition) if before and before.definition else None
    if expected is not None:
        try:
            client.alter_table(
                database, name, table, environment=KEEP_STATISTICS, expected_parameter=expected
            )
            return
        except UnsupportedMethodError:
            # It was not sent: see :mod:`.metastore.compat`.
            pass
        except MetastoreServerError as error:
            if "has been modified" not in error.message:
                raise
            raise LockLostError(
                f"{database}.{name} was altered by another refresh: {error.message}",
                remedy="Run this again.",
                tables=[f"{database}.{name}"],
            ) from error
    client.alter_table(database, name, table, environment=KEEP_STATISTICS)
