"""Where a target stands: what the next increment goes on from."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from airflow_hive_federation.errors import TargetChangedError, TargetNotOursError
from airflow_hive_federation.model.write_ids import ValidWriteIds
from airflow_hive_federation.replication.dump.contents import max_allocated_write_id, readable_write_ids
from airflow_hive_federation.replication.dump.directory import DumpDirectory
from airflow_hive_federation.replication.dump.drain import valid_transactions
from airflow_hive_federation.replication.dump.increment_plan import TableState
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.replication.target import markers
from airflow_hive_federation.replication.target.database import find_target
from airflow_hive_federation.replication.target.markers import TargetState

if TYPE_CHECKING:
    from airflow_hive_federation.metastore import MetastoreClient


@dataclass(frozen=True, kw_only=True)
class TargetPosition:
    """A published target.

    :param last_id: last event it contains.
    :param dump: URI of the dump it was loaded from last.
    :param tables: what it holds.
    """

    last_id: int
    dump: str
    tables: Mapping[str, TableState] = field(default_factory=dict)


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
    adopted = DumpDirectory(dump, policy.storage_options).manifest().get("adopted", ())
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
    return TargetPosition(last_id=last_id, dump=dump, tables=tables)


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
