"""Finds statements that lack data, and turns the missing parts of tables into elements. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from airflow_hive_federation.clusters.advice_choice import Bundle, Choice, cost_of, numbers_of
from airflow_hive_federation.clusters.advice_records import StatementRecord
from airflow_hive_federation.clusters.advice_result import CopyAdvice, LeftOut
from airflow_hive_federation.clusters.advice_tables import Part, Reads, TableNow, Values, Want

#: A table and a cluster.
_Place = tuple[str, str]


@dataclass(frozen=True, kw_only=True)
class Group:
    """The runs of one template that the same clusters could run."""

    digest: str
    candidates: tuple[str, ...]
    runs: tuple[StatementRecord, ...]
    reads: Mapping[str, Reads]
    gone: tuple[str, ...]

    def wants(self) -> tuple[Want, ...]:
        return tuple(reads.want for reads in self.reads.values())

    def wants_of(self, run: StatementRecord) -> Iterator[Want]:
        for read in run.reads:
            yield self.reads[read.table].want_of(run.day, read)

    def left_out(self, why: str, crossing_bytes: int | None) -> LeftOut:
        last = self.runs[-1]
        return LeftOut(
            template=last.template,
            source=last.source,
            runs=len(self.runs),
            crossing_bytes=crossing_bytes,
            why=why,
        )


def groups_of(runs: Sequence[StatementRecord], tables: Mapping[str, TableNow]) -> list[Group]:
    by_template: defaultdict[tuple[str, tuple[str, ...]], list[StatementRecord]] = defaultdict(list)
    for record in runs:
        by_template[record.digest, record.candidates].append(record)
    groups = []
    for (digest, candidates), of_group in by_template.items():
        reads: dict[str, Reads] = {}
        gone = set()
        for run in of_group:
            for read in run.reads:
                if (table := tables.get(read.table)) is None:
                    gone.add(read.table)
                else:
                    reads.setdefault(read.table, Reads(table=table)).reads.append((run.day, read))
        groups.append(
            Group(
                digest=digest,
                candidates=candidates,
                runs=tuple(of_group),
                reads=reads,
                gone=tuple(sorted(gone)),
            )
        )
    return groups


def reason_to_leave_out(group: Group) -> str:
    """Return why no copies can serve a group, as a clause; empty if some can, or if it needs none."""
    if not group.candidates:
        return "it writes tables that another cluster owns, which copies do not change"
    if group.gone:
        return f"there is no table {group.gone[0]} in a cluster any more"
    return ""


@dataclass(frozen=True, kw_only=True)
class Demand:
    """A group that lacks data in every cluster that could run it.

    :param saved: the bytes that its runs would read from other sites, each in its best cluster.
    """

    group: Group
    saved: int


def demand_of(group: Group) -> Demand | None:
    """Return the demand of a group; ``None`` if one cluster has all the data that it reads."""
    if any(not list(_missing(group, cluster)) for cluster in group.candidates):
        return None
    # Savings cannot be certain if a size is unknown.
    clusters = [name for name in group.candidates if not _unknown_size(group, name)]
    saved = 0
    for run in group.runs:
        wants = list(group.wants_of(run))
        crossing = (
            sum(_size(_lacking(group.reads[want.table].table, want, name)) for want in wants)
            for name in clusters
        )
        saved += min(crossing, default=0)
    return Demand(group=group, saved=saved)


def _missing(group: Group, cluster: str) -> Iterator[tuple[Want, Part]]:
    for want in group.wants():
        for part in _lacking(group.reads[want.table].table, want, cluster):
            yield want, part


def _lacking(table: TableNow, want: Want, cluster: str) -> Iterator[Part]:
    return (part for part in table.parts_of(want) if cluster not in part.readable)


class _Key(NamedTuple):
    """An element: a segment of a table's days, a partition, a whole table, or the updates of such a copy."""

    table: str
    cluster: str
    kind: Literal["days", "values", "whole", "kept days", "kept whole"]
    end: int = 0
    values: Values = ()


class Elements:
    """The missing parts of tables as elements with costs, and the bundles of these elements."""

    def __init__(
        self,
        tables: Mapping[str, TableNow],
        demands: Sequence[Demand],
        versions: Mapping[str, int],
        days: int,
    ) -> None:
        self._tables = tables
        self._demands = demands
        self._versions = versions
        self._days = days
        self._numbers: dict[_Key, int] = {}
        self.costs: list[int] = []
        ends: defaultdict[str, set[int]] = defaultdict(set)
        for demand in demands:
            for want in demand.group.wants():
                if want.days is not None:
                    ends[want.table].add(want.days)
        self._ends = {table: sorted(days_of) for table, days_of in ends.items()}
        #: The number of the demand and the cluster, per bundle.
        self._origins: list[tuple[int, str]] = []
        self.bundles: list[Bundle] = []
        for number, demand in enumerate(demands):
            for cluster in demand.group.candidates:
                if not _why_not_copied(demand.group, cluster):
                    elements = self._elements(demand.group, cluster)
                    self.bundles.append(Bundle(group=number, elements=elements, saved=demand.saved))
                    self._origins.append((number, cluster))

    def copies(self, choice: Choice) -> Iterator[CopyAdvice]:
        """Yield the copies that a choice contains."""
        keys_of: dict[_Place, list[_Key]] = {}
        keys = list(self._numbers)
        for number in numbers_of(choice.elements):
            key = keys[number]
            keys_of.setdefault((key.table, key.cluster), []).append(key)
        saved, served = self._shares(choice)
        for target, of_copy in keys_of.items():
            copy = self._copy(target, of_copy)
            groups = served.get(target, [])
            if groups:
                yield replace(
                    copy,
                    saved_bytes=saved[target],
                    statements=len({group.digest for group in groups}),
                    runs=sum(len(group.runs) for group in groups),
                )

    def unserved(self, choice: Choice) -> Iterator[LeftOut]:
        """Yield the groups that a choice does not serve, each with the reason."""
        served = {index for index, _ in self._served(choice).items()}
        for number, demand in enumerate(self._demands):
            if number in served:
                continue
            costs = [
                cost_of(bundle.elements, self.costs) for bundle in self.bundles if bundle.group == number
            ]
            if not costs:
                reason = "; ".join(
                    dict.fromkeys(
                        _why_not_copied(demand.group, cluster) for cluster in demand.group.candidates
                    )
                )
            elif min(costs) < demand.saved:
                reason = "the budget has no room for its copies"
            else:
                reason = "it is read too rarely: its copies cost as many bytes as they save"
            yield demand.group.left_out(reason, demand.saved)

    def _served(self, choice: Choice) -> dict[int, str]:
        """Return the numbers of the demands that a choice serves, each with the cluster that runs it."""
        cheapest: dict[int, tuple[int, str]] = {}
        for bundle, (number, cluster) in zip(self.bundles, self._origins, strict=True):
            if not bundle.elements & ~choice.elements:
                cost = cost_of(bundle.elements, self.costs)
                if number not in cheapest or cost < cheapest[number][0]:
                    cheapest[number] = cost, cluster
        return {number: cluster for number, (_, cluster) in cheapest.items()}

    def _shares(self, choice: Choice) -> tuple[dict[_Place, int], dict[_Place, list[Group]]]:
        """Return the bytes that each copy saves, and the groups that it serves.

        A group saves nothing unless it has all of its copies, so the copies share its savings in proportion
        to their sizes.
        """
        saved: defaultdict[_Place, int] = defaultdict(int)
        served: defaultdict[_Place, list[Group]] = defaultdict(list)
        for number, cluster in self._served(choice).items():
            demand = self._demands[number]
            sizes: dict[str, int] = {}
            for want, part in _missing(demand.group, cluster):
                sizes[want.table] = sizes.get(want.table, 0) + (part.bytes or 0)
            remainder, total = demand.saved, sum(sizes.values())
            for table, size in sizes.items():
                share = demand.saved * size // total if total else 0
                remainder -= share
                saved[table, cluster] += share
                served[table, cluster].append(demand.group)
            # The first copy receives the remainder of the rounding.
            saved[next(iter(sizes)), cluster] += remainder
        return saved, served

    def _copy(self, place: _Place, keys: Sequence[_Key]) -> CopyAdvice:
        table = self._tables[place[0]]
        windows = [key.end for key in keys if key.kind == "days"]
        values = [key.values for key in keys if key.kind == "values"]
        whole = any(key.kind == "whole" for key in keys)
        days = None if whole or not windows else max(windows)
        costs = {key: self.costs[self._numbers[key]] for key in keys}
        kept_bytes = sum(cost for key, cost in costs.items() if key.kind.startswith("kept"))
        return CopyAdvice(
            table=table.name,
            cluster=place[1],
            source=table.primary,
            keys=table.keys,
            key=table.key if days is not None else None,
            days=days,
            partitions=() if whole else tuple(sorted(values)),
            copied_bytes=sum(costs.values()) - kept_bytes,
            kept_bytes=kept_bytes,
        )

    def _elements(self, group: Group, cluster: str) -> int:
        elements = 0
        for want in group.wants():
            if any(True for _ in _lacking(self._tables[want.table], want, cluster)):
                for key, cost in self._costs_of(want, cluster):
                    if key not in self._numbers:
                        self._numbers[key] = len(self.costs)
                        self.costs.append(cost)
                    elements |= 1 << self._numbers[key]
        return elements

    def _costs_of(self, want: Want, cluster: str) -> Iterator[tuple[_Key, int]]:
        table = self._tables[want.table]
        if want.days is not None:
            ends = [end for end in self._ends[table.name] if end <= want.days]
            before = 0
            for end in ends:
                size = _size(_lacking(table, Want(table.name, days=end), cluster))
                yield _Key(table.name, cluster, "days", end=end), size - before
                before = size
            # Each day after the first adds the partitions of one more day.
            kept_bytes = (self._days - 1) * table.bytes_a_day(self._ends[table.name][-1])
            yield _Key(table.name, cluster, "kept days"), kept_bytes
            return
        if want.values is None:
            size = _size(_lacking(table, want, cluster))
            yield _Key(table.name, cluster, "whole"), size
            yield _Key(table.name, cluster, "kept whole"), size * self._versions.get(table.name, 0)
            return
        for part in _lacking(table, want, cluster):
            yield _Key(table.name, cluster, "values", values=part.values), part.bytes or 0


def _size(parts: Iterable[Part]) -> int:
    return sum(part.bytes or 0 for part in parts)


def _why_not_copied(group: Group, cluster: str) -> str:
    """Return why the data that a group lacks in a cluster cannot be copied; empty if they can."""
    for want, _ in _missing(group, cluster):
        table = group.reads[want.table].table
        if table.refused:
            return f"{table.name} cannot be copied: {table.refused}"
    if name := _unknown_size(group, cluster):
        return f"the size of {name} is not known: run ANALYZE TABLE {name} COMPUTE STATISTICS"
    return ""


def _unknown_size(group: Group, cluster: str) -> str:
    """Return the table that a group lacks in a cluster and whose size is unknown; empty if none is."""
    lacking = _missing(group, cluster)
    return next((want.table for want, part in lacking if part.bytes is None), "")
