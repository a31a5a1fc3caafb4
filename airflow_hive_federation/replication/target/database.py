"""The target database: whose it is, where its data lies, and the switch that publishes it."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from airflow_hive_federation.errors import MetastoreError, NoSuchObjectError
from airflow_hive_federation.model.side_parameters import without_side_parameters
from airflow_hive_federation.replication.metadata.layout import TargetLayout
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.replication.target import markers
from airflow_hive_federation.replication.target.cycle_history import CycleRecord, with_cycle
from airflow_hive_federation.replication.target.markers import Target, TargetState, judge_target
from airflow_hive_federation.storage.filesystem import canonical, join, local_path

if TYPE_CHECKING:
    from airflow_hive_federation.metastore import MetastoreClient


def find_target(client: MetastoreClient, policy: ReplicationPolicy) -> Target:
    """What the target database is to the policy.

    :raises TargetNotOursError: it belongs to another policy, or to nobody and may not be adopted.
    """
    name = policy.target_database
    try:
        parameters = client.get_database(name).parameters or {}
    except NoSuchObjectError:
        parameters = None
    empty = parameters is not None and not client.list_tables(name)
    return judge_target(name, parameters, policy=policy.name, adopt=policy.into_existing, empty=empty)


def reserve_target(
    client: MetastoreClient, policy: ReplicationPolicy, source: Any, *, checkpoint: str
) -> None:
    """Make the target database ours, creating it if need be.

    :param source: wire ``Database`` of the source.
    :param checkpoint: URI of the dump that is being loaded.
    """
    state = find_target(client, policy)
    parameters = {
        **without_side_parameters(source.parameters),
        **markers.database_markers(policy.name, checkpoint),
    }
    if state.state is TargetState.ABSENT:
        made = copy.deepcopy(source)
        made.name = policy.target_database
        made.parameters = parameters
        # The target's own defaults: the source's paths mean nothing there.
        made.locationUri = made.managedLocationUri = None
        made.createTime = made.privileges = None
        client.create_database(made)
    else:
        _alter_parameters(client, policy.target_database, parameters)


def publish_target(client: MetastoreClient, policy: ReplicationPolicy, record: CycleRecord) -> None:
    """The switch: from here on the database is complete at an event (Hive's ``REPL STATUS`` reads it).

    :param record: what the cycle did, and the event.
    """
    parameters = client.get_database(policy.target_database).parameters
    last_id = {markers.LAST_ID: str(record.event_id)}
    _alter_parameters(client, policy.target_database, {**last_id, **with_cycle(parameters, record)})


def find_layout(client: MetastoreClient, policy: ReplicationPolicy) -> TargetLayout:
    """Where things of the policy lie on the target; the target database must exist."""
    database = client.get_database(policy.target_database)
    return TargetLayout(policy=policy, managed=_managed_location(client, database))


def _managed_location(client: MetastoreClient, database: Any) -> str:
    # As Warehouse.getDatabaseManagedPath finds it.
    location = database.managedLocationUri
    if not location:
        try:
            warehouse = client.get_config_value("hive.metastore.warehouse.dir", "")
        except MetastoreError:
            warehouse = ""
        location = join(warehouse, f"{database.name}.db") if warehouse else database.locationUri
    # Hive compares locations as text and writes file:/x. Other schemes stay as they are configured: to
    # Hadoop, s3a is not s3.
    return canonical(location) if local_path(location) else str(location).rstrip("/")


def _alter_parameters(client: MetastoreClient, name: str, parameters: dict[str, str]) -> None:
    database = client.get_database(name)
    database.parameters = {**(database.parameters or {}), **parameters}
    client.alter_database(name, database)
