"""``hive-federation replicate plan`` and ``status``: print the next cycle and the state of a replication."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from airflow_hive_federation.cli.connecting import common_storage_options, end_for
from airflow_hive_federation.cli.published import CommandState
from airflow_hive_federation.cli.tables import print_table
from airflow_hive_federation.progress.quantities import duration, rate, several, size
from airflow_hive_federation.replication.policy import ReplicationPolicy

if TYPE_CHECKING:
    from airflow_hive_federation.replication.cycle_plan import CyclePlan
    from airflow_hive_federation.replication.status import ReplicationStatus

#: Connections per metastore.
_CONNECTIONS = 4
_NAMES_SHOWN = 3


def show(action: str, policy: ReplicationPolicy, source: str, target: str, *, as_json: bool) -> int:
    """Print a plan or a status.

    :param source: the metastore of the source: URIs, or the id of an Airflow connection.
    :param target: the metastore of the target, likewise.
    """
    from airflow_hive_federation.metastore import MetastorePool
    from airflow_hive_federation.replication.cycle_plan import plan_cycle
    from airflow_hive_federation.replication.status import read_status

    ends = end_for(source), end_for(target)
    policy = replace(policy, storage_options=common_storage_options(*ends))
    with (
        MetastorePool(ends[0].settings, _CONNECTIONS) as from_pool,
        MetastorePool(ends[1].settings, _CONNECTIONS) as to_pool,
    ):
        if action == "plan":
            plan = plan_cycle(from_pool, to_pool, policy)
            print(json.dumps(plan.to_json())) if as_json else print_plan(plan)
        else:
            state = CommandState(policy=policy, command="replicate status")
            with state.failures():
                status = read_status(from_pool, to_pool, policy)
            state.status(status)
            print(json.dumps(status.to_json())) if as_json else print_status(status)
    return 0


_CYCLE_COLUMNS = (
    "Cycle ended",
    "Kind",
    "Event",
    "Events",
    "Transactions",
    "Tables",
    "Files",
    "Size",
    "Time",
    "Rate",
)
_NUMBERS = frozenset({"Event", "Events", "Transactions", "Tables", "Files", "Size", "Time", "Rate", "Lag"})


def print_plan(plan: CyclePlan) -> None:
    """Print the actions of the next cycle."""
    states = {
        "bootstrap": f"is not published: a bootstrap at event {plan.event_id}",
        "increment": f"would take {several(plan.events, 'event')} and "
        f"{several(plan.transactions, 'transaction')}, up to event {plan.event_id}",
        "idle": f"is up to date at event {plan.event_id}: nothing to do",
    }
    print(f"Database {plan.database} {states[plan.kind]}")
    _print_skipped(plan.skipped, plan.retained)
    if plan.waits_for:
        print(f"It would wait for transactions {', '.join(map(str, plan.waits_for))}")
    for dump in plan.unfinished:
        print(f"The load of {dump} is unfinished: the cycle repeats its work")
    if plan.tables:
        print_table(
            ("Table", "Action", "Files", "Size", "Details"),
            (
                (
                    table.name,
                    table.action,
                    f"{table.files:,}",
                    size(table.size_bytes),
                    "; ".join(
                        filter(
                            None,
                            (
                                _several("new partitions", table.partitions_added),
                                _several("partitions dropped", table.partitions_dropped),
                                _several("changed", table.changes),
                            ),
                        )
                    ),
                )
                for table in plan.tables
            ),
            numbers=_NUMBERS,
        )


def print_status(status: ReplicationStatus) -> None:
    """Print the state of a target."""
    at = f" at event {status.event_id}" if status.event_id is not None else ""
    print(f"Database {status.database} is {status.state}{at}")
    if status.running:
        print(f"A cycle is at work: {status.running}")
    if status.source_error:
        print(f"The source does not answer: {status.source_error}")
    if status.blocked:
        print(f"The next cycle would stop: {status.blocked}")
    _print_skipped(status.skipped, status.retained)
    if status.lag:
        print(
            f"The source is at event {status.source_event_id}; behind by "
            f"{several(status.lag.events, 'event')}, {duration(status.lag.seconds)}"
        )
    if status.tables:
        print_table(
            ("Table", "Events", "Lag", "Size"),
            (
                (table.name, f"{table.events:,}", duration(table.seconds), size(table.size_bytes))
                for table in status.tables
            ),
            numbers=_NUMBERS,
        )
    if status.cycles:
        print_table(
            _CYCLE_COLUMNS,
            (
                (
                    time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(cycle.ended_s)),
                    cycle.kind if cycle.cycles == 1 else f"{cycle.kind}, {cycle.cycles} times",
                    *(
                        f"{value:,}"
                        for value in (cycle.event_id, cycle.events, cycle.transactions, cycle.tables)
                    ),
                    f"{cycle.files:,}",
                    size(cycle.size_bytes),
                    duration(cycle.seconds),
                    rate(cycle.bytes_per_s),
                )
                for cycle in status.cycles
            ),
            numbers=_NUMBERS,
        )


def _print_skipped(skipped: Mapping[str, str], retained: Collection[str]) -> None:
    for name, reason in sorted(skipped.items()):
        print(f"Not replicated: {name}: {reason}" + ("; its replica is kept" if name in retained else ""))


def _several(noun: str, names: Sequence[str]) -> str:
    if not names:
        return ""
    more = f" and {len(names) - _NAMES_SHOWN:,} more" if len(names) > _NAMES_SHOWN else ""
    return f"{noun}: {', '.join(names[:_NAMES_SHOWN])}{more}"
