"""Collects the partitions that the events of a cycle name, per table. Pure.

An increment describes these partitions only. An event that may concern a partition without naming it stands
for all partitions of its table.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from airflow_hive_federation.model import events as ev


class NamedPartitions:
    """The partitions of each table that events name."""

    def __init__(self) -> None:
        self._named: defaultdict[str, set[str]] = defaultdict(set)
        self._whole: set[str] = set()

    def add(self, event: ev.TableEvent) -> None:
        """Take an event of a table into account."""
        if isinstance(event, ev.ConstraintsChanged):
            return  # They belong to the table's own definition.
        if isinstance(event, ev.Compacted):
            self._named[event.table].update({event.partition} - {""})
        elif isinstance(event, ev.PartitionsChanged | ev.StatisticsChanged) and event.named is not None:
            if event.table not in self._whole:
                self._named[event.table].update(event.named)
        else:
            # An alteration of a table may cascade to its partitions, without events of their own
            # (``HiveAlterHandler.alterTable``).
            self.add_all(event.table)

    def add_all(self, table: str) -> None:
        """Count all partitions of a table as named."""
        self._whole.add(table)
        self._named.pop(table, None)

    def by_table(self) -> Mapping[str, frozenset[str] | None]:
        """Return the named partitions of each table with such an event; ``None`` stands for all of them."""
        named: dict[str, frozenset[str] | None] = {
            table: frozenset(names) for table, names in self._named.items()
        }
        return {**named, **dict.fromkeys(self._whole)}
