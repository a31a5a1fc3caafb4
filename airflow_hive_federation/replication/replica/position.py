"""Where a target stands: what the next increment goes on from."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from airflow_hive_federation.errors import TargetChangedError, TargetNotOursError
from airflow_hive_federation.model.write_ids import ValidWriteIds
from airflow_hive_federation.replication.format.directory import DumpDirectory
from airflow_hive_federation.replication.format.kinds import TableWork
from airflow_hive_federation.replication.format.unfinished import unfinished_loads
from airflow_hive_federation.replication.metadata.write_ids import (
    max_allocated_write_id,
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

if TYPE_CHECKING:
    from airflow_hive_federation.metastore import MetastoreClient


@dataclass(frozen=True, kw_only=True)
class TableState:
    """What the target has under a table's name.

    :param loaded_id: event at which this table was created there (its ``repl.last.id``).
    :param high_watermark: its highest write id; 0 for tables without.
    :param open_ids: its open write ids.
    """

    loaded_id: int
    high_watermark: int = 0
    open_ids: tuple[int, ...] = ()

    @property
    def complete(self) -> int:
        """The write id up to which none is open."""
        return min(self.open_ids, default=self.high_watermark + 1) - 1


@dataclass(frozen=True, kw_only=True)
class TargetPosition:
    """A published target.

    :param last_id: last event it contains.
    :param dump: URI of the dump it was loaded from last.
    :param tables: what it holds.
    :param foreign: write ids that no load of the policy gave out.
    """

    last_id: int
    dump: str
    tables: Mapping[str, TableState] = field(default_factory=dict)
    foreign: Sequence[ForeignWrite] = ()

    def refuse_foreign_writes(self, policy: ReplicationPolicy, *, replaced: Collection[str] = ()) -> None:
        """Refuse to go on from a target with write ids of others.

        :param replaced: tables that are about to be made anew, as a whole.
        :raises TargetChangedError: there are any.
        """
        found = [one for one in self.foreign if one.table not in replaced]
        refuse_foreign_writes(policy.target_database, policy.name, found)


def loaded_dump(client: MetastoreClient, policy: ReplicationPolicy) -> str:
    """URI of the dump that the policy's target was loaded from last.

    :param client: client of the target.
    :raises TargetNotOursError: the target database is not this policy's, or not published yet.
    """
    _published_at(client, policy)
    return _checkpoint(client, policy)


def read_position(
    client: MetastoreClient, policy: ReplicationPolicy, *, also: Collection[str] = ()
) -> TargetPosition:
    """Read where the policy's target stands.

    :param client: client of the target.
    :param also: tables that are counted in though this policy did not make them: they are about to be mended
        or removed.
    :raises TargetNotOursError: the target database is not this policy's, or not published yet.
    :raises TargetChangedError: it holds tables that this policy did not make.
    """
    name = policy.target_database
    last_id = _published_at(client, policy)
    dump = _checkpoint(client, policy)
    loaded = DumpDirectory(dump, policy.storage_options).manifest()
    adopted = loaded.get("adopted", ())
    found: list[Any] = list(client.get_tables(name, client.list_tables(name)))
    foreign = sorted(
        one.tableName
        for one in found
        if (one.parameters or {}).get(markers.POLICY) != policy.name
        and one.tableName not in {*also, *adopted}
    )
    if policy.into_existing:
        # Adopted with what the source does not have, which stays where it is.
        found = [one for one in found if one.tableName not in foreign]
    elif foreign:
        raise TargetChangedError(
            f"Target database {name} holds tables that policy {policy.name!r} did not make: "
            f"{', '.join(foreign)}.",
            remedy="Drop or move them.",
            differences=foreign,
        )
    write_ids = readable_write_ids(client, found, valid_transactions(client.get_open_txns()))
    tables = {}
    for table in found:
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
        foreign=_foreign(policy, dump, loaded, found, write_ids),
    )


def refuse_later_writes(client: MetastoreClient, policy: ReplicationPolicy, dump: DumpDirectory) -> None:
    """Refuse to publish a load during which somebody else has written to the target.

    :param client: client of the target.
    :param dump: the dump that is being loaded.
    :raises TargetChangedError: a table has write ids that neither this load nor one before gave out.
    """
    manifest = dump.manifest()
    name = policy.target_database
    found: list[Any] = list(client.get_tables(name, [facts["name"] for facts in manifest["tables"]]))
    write_ids = readable_write_ids(client, found, valid_transactions(client.get_open_txns()))
    foreign = _foreign(policy, manifest["previous"], manifest, found, write_ids)
    refuse_foreign_writes(name, policy.name, foreign)


def _foreign(
    policy: ReplicationPolicy,
    loaded: str,
    manifest: Mapping[str, Any],
    tables: Iterable[Any],
    write_ids: Mapping[str, ValidWriteIds],
) -> list[ForeignWrite]:
    """Write ids of the target's tables above what loads of the policy left them with.

    :param loaded: URI of the dump that the target was loaded from last.
    :param manifest: of a dump, which says what its load leaves the tables with.
    """
    known = {facts["name"]: facts["reached"] for facts in manifest["tables"]}
    above = [
        one
        for one in tables
        if one.tableName in write_ids
        and one.tableName in known
        and write_ids[one.tableName].high_watermark > known[one.tableName]
    ]
    for dump in unfinished_loads(policy, loaded) if above else ():
        reached = {facts["name"]: facts for facts in dump.manifest()["tables"]}
        for table in above:
            facts = reached.get(table.tableName, {})
            # What replaces a table has begun with it only if it has made the one that is there.
            made_by = (table.parameters or {}).get(markers.CHECKPOINT)
            if facts.get("work") == TableWork.CONTINUE.value or (facts and made_by == dump.uri):
                known[table.tableName] = max(known[table.tableName], facts["reached"])
    return [
        one
        for table in above
        for one in foreign_write_ids(table.tableName, write_ids[table.tableName], known[table.tableName])
    ]


def _high_watermark(
    client: MetastoreClient, table: Any, write_ids: ValidWriteIds, adopted: Collection[str]
) -> int:
    if table.tableName not in adopted:
        return write_ids.high_watermark
    # It was a source's before: its last write ids may have been aborted, and forgotten.
    return max(write_ids.high_watermark, max_allocated_write_id(client, table.dbName, table.tableName))


def _checkpoint(client: MetastoreClient, policy: ReplicationPolicy) -> str:
    name = policy.target_database
    dump = (client.get_database(name).parameters or {}).get(markers.CHECKPOINT)
    if dump is None:
        raise TargetNotOursError(
            f"Target database {name} does not say which dump it was loaded from: it has just been let go.",
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
