"""Shows the engines of one cluster a metastore that spans several clusters, with the cluster's own locations.

A table or partition with a fresh copy in the cluster appears at the copy's location. All others appear at the
location of their primary: their rows are right, though they come from another site. The view refuses writes
to tables of another cluster, and never puts the location of a copy into the metastore as that of the primary.
New tables belong to the cluster, and lie below its root.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from airflow_hive_federation.clusters.altering import full_name, relocate
from airflow_hive_federation.clusters.metadata import (
    PRIMARY,
    Secondary,
    metadata_mark,
    read_metadata,
    source_mark,
)
from airflow_hive_federation.clusters.registry import Cluster, ClusterRegistry
from airflow_hive_federation.gateway.dispatch import Metastore, Relay
from airflow_hive_federation.gateway.federation.target import Federation
from airflow_hive_federation.gateway.handler import Call, Status, refused
from airflow_hive_federation.gateway.messages import CALL, REPLY, Emit, head_bytes, read_head
from airflow_hive_federation.gateway.methods import ACCESS, Access
from airflow_hive_federation.gateway.names import catalogs, identifier, references
from airflow_hive_federation.gateway.partition_specs import spread, with_partitions
from airflow_hive_federation.gateway.upstream import Upstream
from airflow_hive_federation.metastore.connection import message_types
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.metastore.protocol import encode
from airflow_hive_federation.metastore.struct import Struct
from airflow_hive_federation.metastore.wire import from_bytes
from airflow_hive_federation.model.content_marks import content_mark
from airflow_hive_federation.model.side_parameters import SHOWN_IN, as_stored, shown_read_only
from airflow_hive_federation.storage.filesystem import is_below, join
from airflow_hive_federation.storage.listing import list_many
from airflow_hive_federation.storage.options import StorageOptions

_CREATES = frozenset(
    {
        "create_table",
        "create_table_req",
        "create_table_with_constraints",
        "create_table_with_environment_context",
    }
)
_DATABASES = frozenset({"get_database", "get_database_req", "get_databases_req"})
#: Calls whose answers describe a table to an engine that may write it next.
_TABLES = frozenset(
    {"get_table", "get_table_objects_by_name", "get_table_objects_by_name_req", "get_table_req"}
)
_CHANGES_DATABASE = frozenset({"alter_database", "alter_database_req", "drop_database", "drop_database_req"})
#: Calls of the class "write" that engines also make to read a table, or that only announce or end a write.
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
_COPY = re.compile(r"hive\.cluster\.secondary\.\w+\.location")
_VIEW = "VIRTUAL_VIEW"
#: Part of a message with metadata of copies.
SECONDARY = b"hive.cluster.secondary."

Described = types.Table | types.Partition


@dataclass(frozen=True)
class ClusterView:
    """The target of calls of one cluster's clients; see :class:`.dispatch.Target`.

    :param target: the metastore or federation behind the view.
    :param cluster: the clients' cluster.
    :param check_files: list the files of primaries and copies before clients see a copy. Without it, the view
        misses writes that the metastore does not know of, such as Spark's writes to its own tables.
    :param options: storage options of all clusters.
    """

    target: Metastore | Federation
    registry: ClusterRegistry
    cluster: Cluster
    check_files: bool = True
    options: StorageOptions = field(default_factory=dict, repr=False)

    wants_names = True

    @property
    def upstreams(self) -> tuple[Upstream, ...]:
        """All upstreams of the target."""
        return self.target.upstreams

    @property
    def missing_parts(self) -> Mapping[str, float]:
        """Number of answers that lacked a metastore's part, per name of the metastore."""
        return self.target.missing_parts

    def relay_of_transactions(self) -> Relay | None:
        """See :meth:`.dispatch.Target.relay_of_transactions`."""
        return self.target.relay_of_transactions()

    def check_cluster(self, name: str) -> None:
        """See :meth:`.dispatch.Target.check_cluster`."""
        if self.registry.cluster(name) != self.cluster:
            raise refused(
                Status.DENIED,
                f"This gateway shows cluster {self.cluster.name}, and the request names {name}.",
                remedy=f"Ask a gateway of cluster {name}.",
            )

    def serves_catalog(self, name: str) -> bool:
        """See :meth:`.dispatch.Target.serves_catalog`."""
        return self.target.serves_catalog(name)

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
        # Few answers concern a table with copies: the others are passed on without decoding.
        if method not in _DATABASES | _TABLES and SECONDARY not in answer:
            return answer
        head = read_head(answer)
        if head.kind != REPLY:
            return answer
        decoded = from_bytes(message_types(method)[1], answer[head.body :])
        candidates, shared = self._candidates(decoded)
        copies = ((described, copy_by_metadata(described, self.cluster.name)) for described in candidates)
        shown = self._with_equal_files([(described, copy) for described, copy in copies if copy is not None])
        for described, copy in shown:
            show_copy(described, copy)
        elsewhere = [
            table for table in candidates if isinstance(table, types.Table) and self._primary_elsewhere(table)
        ]
        if method not in _DATABASES and not shown and not elsewhere:
            # An engine may write back what it has read, with fields that only it and the metastore know.
            return answer
        for table in elsewhere:
            # For engines that check before they write (Trino).
            table.parameters = shown_read_only(table.parameters, self.cluster.name)
        changed = {id(described) for described, _ in shown}
        for spec, partitions in shared:
            if any(id(partition) in changed for partition in partitions):
                with_partitions(spec, partitions)
        return head_bytes(method, REPLY, head.sequence_id) + encode(decoded)

    def _candidates(
        self, decoded: Struct
    ) -> tuple[list[Described], list[tuple[types.PartitionSpec, list[types.Partition]]]]:
        """Return what an answer describes, and its groups of partitions; show databases in the cluster."""
        shared: list[tuple[types.PartitionSpec, list[types.Partition]]] = []
        candidates: list[Described] = []
        for described in structs(decoded):
            if isinstance(described, types.Table | types.Partition):
                candidates.append(described)
            elif isinstance(described, types.PartitionSpec) and (partitions := spread(described)):
                shared.append((described, partitions))
                candidates += partitions
            elif isinstance(described, types.Database):
                self._show_database(described)
        return candidates, shared

    def _with_equal_files(
        self, copies: Sequence[tuple[Described, Secondary]]
    ) -> list[tuple[Described, Secondary]]:
        """Return the copies whose files, like those of their primaries, are unchanged since the copy."""
        if not self.check_files:
            return list(copies)
        locations = [place for described, copy in copies for place in (location_of(described), copy.location)]
        files = list_many(locations, options=self.options, missing_ok=True)
        return [
            (described, copy)
            for described, copy in copies
            if source_mark(described, files[location_of(described)]).listing == copy.source.listing
            and content_mark(files[copy.location]) == copy.source.content
        ]

    def _show_database(self, database: types.Database) -> None:
        """Set a database's location to the directory for new tables of the cluster."""
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
            call = self._creating(call)
        else:
            self._check_primaries(call)
        refuse_location_of_copy(call)
        return call

    def _check_primaries(self, call: Call) -> None:
        tables = {(reference.database, reference.table) for reference in call.named if reference.table}
        for catalog in _catalogs_of(call) if tables else ():
            for database, table in sorted(tables):
                self._check_primary(call, catalog, database, str(table))

    def _creating(self, call: Call) -> Call:
        head = read_head(call.message)
        arguments = from_bytes(message_types(call.method)[0], call.message[head.body :])
        for struct in structs(arguments):
            if isinstance(struct, types.Table) and struct.tableType != _VIEW:
                self._make_ours(struct)
        message = head_bytes(call.method, CALL, head.sequence_id) + encode(arguments)
        return replace(call, message=message)

    def _make_ours(self, table: types.Table) -> None:
        primary = (table.parameters or {}).get(PRIMARY)
        if primary not in {None, self.cluster.name}:
            raise refused(
                Status.DENIED,
                f"{full_name(table)} names cluster {primary} as its primary, not {self.cluster.name}.",
                remedy=f"Create it in cluster {primary}, or leave {PRIMARY} out.",
            )
        # An engine copies the parameters of a table that it has read (CREATE TABLE … LIKE).
        table.parameters = {**as_stored(table.parameters), PRIMARY: self.cluster.name}
        if table.sd is not None and not table.sd.location and not _is_managed_acid(table):
            table.sd.location = join(
                self.cluster.root, f"{table.dbName}.db".lower(), str(table.tableName).lower()
            )

    def _check_primary(self, call: Call, catalog: str | None, database: str, name: str) -> None:
        table = self._table(call, catalog, database, name)
        if table is None:
            return
        # Raises the error of damaged metadata.
        read_metadata(table.parameters, full_name(table))
        primary = self._primary_elsewhere(table)
        if primary is not None:
            raise refused(
                Status.DENIED,
                f"{call.method}: {database}.{name} is written in its primary cluster, {primary}, and not in "
                f"{self.cluster.name}.",
                remedy=f"Run the statement in cluster {primary}.",
            )

    def _primary_elsewhere(self, table: types.Table) -> str | None:
        """Return the primary cluster of a table if it is another one; views have none."""
        if table.tableType == _VIEW:
            return None
        primary = (table.parameters or {}).get(PRIMARY) or self.registry.default_cluster().name
        return None if primary == self.cluster.name else primary

    def _table(self, call: Call, catalog: str | None, database: str, name: str) -> types.Table | None:
        """Return the table as the metastore has it; ``None`` if it does not exist."""
        method = "get_table_req"
        arguments, result, _ = message_types(method)
        request = types.GetTableRequest(
            catName=catalog,
            dbName=database,
            tblName=name,
            capabilities=types.ClientCapabilities(values=[types.ClientCapability.INSERT_ONLY_TABLES]),
        )
        head = head_bytes(method, CALL, 1)
        message = head + encode(arguments(req=request))
        named = tuple(references(message, len(head), arguments))
        parts: list[bytes] = []
        self.target.relay(replace(call, method=method, message=message, named=named), parts.append)
        answer = b"".join(parts)
        reply = read_head(answer)
        decoded: Any = from_bytes(result, answer[reply.body :]) if reply.kind == REPLY else result()
        if decoded.success is not None:
            table: types.Table | None = decoded.success.table
            return table
        if decoded.o2 is not None:
            return None
        raise refused(
            Status.FAILED,
            f"{call.method}: the metastore does not answer which cluster {database}.{name} belongs to.",
            remedy="Read the metastore's log.",
        )


def _catalogs_of(call: Call) -> tuple[str | None, ...]:
    """Return the catalogs that a call names, and ``None``, which is the metastore's default one."""
    names = catalogs(call.message, read_head(call.message).body, message_types(call.method)[0])
    # One struct in a call may name a catalog, and another one none.
    return (None, *sorted({identifier(name.name) for name in names} - {""}))


def _is_managed_acid(table: types.Table) -> bool:
    """Return whether Hive 4 refuses a location beyond the database's managed one."""
    transactional = (table.parameters or {}).get("transactional", "")
    kinds = {None, "MANAGED_TABLE", "MATERIALIZED_VIEW"}
    return table.tableType in kinds and transactional.lower() == "true"


def location_of(described: Described) -> str:
    """Return the URI of the directory of a table or partition."""
    return str(described.sd and described.sd.location)


def copy_by_metadata(described: Described, cluster: str) -> Secondary | None:
    """Return the copy of a table or partition in a cluster, unless the metastore knows of a later write.

    Copies of transactional tables are never returned: a reader has to use the write ids of the time when the
    copy was made, and engines use the current write ids.

    :raises ClusterMetadataError: the cluster metadata of the table or partition is damaged.
    """
    copy = read_metadata(described.parameters, f"{described.dbName}.{described.tableName}").secondaries.get(
        cluster
    )
    if copy is None or copy.snapshot is not None or described.sd is None:
        return None
    if copy.source.metadata != metadata_mark(described):
        return None
    return copy


def show_copy(described: Described, copy: Secondary) -> None:
    """Replace the location of a table or partition with that of its copy."""
    relocate(described, copy.location)


def refuse_location_of_copy(call: Call) -> None:
    """Refuse to write what only a view shows: the location of a copy as that of the primary, or its mark.

    A client may read a table by a cluster's name and write it back without the name, or by that of another
    cluster: structs of Hive 2 have no field for a catalog.

    :raises GatewayError: a table or partition of the call has the location of a copy, or a table the mark.
    """
    if SECONDARY not in call.message and SHOWN_IN.encode() not in call.message:
        return
    arguments = from_bytes(message_types(call.method)[0], call.message[read_head(call.message).body :])
    for struct in structs(arguments):
        if not isinstance(struct, types.Table | types.Partition):
            continue
        copies = {name: value for name, value in (struct.parameters or {}).items() if _COPY.fullmatch(name)}
        place = f"{struct.dbName}.{struct.tableName}"
        for name, location in copies.items():
            if location_of(struct) == location:
                raise refused(
                    Status.DENIED,
                    f"{call.method}: {location} would become the primary location of {place}, and is its "
                    f"copy's ({name}).",
                    remedy="Name the same cluster when you read and when you write, or none.",
                )
        _refuse_mark(call, struct)


def _refuse_mark(call: Call, described: Described) -> None:
    cluster = (described.parameters or {}).get(SHOWN_IN)
    if cluster is not None:
        raise refused(
            Status.DENIED,
            f"{call.method}: {described.dbName}.{described.tableName} was read in the view of {cluster}, "
            f"which shows it read-only ({SHOWN_IN}).",
            remedy="Name the same cluster when you read and when you write, or none.",
        )


def structs(value: object) -> Iterator[Struct]:
    """Yield a struct and all structs within it."""
    if isinstance(value, Struct):
        yield value
        for item in value.set_fields().values():
            yield from structs(item)
    elif isinstance(value, list | dict):
        items = value.values() if isinstance(value, dict) else value
        for item in items:
            if isinstance(item, Struct | list | dict):
                yield from structs(item)
