"""Watches the source of a replication in the triggerer, for assets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import BaseEventTrigger, TriggerEvent

from airflow_hive_federation.errors import HiveFederationError
from airflow_hive_federation.hooks.metastore import HiveMetastoreHook, common_storage_options
from airflow_hive_federation.hooks.policy_fields import policy_fields, rendered_policy
from airflow_hive_federation.replication.policy import ReplicationPolicy

if TYPE_CHECKING:
    from airflow_hive_federation.replication.source_watch import SourceWatch

#: Events that call for a cycle and are read at one look; the next look continues.
_AT_ONCE = 10_000


class SourceEventTrigger(BaseEventTrigger):
    """Yields an event when the source has changed, for the ``AssetWatcher`` of an asset that starts a cycle.

    It is edge-triggered: it yields the last event that concerns the policy once, and not again while the
    cycle is pending. It begins after the event that the target shows, so another triggerer that takes it over
    loses no event, and perhaps repeats one. If the target is not published, it begins with an event that
    starts the bootstrap. It retries metastores that do not answer, because a watcher has no task to fail.

    Files of external tables change without events. A schedule beside the asset
    (``AssetOrTimeSchedule``) brings these, and repeats a cycle that has failed.

    :param policy: a :class:`ReplicationPolicy`, or its fields as a mapping.
    :param source_conn_id: the connection of the source's metastore.
    :param target_conn_id: the connection of the target's metastore.
    :param poll_s: seconds between two queries.
    :raises ConfigurationError: the policy has an unknown field, or lacks a required field.
    """

    def __init__(
        self,
        *,
        policy: ReplicationPolicy | Mapping[str, object],
        source_conn_id: str,
        target_conn_id: str,
        poll_s: float = 5.0,
    ) -> None:
        super().__init__()
        self.policy = policy_fields(policy)
        self.source_conn_id = source_conn_id
        self.target_conn_id = target_conn_id
        self.poll_s = poll_s

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the trigger in the form in which the scheduler passes it to the triggerer."""
        names = ("policy", "source_conn_id", "target_conn_id", "poll_s")
        return (
            f"{type(self).__module__}.{type(self).__qualname__}",
            {name: getattr(self, name) for name in names},
        )

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Yield an event per change, with ``policy``, ``database`` and ``event_id``, for ever."""
        watch: SourceWatch | None = None
        failing = False
        while True:
            try:
                watch, event_id = await asyncio.to_thread(self._look, watch)
            except HiveFederationError as error:
                # A source that was restored from a backup, for instance, is watched from its target again.
                watch = watch if error.retryable else None
                (self.log.debug if failing else self.log.warning)("Trying again: %s", error)
                failing = True
            else:
                failing = False
                if event_id is not None:
                    yield TriggerEvent(
                        {
                            "policy": self.policy.get("name"),
                            "database": self.policy.get("source_database"),
                            "event_id": event_id,
                        }
                    )
            await asyncio.sleep(self.poll_s)

    def _look(self, watch: SourceWatch | None) -> tuple[SourceWatch, int | None]:
        """Look at the source; return the watch, and the last new event that concerns the policy."""
        from airflow_hive_federation.replication.cycle import is_published
        from airflow_hive_federation.replication.source_watch import SourceWatch

        source, target = HiveMetastoreHook(self.source_conn_id), HiveMetastoreHook(self.target_conn_id)
        policy = rendered_policy(self.policy, common_storage_options(source, target))
        with source.client() as source_client:
            if watch is None:
                with target.client() as target_client:
                    if not is_published(target_client, policy):
                        last_id = source_client.get_current_notification_event_id()
                        return SourceWatch(policy, last_id), last_id
                    watch = SourceWatch.from_target(target_client, policy)
            noticed = watch.look(source_client, at_most=_AT_ONCE)
        return watch, noticed[-1].event_id if noticed else None
