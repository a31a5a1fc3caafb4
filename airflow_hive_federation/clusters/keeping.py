"""Keeps copies in a secondary cluster current, by the metastore's notification events.

The position is the last event that the copies contain, and a parameter of the table. It moves after all
copies of a run are published, so that the next run can continue an interrupted one. A run compares all
partitions if the position is missing, if events are missing, if the rule has changed, and once per day,
because Spark writes files of its own tables without an event. Such a run also drops the copies of partitions
whose day has left the window, if the rule asks for that.
"""

from __future__ import annotations

import json
import logging
from dataclasses import asdict, dataclass, field
from datetime import UTC, date, datetime, timedelta

from airflow_hive_federation.catalog.hive import identity_of, keeps_events
from airflow_hive_federation.clusters.altering import (
    alter_table,
    full_name,
    object_name,
    partitions_by_name,
    requested_table,
)
from airflow_hive_federation.clusters.copies.copying import (
    CopyReport,
    RunCopy,
    copy_to_cluster,
    drop_copies,
)
from airflow_hive_federation.clusters.copies.objects import copyable
from airflow_hive_federation.clusters.keep_rules import KeepRule
from airflow_hive_federation.clusters.keeping_events import Changes, changes_of
from airflow_hive_federation.clusters.metadata import read_metadata
from airflow_hive_federation.clusters.registry import ClusterRegistry
from airflow_hive_federation.clusters.sweeping import SweepReport, sweep_cluster
from airflow_hive_federation.metastore import MetastoreClient
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.model import bounded_json
from airflow_hive_federation.model.json_values import Fields, text, whole
from airflow_hive_federation.storage.options import StorageOptions
from airflow_hive_federation.transactions.snapshots import is_transactional

log = logging.getLogger(__name__)

#: The parameter of the table that holds the position; the name of the cluster follows.
POSITION = "hive.cluster.kept."
COMPARE_AFTER = timedelta(hours=24)
#: The number of events of other tables that are rather read again than noted in a new position.
_FEW_EVENTS = 1000


@dataclass(frozen=True, kw_only=True)
class KeepReport:
    """The result of a run that keeps copies current.

    :param rule: the text of the rule.
    :param because: the reason why all partitions were compared; empty if events named the ones to compare.
    :param event: the last event that the copies contain; ``None`` if the metastore keeps none.
    :param looked_at: the number of objects that were compared with their copies.
    :param copied: the objects with a new published copy.
    :param dropped: the partitions before the window, whose copies were dropped because the rule asks for it.
    :param removed: the removed directories of copies that were replaced or dropped in this or an earlier run.
    :param left: the directories of such copies that stay, because statements may read them; a later run that
        compares all partitions removes them.
    """

    rule: str
    because: str = ""
    event: int | None = None
    looked_at: int = 0
    copied: list[str] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)
    files: int = 0
    size_bytes: int = 0
    removed: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Position:
    """The state of a rule's copies.

    :param event: the last event that the copies contain.
    :param metastore: the identity of the metastore of that event.
    :param rule: the digest of the rule.
    :param compared: the time when all partitions were last compared.
    """

    event: int
    metastore: str
    rule: str
    compared: datetime

    def __str__(self) -> str:
        compared = self.compared.isoformat(timespec="seconds")
        return json.dumps({**asdict(self), "compared": compared}, sort_keys=True)


def keep_current(
    client: MetastoreClient,
    registry: ClusterRegistry,
    rule: KeepRule,
    run_copy: RunCopy,
    *,
    today: date | None = None,
    compare_after: timedelta = COMPARE_AFTER,
    at_once: bool = False,
    options: StorageOptions | None = None,
) -> KeepReport:
    """Copy the changes of a table since the last run, as far as a rule covers them.

    A rule that drops older copies does so before it copies, when everything is compared. Such a run also
    sweeps the table's directories in the cluster.

    :param run_copy: executes the copy plan.
    :param today: the day from which a window is counted; by default today in local time.
    :param compare_after: the time after which all partitions are compared, whatever the events name.
    :param at_once: remove dropped and replaced copies now, although statements that were planned before may
        read them.
    :param options: the storage options of both clusters.
    :raises ConfigurationError: the rule does not fit the table.
    :raises CopyRefusedError: the table cannot be copied to that cluster.
    :raises NoSuchObjectError: the table does not exist.
    :raises CopySourceChangedError: objects changed during the copy; the next run copies them.
    :raises UnknownClusterError: the cluster does not exist.
    :raises StorageError: files cannot be listed, read or written.
    """
    cluster = registry.cluster(rule.cluster).name
    now = datetime.now(UTC)
    table = requested_table(client, rule.table)
    # The event id is read before any listing, so that concurrent changes belong to later events.
    last = client.get_current_notification_event_id() if keeps_events(client) else None
    home = identity_of(client) or ""
    before = _position(table, cluster)
    because = _reason_to_compare(before, last, home, rule, now - compare_after)
    changes = None
    if before is not None and last is not None and not because:
        changes = _changes(client, table, before.event, last)
        because = changes.anew
    if because:
        log.info("%s: everything is compared, because %s", rule, because)
        changes = None
    day = today or now.astimezone().date()
    report = dropped = CopyReport(table=rule.table, cluster=cluster)
    if changes is None and (older := _older(client, rule, table, cluster, day)):
        # A registry that does not allow the rule's copies, for instance with another default cluster, is
        # refused before any copy is dropped.
        copyable(client, registry, rule.table, registry.cluster(cluster))
        dropped = drop_copies(
            client, registry, rule.table, cluster, partitions=older, at_once=at_once, options=options
        )
    names = _chosen(client, rule, table, changes, day)
    if names is None or names:
        report = copy_to_cluster(
            client,
            registry,
            rule.table,
            cluster,
            run_copy,
            partitions=names,
            at_once=at_once,
            options=options,
        )
    if last is not None and not (before and changes is not None and _is_near(before, last, changes)):
        compared = before.compared if before is not None and not because else now
        position = _Position(event=last, metastore=home, rule=rule.digest, compared=compared)
        _note(client, table, cluster, position)
    swept = SweepReport(cluster=cluster)
    if because:
        # A change of the primary leaves the former one to its readers, whatever becomes of copies.
        swept = sweep_cluster(
            client,
            registry,
            cluster,
            table=full_name(table),
            copies_older_than_s=0.0 if at_once else None,
            options=options,
        )
    return KeepReport(
        rule=str(rule),
        because=because,
        event=last,
        looked_at=len(report.copied) + len(report.current),
        copied=report.copied,
        dropped=dropped.copied,
        files=report.files,
        size_bytes=report.size_bytes,
        removed=[*dropped.removed, *report.removed, *swept.removed],
        left=[*dropped.left, *report.left] if not because else sorted(swept.left),
    )


def _older(
    client: MetastoreClient, rule: KeepRule, table: types.Table, cluster: str, today: date
) -> list[str]:
    """Return the partitions before the rule's window that have a copy in the cluster."""
    # A change of the primary that was interrupted still needs all copies there.
    if not rule.drop_older or read_metadata(table.parameters, full_name(table)).next_primary == cluster:
        return []
    names = client.list_partition_names(table.dbName or "", table.tableName or "") if _keys(table) else []
    older = partitions_by_name(client, table, rule.older(names, _keys(table), today))
    return [
        name
        for name, partition in older.items()
        if cluster in read_metadata(partition.parameters, object_name(table, partition)).secondaries
    ]


def _chosen(
    client: MetastoreClient, rule: KeepRule, table: types.Table, changes: Changes | None, today: date
) -> list[str] | None:
    """Return the partitions to compare: the rule's, or the changed ones among them; ``None`` means the table.

    :param changes: the changes; ``None`` if all partitions are compared.
    """
    if changes is not None and not changes:
        return []
    if not table.partitionKeys and rule.days is None:
        return None
    keys = _keys(table)
    all_names = client.list_partition_names(table.dbName or "", table.tableName or "") if keys else []
    names = rule.chosen(all_names, keys, today)
    return names if changes is None else [name for name in names if name in changes.names]


def _changes(client: MetastoreClient, table: types.Table, after: int, last: int) -> Changes:
    return changes_of(
        client.iter_notification_events(after, up_to=last),
        str(table.dbName).lower(),
        str(table.tableName).lower(),
        _keys(table),
        after=after,
        up_to=last,
        transactional=is_transactional(table),
    )


def _reason_to_compare(
    before: _Position | None, last: int | None, home: str, rule: KeepRule, since: datetime
) -> str:
    """Return the reason why all partitions must be compared, as a clause; empty if the events suffice."""
    if last is None:
        return "the metastore keeps no notification events"
    if before is None:
        return "the copies have no position yet"
    reasons = {
        "the position is of another metastore": before.metastore != home,
        "the position is of another rule": before.rule != rule.digest,
        f"the metastore went back to event {last}": before.event > last,
        f"the last comparison was at {before.compared.isoformat(timespec='seconds')}": before.compared
        < since,
    }
    return next((reason for reason, holds in reasons.items() if holds), "")


def _is_near(before: _Position, last: int, changes: Changes) -> bool:
    """Return whether the old position may stay: noting a new one adds an event, which other rules then see.

    :param last: the last event of the metastore; the event right after the position is that of the note
        itself.
    """
    return last <= before.event + 1 or (not changes and last < before.event + _FEW_EVENTS)


def _note(client: MetastoreClient, table: types.Table, cluster: str, position: _Position) -> None:
    def noted(now: types.Table) -> types.Table:
        now.parameters = {**(now.parameters or {}), POSITION + cluster: str(position)}
        return now

    alter_table(client, full_name(table), noted)


def _position(table: types.Table, cluster: str) -> _Position | None:
    """Return the position of the copies; ``None``, after which all partitions are compared, if unreadable."""
    value = (table.parameters or {}).get(POSITION + cluster)
    if value is None:
        return None
    try:
        fields = Fields(bounded_json.loads(value))
        position = _Position(
            event=fields.needed("event", whole),
            metastore=fields.needed("metastore", str),
            rule=fields.needed("rule", str),
            compared=datetime.fromisoformat(fields.needed("compared", text)),
        )
    except ValueError:
        return None
    return None if position.compared.tzinfo is None else position


def _keys(table: types.Table) -> list[str]:
    return [str(key.name).lower() for key in table.partitionKeys or ()]
