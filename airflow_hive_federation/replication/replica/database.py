"""Reserves, reads and publishes the target database, and finds the places of its data."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from airflow_hive_federation.errors import (
    LocationConflictError,
    MetastoreError,
    NoSuchObjectError,
    UnsupportedMethodError,
)
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.model.side_parameters import without_side_parameters
from airflow_hive_federation.replication.metadata.directories import Claim
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.replication.replica import markers
from airflow_hive_federation.replication.replica.cycle_history import CycleRecord, with_cycle
from airflow_hive_federation.replication.replica.external_roots import (
    ExternalRoots,
    OtherDatabase,
    check_roots,
    outermost,
    read_roots,
    with_roots,
)
from airflow_hive_federation.replication.replica.layout import TargetLayout
from airflow_hive_federation.replication.replica.markers import Target, TargetState, judge_target
from airflow_hive_federation.storage.filesystem import canonical, join, local_path
from airflow_hive_federation.transactions.write_id_counts import max_allocated_write_id

if TYPE_CHECKING:
    from airflow_hive_federation.metastore import MetastoreClient


#: Directories of other databases lie in the directory of this database.
DEFAULT_DATABASE = "default"
#: The remedy of a failover whose source cannot become a replica.
OLDER_SOURCE = (
    "This source cannot become a replica, so there is no way back. To move for good, stop its writers, run a "
    "last cycle, stop its metastore, and take the target over (replicate failover --source-lost)."
)
_OLDER_TARGET = "Use a metastore of Hive 4 as the target; Hive 3.1 can be a source."


def find_target(client: MetastoreClient, policy: ReplicationPolicy) -> Target:
    """Return the state of the target database for the policy.

    :raises TargetNotOursError: it belongs to another policy, or to nobody and may not be adopted.
    :raises UnsupportedMethodError: the database does not exist, and its metastore cannot hold a replica.
    """
    name = policy.target_database
    try:
        parameters = client.get_database(name).parameters or {}
    except NoSuchObjectError:
        parameters = None
        refuse_older(client, name)
    empty = parameters is not None and not client.list_tables(name)
    return judge_target(
        name,
        parameters,
        policy=policy.name,
        adopt=policy.into_existing,
        empty=empty,
        group=policy.group,
    )


def refuse_older(
    client: MetastoreClient, database: str, *, role: str = "target", remedy: str = _OLDER_TARGET
) -> None:
    """Refuse a metastore that lacks calls without which it cannot hold a replica.

    :param role: the part of the database in the policy, ``target`` or ``source``.
    :param remedy: the remedy of the error.
    :raises UnsupportedMethodError: it lacks one.
    """
    try:
        max_allocated_write_id(client, database, "")
    except UnsupportedMethodError as error:
        raise UnsupportedMethodError(
            f"The metastore of {role} database {database} cannot hold a replica: it lacks "
            f"get_max_allocated_table_write_id ({error.message}).",
            remedy=remedy,
            method="get_max_allocated_table_write_id",
        ) from error
    except MetastoreError:
        # It has the method. A gateway may hide tables that its rules do not name.
        return


def reserve_target(
    client: MetastoreClient, policy: ReplicationPolicy, source: types.Database, *, checkpoint: str
) -> None:
    """Mark the target database as the policy's, and create it if it does not exist.

    :param checkpoint: URI of the dump that is being loaded.
    """
    state = find_target(client, policy)
    parameters = {
        **without_side_parameters(source.parameters),
        **markers.database_markers(policy.name, checkpoint),
    }
    if state.state is TargetState.ABSENT:
        database = copy.deepcopy(source)
        database.name = policy.target_database
        database.parameters = parameters
        # The target's own defaults apply: the source's paths mean nothing there.
        database.locationUri = database.managedLocationUri = None
        database.createTime = database.privileges = None
        client.create_database(database)
    else:
        _alter_parameters(client, policy.target_database, parameters)


def publish_target(
    client: MetastoreClient,
    policy: ReplicationPolicy,
    record: CycleRecord,
    change: Callable[[types.Database], None] = lambda _: None,
) -> None:
    """Publish the target at an event, at which the database is complete (Hive's ``REPL STATUS`` reads it).

    :param record: the record of the cycle, with the event.
    :param change: makes the changes that readers see at the same moment.
    """
    database = client.get_database(policy.target_database)
    change(database)
    parameters = database.parameters or {}
    last_id = {markers.LAST_ID: str(record.event_id)}
    database.parameters = {**parameters, **last_id, **with_cycle(parameters, record)}
    client.alter_database(policy.target_database, database)


def find_layout(client: MetastoreClient, policy: ReplicationPolicy) -> TargetLayout:
    """Return the layout of the policy's tables on the target, whose database must exist."""
    database = client.get_database(policy.target_database)
    return TargetLayout(policy=policy, managed=_managed_location(client, database))


def expected_layout(client: MetastoreClient, policy: ReplicationPolicy) -> TargetLayout:
    """Return the layout of the policy's tables on the target, whose database need not exist yet.

    The directory of managed tables is empty if the metastore does not report its warehouse.
    """
    try:
        return find_layout(client, policy)
    except NoSuchObjectError:
        new = types.Database(name=policy.target_database, locationUri="")
        return TargetLayout(policy=policy, managed=_managed_location(client, new))


def claim_roots(
    client: MetastoreClient, layout: TargetLayout, claims: Sequence[Claim], *, anew: bool = False
) -> None:
    """Record the directories of external tables with the target database, if no other database has them.

    :param claims: the directories.
    :param anew: compare with other databases even if the directories are recorded already: the database has
        just been made.
    :raises LocationConflictError: directories of another database of the target collide; nothing is recorded.
    """
    name = layout.policy.target_database
    before = _own_roots(client, name)
    uris = [claim.target for claim in claims]
    if before.checked and before.covers(uris) and not anew:
        return
    _record_roots(client, name, before.joined(uris))
    try:
        check_other_roots(client, layout, claims)
    except LocationConflictError:
        _record_roots(client, name, before)
        raise
    _record_roots(client, name, replace(before.joined(uris), checked=True))


def check_other_roots(client: MetastoreClient, layout: TargetLayout, claims: Sequence[Claim]) -> None:
    """Compare the directories of external tables with those of the target's other databases.

    :param claims: the directories.
    :raises LocationConflictError: they collide.
    """
    name = layout.policy.target_database
    managed = layout.managed if name != DEFAULT_DATABASE else ""
    check_roots(layout.policy, claims, managed, _other_databases(client, name))


def with_claimed(parameters: dict[str, str], claims: Sequence[Claim]) -> dict[str, str]:
    """Return the parameters of a target database with a new record of its external directories.

    The record holds the directories of the claims and no others, and counts as compared.
    """
    uris = outermost(claim.target for claim in claims)
    return with_roots(parameters, ExternalRoots(uris=uris, checked=True))


def _own_roots(client: MetastoreClient, name: str) -> ExternalRoots:
    try:
        return read_roots(name, client.get_database(name).parameters)
    except LocationConflictError:
        return ExternalRoots()  # This load writes the record anew.


def _record_roots(client: MetastoreClient, name: str, roots: ExternalRoots) -> None:
    database = client.get_database(name)
    parameters = with_roots(database.parameters, roots)
    if parameters != (database.parameters or {}):
        database.parameters = parameters
        client.alter_database(name, database)


def _other_databases(client: MetastoreClient, own: str) -> Iterator[OtherDatabase]:
    for name in client.list_databases():
        if name == own:
            continue
        try:
            database = client.get_database(name)
        except NoSuchObjectError:
            continue  # It was dropped meanwhile.
        parameters = database.parameters or {}
        roots = read_roots(name, parameters).uris
        if roots or markers.POLICY in parameters:
            yield OtherDatabase(
                name=name,
                owner=parameters.get(markers.POLICY, ""),
                roots=roots,
                managed=_managed_location(client, database) if name != DEFAULT_DATABASE else "",
                dumps=parameters.get(markers.CHECKPOINT, "").rpartition("/")[0],
            )


def _managed_location(client: MetastoreClient, database: types.Database) -> str:
    # This follows Warehouse.getDatabaseManagedPath.
    location = database.managedLocationUri
    if not location:
        try:
            warehouse = client.get_config_value("hive.metastore.warehouse.dir", "")
        except MetastoreError:
            warehouse = ""
        location = join(warehouse, f"{database.name}.db") if warehouse else database.locationUri
    # Hive compares locations as text and writes file:/x. Other schemes stay as they are configured: to
    # Hadoop, s3a is not s3.
    return canonical(location) if location and local_path(location) else str(location).rstrip("/")


def mark_group(client: MetastoreClient, policy: ReplicationPolicy, group: str) -> None:
    """Record the consistency group of a policy's target; an empty name removes the record."""
    _alter_parameters(client, policy.target_database, {markers.GROUP: group or None})


def _alter_parameters(client: MetastoreClient, name: str, parameters: Mapping[str, str | None]) -> None:
    """Set parameters of a database; ``None`` removes a parameter."""
    database = client.get_database(name)
    merged = {**(database.parameters or {}), **parameters}
    database.parameters = {key: value for key, value in merged.items() if value is not None}
    client.alter_database(name, database)
