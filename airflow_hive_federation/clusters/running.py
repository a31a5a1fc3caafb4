"""Routes statements by what a metastore says now, and by the files of the copies that would be read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow_hive_federation.clusters.catalog import MetastoreFacts, clusters_of
from airflow_hive_federation.clusters.placement import Session
from airflow_hive_federation.clusters.registry import ClusterRegistry
from airflow_hive_federation.clusters.routing import Policy, decide, failure
from airflow_hive_federation.clusters.routing_decision import Decision
from airflow_hive_federation.metastore import MetastoreClient


@dataclass(frozen=True, kw_only=True)
class LiveRouter:
    """Routes statements on the tables of one metastore.

    :param client: the metastore.
    :param registry: the clusters; at least one.
    :param policy: the fate of statements whose tables are not known for certain.
    :param check_files: list the files of primaries and copies before a copy is used. Without it, a write that
        the metastore does not know of, as Spark's to its own tables, is not seen.
    :param options: storage options of all clusters.
    """

    client: MetastoreClient
    registry: ClusterRegistry
    policy: Policy = Policy.STRICT
    check_files: bool = True
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def decide(self, text: str, session: Session) -> Decision:
        """Choose the cluster that runs a statement; one without a cluster says why there is none.

        :raises UnknownClusterError: no cluster is configured.
        :raises ClusterMetadataError: cluster metadata of a table in it is damaged.
        :raises StorageError: a directory cannot be listed.
        :raises MetastoreError: the metastore does not answer.
        """
        facts = MetastoreFacts(self.client, self.registry)
        clusters = clusters_of(self.registry)
        checked: set[tuple[str, str, str]] = set()
        while True:
            decision = decide(text, facts, clusters, session, policy=self.policy)
            used = _copies_used(decision, session) - checked if self.check_files else set()
            # Each of few tables is looked at once per cluster, so this ends.
            checked |= used
            if not used or not [
                one
                for database, name, cluster in sorted(used)
                for one in facts.check_files(database, name, cluster, options=self.options)
            ]:
                return decision

    def route(self, text: str, session: Session) -> Decision:
        """Choose the cluster that runs a statement.

        :raises RoutingError: no cluster can run it.
        :raises HiveFederationError: as :meth:`decide`.
        """
        decision = self.decide(text, session)
        if decision.cluster is None:
            raise failure(decision, clusters_of(self.registry))
        return decision


def _copies_used(decision: Decision, session: Session) -> set[tuple[str, str, str]]:
    """Tables of which the decision reads copies, and the cluster of these."""
    if decision.cluster is None:
        return set()
    return {
        (one.table.database or session.database, one.table.name, decision.cluster)
        for one in decision.inputs
        if any(group.readable[0] != decision.cluster for group in one.groups)
    }
