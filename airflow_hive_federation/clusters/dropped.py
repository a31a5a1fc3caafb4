"""Finds out by notification events that the tables of notes were dropped.

A table that the metastore does not list may have been renamed, may belong to a database that the user cannot
see, or may be back with the next backup. Only the event of its drop, which holds its id and the time of its
creation, proves that its copies have no owner any more.

The event does not hold the locations of partitions. To read a table while its primary's site is down,
somebody may have set the location of a partition to its copy; when an external table is dropped, Hive leaves
such files, which are then the only ones. So the event counts for tables whose files Hive removes with them,
and for tables without partitions whose location was another one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache

from airflow_hive_federation.clusters.notes import Kind, Note, take_note
from airflow_hive_federation.clusters.registry import Cluster
from airflow_hive_federation.errors import (
    ConfigurationError,
    MetastoreServerError,
    NoSuchObjectError,
    UnsupportedMethodError,
)
from airflow_hive_federation.metastore import MetastoreClient
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.model.events import decode_message
from airflow_hive_federation.model.thrift_json import loads
from airflow_hive_federation.storage.filesystem import is_below
from airflow_hive_federation.storage.options import StorageOptions

log = logging.getLogger(__name__)
_DROP = "DROP_TABLE"
_KINDS = (Kind.COPY, Kind.PLAN)


def drop_events(client: MetastoreClient, table: str) -> Callable[[], Sequence[types.NotificationEvent]]:
    """Return a function that returns the events of the drops of tables of a name, and asks for them once.

    It returns none if the metastore denies access to them.

    :param table: ``database.table``.
    """
    database, _, name = table.partition(".")

    @cache
    def events() -> Sequence[types.NotificationEvent]:
        try:
            shown = list(client.iter_table_events(database, name, _DROP))
        except (MetastoreServerError, UnsupportedMethodError) as error:
            log.info("Nothing is known of drops of %s: the metastore shows us no events: %s", table, error)
            return []
        return [event for event in shown if event.eventType == _DROP]

    return events


def with_drop(
    events: Callable[[], Sequence[types.NotificationEvent]],
    cluster: Cluster,
    note: Note,
    options: StorageOptions | None,
) -> Note:
    """Return a note with the time at which its table was dropped, if an event records the drop.

    The note keeps this time, because metastores forget their events, often after a day. A mark of a change of
    the primary is later than the drop, so that the table was back then.

    :param events: see :func:`drop_events`.
    :param cluster: the cluster of the note.
    :raises StorageError: the note cannot be written.
    :raises MetastoreError: the metastore does not answer.
    """
    # Before Hive 4, tables have no ids.
    if note.kind not in _KINDS or note.becomes_primary or not note.table_id:
        return replace(note, dropped_s=0.0)
    if note.dropped_s:
        return note
    for event in events():
        if _leaves_no_owner(event, note):
            dropped = replace(note, dropped_s=float(event.eventTime or 0))
            take_note(cluster, dropped, options)
            return dropped
    return note


def table_at(client: MetastoreClient, database: str) -> Callable[[str], str]:
    """Return a function that returns a table of a database that lies in a directory; empty if none does.

    Somebody may read the last rows of a dropped table by another one. The locations of its partitions, and
    tables of other databases, are not looked at, for that would take all metadata.
    """

    @cache
    def locations() -> list[tuple[str, str]]:
        with suppress(NoSuchObjectError):
            tables = client.iter_tables(database)
            return [(f"{database}.{item.tableName}", str(item.sd and item.sd.location)) for item in tables]
        return []

    return lambda directory: next((name for name, place in locations() if _lies_in(place, directory)), "")


def _lies_in(location: str, directory: str) -> bool:
    try:
        return is_below(location, directory)
    except ConfigurationError:
        return False


def _leaves_no_owner(event: types.NotificationEvent, note: Note) -> bool:
    """Return whether an event records the drop of a note's table, and its files belong to nobody."""
    try:
        message = decode_message(str(event.message), event.messageFormat)
        # Fields of the IDL's Table: 4 createTime, 7 sd (2 location), 8 partitionKeys, 9 parameters,
        # 12 tableType, 25 id. A list begins with the type and the number of its items; a map ends with them.
        table = loads(message["tableObjJson"])
        is_of_note = (table["25"]["i64"], table["4"]["i32"]) == (note.table_id, note.created_s)
        parameters = table.get("9", {}).get("map", [{}])[-1]
        has_partitions = bool(table.get("8", {}).get("lst", [])[2:])
        location = table["7"]["rec"]["2"]["str"]
        removes_files = table["12"]["str"] == "MANAGED_TABLE" or _purges(parameters)
        lay_elsewhere = not has_partitions and not is_below(location, note.directory)
    except (ConfigurationError, LookupError, TypeError, ValueError, AttributeError):
        # An event that cannot be read proves nothing.
        return False
    return is_of_note and (removes_files or lay_elsewhere)


def _purges(parameters: Mapping[str, str]) -> bool:
    return str(parameters.get("external.table.purge", "")).lower() == "true"
