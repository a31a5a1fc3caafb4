"""The view that engines of one cluster have of a metastore that spans several.

Tables and partitions with a fresh copy in the cluster are shown at the copy's location. All others are
shown where the primary is: their rows are right, though they come from another site. A write to a table of
another cluster is refused, and so the location of a copy never gets into the metastore as that of the
primary. New tables belong to the cluster, and lie below its root.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from airflow_hive_federation.clusters.altering import full_name, relocate
from airflow_hive_federation.clusters.metadata import (
    PRIMARY,
    Secondary,
    content_mark,
    metadata_mark,
    read_metadata,
    source_mark,
)
from airflow_hive_federation.clusters.registry import Cluster, ClusterRegistry
from airflow_hive_federation.gateway.dispatch import Call, Metastore
from airflow_hive_federation.gateway.federation.target import Federation
from airflow_hive_federation.gateway.handler import Status, refused
from airflow_hive_federation.gateway.messages import CALL, REPLY, Emit, head_bytes, read_head
from airflow_hive_federation.gateway.methods import ACCESS, Access
from airflow_hive_federation.gateway.upstream import Upstream
from airflow_hive_federation.metastore.connection import message_types
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.metastore.protocol import encode
from airflow_hive_federation.metastore.struct import Struct
from airflow_hive_federation.metastore.wire import from_bytes
from airflow_hive_federation.storage.filesystem import is_below, join
from airflow_hive_federation.storage.listing import list_many

_CREATES = frozenset(
    {
        "create_table",
        "create_table_req",
        "create_table_with_constraints",
        "create_table_with_environment_context",
    }
)
_DATABASES = frozenset({"get_database", "get_database_req", "get_databases_req"})
_CHANGES_DATABASE = frozenset({"alter_database", "alter_database_req", "drop_database", "drop_database_req"})
#: Writing calls about tables that are made in order to read them, or that only tell of a write.
_HARMLESS = frozenset(
    {
        "add_write_ids_to_min_history",
        "abort_txn",
        "abort_txns",
        "check_lock",
        "commit_txn",
        "create_database",
        "create_database_req",
        "heartbeat",
        "heartbeat_txn_range",
        "lock",
        "open_txns",
        "unlock",
    }
)
_VIEWS = frozenset({"VIRTUAL_VIEW", "MATERIALIZED_VIEW"})
_SECONDARY = b"hive.cluster.secondary."

Described = types.Table | types.Partition


@dataclass(frozen=True)
class ClusterView:
    """The target of calls of one cluster's clients; see :class:`.dispatch.Target`.

    :param target: the metastore behind.
    :param registry: the clusters.
    :param cluster: that of the clients.
    :param check_files: list the files of primaries and copies before a copy is shown. Without it, a write
        that the metastore does not know of, as Spark's to its own tables, is not seen.
    :param options: storage options of all clusters.
    """

    target: Metastore | Federation
    registry: ClusterRegistry
    cluster: Cluster
    check_files: bool = True
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)

    wants_names = True

    @property
    def upstreams(self) -> tuple[Upstream, ...]:
        """All upstreams."""
        return self.target.upstreams

    @property
    def missing_parts(self) -> Mapping[str, float]:
        """How many answers were given without the part of a metastore, by its name."""
        return self.target.missing_parts

    def close(self) -> None:
        """Close all connections."""
        self.target.close()

    def relay(self, call: Call, emit: Emit) -> None:
        """See :meth:`.dispatch.Target.relay`.

        :raises GatewayError: the call writes to a table of another cluster.
        """
        if ACCESS.get(call.method) is not Access.READ:
            self.target.relay(self._writing(call), emit)
            return
        parts: list[bytes] = []
        self.target.relay(call, parts.append)
        emit(self._shown(call.method, b"".join(parts)))

    # -- answers -------------------------------------------------------------------------------------------

    def _shown(self, method: str, answer: bytes) -> bytes:
        # Nearly no answer is of a table with copies: nothing is decoded for the rest.
        if method not in _DATABASES and _SECONDARY not in answer:
            return answer
        head = read_head(answer)
        if head.kind != REPLY:
            return answer
        decoded = from_bytes(message_types(method)[1], answer[head.body :])
        copies: list[tuple[Described, Secondary]] = []
        for one in _structs(decoded):
            if isinstance(one, types.Table | types.Partition):
                copy = copy_by_metadata(one, self.cluster.name)
                copies += [] if copy is None else [(one, copy)]
            elif isinstance(one, types.PartitionSpec) and one.sharedSDPartitionSpec is not None:
                raise refused(
                    Status.FAILED,
                    f"{method}: partitions that share one description cannot be shown in cluster "
                    f"{self.cluster.name}: {one.dbName}.{one.tableName}.",
                    remedy="Ask for the partitions by name, or by get_partitions.",
                )
            elif isinstance(one, types.Database):
                self._show_database(one)
        for one, copy in self._with_equal_files(copies):
            show_copy(one, copy)
        return head_bytes(method, REPLY, head.sequence_id) + encode(decoded)

    def _with_equal_files(
        self, copies: Sequence[tuple[Described, Secondary]]
    ) -> list[tuple[Described, Secondary]]:
        """The copies whose files, and those of their primaries, are as they were when the copy was made."""
        if not self.check_files:
            return list(copies)
        places = [place for one, copy in copies for place in (location_of(one), copy.location)]
        there = list_many(places, options=self.options, missing_ok=True)
        return [
            (one, copy)
            for one, copy in copies
            if source_mark(one, there[location_of(one)]).listing == copy.source.listing
            and content_mark(there[copy.location]) == copy.source.content
        ]

    def _show_database(self, database: types.Database) -> None:
        """Show the directory in which new tables of the cluster lie."""
        if database.locationUri and not is_below(database.locationUri, self.cluster.root):
            database.locationUri = join(self.cluster.root, f"{database.name}.db")

    # -- calls that write ----------------------------------------------------------------------------------

    def _writing(self, call: Call) -> Call:
        if call.method in _HARMLESS:
            return call
        if call.method in _CHANGES_DATABASE:
            raise refused(
                Status.DENIED,
                f"{call.method}: databases span clusters, and are not changed in {self.cluster.name}.",
                remedy="Change it at the metastore itself.",
            )
        if call.method in _CREATES:
            return self._creating(call)
        for database, table in sorted({(one.database, one.table) for one in call.named if one.table}):
            self._check_primary(call, database, str(table))
        return call

    def _creating(self, call: Call) -> Call:
        head = read_head(call.message)
        arguments = from_bytes(message_types(call.method)[0], call.message[head.body :])
        for one in _structs(arguments):
            if isinstance(one, types.Table) and one.tableType not in _VIEWS:
                self._make_ours(one)
        message = head_bytes(call.method, CALL, head.sequence_id) + encode(arguments)
        return replace(call, message=message)

    def _make_ours(self, table: types.Table) -> None:
        named = (table.parameters or {}).get(PRIMARY)
        if named not in {None, self.cluster.name}:
            raise refused(
                Status.DENIED,
                f"{full_name(table)} is to belong to cluster {named}, not to {self.cluster.name}.",
                remedy=f"Create it in cluster {named}, or leave {PRIMARY} out.",
            )
        table.parameters = {**(table.parameters or {}), PRIMARY: self.cluster.name}
        if table.sd is not None and not table.sd.location:
            table.sd.location = join(
                self.cluster.root, f"{table.dbName}.db".lower(), str(table.tableName).lower()
            )

    def _check_primary(self, call: Call, database: str, name: str) -> None:
        table = self._table(call, database, name)
        if table is None:
            return
        primary = read_metadata(table.parameters, full_name(table)).primary
        primary = primary or self.registry.default_cluster().name
        if primary != self.cluster.name:
            raise refused(
                Status.DENIED,
                f"{call.method}: {database}.{name} is written in its primary cluster, {primary}, and not in "
                f"{self.cluster.name}.",
                remedy=f"Run the statement in cluster {primary}.",
            )

    def _table(self, call: Call, database: str, name: str) -> types.Table | None:
        """The table as the metastore has it; ``None`` if there is none."""
        method = "get_table_req"
        arguments, result, _ = message_types(method)
        request = types.GetTableRequest(
            dbName=database,
            tblName=name,
            capabilities=types.ClientCapabilities(values=[types.ClientCapability.INSERT_ONLY_TABLES]),
        )
        message = head_bytes(method, CALL, 1) + encode(arguments(req=request))
        named = tuple(one for one in call.named if (one.database, one.table) == (database, name))
        parts: list[bytes] = []
        self.target.relay(replace(call, method=method, message=message, named=named), parts.append)
        answer = b"".join(parts)
        head = read_head(answer)
        if head.kind != REPLY:
            raise refused(
                Status.FAILED,
                f"{call.method}: the metastore does not say which cluster {database}.{name} belongs to.",
                remedy="Read the metastore's log.",
            )
        decoded: Any = from_bytes(result, answer[head.body :])
        if decoded.success is None:
            return None
        found: types.Table | None = decoded.success.table
        return found


def location_of(one: Described) -> str:
    """URI of the directory of a table or partition."""
    return str(one.sd and one.sd.location)


def copy_by_metadata(one: Described, cluster: str) -> Secondary | None:
    """The copy of a table or partition in a cluster, unless the metastore knows of a write since it was made.

    Copies of transactional tables are not shown: they are read with the write ids that they were made with,
    and engines take those of now.

    :raises ClusterMetadataError: its cluster metadata is damaged.
    """
    copy = read_metadata(one.parameters, f"{one.dbName}.{one.tableName}").secondaries.get(cluster)
    if copy is None or copy.snapshot is not None or one.sd is None:
        return None
    if copy.source.metadata != metadata_mark(one):
        return None
    return copy


def show_copy(one: Described, copy: Secondary) -> None:
    """Give a table or partition the location of a copy."""
    relocate(one, copy.location)


def _structs(value: Any) -> Iterator[Struct]:
    if isinstance(value, Struct):
        yield value
        for one in value.set_fields().values():
            yield from _structs(one)
    elif isinstance(value, list | dict):
        some = value.values() if isinstance(value, dict) else value
        for one in some:
            if isinstance(one, Struct | list | dict):
                yield from _structs(one)
