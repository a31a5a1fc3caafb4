"""Keeps decisions until a table that they depend on changes."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from datetime import date

from airflow_hive_federation.clusters.placement import (
    CatalogFacts,
    Clusters,
    PartitionFacts,
    Session,
    TableFacts,
)
from airflow_hive_federation.clusters.routing.decision import Decision
from airflow_hive_federation.clusters.routing.route import Policy, decide, failure, possible_days
from airflow_hive_federation.clusters.statements.templates import template


@dataclass
class _Recorded:
    """A catalog that records the version of each table that routing reads."""

    catalog: CatalogFacts
    versions: dict[tuple[str, str], str | None] = field(default_factory=dict)

    def table(self, database: str, name: str) -> TableFacts | None:
        facts = self.catalog.table(database, name)
        self.versions[database, name] = facts.version if facts is not None else None
        return facts

    def partitions(self, table: TableFacts) -> Sequence[PartitionFacts]:
        return self.catalog.partitions(table)


@dataclass(frozen=True)
class _Kept:
    decision: Decision
    versions: tuple[tuple[str, str, str | None], ...]


class Router:
    """Routes statements, and keeps decisions by statement, session, day and the versions of the tables.

    Statements that differ only in layout, comments and the case of names share one decision. A decision is
    not kept if its tables have no versions, or if the statement cannot be analysed. Threads may share a
    router.

    :param size: the largest number of decisions that are kept.
    """

    def __init__(self, clusters: Clusters, *, policy: Policy = Policy.STRICT, size: int = 1024) -> None:
        self.clusters = clusters
        self.policy = policy
        self._size = size
        self._kept: OrderedDict[Hashable, _Kept] = OrderedDict()
        self._lock = threading.Lock()
        self.hits = 0

    def route(
        self, text: str, catalog: CatalogFacts, session: Session | None = None, *, today: Sequence[date] = ()
    ) -> Decision:
        """Choose a cluster as :func:`~airflow_hive_federation.clusters.routing.route.route` does."""
        decision = self.decide(text, catalog, session, today=today)
        if decision.cluster is None:
            raise failure(decision, self.clusters)
        return decision

    def decide(
        self, text: str, catalog: CatalogFacts, session: Session | None = None, *, today: Sequence[date] = ()
    ) -> Decision:
        """Return the decision of :func:`~airflow_hive_federation.clusters.routing.route.decide`."""
        session = session or Session()
        days = tuple(today) or possible_days()
        key = (
            template(text),
            session.database,
            session.cluster,
            tuple(sorted(session.temporary.items())),
            days,
        )
        with self._lock:
            entry = self._kept.get(key)
        if entry is not None and _holds(entry, catalog):
            self.hits += 1
            return entry.decision
        recorded = _Recorded(catalog)
        decision = decide(text, recorded, self.clusters, session, policy=self.policy, today=days)
        # The place of a construct that cannot be analysed depends on the statement's layout.
        if decision.unanalysable is None and "" not in recorded.versions.values():
            versions = tuple((*name, version) for name, version in recorded.versions.items())
            self._keep(key, _Kept(decision, versions))
        return decision

    def _keep(self, key: Hashable, kept: _Kept) -> None:
        with self._lock:
            self._kept[key] = kept
            self._kept.move_to_end(key)
            while len(self._kept) > self._size:
                self._kept.popitem(last=False)


def _holds(kept: _Kept, catalog: CatalogFacts) -> bool:
    for database, name, version in kept.versions:
        facts = catalog.table(database, name)
        if (facts.version if facts is not None else None) != version:
            return False
    return True
