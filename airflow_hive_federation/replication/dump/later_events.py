"""Collects from the events after a dump's moment the names that have passed to other objects since. Pure.

A dump lists its tables after its moment, by their names. Until then, a table may be dropped and created anew,
or exchanged with another one: ``ALTER TABLE t RENAME TO old`` and ``ALTER TABLE new RENAME TO t``. Its write
ids in the dump are those of the moment, so the files of the other table would be judged by them, and an open
transaction of that table would count as a committed one.

An object gets a name, and its files the directory of that name, only after the former owner of the name was
dropped or renamed, and the metastore writes an event into the database transaction that does so. So no event
is missed that is read after the files were listed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from airflow_hive_federation.model import events as ev
from airflow_hive_federation.replication.dump.evidence import Evidence
from airflow_hive_federation.replication.dump.unreadable_events import Concern, concern_of
from airflow_hive_federation.replication.format.kinds import TableKind


class LaterEvents:
    """The drops and renamings of a database after a dump's moment.

    :param events: the events after the moment, with the target's names of tables.
    :param database: the database; events of others are ignored.
    :raises EventCorruptError: an event cannot be read, and its heading names no database.
    """

    def __init__(self, events: Iterable[ev.Event], database: str) -> None:
        self.evidence = Evidence(database)
        self._doubtful: set[str] = set()
        self._all_doubtful = False
        #: By table, the first event that drops or renames a partition.
        self._partitions: defaultdict[str, dict[str, int]] = defaultdict(dict)
        for event in events:
            self.evidence.add(event)
            if isinstance(event, ev.UnreadableEvent) and not event.of_transaction:
                concern = concern_of(event, database)
                self._all_doubtful = self._all_doubtful or concern is Concern.DATABASE
                self._doubtful.update({event.table} if concern is Concern.TABLE else ())
            elif isinstance(event, ev.PartitionsChanged) and event.database == database:
                for name in event.gone:
                    self._partitions[event.table].setdefault(name, event.event_id)

    def lost_table(self, table: str) -> bool:
        """Return whether a table may have lost its name: it was dropped, renamed, or moved elsewhere.

        Any event of the table that cannot be read may record that.
        """
        return self._all_doubtful or table in self._doubtful or self.evidence.lost_table(table)

    def partitions_lost(self, table: str, *, up_to: int | None = None) -> frozenset[str]:
        """Return the names of the partitions of a table that were dropped or renamed.

        :param up_to: the last event that counts; by default, all do.
        """
        lost = self._partitions.get(table, {})
        return frozenset(name for name, event_id in lost.items() if up_to is None or event_id <= up_to)


def is_exchanged(table: str, later: LaterEvents, *, at_moment: bool, found: TableKind | None) -> bool:
    """Return whether a name may have stood for another table when the files of a dump were listed.

    Tables without transactions are dumped as they are found: their files have no moment.

    :param later: the events after the dump's moment, read after the files were listed.
    :param at_moment: the table has write ids of the dump's moment.
    :param found: the kind of the table that was found; ``None`` if there was none.
    """
    if found is None:
        # If nobody has made another one, the drop explains that the target loses the table.
        return later.lost_table(table) and not later.evidence.of_table(table)
    # A table that has become transactional may have files of open transactions, and no write ids to tell.
    return found.transactional is not at_moment or (at_moment and later.lost_table(table))
