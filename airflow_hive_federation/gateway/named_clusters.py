"""Answers each request by the view of the cluster that it names, and all others as the metastore does.

A gRPC request names a cluster by its metadata (:attr:`.handler.Caller.cluster`), a Thrift request by its
catalog: clients of Hive 3 and later send ``metastore.catalog.default`` as the catalog of their calls, in
fields and before names of databases (``@C2#sales``). The metastore receives its own catalog instead, and the
client receives the name that it sent.

Calls about transactions, write ids and locks name no catalog. Hive leaves the catalog out of two calls that
read locations, too: Hive 4.2 of ``get_partitions_by_names_req``, by which it reads whole tables, and Hive 3.1
of ``get_partitions_by_expr``. There, the cluster that the same connection has named last counts. A connection
that several clients share may so show a copy to the wrong one of them; the rows of a copy are those of its
primary.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from airflow_hive_federation.clusters.registry import Cluster, ClusterRegistry
from airflow_hive_federation.errors import ConfigurationError, HiveFederationError
from airflow_hive_federation.gateway.cluster_view import ClusterView, refuse_location_of_copy
from airflow_hive_federation.gateway.dispatch import Metastore, Relay
from airflow_hive_federation.gateway.federation.target import Federation
from airflow_hive_federation.gateway.handler import Call, Caller, Deadline, Status, refused
from airflow_hive_federation.gateway.messages import CALL, REPLY, Emit, head_bytes, read_head
from airflow_hive_federation.gateway.methods import ACCESS, Access
from airflow_hive_federation.gateway.names import (
    CatalogName,
    catalogs,
    identifier,
    references,
    with_catalogs,
)
from airflow_hive_federation.gateway.old_clients import is_unknown_method
from airflow_hive_federation.gateway.upstream import Upstream
from airflow_hive_federation.metastore.connection import message_types
from airflow_hive_federation.metastore.protocol import encode
from airflow_hive_federation.metastore.wire import from_bytes
from airflow_hive_federation.storage.options import StorageOptions

log = logging.getLogger(__name__)

_CATALOGS = "get_catalogs"
#: Methods about a catalog itself, which may be one that does not exist yet.
_OF_CATALOGS = frozenset({"alter_catalog", "create_catalog", "drop_catalog", "get_catalog"})
_CHANGES_CATALOG = _OF_CATALOGS - {"get_catalog"}
#: Methods that read locations, and in whose calls Hive leaves the catalog out.
_LACKS_CATALOG = frozenset({"get_partitions_by_expr", "get_partitions_by_names_req"})


@dataclass(frozen=True)
class _Named:
    """The cluster that a request names.

    :param spelling: the cluster's name as the client's catalogs spell it; ``None`` if metadata names it.
    """

    cluster: Cluster
    spelling: str | None


class NamedClusters:
    """The target of calls that may name a cluster; see :class:`.dispatch.Target`.

    :param target: the metastore or federation behind the views.
    :param check_files: see :class:`.ClusterView`.
    :param options: storage options of all clusters.
    """

    wants_names = True

    def __init__(
        self,
        target: Metastore | Federation,
        registry: ClusterRegistry,
        *,
        check_files: bool = True,
        options: StorageOptions | None = None,
    ) -> None:
        self.target = target
        self._registry = registry
        self._catalog = identifier(target.upstreams[0].settings.catalog)
        self._views = {
            cluster.name: ClusterView(target, registry, cluster, check_files, options or {})
            for cluster in registry
        }
        #: The metastore's own catalogs; empty before it has answered.
        self._catalogs: frozenset[str] = frozenset()

    @property
    def upstreams(self) -> tuple[Upstream, ...]:
        """All upstreams of the target."""
        return self.target.upstreams

    @property
    def missing_parts(self) -> Mapping[str, float]:
        """Number of answers that lacked a metastore's part, per name of the metastore."""
        return self.target.missing_parts

    def close(self) -> None:
        """Close all connections."""
        self.target.close()

    def relay_of_transactions(self) -> Relay | None:
        """See :meth:`.dispatch.Target.relay_of_transactions`."""
        return self.target.relay_of_transactions()

    def check_cluster(self, name: str) -> None:
        """See :meth:`.dispatch.Target.check_cluster`."""
        self._registry.cluster(name)

    def serves_catalog(self, name: str) -> bool:
        """See :meth:`.dispatch.Target.serves_catalog`."""
        return self._cluster(name) is not None or self.target.serves_catalog(name)

    def check_catalogs(self, timeout_s: float) -> None:
        """Refuse clusters that have the name of one of the metastore's catalogs.

        If the metastore does not answer, the first call that names a catalog checks again.

        :raises ConfigurationError: a cluster and a catalog have the same name.
        """
        message = head_bytes(_CATALOGS, CALL, 1) + encode(message_types(_CATALOGS)[0]())
        try:
            self._read_catalogs(Call(_CATALOGS, message, Caller(), Deadline(timeout_s), None))
        except ConfigurationError:
            raise
        except HiveFederationError as error:
            log.warning("the names of clusters are not yet compared with the catalogs: %s", error)

    def relay(self, call: Call, emit: Emit) -> None:
        """See :meth:`.dispatch.Target.relay`.

        :raises UnknownClusterError: the call names a cluster, or a catalog, that does not exist.
        :raises GatewayError: the call names several clusters, or writes to a table of another cluster.
        """
        kind, result, _ = message_types(call.method)
        body = read_head(call.message).body
        names = [name for name in catalogs(call.message, body, kind) if identifier(name.name)]
        named = self._named(call, names)
        if named is None:
            if ACCESS.get(call.method) is Access.WRITE:
                refuse_location_of_copy(call)
            self.target.relay(call, emit)
            return
        call.facts.cluster = named.cluster.name
        if call.method in _CHANGES_CATALOG:
            raise refused(
                Status.DENIED,
                f"{call.method}: {named.cluster.name} is a cluster, and no catalog.",
                remedy="Change the registry of clusters.",
            )
        view = self._views[named.cluster.name]
        if named.spelling is None:
            view.relay(call, emit)
            return
        call.caller.session.cluster = named.spelling
        own = [(name, self._catalog) for name in names if self._cluster(name.name) is not None]
        message = with_catalogs(call.message, own)
        parts: list[bytes] = []
        view.relay(replace(call, message=message, named=tuple(references(message, body, kind))), parts.append)
        answer = b"".join(parts)
        head = read_head(answer)
        if head.kind == REPLY:
            shown = [
                (name, named.spelling)
                for name in catalogs(answer, head.body, result)
                if identifier(name.name) == self._catalog
            ]
            answer = with_catalogs(answer, shown)
        emit(answer)

    def _named(self, call: Call, names: Sequence[CatalogName]) -> _Named | None:
        by_catalog = {cluster.name: name for name in names if (cluster := self._cluster(name.name))}
        others = sorted({identifier(name.name) for name in names if self._cluster(name.name) is None})
        others = [name for name in others if name != self._catalog]
        clusters = dict.fromkeys(by_catalog)
        if call.caller.cluster:
            clusters[self._registry.cluster(call.caller.cluster).name] = None
        if (by_catalog or others) and call.method not in _OF_CATALOGS:
            self._check_names(call, others)
        if not clusters:
            return self._named_before(call) if not names and call.method in _LACKS_CATALOG else None
        if len(clusters) > 1 or others:
            places = [*(f"cluster {name}" for name in clusters), *(f"catalog {name}" for name in others)]
            raise refused(
                Status.DENIED,
                f"{call.method}: the request names {' and '.join(places)}.",
                remedy=f"Name one cluster; its tables are in the catalog {self._catalog}.",
            )
        (name,) = clusters
        spelling = by_catalog[name].name if name in by_catalog else None
        return _Named(self._registry.cluster(name), spelling)

    def _named_before(self, call: Call) -> _Named | None:
        spelling = call.caller.session.cluster
        cluster = self._cluster(spelling)
        return None if cluster is None else _Named(cluster, spelling)

    def _cluster(self, catalog: str) -> Cluster | None:
        wanted = identifier(catalog)
        return next((cluster for cluster in self._registry if cluster.name.lower() == wanted), None)

    def _check_names(self, call: Call, others: Sequence[str]) -> None:
        """Check that other names are catalogs of the metastore, and that no cluster has the name of one."""
        # A catalog may have been created since.
        if not self._catalogs or not self._catalogs.issuperset(others):
            message = head_bytes(_CATALOGS, CALL, 1) + encode(message_types(_CATALOGS)[0]())
            self._read_catalogs(replace(call, method=_CATALOGS, message=message, named=()))
        for name in others:
            if name not in self._catalogs:
                # Raises the error of an unknown cluster.
                self._registry.cluster(name)

    def _read_catalogs(self, call: Call) -> None:
        parts: list[bytes] = []
        self.target.relay(call, parts.append)
        answer = b"".join(parts)
        head = read_head(answer)
        if is_unknown_method(answer):
            raise refused(
                Status.FAILED,
                "The metastore has no catalogs, as before Hive 3, so requests cannot name a cluster by one.",
                remedy="Name the cluster by gRPC, or run a gateway per cluster ([cluster] name).",
            )
        real: frozenset[str] = frozenset()
        if head.kind == REPLY:
            decoded: Any = from_bytes(message_types(_CATALOGS)[1], answer[head.body :])
            real = frozenset(map(identifier, (decoded.success and decoded.success.names) or ()))
        if not real:
            raise refused(
                Status.FAILED,
                "The metastore does not list its catalogs.",
                remedy="Read the metastore's log.",
            )
        for cluster in self._registry:
            if cluster.name.lower() in real:
                raise ConfigurationError(
                    f"Cluster {cluster.name} has the name of a catalog of the metastore: a request that "
                    "names it would be ambiguous.",
                    remedy="Rename the cluster in the registry.",
                )
        self._catalogs = real
