"""Questions to a remote that somebody waits on: a sensor, a trigger, a loop."""

from __future__ import annotations

from airflow_hive_federation.catalog.roles import EventSource
from airflow_hive_federation.errors import NoSuchObjectError
from airflow_hive_federation.remotes import definitions
from airflow_hive_federation.remotes.changes import fold
from airflow_hive_federation.remotes.session import OpenRemote, Remotes
from airflow_hive_federation.remotes.statement import Kind, Name


def partition_exists(remotes: Remotes, name: Name, partition: str) -> bool:
    """Whether the remote of a remote table has a partition.

    :param partition: its name, ``day=2026-01-01/hour=7``.
    :raises NotARemoteError: if there is no such remote.
    :raises RemoteUnavailableError: if the remote does not answer.
    """
    opened = remotes.open(Kind.TABLE, name)
    remote = opened.link.remote
    with opened.breaker.guard():
        return bool(opened.catalog.get_partitions(remote.database or "", remote.table or "", [partition]))


def pending(remotes: Remotes, kind: Kind, name: Name) -> bool:
    """Whether a remote has changed since its link was refreshed last.

    Rows that come and go in files are no change, unless somebody tells the remote's metastore.

    :raises NotARemoteError: if there is no such remote.
    :raises RemoteUnavailableError: if the remote does not answer.
    """
    opened = remotes.open(kind, name)
    since = opened.owner.event_id
    if since is None:
        return True
    catalog = opened.catalog
    with opened.breaker.guard():
        now = catalog.last_event_id() if isinstance(catalog, EventSource) else None
        if now is None or not isinstance(catalog, EventSource):
            return _differs(remotes, opened)
        if now == since:
            return False
        if not 0 <= since < now or not catalog.has_events_after(since):
            return True
        changes = fold(catalog.events(since, now), opened.link.remote.database or "")
    if changes is None or kind is Kind.DATABASE:
        return changes is None or bool(changes)
    return (opened.link.remote.table or "") in changes


def _differs(remotes: Remotes, opened: OpenRemote) -> bool:
    """Compare names of tables, or the definition and the partitions' names of one."""
    link, catalog = opened.link, opened.catalog
    database = link.remote.database or ""
    if link.kind is Kind.DATABASE:
        here = {one.remote.table for one in remotes.links(link.local.database) if one.kind is Kind.TABLE}
        return here != set(catalog.list_tables(database))
    try:
        table = catalog.get_table(database, link.remote.table or "")
    except NoSuchObjectError:
        return True
    made = definitions.local_table(
        table,
        database=link.local.database or "",
        name=link.local.table or "",
        owner="",
        link=link.parameters(),
    )
    if definitions.digest(made, table) != link.definition:
        return True
    there = set(catalog.list_partition_names(database, link.remote.table or ""))
    return there != set(remotes.local_partition_names(link.local))
