"""Looks up the sizes and clusters of the tables in a history, by the age of their partitions. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date
from functools import cached_property

from airflow_hive_federation.clusters.advice_records import TableRead, partition_day
from airflow_hive_federation.clusters.placement import CatalogFacts, Clusters, TableFacts
from airflow_hive_federation.clusters.routing.inputs import primary_of

#: The values of a partition, as the metastore keeps them.
Values = tuple[str, ...]
#: Days of age; a statement that reads only older partitions needs these partitions, and no window.
SETTLED_DAYS = 7


@dataclass(frozen=True, slots=True)
class Want:
    """The part of a table that a group of statements needs in a cluster.

    :param table: ``database.table``.
    :param days: the last days of the table; ``None`` if the part is not a window.
    :param values: the values of the partitions; ``None`` with a window, or for the whole table.
    """

    table: str
    days: int | None = None
    values: frozenset[Values] | None = None


@dataclass(frozen=True, slots=True)
class Part:
    """A partition, or an unpartitioned table, in its present state.

    :param values: the values of the partition; empty for a table.
    :param age: the age in days; ``None`` if the values contain no day.
    :param bytes: the size; ``None`` if it is unknown.
    :param readable: the clusters that hold it now, with the primary first.
    """

    values: Values
    age: int | None
    bytes: int | None
    readable: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class TableNow:
    """A table in its present state.

    :param key: the first partition key that contains days; ``None`` if there is none.
    :param primary: the primary cluster.
    :param refused: the reason why it cannot be copied, as a clause; empty if it can.
    """

    name: str
    primary: str
    parts: tuple[Part, ...]
    keys: tuple[str, ...] = ()
    key: str | None = None
    refused: str = ""

    @cached_property
    def by_values(self) -> Mapping[Values, Part]:
        return {part.values: part for part in self.parts}

    @cached_property
    def by_age(self) -> Mapping[int, tuple[Part, ...]]:
        parts_by_age: defaultdict[int, list[Part]] = defaultdict(list)
        for part in self.parts:
            if part.age is not None:
                parts_by_age[part.age].append(part)
        return {age: tuple(parts) for age, parts in sorted(parts_by_age.items())}

    def window(self, days: int) -> Iterator[Part]:
        """Yield the partitions of the last days, which include those of future days."""
        for age, parts in self.by_age.items():
            if age < days:
                yield from parts

    def parts_of(self, want: Want) -> Iterable[Part]:
        """Return the wanted partitions that still exist."""
        if want.days is not None:
            return self.window(want.days)
        if want.values is None:
            return self.parts
        return [part for values in want.values if (part := self.by_values.get(values)) is not None]

    def bytes_a_day(self, days: int) -> int:
        """Return the mean size of a day's new partitions, over the days of a window that have any."""
        bytes_by_age = {part.age: 0 for part in self.window(days)}
        total = sum(part.bytes or 0 for part in self.window(days))
        return total // len(bytes_by_age) if bytes_by_age else 0


def table_now(
    name: str,
    catalog: CatalogFacts,
    clusters: Clusters,
    today: date,
    *,
    refused: str = "",
) -> TableNow | None:
    """Look a table up; ``None`` if it no longer exists, or has no cluster."""
    facts = catalog.table(*name.split(".", 1))
    primary = primary_of(facts, clusters) if facts is not None and not facts.is_view else None
    if facts is None or primary is None:
        return None
    if not facts.is_partitioned:
        readable = facts.placement.readable if facts.placement is not None else (primary,)
        part = Part((), None, facts.bytes, readable)
        return TableNow(name=name, primary=primary, parts=(part,), refused=refused)
    rows = catalog.partitions(facts)
    at = _day_key(facts, [row.values for row in rows])
    parts = (
        Part(
            row.values,
            None if at is None else _age(row.values[at], today),
            row.bytes,
            row.placement.readable if row.placement is not None else (primary,),
        )
        for row in rows
    )
    keys = tuple(key for key, _ in facts.partition_keys)
    return TableNow(
        name=name,
        primary=primary,
        parts=tuple(parts),
        keys=keys,
        key=None if at is None else keys[at],
        refused=refused,
    )


def _age(value: str, today: date) -> int | None:
    day = partition_day(value)
    return None if day is None else max((today - day).days, 0)


def _day_key(facts: TableFacts, rows: Iterable[Values]) -> int | None:
    """Return the number of the first key whose values are days, or days and Hive's default partition."""
    candidates = set(range(len(facts.partition_keys)))
    with_days: set[int] = set()
    for values in rows:
        for number in list(candidates):
            if partition_day(values[number]) is not None:
                with_days.add(number)
            elif not values[number].startswith("__"):
                candidates.discard(number)
    return min(candidates & with_days, default=None)


@dataclass(kw_only=True)
class Reads:
    """The reads of one table by one group of statements.

    :param reads: the reads, with the day of each.
    """

    table: TableNow
    reads: list[tuple[date, TableRead]] = field(default_factory=list)

    @cached_property
    def want(self) -> Want:
        """The part of the table that serves all these reads.

        It is a window if the table has days and the statement moves with them. It is a set of partitions if
        each run reads the same partitions, or only old ones. Otherwise it is the whole table.
        """
        name = self.table.name
        if not self.table.keys:
            return Want(name)
        values = [frozenset(read.values) for _, read in self.reads]
        all_known = all(map(self._knows, (read for _, read in self.reads)))
        ages = [age for day, read in self.reads for age in self._span(day, read)]
        if self.table.key is not None and ages and not (all_known and self._stays(values, min(ages))):
            return Want(name, days=max(ages) + 1)
        return Want(name, values=frozenset().union(*values)) if all_known else Want(name)

    def want_of(self, day: date, read: TableRead) -> Want:
        """Return the part of the table that one run would read today: partitions as old as those it read."""
        want = self.want
        if want.days is None:
            return want if want.values is None else Want(want.table, values=frozenset(read.values))
        if read.values and self._knows(read):
            return Want(want.table, values=frozenset(self._as_old(day, read.values)))
        ages = self._span(day, read)
        return Want(want.table, days=max(ages) + 1 if ages else 0)

    def _as_old(self, day: date, values: Iterable[Values]) -> Iterator[Values]:
        at = self.table.keys.index(str(self.table.key))
        for values_read in values:
            read_on = partition_day(values_read[at])
            age = None if read_on is None else max((day - read_on).days, 0)
            for part in self.table.by_age.get(age, ()) if age is not None else ():
                if part.values[:at] == values_read[:at] and part.values[at + 1 :] == values_read[at + 1 :]:
                    yield part.values

    def _knows(self, read: TableRead) -> bool:
        """Return whether the record names all partitions, by the present keys of the table."""
        if not read.values:
            return not read.partitions
        return all(len(values) == len(self.table.keys) for values in read.values)

    def _stays(self, values: list[frozenset[Values]], youngest: int) -> bool:
        days = {day for day, _ in self.reads}
        return youngest > SETTLED_DAYS or (len(days) > 1 and len(set(values)) == 1)

    def _span(self, day: date, read: TableRead) -> list[int]:
        for key, least, greatest in read.spans:
            if key == self.table.key:
                ends = partition_day(least), partition_day(greatest)
                return [max((day - end).days, 0) for end in ends if end is not None]
        return []
