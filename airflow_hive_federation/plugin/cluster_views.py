"""Turns published documents about clusters into rows of the page. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict

from airflow_hive_federation.errors import divided
from airflow_hive_federation.plugin.views import Health, Row
from airflow_hive_federation.published.clusters import (
    ClusterRoutes,
    DatabaseTables,
    PlacedTable,
    PublishedRoute,
)

#: The field of a light row that holds the table itself.
_TABLE = "table"


def table_rows(
    key: str, state: DatabaseTables | None, problem: str, readable: Callable[[str], bool], *, now_s: float
) -> Iterator[Row]:
    """Yield a light row per table of a database; :func:`filled` completes the ones that are shown.

    :param problem: the reason for which the document of the database cannot be read.
    :param readable: decides whether the user may read a DAG.
    :param now_s: the present time, in seconds since 1970.
    """
    if state is None:
        reason, remedy = divided(problem)
        yield {"key": key, "name": key, "health": Health.UNREADABLE, "reason": reason, "remedy": remedy}
        return
    for table in state.tables:
        if not table.by.dag_id or readable(table.by.dag_id):
            yield _light_row(key, state.metastore, table, now_s)


def _light_row(key: str, metastore: str, table: PlacedTable, now_s: float) -> Row:
    stale = [copy for copy in table.copies if copy.stale]
    since_s = [copy.lacks_since_s for copy in stale if copy.lacks_since_s is not None]
    return {
        "key": f"{key}/{table.name}",
        "name": table.name,
        "health": _health(table),
        "metastore": metastore,
        "primary": table.primary,
        "copied_to": " ".join(copy.cluster for copy in table.copies),
        "stale": sum(copy.stale for copy in stale),
        "behind_s": now_s - min(since_s) if since_s else None,
        "looked_s": table.looked_s,
        _TABLE: table,
    }


def _health(table: PlacedTable) -> Health:
    if table.error:
        return Health.BROKEN
    if table.problem:
        return Health.UNREADABLE
    if any(copy.stale for copy in table.copies):
        return Health.STALE
    return Health.IN_STEP if table.copies else Health.NO_COPY


def filled(row: Row) -> Row:
    """Return a light row with all that the page shows of it."""
    table = row.get(_TABLE)
    if not isinstance(table, PlacedTable):
        return row
    shown = {name: value for name, value in row.items() if name != _TABLE}
    reason, remedy = (table.error, table.remedy) if table.error else divided(table.problem)
    return {
        **shown,
        "assigned": table.assigned,
        "partitions": table.partitions,
        "copies": [asdict(copy) for copy in table.copies],
        "failures": table.failures,
        "reason": reason,
        "remedy": remedy,
        "by": asdict(table.by),
    }


def summary(rows: Iterable[Row]) -> list[dict[str, object]]:
    """Return per cluster its number of tables, of tables with copies there, and of those that are stale."""
    found: dict[str, dict[str, int]] = {}

    def count(cluster: str, what: str) -> None:
        counts = found.setdefault(cluster, {"tables": 0, "copies": 0, "stale": 0})
        counts[what] += 1

    for row in rows:
        table = row.get(_TABLE)
        if not isinstance(table, PlacedTable):
            continue
        if table.primary:
            count(table.primary, "tables")
        for copy in table.copies:
            count(copy.cluster, "copies")
            if copy.stale:
                count(copy.cluster, "stale")
    return [{"name": name, **found[name]} for name in sorted(found)]


def route_rows(
    documents: Iterable[tuple[str, ClusterRoutes | None, str]], readable: Callable[[str], bool]
) -> list[Row]:
    """Return a row per route, the last one first.

    :param documents: the key of each metastore, its document, or the reason why it cannot be read.
    :param readable: decides whether the user may read a DAG.
    """
    rows: list[Row] = []
    for key, state, problem in documents:
        if state is None:
            reason, remedy = divided(problem)
            rows.append({"key": key, "metastore": key, "reason": reason, "remedy": remedy, "tables": []})
            continue
        rows.extend(
            _route_row(state.metastore, route)
            for route in state.routes
            if not route.by.dag_id or readable(route.by.dag_id)
        )
    return sorted(rows, key=_last_first)


def _route_row(metastore: str, route: PublishedRoute) -> Row:
    lines = list(route.lines)
    return {
        "metastore": metastore,
        "at_s": route.at_s,
        "cluster": route.cluster,
        "rule": route.rule,
        # The second line has the deciding rule with its reason.
        "reason": route.refused or next(iter(lines[1:]), ""),
        "refused": bool(route.refused),
        "tables": list(route.tables),
        "lines": lines,
        "by": asdict(route.by),
    }


def _last_first(row: Mapping[str, object]) -> float:
    at_s = row.get("at_s")
    return -at_s if isinstance(at_s, int | float) else float("-inf")
