"""Advice on copies, from the statements that were routed in the last days. Pure.

Statements are grouped by their template. Each run of a statement that no cluster can run would read, in the
cluster where it lacks the fewest bytes, these bytes from other sites. A copy crosses sites once, and then
with each change of the primary. It helps if that is less than what the statements would read. So recurring
statements count, and a table that nobody has read for the period is never advised (Moirai, SOSP 2025); recent
partitions matter most, and are advised as windows, "last 30 days of T in C" (Yugong, VLDB 2019).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import date

from airflow_hive_federation.clusters.advice_choice import choose
from airflow_hive_federation.clusters.advice_demand import (
    Demand,
    Elements,
    demand_of,
    groups_of,
    reason_to_leave_out,
)
from airflow_hive_federation.clusters.advice_records import StatementRecord
from airflow_hive_federation.clusters.advice_result import Advice, LeftOut
from airflow_hive_federation.clusters.advice_tables import TableNow, table_now
from airflow_hive_federation.clusters.placement import CatalogFacts, Clusters

#: Groups that are considered: those that would read the most.
MAX_GROUPS = 300


def advise(
    records: Iterable[StatementRecord],
    catalog: CatalogFacts,
    clusters: Clusters,
    *,
    today: date,
    days: int = 7,
    budget_bytes: int | None = None,
    refused: Mapping[str, str] | None = None,
) -> Advice:
    """Say which copies would save bytes across sites.

    :param records: of the period only.
    :param catalog: sizes and places of tables and partitions, as they are now.
    :param today: the day that windows are counted from.
    :param days: the length of the period.
    :param budget_bytes: bytes that may be copied in the period; ``None`` is without limit.
    :param refused: tables that cannot be copied, with the reason.
    """
    runs = _once_per_run(records)
    tables = _tables(runs, catalog, clusters, today, refused or {})
    groups = groups_of(runs, tables)
    demands: list[Demand] = []
    left_out: list[LeftOut] = []
    for group in groups:
        if why := reason_to_leave_out(group):
            left_out.append(group.left_out(why, None))
        elif (demand := demand_of(group)) is not None:
            demands.append(demand)
    demands.sort(key=lambda one: (-one.saved, one.group.digest))
    left_out += [one.group.left_out("other statements read more", one.saved) for one in demands[MAX_GROUPS:]]
    pool = Elements(tables, demands[:MAX_GROUPS], _versions(runs), days)
    choice = choose(pool.bundles, pool.costs, budget_bytes)
    left_out += pool.unserved(choice)
    return Advice(
        days=days,
        budget_bytes=budget_bytes,
        copies=tuple(sorted(pool.copies(choice), key=lambda one: (-one.rate, one.table, one.cluster))),
        left_out=tuple(sorted(left_out, key=lambda one: (-(one.crossing_bytes or 0), one.template))),
        statements=len({one.digest for one in runs}),
        runs=len(runs),
        refused=sum(one.cluster is None for one in runs),
        crossing_bytes=sum(one.saved for one in demands),
    )


def _once_per_run(records: Iterable[StatementRecord]) -> list[StatementRecord]:
    """The last record of each statement of each run: a task that was retried reads its tables once."""
    found: dict[object, StatementRecord] = {}
    for one in sorted(records, key=lambda one: one.time):
        parts = tuple((read.table, read.values, read.spans) for read in one.reads)
        found[one.run, one.digest, parts] = one
    return list(found.values())


def _tables(
    runs: Sequence[StatementRecord],
    catalog: CatalogFacts,
    clusters: Clusters,
    today: date,
    refused: Mapping[str, str],
) -> dict[str, TableNow]:
    names = sorted({read.table for one in runs for read in one.reads})
    found = {name: table_now(name, catalog, clusters, today, refused=refused.get(name, "")) for name in names}
    return {name: table for name, table in found.items() if table is not None}


def _versions(runs: Sequence[StatementRecord]) -> dict[str, int]:
    """How often each table without partitions has had another size than before."""
    sizes: defaultdict[str, list[int]] = defaultdict(list)
    for one in sorted(runs, key=lambda one: one.time):
        for read in one.reads:
            if read.partitions is None and read.bytes is not None:
                before = sizes[read.table]
                if before[-1:] != [read.bytes]:
                    before.append(read.bytes)
    return {name: len(found) - 1 for name, found in sizes.items()}
