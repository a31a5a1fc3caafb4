"""What a remote's events say about where to look. Pure.

An event only tells what may have changed; what is applied is what the remote has now.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow_hive_federation.model import events
from airflow_hive_federation.model.partitions import partition_name

log = logging.getLogger(__name__)


@dataclass(kw_only=True)
class TableChange:
    """What of one table has to be looked at, besides its definition.

    :param all_partitions: every partition.
    :param partition_names_too: the names of all partitions, but not what each of them says.
    :param partitions: values of these partitions by key.
    """

    all_partitions: bool = False
    partition_names_too: bool = False
    partitions: list[dict[str, str]] = field(default_factory=list)

    def partition_names(self, keys: list[str]) -> list[str]:
        """Names of the partitions, for a table of these partition keys; other keys' are left out."""
        wanted = {key.lower() for key in keys}
        by_key = [{key.lower(): value for key, value in one.items()} for one in self.partitions]
        return sorted(
            {partition_name(keys, [one[key.lower()] for key in keys]) for one in by_key if set(one) == wanted}
        )


def fold(raw_events: Iterable[Any], database: str) -> Mapping[str, TableChange] | None:
    """Fold events into tables to look at, by lower-case name; ``None`` means: look at everything.

    :param raw_events: wire ``NotificationEvent`` objects, in order.
    :param database: the remote database.
    """
    changes: dict[str, TableChange] = {}
    for raw in raw_events:
        try:
            event = events.read_event(raw)
            _note(event, raw, database.lower(), changes)
        except _CannotTell as error:
            log.warning("Event %s of the remote does not tell what it changed (%s).", raw.eventId, error)
            return None
    return changes


class _CannotTell(Exception):  # noqa: N818 - internal signal
    pass


def _note(event: events.Event, raw: Any, database: str, changes: dict[str, TableChange]) -> None:
    if isinstance(event, events.UnknownEvent) and event.database == database:
        raise _CannotTell(event.event_type)
    if isinstance(event, events.UnreadableEvent):
        # Of another database, it may still have taken a table from this one, by a rename.
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
        # They change rows, which a link does not have.
        return
    change = changes.setdefault(event.table, TableChange())
    if isinstance(event, events.PartitionsChanged):
        change.partitions += _partitions(raw)
        # The event of one that was renamed names it as it was (JSONAlterPartitionMessage).
        change.partition_names_too |= event.event_type == "ALTER_PARTITION" and bool(event.gone)
    elif isinstance(event, events.TableAltered):
        change.all_partitions |= event.renamed
        # A refresh may have been interrupted when it made the table anew.
        change.partition_names_too = True
    elif isinstance(event, events.TableCreated | events.TableDropped | events.Reloaded):
        change.all_partitions = True


_OF_TRANSACTIONS = (events.WriteIdsAllocated, events.AcidWritten, events.Compacted)


def _partitions(raw: Any) -> list[dict[str, str]]:
    # JSONAddPartitionMessage, JSONDropPartitionMessage and JSONAlterPartitionsMessage have a list;
    # JSONAlterPartitionMessage has the one.
    try:
        message = events.decode_message(raw.message, raw.messageFormat)
        found = message.get("partitions")
        one = message.get("keyValues")
        if found is None and one is None:
            raise _CannotTell(f"{raw.eventType} without partitions")
        return [{str(key): str(value) for key, value in each.items()} for each in found or [one]]
    except (ValueError, AttributeError) as error:
        raise _CannotTell(str(error)) from error
