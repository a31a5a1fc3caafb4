"""Finds out by notification events that the tables of notes were dropped.

A table that the metastore does not list may have been renamed, may belong to a database that the user cannot
see, or may be back with the next backup. Only the event of its drop, which holds its id and the time of its
creation, proves that its copies have no owner any more.

The event does not hold the locations of partitions. To read a table while its primary's site is down,
somebody may have set the location of a partition to its copy; when an external table is dropped, Hive leaves
such files, which are then the only ones. So the event suffices for tables whose files Hive removes with them,
and for tables without partitions whose location was another one. The copies of other external tables are
removed only while the directories from which they were copied hold the same files, unchanged since.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from enum import Enum, auto
from functools import cache

from airflow_hive_federation.clusters.notes import Kind, Note, take_note
from airflow_hive_federation.clusters.registry import Cluster
from airflow_hive_federation.errors import (
    ConfigurationError,
    MetastoreServerError,
    NoSuchObjectError,
    StorageError,
    UnsupportedMethodError,
)
from airflow_hive_federation.metastore import MetastoreClient
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.model.content_marks import content_mark, listing_mark
from airflow_hive_federation.model.event_messages import message_of
from airflow_hive_federation.model.thrift_json import ThriftStruct
from airflow_hive_federation.storage.filesystem import is_below
from airflow_hive_federation.storage.listing import list_files
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
        proof = _proof_of(event, note)
        if proof is not _Proof.NONE:
            dropped = replace(
                note,
                dropped_s=float(event.eventTime or 0),
                only_beside_primary=proof is _Proof.BESIDE_PRIMARY,
            )
            take_note(cluster, dropped, options)
            return dropped
    return note


def lacks_primary(note: Note, options: StorageOptions | None) -> str:
    """Return the reason to keep a copy that may hold the only rows of its table; empty without a reason.

    The files of a primary have not changed if their paths, sizes and modification times are those of the time
    of the copy.
    """
    if not note.only_beside_primary:
        return ""
    try:
        primary = list_files(note.primary, options=options, missing_ok=True)
        copy = list_files(note.directory, options=options, missing_ok=True)
    except (ConfigurationError, StorageError) as error:
        return f"the directory cannot be compared with {note.primary}: {error.message}"
    if listing_mark(primary) != note.primary_listing:
        return f"the files in {note.primary}, of which the directory is a copy, have changed or are gone"
    return "" if content_mark(copy) == note.content else "others have written files into the directory"


class PresentTables:
    """The tables that a metastore has now; those of a database are read once."""

    def __init__(self, client: MetastoreClient) -> None:
        self._client = client
        self._read: dict[str, list[types.Table]] = {}

    def at(self, directory: str, database: str) -> str:
        """Return the name of a table of a database whose location is in a directory; empty without one.

        Somebody may read the last rows of a dropped table by another table. The locations of partitions and
        the tables of other databases are left out, because reading them takes all metadata.
        """
        lying = (
            item for item in self._of(database) if _lies_in(str(item.sd and item.sd.location), directory)
        )
        return next((f"{database}.{item.tableName}" for item in lying), "")

    def named(self, note: Note) -> str:
        """Return the present name of the table of a note; empty if no database has the table.

        After its drop, a backup may have brought it back, and somebody may have renamed it since.
        """
        for database in self._client.list_databases():
            for item in self._of(database):
                if (item.id, item.createTime) == (note.table_id, note.created_s):
                    return f"{database}.{item.tableName}"
        return ""

    def _of(self, database: str) -> list[types.Table]:
        if database not in self._read:
            self._read[database] = []
            with suppress(NoSuchObjectError):
                # A database may have many tables: keep only the fields that are compared.
                self._read[database] = [
                    types.Table(
                        tableName=item.tableName,
                        id=item.id,
                        createTime=item.createTime,
                        sd=types.StorageDescriptor(location=item.sd.location) if item.sd else None,
                    )
                    for item in self._client.iter_tables(database)
                ]
        return self._read[database]


def _lies_in(location: str, directory: str) -> bool:
    try:
        return is_below(location, directory)
    except ConfigurationError:
        return False


class _Proof(Enum):
    """The conclusion about a copy from the event of a drop."""

    #: The event proves nothing, or the table lay in the directory of the copy.
    NONE = auto()
    #: The files of the copy belong to nobody.
    UNOWNED = auto()
    #: The files of the copy belong to nobody if the directory of the primary has the same files.
    BESIDE_PRIMARY = auto()


def _proof_of(event: types.NotificationEvent, note: Note) -> _Proof:
    """Return the conclusion from an event about the directory of a note."""
    try:
        # Fields of the IDL's Table: 4 createTime, 7 sd (2 location), 8 partitionKeys, 9 parameters,
        # 12 tableType, 25 id.
        table = message_of(event).needed("tableObjJson", ThriftStruct.parse)
        is_of_note = (table.whole(25, "i64"), table.whole(4, "i32")) == (note.table_id, note.created_s)
        parameters = table.text_map(9) if 9 in table else {}
        has_partitions = 8 in table and bool(table.structs(8))
        location = table.struct(7).text(2)
        removes_files = table.text(12) == "MANAGED_TABLE" or _purges(parameters)
        lay_elsewhere = not is_below(location, note.directory)
    except (ConfigurationError, ValueError):
        # An event that cannot be read proves nothing.
        return _Proof.NONE
    if not is_of_note or not (removes_files or lay_elsewhere):
        return _Proof.NONE
    if removes_files or not has_partitions:
        return _Proof.UNOWNED
    # A plan has no rows. A copy of an earlier version does not name its primary.
    if note.kind is Kind.PLAN:
        return _Proof.UNOWNED
    is_beside = bool(note.primary) and not _lies_in(note.primary, note.directory)
    return _Proof.BESIDE_PRIMARY if is_beside and not _lies_in(note.directory, note.primary) else _Proof.NONE


def _purges(parameters: Mapping[str, str]) -> bool:
    return str(parameters.get("external.table.purge", "")).lower() == "true"
