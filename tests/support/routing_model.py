"""A model of the routing rules, written beside the design.

A seed is a case: a statement, a catalog and a session. The cases of :data:`CATALOGS` seeds in a row share
their statement, which takes longer to parse than to route.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from functools import lru_cache

from airflow_hive_federation.clusters.placement import Clusters, Copy, Placement, Session
from airflow_hive_federation.clusters.routing.explain import cheapest_copies
from airflow_hive_federation.clusters.routing.route import decide
from airflow_hive_federation.model.partitions import DEFAULT_PARTITION
from tests.support.catalogs import Catalog

NAMES = ("C1", "C2", "C3", "C4")
#: The cluster of a few tables, which is not configured any more.
GONE = "C8"
CATALOGS = 10
TABLES = ("t1", "t2", "t3", "t4", "t5")
Days = tuple[str, ...] | None
#: The days that filters name; the last one is ``current_date``.
ALL_DAYS = tuple(str(day) for day in range(6))
TODAY = date(2026, 3, 1)
#: The types of ``ds``; the last one is a string that holds a date.
KINDS = ("string", "int", "date", "day")


@dataclass(frozen=True)
class Partition:
    """An unpartitioned table, or a partition: where it is primary, fresh and stale."""

    primary: str
    fresh: frozenset[str]
    stale: frozenset[str]
    size: int

    def placement(self) -> Placement:
        copies = [Copy(name, f"s3://{name}", name in self.fresh) for name in sorted(self.fresh | self.stale)]
        return Placement(Copy(self.primary, f"s3://{self.primary}"), tuple(copies))


@dataclass(frozen=True)
class Table:
    """A table; ``parts`` is ``None`` if it is not partitioned."""

    name: str
    own: Partition | None
    parts: dict[str, Partition | None] | None


@dataclass(frozen=True)
class Written:
    """A statement.

    :param inputs: the tables that it reads, with the days of the partitions.
    :param outputs: the tables that it writes, with the day of a static partition.
    :param views: the text and the columns of each view, by name.
    :param kind: the type of the partition key, of :data:`KINDS`.
    """

    partitioned: frozenset[str]
    kind: str
    inputs: tuple[tuple[str, Days], ...]
    outputs: tuple[tuple[str, str | None], ...]
    sql: str
    views: dict[str, tuple[str, tuple[str, ...]]]


@dataclass(frozen=True)
class Case:
    """A statement, a catalog and a session, as the model knows them."""

    statement: Written
    tables: dict[str, Table]
    session: str | None
    use_default: bool

    def primary(self, name: str) -> str | None:
        """Return the primary cluster of a table; ``None`` if it is in no cluster."""
        own = self.tables[name].own
        return own.primary if own is not None else "C1" if self.use_default else None


class _Chance:
    """Draws from one seed."""

    def __init__(self, seed: int | str) -> None:
        self._random = random.Random(seed)

    def _chance(self, share: float) -> bool:
        return self._random.random() < share


class Statements(_Chance):
    """A random statement from one seed.

    It is built from the places that it reads, so what each of them reads is known without reading the text: a
    place behind a view, a common table expression or a subquery reads the days that all filters leave.
    """

    def statement(self) -> Written:
        self._partitioned = frozenset(name for name in TABLES if self._chance(0.5))
        self._kind = self._random.choice(KINDS)
        self._views: dict[str, tuple[str, tuple[str, ...]]] = {}
        self._common: list[str] = []
        self._unreferred: list[tuple[str, Days]] = []
        self._aliases = 0
        names = self._random.choices(TABLES, k=self._random.randint(0, 4))
        places = [place for name in names for place in self._places(name)]
        if self._chance(0.15):
            self._unreferred.append(self._common_expression(self._random.choice(TABLES)))
        below, condition = self._nested() if self._chance(0.3) else ([], "")
        inputs = (*self._unreferred, *(read for read, _ in places), *below)
        outputs = tuple(self._outputs())
        sql = self._sql([source for _, source in places], outputs, condition)
        return Written(self._partitioned, self._kind, inputs, outputs, sql, self._views)

    def _days(self, name: str) -> Days:
        if name not in self._partitioned or self._chance(0.4):
            return None
        if self._chance(0.4):
            first = self._random.randint(0, 5)
            return ALL_DAYS[first : self._random.randint(first, 5) + 1]
        return tuple(day for day in ALL_DAYS if self._chance(0.4)) or ("0",)

    def _outputs(self) -> Iterator[tuple[str, str | None]]:
        for _ in range(self._random.choice([0, 0, 1, 1, 2])):
            name = self._random.choice([*TABLES, "new1"])
            static = name in self._partitioned and self._chance(0.5)
            yield name, str(self._random.randint(0, 5)) if static else None

    # -- places --------------------------------------------------------------------------------------------

    def _places(self, name: str) -> Iterator[tuple[tuple[str, Days], str]]:
        """Yield the days of a table that one or two entries of a FROM clause read, and their text."""
        kind = self._random.choice(["table", "table", "view", "views", "common", "twice", "derived"])
        if kind == "table":
            days = self._days(name)
            yield (name, days), self._entry(name, days)
            return
        if kind == "derived":
            inside, outside = self._days(name), self._days(name)
            yield (name, both(inside, outside)), self._entry(f"({self._query(name, inside)}) AS d", outside)
            return
        if kind in {"view", "views"}:
            inner, days = self._view(name, name, self._days(name))
            if kind == "views":
                again = self._days(name)
                inner, days = self._view(name, inner, again, within=days)
        else:
            _, days = self._common_expression(name)
            inner = f"c{len(self._common)}"
        for _ in range(2 if kind == "twice" else 1):
            outside = self._days(name)
            yield (name, both(days, outside)), self._entry(inner, outside)

    def _view(self, table: str, below: str, days: Days, within: Days = None) -> tuple[str, Days]:
        name = f"v{len(self._views) + 1}"
        columns = ("k", "ds") if table in self._partitioned else ("k",)
        # A metastore has the text with the names of all columns.
        self._views[name] = self._query(below, days, ", ".join(columns)), columns
        return name, both(within, days)

    def _common_expression(self, name: str) -> tuple[str, Days]:
        days = self._days(name)
        self._common.append(f"c{len(self._common) + 1} AS ({self._query(name, days)})")
        return name, days

    def _nested(self) -> tuple[list[tuple[str, Days]], str]:
        """Return the tables and days that a subquery of a condition reads, and the condition."""
        name = self._random.choice(TABLES)
        days = self._days(name)
        query = self._query(name, days, columns="k")
        test = self._random.choice(
            ["EXISTS ({})", "NOT EXISTS ({})", "1 IN ({})", "1 = (SELECT max(k) FROM ({}) AS m)"]
        )
        return [(name, days)], f" WHERE {test.format(query)}"

    # -- texts ---------------------------------------------------------------------------------------------

    def _query(self, source: str, days: Days, columns: str = "*") -> str:
        if days is None:
            return f"SELECT {columns} FROM {source}"
        return f"SELECT {columns} FROM {source} WHERE {self._random.choice(list(self._filters(days)))}"

    def _filters(self, days: tuple[str, ...]) -> Iterator[str]:
        """Yield the conditions that leave these days."""
        yield f"ds IN ({', '.join(map(self._literal, days))})"
        yield " OR ".join(f"ds = {self._literal(day)}" for day in days)
        others = [day for day in ALL_DAYS if day not in days]
        if others:
            yield f"ds NOT IN ({', '.join(map(self._literal, others))})"
            yield f"NOT ({' OR '.join(f'{self._literal(day)} = ds' for day in others)})"
        first, last = days[0], days[-1]
        if days == ALL_DAYS[int(first) : int(last) + 1]:
            yield f"ds BETWEEN {self._literal(first)} AND {self._literal(last)}"
            yield f"ds >= {self._literal(first)} AND {self._literal(last)} >= ds"
            if last == ALL_DAYS[-1]:
                yield f"ds > {self._literal(first)} OR ds = {self._literal(first)}"

    def _literal(self, day: str) -> str:
        text, back = key_text(self._kind, day), len(ALL_DAYS) - 1 - int(day)
        if self._kind in {"date", "day"} and self._chance(0.3):
            return self._random.choice(
                [f"date_sub(current_date, {back})", f"date_add(current_date(), -{back})"]
            )
        if self._kind == "date" and self._chance(0.3):
            return f"DATE '{text}'"
        return text if self._kind == "int" and self._chance(0.7) else f"'{text}'"

    def _entry(self, source: str, days: Days) -> str:
        self._aliases += 1
        alias = f"a{self._aliases}"
        if days is None and not source.startswith("("):
            return f"{source} AS {alias}"
        return f"({self._query(source, days)}) AS {alias}"

    def _sql(self, sources: Sequence[str], outputs: Sequence[tuple[str, str | None]], condition: str) -> str:
        clause = " CROSS JOIN ".join(sources) or "(SELECT 1 AS x) AS nothing"
        common = f"WITH {', '.join(self._common)} " if self._common else ""
        heads = [self._head(name, day) for name, day in outputs]
        if self._chance(0.1):
            # A directory is in no cluster.
            local = self._random.choice(["", "LOCAL "])
            heads.insert(self._random.randint(0, len(heads)), f"INSERT OVERWRITE {local}DIRECTORY '/out'")
        if not heads:
            return f"{common}SELECT * FROM {clause}{condition}"
        if len(heads) == 1 and self._chance(0.5):
            return f"{common}{heads[0]} SELECT * FROM {clause}{condition}"
        first, *others = heads
        inserts = " ".join([f"{first} SELECT *{condition}", *(f"{head} SELECT *" for head in others)])
        return f"{common}FROM {clause} {inserts}"

    def _head(self, name: str, day: str | None) -> str:
        verb = self._random.choice(["INSERT INTO TABLE", "INSERT INTO", "INSERT OVERWRITE TABLE"])
        absent = day is not None and verb == "INSERT OVERWRITE TABLE" and self._chance(0.5)
        return f"{verb} {name}{self._partition(name, day)}{' IF NOT EXISTS' if absent else ''}"

    def _partition(self, name: str, day: str | None) -> str:
        if day is not None:
            text = key_text(self._kind, day)
            return f" PARTITION (ds = {text})" if self._kind == "int" else f" PARTITION (ds = '{text}')"
        # Dynamic, with and without the clause.
        return " PARTITION (ds)" if name in self._partitioned and self._chance(0.5) else ""


def key_text(kind: str, day: str) -> str:
    """Return the metastore's text of a key's value."""
    if day == DEFAULT_PARTITION or kind in {"string", "int"}:
        return day
    return str(TODAY - timedelta(days=len(ALL_DAYS) - 1 - int(day)))


def both(first: Days, second: Days) -> Days:
    """Return the days that two filters leave."""
    if first is None or second is None:
        return second if first is None else first
    return tuple(day for day in first if day in second)


class Catalogs(_Chance):
    """A random catalog and session from one seed."""

    def case(self, statement: Written) -> Case:
        tables = {name: self._table(name, name in statement.partitioned) for name in TABLES}
        session = self._random.choice([*NAMES, "C9"]) if self._chance(0.25) else None
        return Case(statement, tables, session, use_default=self._chance(0.9))

    def _table(self, name: str, partitioned: bool) -> Table:
        own = self._random_partition() if self._chance(0.85) else None
        if not partitioned:
            return Table(name, own, None)
        days = list(ALL_DAYS[: self._random.randint(0, 6)])
        if self._chance(0.2):
            # Its key is null, so that no filter is true for it.
            days.append(DEFAULT_PARTITION)
        return Table(name, own, {day: self._part(own) for day in days})

    def _part(self, own: Partition | None) -> Partition | None:
        if self._chance(0.15):
            return None
        same = own is not None and self._chance(0.9)
        return self._random_partition(own.primary if same and own is not None else None)

    def _random_partition(self, primary: str | None = None) -> Partition:
        primary = primary or (GONE if self._chance(0.02) else self._random.choice(NAMES[:3]))
        others = [name for name in NAMES if name != primary and self._chance(0.5)]
        stale = frozenset(name for name in others if self._chance(0.2))
        return Partition(primary, frozenset(others) - stale, stale, self._random.randint(0, 9))


def in_cluster(case: Case, partition: Partition | None, name: str, cluster: str) -> bool:
    if partition is None:
        return cluster == case.primary(name)
    return cluster == partition.primary or cluster in partition.fresh


def partitions_read(table: Table, days: Days) -> dict[str, Partition | None]:
    if table.parts is None:
        return {"": table.own}
    return {day: part for day, part in table.parts.items() if days is None or day in days}


def can_run(case: Case, cluster: str) -> bool:
    """Return whether each rule of the design allows the statement in a cluster."""
    if cluster not in NAMES:
        return False
    for name, day in case.statement.outputs:
        if any(primary != cluster for primary in output_primaries(case, name, day)):
            return False
    for name, days in case.statement.inputs:
        partitions = partitions_read(case.tables[name], days).values()
        if not all(in_cluster(case, partition, name, cluster) for partition in partitions):
            return False
    return True


def output_primaries(case: Case, name: str, day: str | None) -> set[str]:
    table = case.tables.get(name)
    if table is None:
        return set()
    written = {
        part.primary
        for value, part in (table.parts or {}).items()
        if part is not None and day in {None, value}
    }
    return written | {str(case.primary(name))}


def model(case: Case) -> str | None:
    """Return the cluster of the design; ``None`` for its error."""
    if case.session is not None and case.session not in NAMES:
        return None
    used = {name for name, _ in (*case.statement.inputs, *case.statement.outputs)} & case.tables.keys()
    if any(case.primary(name) is None for name in used):
        return None
    if case.session is not None:
        return case.session if can_run(case, case.session) else None
    primaries = set().union(*(output_primaries(case, *output) for output in case.statement.outputs))
    if len(primaries) > 1:
        return None
    if primaries:
        (only,) = primaries
        return only if can_run(case, only) else None
    tried = [str(case.primary(name)) for name, _ in case.statement.inputs]
    return next((cluster for cluster in tried or ["C1"] if can_run(case, cluster)), None)


def cheapest(case: Case, candidates: Sequence[str]) -> int:
    """Return the fewest bytes that must be copied, by trying each cluster."""
    costs = []
    for cluster in candidates:
        missing: dict[tuple[str, str], int] = {}
        for name, days in case.statement.inputs:
            for day, partition in partitions_read(case.tables[name], days).items():
                if not in_cluster(case, partition, name, cluster):
                    missing[name, day] = partition.size if partition is not None else 0
        costs.append(sum(missing.values()))
    return min(costs)


def catalog_of(case: Case) -> Catalog:
    made, kind = Catalog(), case.statement.kind
    for view, (text, columns) in case.statement.views.items():
        made.add_view(view, text, *columns)
    for table in case.tables.values():
        own = table.own.placement() if table.own else None
        if table.parts is None:
            made.add(table.name, own, size=table.own.size if table.own else 0)
            continue
        made.add_partitioned(
            table.name,
            own,
            [("ds", kind if kind in {"int", "date"} else "string")],
            {(key_text(kind, day),): part.placement() if part else None for day, part in table.parts.items()},
        )
        rows = made.rows["default", table.name]
        sizes = [part.size if part else 0 for part in table.parts.values()]
        made.rows["default", table.name] = type(rows).of(
            type(row)(row.values, row.placement, size) for row, size in zip(rows, sizes, strict=True)
        )
    return made


@lru_cache(maxsize=1)
def _statement(seed: int) -> Written:
    return Statements(f"statement {seed}").statement()


def compare(seed: int) -> str:
    """Compare the router with the model; return the kind of the case.

    :raises AssertionError: they differ.
    """
    case = Catalogs(seed).case(_statement(seed // CATALOGS))
    clusters = Clusters(names=NAMES, default="C1", use_default=case.use_default)
    session = Session(cluster=case.session)
    decision = decide(case.statement.sql, catalog_of(case), clusters, session, today=[TODAY])
    assert decision.unanalysable is None, (seed, case.statement.sql, decision.reason)
    assert decision.cluster == model(case), (seed, case, decision)
    plan = cheapest_copies(decision)
    if plan is not None:
        candidates = [attempt.cluster for attempt in decision.attempts if attempt.cluster in NAMES]
        assert plan.bytes == cheapest(case, candidates), (seed, case, plan)
    return "refused" if decision.cluster is None else str(decision.rule)
