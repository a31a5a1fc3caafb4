"""Collects evidence from the source's events for removals from a replica. Pure.

A table, a partition or a file that a listing of the source lacks may be gone. But the metastore may also have
hidden it from this user, a call may have returned half of its result, or a directory may not be mounted. So a
listing alone is no reason to remove anything from the target: an event has to record the drop, or the policy
has to exclude the table.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeGuard

from airflow_hive_federation.model import events as ev

#: This name stands for the table itself among names of partitions.
WHOLE_TABLE = ""


class Evidence:
    """The removals that the events of a database record.

    :param database: the database; events of others are ignored.
    """

    def __init__(self, database: str) -> None:
        self._database = database
        #: Names whose table was dropped or renamed at some time, and those of them without a table now.
        self._dropped: set[str] = set()
        self._gone: set[str] = set()
        self._made: set[str] = set()
        self._partitions: defaultdict[str, set[str]] = defaultdict(set)
        self._emptied: defaultdict[str, set[str]] = defaultdict(set)
        self._functions: set[str] = set()
        self._whole_database = False

    def add(self, event: ev.Event) -> None:
        """Take an event into account, with the target's names of its tables."""
        if isinstance(event, ev.TableAltered) and event.renamed and event.old_database == self._database:
            self._lose(event.old_table)
        if event.database != self._database:
            return
        if isinstance(event, ev.TableDropped) or _is_unreadable_drop(event):
            self._lose(event.table)
        elif isinstance(event, ev.TableCreated) or (isinstance(event, ev.TableAltered) and event.renamed):
            self._gone.discard(event.table)
            self._made.add(event.table)
        elif isinstance(event, ev.PartitionsChanged):
            self._partitions[event.table].update(event.gone)
            self._emptied[event.table].update(event.truncated)
        elif (isinstance(event, ev.TableAltered) and event.truncated) or (
            isinstance(event, ev.Inserted) and event.overwritten
        ):
            self._emptied[event.table].add(WHOLE_TABLE)
        elif isinstance(event, ev.FunctionEvent) and event.dropped:
            self._functions.add(event.function)
        elif isinstance(event, ev.DatabaseEvent) and event.dropped:
            self._whole_database = True
            self._made.clear()

    def of_table(self, table: str) -> bool:
        """Return whether a name has no table any more: its table was dropped, renamed, or moved elsewhere.

        A table that was created under the name afterwards exists, whether or not it is listed.
        """
        return table in self._gone or (self._whole_database and table not in self._made)

    def lost_table(self, table: str) -> bool:
        """Return whether a table was dropped, renamed, or moved elsewhere, whoever has its name now."""
        return self._whole_database or table in self._dropped

    def of_partition(self, table: str, partition: str) -> bool:
        """Return whether a partition, or the table to which it belonged, was dropped or renamed."""
        return self.lost_table(table) or partition in self._partitions.get(table, ())

    def of_files(self, table: str, partition: str = WHOLE_TABLE) -> bool:
        """Return whether all rows of a table, or of one of its partitions, were removed."""
        emptied = self._emptied.get(table, ())
        return WHOLE_TABLE in emptied or partition in emptied or self.of_partition(table, partition)

    def has_emptied(self, table: str) -> bool:
        """Return whether all rows of a table, or of any of its partitions, were removed."""
        return bool(self._emptied.get(table))

    def speaks_of_partitions(self, table: str) -> bool:
        """Return whether any partition of a table was dropped, renamed or emptied."""
        return bool(self._partitions.get(table) or self._emptied.get(table))

    def of_function(self, function: str) -> bool:
        """Return whether a function was dropped."""
        return self._whole_database or function.lower() in self._functions

    @property
    def functions(self) -> frozenset[str]:
        """Return the names of functions that were dropped."""
        return frozenset(self._functions)

    def partitions(self, table: str) -> Collection[str]:
        """Return the names of the partitions of a table that were dropped or renamed."""
        return self._partitions.get(table, frozenset())

    def _lose(self, table: str) -> None:
        self._dropped.add(table)
        self._gone.add(table)
        self._made.discard(table)


def _is_unreadable_drop(event: ev.Event) -> TypeGuard[ev.UnreadableEvent]:
    """Return whether the heading of an unreadable event records the drop of a table."""
    return isinstance(event, ev.UnreadableEvent) and event.event_type == "DROP_TABLE" and bool(event.table)


@dataclass(frozen=True, kw_only=True)
class AbsentTables:
    """The target's tables that are not among those to replicate.

    :param dropped: tables to drop: an event or the policy accounts for that, or the policy allows it.
    :param kept: tables that stay as they are although the source has another object under their names, with
        the reason for which that object is not replicated.
    :param unexplained: tables for whose absence nothing accounts.
    """

    dropped: frozenset[str] = frozenset()
    kept: Mapping[str, str] = field(default_factory=dict)
    unexplained: frozenset[str] = frozenset()


def judge_tables(
    there: Iterable[str],
    *,
    replicated: Collection[str],
    skipped: Mapping[str, str],
    selects: Callable[[str], bool],
    evidence: Evidence,
    unwanted: Collection[str] = (),
) -> AbsentTables:
    """Decide about the target's tables that the source does not replicate (any more).

    :param there: names of the target's tables.
    :param replicated: names of the source's tables that are replicated, as the target names them.
    :param skipped: the other tables that the source lists, with the reason.
    :param selects: returns whether the policy replicates a table.
    :param unwanted: names that stand for another object since the policy has changed, or for an object that
        no cycle of this policy has made.
    """
    absent = frozenset(there) - frozenset(replicated)
    by_policy = {name for name in absent if not selects(name) or name in unwanted}
    kept = {name: skipped[name] for name in sorted(absent - by_policy) if name in skipped}
    by_event = {name for name in absent - kept.keys() if evidence.of_table(name)}
    return AbsentTables(
        dropped=frozenset(by_policy | by_event),
        kept=kept,
        unexplained=absent - by_policy - by_event - kept.keys(),
    )
