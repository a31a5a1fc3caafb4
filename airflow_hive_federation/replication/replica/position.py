"""Reads a target's position, from which the next increment continues."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from airflow_hive_federation.errors import CycleRunningError, TargetChangedError, TargetNotOursError
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.model.write_ids import ValidWriteIds
from airflow_hive_federation.replication.format.directory import DumpDirectory
from airflow_hive_federation.replication.format.kinds import TableWork
from airflow_hive_federation.replication.format.manifest import Manifest
from airflow_hive_federation.replication.format.unfinished import (
    UnfinishedLoads,
    begun_since,
    begun_uris,
    refuse_left_behind,
    unfinished_loads,
)
from airflow_hive_federation.replication.metadata.write_ids import (
    readable_write_ids,
    valid_transactions,
)
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.replication.replica import markers
from airflow_hive_federation.replication.replica.database import find_target
from airflow_hive_federation.replication.replica.foreign_writes import (
    ForeignWrite,
    foreign_write_ids,
    refuse_foreign_writes,
)
from airflow_hive_federation.replication.replica.markers import TargetState
from airflow_hive_federation.storage.filesystem import canonical
from airflow_hive_federation.transactions.write_id_counts import max_allocated_write_id

if TYPE_CHECKING:
    from airflow_hive_federation.metastore import MetastoreClient


@dataclass(frozen=True, kw_only=True)
class TableState:
    """The state of a table of the target.

    :param loaded_id: event at which the table was created on the target (its ``repl.last.id``).
    :param high_watermark: its highest write id; 0 for tables without write ids.
    :param open_ids: its open write ids.
    """

    loaded_id: int
    high_watermark: int = 0
    open_ids: tuple[int, ...] = ()

    @property
    def complete(self) -> int:
        """Return the write id up to which none is open."""
        return min(self.open_ids, default=self.high_watermark + 1) - 1


@dataclass(frozen=True, kw_only=True)
class TargetPosition:
    """The position of a published target.

    :param last_id: last event that it contains.
    :param dump: URI of the dump from which it was last loaded.
    :param tables: the states of its tables, by name.
    :param foreign: write ids that no load of the policy gave out.
    :param begun: URIs of the dumps whose load had begun before the position was read.
    :param settled: those of them that were begun before ``dump`` was made, which allows for what they did.
    """

    last_id: int
    dump: str
    tables: Mapping[str, TableState] = field(default_factory=dict)
    foreign: Sequence[ForeignWrite] = ()
    begun: tuple[str, ...] = ()
    settled: frozenset[str] = frozenset()

    def unfinished(self, policy: ReplicationPolicy, *, besides: str = "") -> UnfinishedLoads:
        """Return the loads that continue from the position and were not published.

        Manifests of settled dumps are not read: a follower asks in each of its cycles.

        :param besides: URI of a dump that does not count.
        """
        own = canonical(besides) if besides else ""
        begun = (uri for uri in self.begun if uri not in self.settled and canonical(uri) != own)
        return UnfinishedLoads(policy=policy, loaded=self.dump, begun=tuple(begun))

    def refuse_foreign_writes(self, policy: ReplicationPolicy, *, replaced: Collection[str] = ()) -> None:
        """Refuse to continue from a target with foreign write ids.

        :param replaced: tables that are about to be made anew, as a whole.
        :raises TargetChangedError: the target has foreign write ids.
        """
        writes = [write for write in self.foreign if write.table not in replaced]
        refuse_foreign_writes(policy.target_database, policy.name, writes)

    def refuse_loads_since(
        self, policy: ReplicationPolicy, dump: DumpDirectory, *, given_up: Collection[str] = ()
    ) -> None:
        """Refuse an increment if a load of another dump from the same position has begun since the dump.

        That load may have changed tables; the increment describes only their earlier state.

        :param given_up: URIs of dumps whose loads do not count.
        :raises CycleRunningError: such a load has begun.
        """
        previous = dump.manifest().previous
        for uri in begun_since(dump, (uri for uri in self.begun if uri not in given_up)):
            if DumpDirectory(uri, policy.storage_options).manifest().previous == previous:
                raise CycleRunningError(
                    f"A load of dump {uri} has begun to change target database {policy.target_database} "
                    f"since dump {dump.uri} was made.",
                    remedy="Begin a new cycle; it needs neither dump.",
                    policy=policy.name,
                    holder=uri,
                )


def loaded_dump(client: MetastoreClient, policy: ReplicationPolicy) -> str:
    """Return the URI of the dump from which the policy's target was last loaded.

    :param client: client of the target.
    :raises TargetNotOursError: the target database is not this policy's, or not published yet.
    """
    _published_at(client, policy)
    return _checkpoint(client, policy)


def read_position(
    client: MetastoreClient, policy: ReplicationPolicy, *, also: Collection[str] = ()
) -> TargetPosition:
    """Read the position of the policy's target.

    :param client: client of the target.
    :param also: tables that count although this policy did not make them: they are about to be repaired or
        removed.
    :raises TargetNotOursError: the target database is not this policy's, or not published yet.
    :raises TargetChangedError: it holds tables that this policy did not make.
    :raises ConfigurationError: the policy's ``dump_root`` has changed since a load was cut off.
    """
    name = policy.target_database
    # A load that begins later may change what is read below: the next load then refuses the increment.
    begun = begun_uris(policy)
    last_id = _published_at(client, policy)
    dump = _checkpoint(client, policy)
    refuse_left_behind(policy, dump)
    loaded = DumpDirectory(dump, policy.storage_options).manifest()
    adopted = loaded.adopted
    wire_tables: list[types.Table] = list(client.get_tables(name, client.list_tables(name)))
    foreign = sorted(
        candidate.tableName
        for candidate in wire_tables
        if (candidate.parameters or {}).get(markers.POLICY) != policy.name
        and candidate.tableName not in {*also, *adopted}
    )
    if policy.into_existing:
        # An adopted database also holds tables that the source does not have, and these stay in place.
        wire_tables = [candidate for candidate in wire_tables if candidate.tableName not in foreign]
    elif foreign:
        raise TargetChangedError(
            f"Target database {name} holds tables that policy {policy.name!r} did not make: "
            f"{', '.join(foreign)}.",
            remedy="Drop or move them.",
            differences=foreign,
        )
    write_ids = readable_write_ids(client, wire_tables, valid_transactions(client.get_open_txns()))
    tables = {}
    for table in wire_tables:
        ids = write_ids.get(table.tableName)
        tables[str(table.tableName)] = TableState(
            loaded_id=int((table.parameters or {}).get(markers.LAST_ID, 0)),
            high_watermark=_high_watermark(client, table, ids, adopted) if ids else 0,
            open_ids=ids.open_ids if ids else (),
        )
    return TargetPosition(
        last_id=last_id,
        dump=dump,
        tables=tables,
        foreign=_foreign(policy, dump, loaded, wire_tables, write_ids),
        begun=begun,
        settled=frozenset({dump, *loaded.begun}),
    )


def refuse_later_writes(client: MetastoreClient, policy: ReplicationPolicy, dump: DumpDirectory) -> None:
    """Refuse to publish a load during which somebody else has written to the target.

    :param client: client of the target.
    :param dump: the dump that is being loaded.
    :raises TargetChangedError: a table has write ids that neither this load nor one before gave out.
    """
    manifest = dump.manifest()
    name = policy.target_database
    wire_tables: list[types.Table] = list(client.get_tables(name, [entry.name for entry in manifest.tables]))
    write_ids = readable_write_ids(client, wire_tables, valid_transactions(client.get_open_txns()))
    foreign = _foreign(policy, manifest.previous, manifest, wire_tables, write_ids)
    refuse_foreign_writes(name, policy.name, foreign)


def _foreign(
    policy: ReplicationPolicy,
    loaded: str,
    manifest: Manifest,
    tables: Iterable[types.Table],
    write_ids: Mapping[str, ValidWriteIds],
) -> list[ForeignWrite]:
    """Return the write ids of the target's tables above those that loads of the policy left.

    :param loaded: URI of the dump from which the target was last loaded.
    :param manifest: manifest of a dump, which records the highest write ids of the tables after its load.
    """
    known = {entry.name: entry.reached for entry in manifest.tables}
    above = [
        candidate
        for candidate in tables
        if candidate.tableName in write_ids
        and candidate.tableName in known
        and write_ids[candidate.tableName].high_watermark > known[candidate.tableName]
    ]
    for dump in unfinished_loads(policy, loaded) if above else ():
        entries = {entry.name: entry for entry in dump.manifest().tables}
        for table in above:
            entry = entries.get(table.tableName)
            # A load that replaces a table has begun with it only if it has made the present one.
            made_by = (table.parameters or {}).get(markers.CHECKPOINT)
            if entry and (entry.work is TableWork.CONTINUE or made_by == dump.uri):
                known[table.tableName] = max(known[table.tableName], entry.reached)
    return [
        write
        for table in above
        for write in foreign_write_ids(table.tableName, write_ids[table.tableName], known[table.tableName])
    ]


def _high_watermark(
    client: MetastoreClient, table: types.Table, write_ids: ValidWriteIds, adopted: Collection[str]
) -> int:
    if table.tableName not in adopted:
        return write_ids.high_watermark
    # The table belonged to a source before: its last write ids may have been aborted, and forgotten.
    return max(write_ids.high_watermark, max_allocated_write_id(client, table.dbName, table.tableName))


def _checkpoint(client: MetastoreClient, policy: ReplicationPolicy) -> str:
    name = policy.target_database
    dump = (client.get_database(name).parameters or {}).get(markers.CHECKPOINT)
    if dump is None:
        raise TargetNotOursError(
            f"The dump of target database {name} is not known: the database has just been let go.",
            remedy="Find out whether somebody has failed over, or taken over.",
            database=name,
            owner=None,
        )
    return dump


def _published_at(client: MetastoreClient, policy: ReplicationPolicy) -> int:
    name = policy.target_database
    state = find_target(client, policy)
    if state.state is not TargetState.LOADED or state.last_id is None:
        raise TargetNotOursError(
            f"Target database {name} is {state.state.value} for policy {policy.name!r}: there is nothing "
            "that an increment could go on from.",
            remedy="Run the bootstrap to its end first.",
            database=name,
            owner=None,
        )
    return state.last_id
