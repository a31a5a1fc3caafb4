"""Finds the partitions of a table that notification events name. Pure.

Events only name the changed partitions; the copies are made of their present files.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from airflow_hive_federation.model import events
from airflow_hive_federation.model.event_messages import RawEvent, changed_partitions, message_of, read_event
from airflow_hive_federation.model.partitions import partition_name
from airflow_hive_federation.model.thrift_json import ThriftStruct


@dataclass(kw_only=True)
class Changes:
    """The changes of one table.

    :param names: the names of partitions that were added or written; an empty name for a table without
        partitions.
    :param anew: the reason to compare all partitions, as a clause; empty if ``names`` is complete.
    :param last: the last event.
    """

    names: set[str] = field(default_factory=set)
    anew: str = ""
    last: int

    def __bool__(self) -> bool:
        return bool(self.names or self.anew)


def changes_of(
    raw_events: Iterable[RawEvent],
    database: str,
    table: str,
    keys: Sequence[str],
    *,
    after: int,
    up_to: int,
    transactional: bool = False,
) -> Changes:
    """Reduce the events of a metastore to the changes of one table.

    :param raw_events: the wire ``NotificationEvent`` objects of all databases, in order.
    :param keys: the partition keys of the table.
    :param after: the last event already processed; ids have no gaps, so a missing event was removed by the
        metastore.
    :param up_to: the last event of the metastore.
    :param transactional: true for a transactional table, whose rows change with commits.
    """
    changes = Changes(last=after)
    for raw in raw_events:
        if raw.eventId != changes.last + 1:
            break
        changes.last += 1
        event = read_event(raw)
        try:
            if transactional:
                _refuse_transaction(event)
            changes.names |= _names(event, raw, (database, table), keys)
        except _CannotTell as error:
            changes.anew = changes.anew or f"event {raw.eventId} ({raw.eventType}) {error}"
    if changes.last != up_to:
        changes.anew = f"the metastore has no event {changes.last + 1} any more"
    return changes


class _CannotTell(Exception):  # noqa: N818 - internal signal
    pass


def _refuse_transaction(event: events.Event) -> None:
    # The event of a commit names no table, and the write ids may have been allocated before the last run.
    committed = isinstance(event, events.TxnEnded) and event.committed
    if committed or (isinstance(event, events.UnreadableEvent) and event.ends_transaction):
        raise _CannotTell("ends a transaction, and names no table")


def _names(event: events.Event, raw: RawEvent, name: tuple[str, str], keys: Sequence[str]) -> set[str]:
    if isinstance(event, events.UnreadableEvent):
        return _of_unreadable(event, name)
    if isinstance(event, events.UnknownEvent) and event.database in {"", name[0]}:
        raise _CannotTell("is not known")
    if not isinstance(event, events.TableEvent) or (event.database, event.table) != name:
        return set()
    if isinstance(event, events.PartitionsChanged):
        return _of_partitions(raw, keys)
    if isinstance(event, _WITHOUT_FILES) or (keys and _of_definition(event)):
        return set()
    if isinstance(event, events.Inserted) and keys:
        return _of_insert(raw, keys)
    if keys:
        raise _CannotTell("does not name partitions")
    return {""}


def _of_definition(event: events.TableEvent) -> bool:
    """Return whether an event is an alteration that leaves the table's partitions as they are."""
    return isinstance(event, events.TableAltered) and not event.renamed and not event.truncated


#: These events leave the files as they are.
_WITHOUT_FILES = (events.WriteIdsAllocated, events.StatisticsChanged, events.ConstraintsChanged)


def _of_unreadable(event: events.UnreadableEvent, name: tuple[str, str]) -> set[str]:
    if event.of_transaction:
        return set()
    ours = event.database in {"", name[0]} and event.table in {"", name[1]}
    # An event of another table may be a rename to this table's name.
    if ours or event.event_type == "ALTER_TABLE":
        raise _CannotTell(f"cannot be read ({event.reason})")
    return set()


def _of_partitions(raw: RawEvent, keys: Sequence[str]) -> set[str]:
    try:
        return {_name(values, keys) for values in changed_partitions(message_of(raw))}
    except (ValueError, KeyError) as error:
        raise _CannotTell(f"does not name its partitions ({error})") from error


def _of_insert(raw: RawEvent, keys: Sequence[str]) -> set[str]:
    try:
        # Field 1 of the IDL's Partition holds its values.
        partition = message_of(raw).needed("ptnObjJson", ThriftStruct.parse)
        return {partition_name(keys, partition.texts(1))}
    except ValueError as error:
        raise _CannotTell(f"does not name its partition ({error})") from error


def _name(values: Mapping[str, str], keys: Sequence[str]) -> str:
    by_key = {key.lower(): value for key, value in values.items()}
    return partition_name(keys, [by_key[key.lower()] for key in keys])
