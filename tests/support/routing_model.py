"""A model of the routing rules, written beside the design."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from airflow_hive_federation.clusters.placement import Clusters, Copy, Placement, Session
from airflow_hive_federation.clusters.routing.explain import cheapest_copies
from airflow_hive_federation.clusters.routing.route import decide
from tests.support.catalogs import Catalog

NAMES = ("C1", "C2", "C3", "C4")


@dataclass(frozen=True)
class Thing:
    """An unpartitioned table, or a partition: where it is primary, fresh and stale."""

    primary: str
    fresh: frozenset[str]
    stale: frozenset[str]
    size: int

    def placement(self) -> Placement:
        copies = [Copy(one, f"s3://{one}", one in self.fresh) for one in sorted(self.fresh | self.stale)]
        return Placement(Copy(self.primary, f"s3://{self.primary}"), tuple(copies))


@dataclass(frozen=True)
class Table:
    """A table; ``parts`` is ``None`` if it is not partitioned."""

    name: str
    own: Thing | None
    parts: dict[str, Thing | None] | None


@dataclass(frozen=True)
class Case:
    """A catalog and a statement, as the model knows them."""

    tables: dict[str, Table]
    inputs: tuple[tuple[str, tuple[str, ...] | None], ...]
    outputs: tuple[str, ...]
    session: str | None
    sql: str


class Cases:
    """Random cases from one seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def case(self) -> Case:
        tables = {name: self._table(name) for name in ("t1", "t2", "t3", "t4", "t5")}
        names = self._random.choices(list(tables), k=self._random.randint(0, 4))
        inputs = tuple((name, self._days(tables[name])) for name in names)
        outputs = self._outputs(list(tables))
        session = self._random.choice([*NAMES, "C9"]) if self._chance(0.25) else None
        return Case(tables, inputs, outputs, session, self._sql(inputs, outputs))

    def _table(self, name: str) -> Table:
        own = self._thing() if self._chance(0.85) else None
        if self._chance(0.5):
            return Table(name, own, None)
        days = [str(day) for day in range(self._random.randint(0, 5))]
        parts = {day: self._part(own) for day in days}
        return Table(name, own, parts)

    def _part(self, own: Thing | None) -> Thing | None:
        if self._chance(0.15):
            return None
        same = own is not None and self._chance(0.9)
        return self._thing(own.primary if same and own is not None else None)

    def _thing(self, primary: str | None = None) -> Thing:
        primary = primary or self._random.choice(NAMES[:3])
        others = [one for one in NAMES if one != primary and self._chance(0.5)]
        stale = frozenset(one for one in others if self._chance(0.2))
        return Thing(primary, frozenset(others) - stale, stale, self._random.randint(0, 9))

    def _days(self, table: Table) -> tuple[str, ...] | None:
        if table.parts is None or self._chance(0.4):
            return None
        return tuple(str(day) for day in range(6) if self._chance(0.4)) or ("0",)

    def _outputs(self, tables: list[str]) -> tuple[str, ...]:
        count = self._random.choice([0, 0, 1, 1, 2])
        return tuple(self._random.choice([*tables, "new1"]) for _ in range(count))

    def _sql(self, inputs: Sequence[tuple[str, tuple[str, ...] | None]], outputs: Sequence[str]) -> str:
        sources = [self._source(number, *one) for number, one in enumerate(inputs)]
        clause = " CROSS JOIN ".join(sources) or "(SELECT 1 AS x) AS nothing"
        if not outputs:
            return f"SELECT * FROM {clause}"
        inserts = " ".join(f"INSERT INTO TABLE {name} SELECT *" for name in outputs)
        return f"FROM {clause} {inserts}"

    def _source(self, number: int, name: str, days: tuple[str, ...] | None) -> str:
        if days is None:
            return f"{name} AS a{number}"
        in_list = ", ".join(f"'{day}'" for day in days)
        wanted = [f"ds IN ({in_list})", " OR ".join(f"ds = '{day}'" for day in days)]
        return f"(SELECT * FROM {name} WHERE {self._random.choice(wanted)}) AS a{number}"

    def _chance(self, share: float) -> bool:
        return self._random.random() < share


def in_cluster(thing: Thing | None, table: Table, cluster: str) -> bool:
    if thing is None:
        return cluster == (table.own.primary if table.own else "C1")
    return cluster == thing.primary or cluster in thing.fresh


def read_things(table: Table, days: tuple[str, ...] | None) -> list[Thing | None]:
    if table.parts is None:
        return [table.own]
    return [part for day, part in table.parts.items() if days is None or day in days]


def can_run(case: Case, cluster: str) -> bool:
    """Tell whether each rule of the design allows the statement in a cluster."""
    for name in case.outputs:
        if any(primary != cluster for primary in output_primaries(case, name)):
            return False
    for name, days in case.inputs:
        table = case.tables[name]
        if not all(in_cluster(thing, table, cluster) for thing in read_things(table, days)):
            return False
    return True


def output_primaries(case: Case, name: str) -> set[str]:
    table = case.tables.get(name)
    if table is None:
        return set()
    primary = table.own.primary if table.own else "C1"
    return {primary} | {part.primary for part in (table.parts or {}).values() if part is not None}


def model(case: Case) -> str | None:
    """The cluster of the design; ``None`` for its error."""
    if case.session is not None:
        return case.session if case.session in NAMES and can_run(case, case.session) else None
    primaries = set().union(*(output_primaries(case, name) for name in case.outputs))
    if len(primaries) > 1:
        return None
    if primaries:
        (only,) = primaries
        return only if can_run(case, only) else None
    tried = [case.tables[name].own for name, _ in case.inputs]
    for cluster in [own.primary if own else "C1" for own in tried] or ["C1"]:
        if can_run(case, cluster):
            return cluster
    return None


def cheapest(case: Case, candidates: Sequence[str]) -> int:
    """The fewest bytes that must be copied, by trying each cluster."""
    costs = []
    for cluster in candidates:
        missing: dict[tuple[str, str], int] = {}
        for name, days in case.inputs:
            table = case.tables[name]
            parts = {"": table.own} if table.parts is None else table.parts
            for day, thing in parts.items():
                wanted = table.parts is None or days is None or day in days
                if wanted and not in_cluster(thing, table, cluster):
                    missing[name, day] = thing.size if thing is not None else 0
        costs.append(sum(missing.values()))
    return min(costs)


def catalog_of(case: Case) -> Catalog:
    made = Catalog()
    for table in case.tables.values():
        own = table.own.placement() if table.own else None
        if table.parts is None:
            made.add(table.name, own, size=table.own.size if table.own else 0)
            continue
        made.add_partitioned(
            table.name,
            own,
            [("ds", "string")],
            {(day,): part.placement() if part else None for day, part in table.parts.items()},
        )
        rows = made.rows["default", table.name]
        sizes = [part.size if part else 0 for part in table.parts.values()]
        made.rows["default", table.name] = type(rows).of(
            type(row)(row.values, row.placement, size) for row, size in zip(rows, sizes, strict=True)
        )
    return made


def compare(seed: int) -> str:
    """Compare router and model; the answer says of which kind the case was."""
    case = Cases(seed).case()
    clusters = Clusters(names=NAMES, default="C1")
    decision = decide(case.sql, catalog_of(case), clusters, Session(cluster=case.session))
    assert decision.unanalysable is None, (seed, case.sql, decision.reason)
    assert decision.cluster == model(case), (seed, case, decision)
    plan = cheapest_copies(decision)
    if plan is not None:
        candidates = [one.cluster for one in decision.attempts]
        assert plan.bytes == cheapest(case, candidates), (seed, case, plan)
    return "refused" if decision.cluster is None else str(decision.rule)
