"""A model of the routing rules, written beside the design.

A seed is a case: a statement, a catalog and a session. The cases of :data:`CATALOGS` seeds in a row share
their statement, which takes longer to parse than to route.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from airflow_hive_federation.clusters.placement import Clusters, Copy, Placement, Session
from airflow_hive_federation.clusters.routing.explain import cheapest_copies
from airflow_hive_federation.clusters.routing.route import Policy, decide
from airflow_hive_federation.model.partitions import DEFAULT_PARTITION
from tests.support.catalogs import Catalog
from tests.support.routing_cases import TEMPORARY, Input, Statements, Written
from tests.support.routing_filters import ALL_DAYS, ALL_HOURS, TABLES, TODAY, Chance, Parts, key_text

NAMES = ("C1", "C2", "C3", "C4")
#: The cluster of a few tables, which is not configured any more.
GONE = "C8"
CATALOGS = 10


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
class Case:
    """A statement, a catalog and a session, as the model knows them."""

    statement: Written
    tables: dict[str, Table]
    session: str | None
    use_default: bool
    temporary: dict[str, str]
    policy: Policy

    def primary(self, name: str) -> str | None:
        """Return the primary cluster of a table; ``None`` if it is in no cluster."""
        own = self.tables[name].own
        return own.primary if own is not None else "C1" if self.use_default else None

    def hidden_by(self, read: Input) -> str | None:
        """Return the cluster of the temporary table that an input reads in place of the metastore's."""
        return None if read.viewed else self.temporary.get(read.table)

    def parts_of(self, read: Input) -> Parts:
        """Return the parts that the filters on an input leave."""
        return read.within if not read.viewed and read.beside in self.temporary else read.parts


class Catalogs(Chance):
    """A random catalog and session from one seed."""

    def case(self, statement: Written) -> Case:
        tables = {name: self._table(name, statement.keys[name]) for name in TABLES}
        session = self._random.choice([*NAMES, "C9"]) if self._chance(0.25) else None
        temporary = {}
        if self._chance(0.2):
            names = {TEMPORARY, self._random.choice([TEMPORARY, *TABLES])}
            temporary = {name: self._cluster() for name in sorted(names)}
        return Case(
            statement,
            tables,
            session,
            use_default=self._chance(0.9),
            temporary=temporary,
            policy=Policy.DEFAULT if self._chance(0.3) else Policy.STRICT,
        )

    def _cluster(self) -> str:
        return GONE if self._chance(0.02) else self._random.choice(NAMES[:3])

    def _table(self, name: str, keys: int) -> Table:
        own = self._random_partition() if self._chance(0.85) else None
        if not keys:
            return Table(name, own, None)
        days = list(ALL_DAYS[: self._random.randint(0, 6)])
        if self._chance(0.2):
            # Its key is null, so that no filter is true for it.
            days.append(DEFAULT_PARTITION)
        parts = (
            [f"{day}/{hour}" for day in days for hour in ALL_HOURS if self._chance(0.8)]
            if keys == 2
            else days
        )
        return Table(name, own, {part: self._part(own) for part in parts})

    def _part(self, own: Partition | None) -> Partition | None:
        if self._chance(0.15):
            return None
        same = own is not None and self._chance(0.9)
        return self._random_partition(own.primary if same and own is not None else None)

    def _random_partition(self, primary: str | None = None) -> Partition:
        primary = primary or self._cluster()
        others = [name for name in NAMES if name != primary and self._chance(0.5)]
        stale = frozenset(name for name in others if self._chance(0.2))
        return Partition(primary, frozenset(others) - stale, stale, self._random.randint(0, 9))


def in_cluster(case: Case, partition: Partition | None, name: str, cluster: str) -> bool:
    if partition is None:
        return cluster == case.primary(name)
    return cluster == partition.primary or cluster in partition.fresh


def partitions_read(table: Table, parts: Parts) -> dict[str, Partition | None]:
    if table.parts is None:
        return {"": table.own}
    return {part: facts for part, facts in table.parts.items() if parts is None or part in parts}


def can_run(case: Case, cluster: str) -> bool:
    """Return whether each rule of the design allows the statement in a cluster."""
    return can_write(case, cluster) and not missing(case, cluster)


def can_write(case: Case, cluster: str) -> bool:
    """Return whether a cluster is configured, and may write all outputs and read all temporary tables."""
    if cluster not in NAMES or any(
        home not in {None, cluster} for home in map(case.hidden_by, case.statement.inputs)
    ):
        return False
    return all(output_primaries(case, *output) <= {cluster} for output in case.statement.outputs)


def missing(case: Case, cluster: str) -> dict[tuple[str, str], int]:
    """Return the tables and partitions that are read, and that a cluster lacks, with their sizes."""
    lacking = {}
    for read in case.statement.inputs:
        if case.hidden_by(read) is None:
            for part, partition in partitions_read(case.tables[read.table], case.parts_of(read)).items():
                if not in_cluster(case, partition, read.table, cluster):
                    lacking[read.table, part] = partition.size if partition is not None else 0
    return lacking


def output_primaries(case: Case, name: str, day: str | None) -> set[str]:
    if name in case.temporary:
        return {case.temporary[name]}
    table = case.tables.get(name)
    if table is None:
        return set()
    written = {
        part.primary
        for value, part in (table.parts or {}).items()
        if part is not None and (day in {None, value} or value.startswith(f"{day}/"))
    }
    return written | {str(case.primary(name))}


def candidates_of(case: Case) -> list[str]:
    """Return the clusters that the design tries, in their order; none for a statement refused before."""
    statement = case.statement
    plain = [read.table for read in statement.inputs if case.hidden_by(read) is None]
    if any(name not in case.tables for name in plain):
        return []
    written = [name for name, _ in statement.outputs if name in case.tables and name not in case.temporary]
    if any(case.primary(name) is None for name in (*plain, *written)):
        return []
    primaries = set().union(*(output_primaries(case, *output) for output in statement.outputs))
    if len(primaries) > 1:
        return []
    if case.session is not None:
        return [case.session]
    if primaries:
        return list(primaries)
    return [str(case.hidden_by(read) or case.primary(read.table)) for read in statement.inputs] or ["C1"]


def model(case: Case) -> str | None:
    """Return the cluster of the design; ``None`` for its error."""
    if case.session is not None and case.session not in NAMES:
        return None
    if not case.statement.analysable:
        return None if case.policy is Policy.STRICT else case.session or "C1"
    return next((cluster for cluster in candidates_of(case) if can_run(case, cluster)), None)


def cheapest(case: Case) -> int | None:
    """Return the fewest bytes that must be copied, by trying each cluster; ``None`` if no copies help."""
    return min(
        (sum(missing(case, cluster).values()) for cluster in candidates_of(case) if can_write(case, cluster)),
        default=None,
    )


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
            [("ds", kind if kind in {"int", "date"} else "string"), ("hr", "int")][
                : case.statement.keys[table.name]
            ],
            {_values(kind, key): part.placement() if part else None for key, part in table.parts.items()},
        )
        rows = made.rows["default", table.name]
        sizes = [part.size if part else 0 for part in table.parts.values()]
        made.rows["default", table.name] = type(rows).of(
            type(row)(row.values, row.placement, size) for row, size in zip(rows, sizes, strict=True)
        )
    return made


def _values(kind: str, part: str) -> tuple[str, ...]:
    day, *hour = part.split("/")
    return (key_text(kind, day), *hour)


@lru_cache(maxsize=1)
def _statement(seed: int) -> Written:
    return Statements(f"statement {seed}").statement()


def compare(seed: int) -> str:
    """Compare the router with the model; return the kind of the case.

    :raises AssertionError: they differ.
    """
    case = Catalogs(seed).case(_statement(seed // CATALOGS))
    clusters = Clusters(names=NAMES, default="C1", use_default=case.use_default)
    session = Session(cluster=case.session, temporary=case.temporary)
    sql, catalog = case.statement.sql, catalog_of(case)
    decision = decide(sql, catalog, clusters, session, policy=case.policy, today=[TODAY])
    known = case.session is None or case.session in NAMES
    assert (decision.unanalysable is None) == (case.statement.analysable or not known), (
        seed,
        sql,
        decision.reason,
    )
    assert decision.cluster == model(case), (seed, case, decision)
    if decision.cluster is None:
        plan, fewest = (
            cheapest_copies(decision),
            cheapest(case) if known and case.statement.analysable else None,
        )
        assert (plan and plan.bytes) == fewest, (seed, case, plan, fewest)
        return "refused"
    return str(decision.rule)
