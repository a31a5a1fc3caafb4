"""Routing: a thousand queries of ten tables, and a predicate over 100,000 partitions, beside sqlglot's
parser."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from statistics import median

from sqlglot import parse_one

from airflow_hive_federation.clusters.placement import (
    Clusters,
    Copy,
    PartitionFacts,
    Partitions,
    Placement,
    TableFacts,
)
from airflow_hive_federation.clusters.routing.cache import Router
from benchmarks.results import Result, faster, seconds

_QUERIES = 1000
_CLUSTERS = Clusters(names=("C1", "C2"), default="C1")
_BOTH = Placement(Copy("C1", "hdfs://one/t"), (Copy("C2", "hdfs://two/t"),))


@dataclass
class _Facts:
    tables: dict[str, TableFacts] = field(default_factory=dict)
    rows: dict[str, Partitions] = field(default_factory=dict)

    def table(self, database: str, name: str) -> TableFacts | None:
        return self.tables.get(name) if database == "default" else None

    def partitions(self, table: TableFacts) -> Sequence[PartitionFacts]:
        return self.rows[table.name]


def run(runs: int, partitions: int) -> Iterator[Result]:
    """Median of the processor's time of several runs; the facts are in memory, as they are between
    statements."""
    queries = [_query(number, 0) for number in range(_QUERIES)]
    others = [_query(number, number) for number in range(_QUERIES)]
    facts = _ten_tables()
    yield seconds(
        "routing",
        f"{_QUERIES} queries of ten tables that differ in a day, each routed once",
        ours_s=_median(runs, lambda: _route(queries, facts)),
        peer="sqlglot.parse_one",
        peer_s=_median(runs, lambda: [parse_one(query, read="hive") for query in queries]),
        at_most_s=2e-3 * _QUERIES,
    )
    router = Router(_CLUSTERS, size=_QUERIES)
    _route(queries, facts, router)
    yield seconds(
        "routing",
        f"{_QUERIES} queries of ten tables, all of them decided before",
        ours_s=_median(runs, lambda: _route(queries, facts, router)),
        peer="sqlglot.parse_one",
        peer_s=_median(runs, lambda: [parse_one(query, read="hive") for query in queries]),
        at_most_s=2e-4 * _QUERIES,
    )
    yield faster(
        "routing",
        f"{_QUERIES} queries of ten tables, each of another template",
        ours_s=_median(runs, lambda: _route(others, facts)),
        peer="sqlglot.parse_one",
        peer_s=_median(runs, lambda: [parse_one(query, read="hive") for query in others]),
        at_least=None,
    )
    many = _many_partitions(partitions)
    query = (
        "SELECT * FROM logs WHERE (ds >= date_sub(current_date, 30) AND hr IN ('0', '5', '7')"
        " OR concat(ds, '-', hr) = '2026-01-01-3') AND NOT ds LIKE '%-31'"
    )
    yield seconds(
        "routing",
        f"a predicate over {partitions:,} partitions",
        ours_s=_median(runs, lambda: _route([query], many)),
        peer="sqlglot.parse_one",
        peer_s=_median(runs, lambda: parse_one(query, read="hive")),
        at_most_s=0.5,
    )


def _median(runs: int, work: Callable[[], object]) -> float:
    seconds = []
    for _ in range(runs):
        # Nothing here waits, so the processor's time is that of a machine without other work.
        began = time.process_time()
        work()
        seconds.append(time.process_time() - began)
    return median(seconds)


def _route(queries: Sequence[str], facts: _Facts, router: Router | None = None) -> None:
    from airflow_hive_federation.clusters.statements.grammar import analyse

    if router is None:
        analyse.cache_clear()
        router = Router(_CLUSTERS)
    for query in queries:
        assert router.route(query, facts).cluster == "C1"


def _query(number: int, least: int) -> str:
    day = date(2024, 1, 1) + timedelta(days=number)
    joins = " ".join(f"JOIN t{n} ON t0.k = t{n}.k AND t{n}.ds = '{day}'" for n in range(1, 10))
    where = f"t0.ds = '{day}' AND t0.v > {least}"
    return f"SELECT t0.k, count(*), max(t3.v) FROM t0 {joins} WHERE {where} GROUP BY t0.k"


def _ten_tables() -> _Facts:
    facts = _Facts()
    days = [str(date(2024, 1, 1) + timedelta(days=day)) for day in range(1000)]
    for number in range(10):
        name = f"t{number}"
        facts.tables[name] = _partitioned(name, "ds")
        facts.rows[name] = Partitions.of(PartitionFacts((day,), _BOTH, 1 << 20) for day in days)
    return facts


def _many_partitions(count: int) -> _Facts:
    days = [str(date(2015, 1, 1) + timedelta(days=day)) for day in range(count // 24 + 1)]
    rows = [PartitionFacts((day, str(hour)), _BOTH, 1 << 20) for day in days for hour in range(24)]
    facts = _Facts()
    facts.tables["logs"] = _partitioned("logs", "ds", "hr")
    facts.rows["logs"] = Partitions.of(rows[:count])
    return facts


def _partitioned(name: str, *keys: str) -> TableFacts:
    return TableFacts(
        database="default",
        name=name,
        placement=_BOTH,
        partition_keys=tuple((key, "string") for key in keys),
        version="1",
    )
