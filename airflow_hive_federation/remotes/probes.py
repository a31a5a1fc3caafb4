"""Checks a remote for partitions and changes, for sensors, triggers and loops that wait for them."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_hive_federation.catalog.roles import EventSource, PartitionFilter
from airflow_hive_federation.errors import NoSuchObjectError, RemoteUnsupportedError
from airflow_hive_federation.remotes import definitions
from airflow_hive_federation.remotes.changes import changes_between
from airflow_hive_federation.remotes.links import names_digest
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
    :raises RemoteUnsupportedError: if its catalog keeps no partitions of this table, as of an Iceberg table.
    :raises RemoteUnavailableError: if the remote does not answer.
    """
    opened = remotes.open(Kind.TABLE, name)
    database, table, catalog = (
        opened.link.remote.database or "",
        opened.link.remote.table or "",
        opened.catalog,
    )
    with opened.breaker.guard():
        if catalog.get_partitions(database, table, [partition]):
            return True
        try:
            if catalog.get_table(database, table).partitionKeys:
                return False
        except NoSuchObjectError:
            return False
    raise RemoteUnsupportedError(
        f"The catalog of {opened.link.local} keeps no partitions of {opened.link.remote}.",
        remedy="Wait for a change of the table instead (RemoteTableChangedSensor).",
        remote=str(opened.link.local),
    )


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
    :param compared: digest of what was compared, of a remote without events, or of one that was another
        metastore before: of two looks with equal digests, the later one has found nothing new, and no refresh
        was between them.
    """

    changed: bool
    event_id: int | None = None
    compared: str = ""


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
        identity = catalog.identity()
        if opened.owner.is_of_another(identity):
            # Its events have other numbers.
            return Look(changed=True, compared=f"{opened.owner.path[0]} {identity}")
        last_event_id = catalog.last_event_id() if isinstance(catalog, EventSource) else None
        if last_event_id is None or not isinstance(catalog, EventSource):
            return _compared(remotes, opened)
        since = since if after is None else max(since, after)
        if last_event_id == since or not catalog.has_events_after(since):
            return Look(changed=last_event_id != since, event_id=last_event_id)
        changes = changes_between(
            catalog.events(since, last_event_id),
            opened.link.remote.database or "",
            after=since,
            up_to=last_event_id,
        )
    if changes is None or kind is Kind.DATABASE:
        return Look(changed=changes is None or bool(changes), event_id=last_event_id)
    return Look(changed=(opened.link.remote.table or "") in changes, event_id=last_event_id)


def _compared(remotes: Remotes, opened: OpenRemote) -> Look:
    """Compare the table names of a database, or the definition and the partition names of a table.

    The names are compared with those that the last refresh has listed, not with the links: tables that cannot
    be linked are no change.
    """
    link, catalog = opened.link, opened.catalog
    database, table_name = link.remote.database or "", link.remote.table or ""
    if link.kind is Kind.DATABASE:
        here = link.table_names
        try:
            there = names_digest(name.lower() for name in catalog.list_tables(database))
        except NoSuchObjectError:
            there = ""
        return Look(changed=here != there, compared=f"{here} {there}")
    try:
        table = catalog.get_table(database, table_name)
    except NoSuchObjectError:
        return Look(changed=True, compared=link.definition)
    made = definitions.local_table(
        table,
        database=link.local.database or "",
        name=link.local.table or "",
        owner="",
        link=link.parameters(),
    )
    names = names_digest(remotes.local_partition_names(link.local))
    here = f"{link.definition} {names}"
    names = names_digest(catalog.list_partition_names(database, table_name))
    there = f"{definitions.digest(made, table)} {names}"
    return Look(changed=here != there, compared=f"{here} {there}")
