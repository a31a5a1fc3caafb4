"""Watches the source of a replication in the triggerer, for assets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from airflow_hive_federation.hooks.metastore import HiveMetastoreHook, common_storage_options
from airflow_hive_federation.hooks.policy_fields import policy_fields, rendered_policy
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.triggers.watching import WatchTrigger

if TYPE_CHECKING:
    from airflow_hive_federation.replication.source_watch import SourceWatch

#: Events that call for a cycle and are read at one look; the next look continues.
_AT_ONCE = 10_000


class SourceEventTrigger(WatchTrigger):
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

    fields = ("policy", "source_conn_id", "target_conn_id", "poll_s")

    def __init__(
        self,
        *,
        policy: ReplicationPolicy | Mapping[str, object],
        source_conn_id: str,
        target_conn_id: str,
        poll_s: float = 5.0,
    ) -> None:
        super().__init__(poll_s=poll_s)
        self.policy = policy_fields(policy)
        self.source_conn_id = source_conn_id
        self.target_conn_id = target_conn_id
        self._watch: SourceWatch | None = None

    def _look(self) -> Mapping[str, object]:
        """Look at the source; return ``policy``, ``database`` and ``event_id`` of the last new event."""
        event_id = self._last_noticed()
        if event_id is None:
            return {}
        database = self.policy.get("source_database")
        return {"policy": self.policy.get("name"), "database": database, "event_id": event_id}

    def _begin_anew(self) -> None:
        """Watch from the target again; the source was restored from a backup, for instance."""
        self._watch = None

    def _last_noticed(self) -> int | None:
        """Return the last new event that concerns the policy."""
        from airflow_hive_federation.replication.cycle import is_published
        from airflow_hive_federation.replication.source_watch import SourceWatch

        source, target = HiveMetastoreHook(self.source_conn_id), HiveMetastoreHook(self.target_conn_id)
        policy = rendered_policy(self.policy, common_storage_options(source, target))
        with source.client() as source_client:
            if self._watch is None:
                with target.client() as target_client:
                    if not is_published(target_client, policy):
                        last_id = source_client.get_current_notification_event_id()
                        self._watch = SourceWatch(policy, last_id)
                        return last_id
                    self._watch = SourceWatch.from_target(target_client, policy)
            noticed = self._watch.look(source_client, at_most=_AT_ONCE)
        return noticed[-1].event_id if noticed else None
