"""Checks that the source is still the one from which the target was made.

Event ids of a source are consecutive, and a source restored from a backup gives the same ids again, to other
events. So each dump records its last event, and the next dump checks that the source still has that event.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from airflow_hive_federation.errors import SourceWentBackError
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.replication.format.directory import DumpDirectory
from airflow_hive_federation.replication.format.manifest import SourceEvent

if TYPE_CHECKING:
    from airflow_hive_federation.metastore import MetastoreClient


def note_event(client: MetastoreClient, event_id: int) -> SourceEvent | None:
    """Return a record that identifies one event; ``None`` if the source has forgotten the event.

    :param client: client of the source.
    """
    for raw in client.iter_notification_events(event_id - 1, up_to=event_id, batch_size=1):
        message = hashlib.sha256((raw.message or "").encode()).hexdigest()
        return SourceEvent(id=event_id, time=raw.eventTime or 0, type=raw.eventType or "", message=message)
    return None


def check_history(client: MetastoreClient, noted: SourceEvent | None) -> None:
    """Refuse a source with another history than the one from which the target was made.

    :param noted: the record that :func:`note_event` made of an event of that history. Once the source has
        forgotten the event, the check passes.
    :raises SourceWentBackError: the event of that id is another one.
    """
    current = note_event(client, noted.id) if noted else None
    if noted and current and current != noted:
        raise SourceWentBackError(
            f"The source's event {noted.id} is a {current.type} of {current.time} now; it was a "
            f"{noted.type} of {noted.time} when the target was loaded.",
            remedy="The source was restored from a backup, and has gone on since: drop the target database, "
            "and the next cycle bootstraps it anew.",
            event_id=noted.id,
            seen_id=noted.id,
        )


def is_another(table: types.Table, home: DumpDirectory) -> bool:
    """Return whether a table of the source was dropped and created again, or renamed, since it was dumped.

    :param table: wire ``Table`` as it is now.
    :param home: the dump that describes the table of that name.
    """
    before = home.table(table.tableName).table
    ids = before.id, table.id
    # Before Hive 4, metastores send no ids of tables.
    return before.createTime != table.createTime or (all(ids) and ids[0] != ids[1])
