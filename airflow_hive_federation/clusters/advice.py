"""Advises copies of tables, based on the statements that were routed in the last days. Pure.

Statements are grouped by their template. If no cluster can run a statement, each run of it would read bytes
from other sites; these bytes are counted for the cluster that lacks the fewest. A copy crosses sites once,
and again with each change of the primary. The copy helps if it transfers fewer bytes than the statements
would read. Therefore only recurring statements count, and a table without reads in the period is never
advised (Moirai, SOSP 2025). Recent partitions matter most, and are advised as windows, "last 30 days of T in
C" (Yugong, VLDB 2019).
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

#: The number of groups that are considered, namely those that would read the most.
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
    """Choose the copies that would save the most bytes across sites.

    :param records: the records of the period, and no others.
    :param catalog: the present sizes and locations of tables and partitions.
    :param today: the day from which windows are counted.
    :param days: the length of the period.
    :param budget_bytes: the bytes that may be copied in the period; ``None`` means no limit.
    :param refused: the tables that cannot be copied, with the reasons.
    """
    runs = _once_per_run(records)
    tables = _tables(runs, catalog, clusters, today, refused or {})
    groups = groups_of(runs, tables)
    demands: list[Demand] = []
    left_out: list[LeftOut] = []
    for group in groups:
        if reason := reason_to_leave_out(group):
            left_out.append(group.left_out(reason, None))
        elif (demand := demand_of(group)) is not None:
            demands.append(demand)
    demands.sort(key=lambda lack: (-lack.saved, lack.group.digest))
    left_out += [
        rest.group.left_out("other statements read more", rest.saved) for rest in demands[MAX_GROUPS:]
    ]
    pool = Elements(tables, demands[:MAX_GROUPS], _versions(runs), days)
    choice = choose(pool.bundles, pool.costs, budget_bytes)
    left_out += pool.unserved(choice)
    return Advice(
        days=days,
        budget_bytes=budget_bytes,
        copies=tuple(sorted(pool.copies(choice), key=lambda copy: (-copy.rate, copy.table, copy.cluster))),
        left_out=tuple(sorted(left_out, key=lambda entry: (-(entry.crossing_bytes or 0), entry.template))),
        statements=len({run.digest for run in runs}),
        runs=len(runs),
        refused=sum(run.cluster is None for run in runs),
        crossing_bytes=sum(lack.saved for lack in demands),
    )


def _once_per_run(records: Iterable[StatementRecord]) -> list[StatementRecord]:
    """Return the last record of each statement of each run: a task and its retries count as one read."""
    last_records: dict[object, StatementRecord] = {}
    for record in sorted(records, key=lambda record: record.time):
        parts = tuple((read.table, read.values, read.spans) for read in record.reads)
        last_records[record.run, record.digest, parts] = record
    return list(last_records.values())


def _tables(
    runs: Sequence[StatementRecord],
    catalog: CatalogFacts,
    clusters: Clusters,
    today: date,
    refused: Mapping[str, str],
) -> dict[str, TableNow]:
    names = sorted({read.table for run in runs for read in run.reads})
    tables = {
        name: table_now(name, catalog, clusters, today, refused=refused.get(name, "")) for name in names
    }
    return {name: table for name, table in tables.items() if table is not None}


def _versions(runs: Sequence[StatementRecord]) -> dict[str, int]:
    """Return the number of size changes of each unpartitioned table."""
    sizes: defaultdict[str, list[int]] = defaultdict(list)
    for run in sorted(runs, key=lambda run: run.time):
        for read in run.reads:
            if read.partitions is None and read.bytes is not None:
                before = sizes[read.table]
                if before[-1:] != [read.bytes]:
                    before.append(read.bytes)
    return {name: len(run_sizes) - 1 for name, run_sizes in sizes.items()}
