"""Collects from a remote's events the tables and partitions that may have changed, without any I/O.

An event only names the objects that may have changed; a refresh then applies the remote's present state.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.model import events
from airflow_hive_federation.model.event_messages import changed_partitions, message_of, read_event
from airflow_hive_federation.model.partitions import partition_name, unescape

log = logging.getLogger(__name__)


@dataclass(kw_only=True)
class TableChange:
    """The partitions of one table that a refresh has to compare, besides the table's definition.

    :param all_partitions: every partition is compared.
    :param partition_names_too: the names of all partitions are compared, but not their definitions.
    :param partitions: the partitions that events name, each with its values by key.
    """

    all_partitions: bool = False
    partition_names_too: bool = False
    partitions: list[dict[str, str]] = field(default_factory=list)

    def partition_names(self, keys: list[str]) -> list[str]:
        """Return the names of the partitions that have these partition keys; others are left out."""
        wanted = {key.lower() for key in keys}
        by_key = [{key.lower(): value for key, value in values.items()} for values in self.partitions]
        return sorted(
            {
                partition_name(keys, [values[key.lower()] for key in keys])
                for values in by_key
                if set(values) == wanted
            }
        )


def changes_between(
    raw_events: Iterable[types.NotificationEvent], database: str, *, after: int, up_to: int
) -> Mapping[str, TableChange] | None:
    """Collect the changed tables as :func:`fold`; also return ``None`` if an event in between is missing.

    A metastore numbers its events without gaps. Its cleaner removes old ones, and a gateway hides those of
    databases that its caller may not see.

    :param after: the last event that the link contains.
    :param up_to: the last event of the remote.
    """
    try:
        return fold(_without_gaps(raw_events, after, up_to), database)
    except _Gap as gap:
        log.warning("Events of the remote are missing (%s): every table is compared.", gap)
        return None


def fold(raw_events: Iterable[types.NotificationEvent], database: str) -> Mapping[str, TableChange] | None:
    """Collect the changed tables of events by lower-case name; ``None`` means that every table is compared.

    :param raw_events: wire ``NotificationEvent`` objects, in order.
    :param database: the remote database.
    """
    changes: dict[str, TableChange] = {}
    for raw in raw_events:
        try:
            event = read_event(raw)
            _note(event, raw, database.lower(), changes)
        except _CannotTell as error:
            log.warning("Event %s of the remote cannot be read (%s).", raw.eventId, error)
            return None
    return changes


def _without_gaps(
    raw_events: Iterable[types.NotificationEvent], after: int, up_to: int
) -> Iterator[types.NotificationEvent]:
    last = after
    for raw in raw_events:
        if raw.eventId != last + 1:
            raise _Gap(f"{raw.eventId} came after {last}")
        last = raw.eventId
        yield raw
    if last != up_to:
        raise _Gap(f"the last one is {last}, not {up_to}")


class _Gap(Exception):  # noqa: N818 - internal signal
    pass


class _CannotTell(Exception):  # noqa: N818 - internal signal
    pass


def _note(
    event: events.Event, raw: types.NotificationEvent, database: str, changes: dict[str, TableChange]
) -> None:
    if isinstance(event, events.UnknownEvent) and event.database == database:
        raise _CannotTell(event.event_type)
    if isinstance(event, events.UnreadableEvent):
        # An event of another database may still be a rename that took a table from this database.
        if not event.of_transaction and (
            event.database in {"", database} or event.event_type == "ALTER_TABLE"
        ):
            raise _CannotTell(event.reason)
        return
    if isinstance(event, events.TableAltered) and event.renamed and event.old_database == database:
        changes.setdefault(event.old_table, TableChange()).all_partitions = True
    if not isinstance(event, events.TableEvent) or event.database != database:
        return
    if isinstance(event, _OF_TRANSACTIONS):
        # These events change rows, which a link does not hold.
        return
    _note_change(event, raw, changes.setdefault(event.table, TableChange()))


def _note_change(event: events.TableEvent, raw: types.NotificationEvent, change: TableChange) -> None:
    if isinstance(event, events.PartitionsChanged):
        change.partitions += _partitions(raw)
        # The event of a renamed partition has its old name (JSONAlterPartitionMessage).
        change.partition_names_too |= event.event_type == "ALTER_PARTITION" and bool(event.gone)
    elif isinstance(event, events.StatisticsChanged):
        # A message without names may be of any partition.
        change.all_partitions |= event.named is None
        change.partitions += map(_values_by_key, event.named or ())
    elif isinstance(event, events.TableAltered):
        change.all_partitions |= event.renamed
        # An interrupted refresh may have recreated the table without all of its partitions.
        change.partition_names_too = True
    elif isinstance(event, events.TableCreated | events.TableDropped | events.Reloaded):
        change.all_partitions = True


_OF_TRANSACTIONS = (events.WriteIdsAllocated, events.AcidWritten, events.Compacted)


def _values_by_key(name: str) -> dict[str, str]:
    pairs = (part.partition("=") for part in name.split("/"))
    return {unescape(key): unescape(value) for key, _, value in pairs}


def _partitions(raw: types.NotificationEvent) -> list[dict[str, str]]:
    try:
        return changed_partitions(message_of(raw))
    except ValueError as error:
        raise _CannotTell(f"{raw.eventType} without partitions: {error}") from error
