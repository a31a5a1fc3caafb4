"""Checks a remote for partitions and changes, for sensors, triggers and loops that wait for them."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_hive_federation.catalog.roles import EventSource, PartitionFilter
from airflow_hive_federation.errors import NoSuchObjectError, RemoteUnsupportedError
from airflow_hive_federation.remotes import definitions
from airflow_hive_federation.remotes.changes import changes_between
from airflow_hive_federation.remotes.session import OpenRemote, Remotes
from airflow_hive_federation.remotes.statement import Kind, Name


def happened(remotes: Remotes, kind: Kind, name: Name, *, partition: str | None, where: str | None) -> bool:
    """Return true if the awaited event has happened: a partition, a partition by a condition, or any change.

    Parameters and errors are those of the functions below.
    """
    if partition:
        return partition_exists(remotes, name, partition)
    if where:
        return partition_matches(remotes, name, where)
    return pending(remotes, kind, name)


def partition_exists(remotes: Remotes, name: Name, partition: str) -> bool:
    """Return true if the remote of a remote table has a partition.

    :param partition: name of the partition, ``day=2026-01-01/hour=7``.
    :raises NotARemoteError: if the remote does not exist.
    :raises RemoteUnavailableError: if the remote does not answer.
    """
    opened = remotes.open(Kind.TABLE, name)
    remote = opened.link.remote
    with opened.breaker.guard():
        return bool(opened.catalog.get_partitions(remote.database or "", remote.table or "", [partition]))


def partition_matches(remotes: Remotes, name: Name, where: str) -> bool:
    """Return true if the remote of a remote table has a partition that meets a condition.

    :param where: condition on partition keys in the syntax of Hive's metastore:
        ``day >= '2026-01-01' AND site = 'a'``.
    :raises NotARemoteError: if the remote does not exist.
    :raises RemoteUnsupportedError: if its catalog does not support conditions.
    :raises RemoteUnavailableError: if the remote does not answer.
    """
    opened = remotes.open(Kind.TABLE, name)
    remote, catalog = opened.link.remote, opened.catalog
    if not isinstance(catalog, PartitionFilter):
        raise RemoteUnsupportedError(
            f"{opened.link.local} is of a catalog that finds no partitions by a condition.",
            remedy="Name the partition.",
            remote=str(opened.link.local),
        )
    with opened.breaker.guard():
        return bool(catalog.find_partitions(remote.database or "", remote.table or "", where))


@dataclass(frozen=True, kw_only=True)
class Look:
    """The result of a look at a remote.

    :param changed: the remote has changed since the link was refreshed, or since the look before.
    :param event_id: last event of the remote; ``None`` if it has no events.
    """

    changed: bool
    event_id: int | None = None


def pending(remotes: Remotes, kind: Kind, name: Name) -> bool:
    """Return true if a remote has changed since the last refresh of its link.

    Changed files are not a change, unless their writer notifies the remote's metastore.

    :raises NotARemoteError: if the remote does not exist.
    :raises RemoteUnavailableError: if the remote does not answer.
    """
    return look(remotes, kind, name).changed


def look(remotes: Remotes, kind: Kind, name: Name, *, after: int | None = None) -> Look:
    """Check whether a remote has changed, as :func:`pending` does.

    :param after: last event of an earlier look, so that changes count once; it has no effect on a remote
        without events.
    """
    opened = remotes.open(kind, name)
    since = opened.owner.event_id
    if since is None:
        return Look(changed=True)
    catalog = opened.catalog
    with opened.breaker.guard():
        last_event_id = catalog.last_event_id() if isinstance(catalog, EventSource) else None
        if last_event_id is None or not isinstance(catalog, EventSource):
            return Look(changed=_differs(remotes, opened))
        since = since if after is None else max(since, after)
        if last_event_id == since:
            return Look(changed=False, event_id=last_event_id)
        if not catalog.has_events_after(since):
            return Look(changed=True, event_id=last_event_id)
        changes = changes_between(
            catalog.events(since, last_event_id),
            opened.link.remote.database or "",
            after=since,
            up_to=last_event_id,
        )
    if changes is None or kind is Kind.DATABASE:
        return Look(changed=changes is None or bool(changes), event_id=last_event_id)
    return Look(changed=(opened.link.remote.table or "") in changes, event_id=last_event_id)


def _differs(remotes: Remotes, opened: OpenRemote) -> bool:
    """Compare the table names of a database, or the definition and the partition names of a table."""
    link, catalog = opened.link, opened.catalog
    database = link.remote.database or ""
    if link.kind is Kind.DATABASE:
        local_names = {
            member.remote.table for member in remotes.links(link.local.database) if member.kind is Kind.TABLE
        }
        return local_names != set(catalog.list_tables(database))
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
    remote_names = set(catalog.list_partition_names(database, link.remote.table or ""))
    return remote_names != set(remotes.local_partition_names(link.local))
