"""What an event concerns whose message cannot be read. Pure.

Its id, type, database and table stand outside of the message. An event that cannot be read is one that is
lost, of as little as these allow: a table is compared anew, and only where no table is known, the database.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from enum import Enum

from airflow_hive_federation.model.events import UnreadableEvent

logger = logging.getLogger(__name__)

#: Events of a log or a summary: a damaged source may have millions.
_SHOWN = 20


class Concern(Enum):
    """What must be compared anew."""

    NOTHING = "nothing"
    FUNCTIONS = "functions"
    TABLE = "table"  # the one that the heading names
    DATABASE = "database"  # all tables, as where events are lost


def concern_of(event: UnreadableEvent, database: str) -> Concern:
    """Say what of a database an event concerns.

    :param database: the database that is replicated.
    :raises EventCorruptError: it cannot be told: its heading names no database, as it should.
    """
    if event.of_transaction:
        # Which transaction has ended is unknown. That some were opened, no cycle needs to know.
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
    """The first of some events, each with its id, type and what is wrong with it."""
    return [one.error().message for one in events[:_SHOWN]]


def warn_of_unreadable(events: Sequence[UnreadableEvent], database: str, tables: Collection[str]) -> None:
    """Log the first of some events, and what is compared anew.

    :param tables: tables that are compared anew; for other events, the whole database is.
    """
    for event in events[:_SHOWN]:
        of = f"table {database}.{event.table}" if event.table in tables else f"database {database}"
        logger.warning("%s This cycle compares %s anew.", event.error().message, of)
