"""Questions to a remote that somebody waits on: a sensor, a trigger, a loop."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_hive_federation.catalog.roles import EventSource, PartitionFilter
from airflow_hive_federation.errors import NoSuchObjectError, RemoteUnsupportedError
from airflow_hive_federation.remotes import definitions
from airflow_hive_federation.remotes.changes import fold
from airflow_hive_federation.remotes.session import OpenRemote, Remotes
from airflow_hive_federation.remotes.statement import Kind, Name


def happened(remotes: Remotes, kind: Kind, name: Name, *, partition: str | None, where: str | None) -> bool:
    """Whether what somebody waits for has happened: a partition, one by a condition, or else any change.

    Parameters and errors are those of the questions below.
    """
    if partition:
        return partition_exists(remotes, name, partition)
    if where:
        return partition_matches(remotes, name, where)
    return pending(remotes, kind, name)


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


def partition_matches(remotes: Remotes, name: Name, where: str) -> bool:
    """Whether the remote of a remote table has a partition that a condition holds for.

    :param where: on partition keys, as Hive's metastore takes it: ``day >= '2026-01-01' AND site = 'a'``.
    :raises NotARemoteError: if there is no such remote.
    :raises RemoteUnsupportedError: if its catalog knows no conditions.
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
    """What somebody saw who looked at a remote.

    :param changed: it has changed since the link was refreshed, or since the look before.
    :param event_id: the remote's last event; ``None`` where it has none.
    """

    changed: bool
    event_id: int | None = None


def pending(remotes: Remotes, kind: Kind, name: Name) -> bool:
    """Whether a remote has changed since its link was refreshed last.

    Rows that come and go in files are no change, unless somebody tells the remote's metastore.

    :raises NotARemoteError: if there is no such remote.
    :raises RemoteUnavailableError: if the remote does not answer.
    """
    return look(remotes, kind, name).changed


def look(remotes: Remotes, kind: Kind, name: Name, *, after: int | None = None) -> Look:
    """Look whether a remote has changed, as :func:`pending` does.

    :param after: last event of an earlier look, so that changes count once; where there are no events it has
        no meaning.
    """
    opened = remotes.open(kind, name)
    since = opened.owner.event_id
    if since is None:
        return Look(changed=True)
    catalog = opened.catalog
    with opened.breaker.guard():
        now = catalog.last_event_id() if isinstance(catalog, EventSource) else None
        if now is None or not isinstance(catalog, EventSource):
            return Look(changed=_differs(remotes, opened))
        since = since if after is None else max(since, after)
        if now == since:
            return Look(changed=False, event_id=now)
        if not 0 <= since < now or not catalog.has_events_after(since):
            return Look(changed=True, event_id=now)
        changes = fold(catalog.events(since, now), opened.link.remote.database or "")
    if changes is None or kind is Kind.DATABASE:
        return Look(changed=changes is None or bool(changes), event_id=now)
    return Look(changed=(opened.link.remote.table or "") in changes, event_id=now)


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
