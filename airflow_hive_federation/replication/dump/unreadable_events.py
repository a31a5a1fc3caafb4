"""Determines the tables or functions that an unreadable event may have changed. Pure.

Its id, type, database and table stand outside of the message. An unreadable event counts as lost, but only
for the scope that these fields allow: a table is compared anew, and the database only if the table is not
known.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from enum import Enum

from airflow_hive_federation.model.events import UnreadableEvent

logger = logging.getLogger(__name__)

#: Highest number of events in a log or a summary: a damaged source may have millions.
_SHOWN = 20


class Concern(Enum):
    """The objects that must be compared anew."""

    NOTHING = "nothing"
    FUNCTIONS = "functions"
    TABLE = "table"  # the table in the heading
    DATABASE = "database"  # all tables, as after a loss of events


def concern_of(event: UnreadableEvent, database: str) -> Concern:
    """Return the objects of a database that an event may have changed.

    :param database: the database that is replicated.
    :raises EventCorruptError: the heading names no database, although it should.
    """
    if event.of_transaction:
        # The transaction that has ended is unknown. Openings of transactions concern no cycle.
        return Concern.DATABASE if event.ends_transaction else Concern.NOTHING
    if not event.database:
        raise event.error()
    if event.database != database:
        return Concern.NOTHING
    if event.event_type in {"CREATE_FUNCTION", "DROP_FUNCTION"}:
        return Concern.FUNCTIONS
    # The key belongs to another table than the heading names (and never to one of another database: such keys
    # are left out of replicas).
    known = event.table and event.event_type != "ADD_FOREIGNKEY"
    return Concern.TABLE if known else Concern.DATABASE


def described(events: Sequence[UnreadableEvent]) -> list[str]:
    """Return the messages of the first events: the id and type of each, and its error."""
    return [event.error().message for event in events[:_SHOWN]]


def warn_of_unreadable(events: Sequence[UnreadableEvent], database: str, tables: Collection[str]) -> None:
    """Log the first events, and the objects that are compared anew.

    :param tables: tables that are compared anew; for other events, the whole database is.
    """
    for event in events[:_SHOWN]:
        scope = f"table {database}.{event.table}" if event.table in tables else f"database {database}"
        logger.warning("%s This cycle compares %s anew.", event.error().message, scope)
