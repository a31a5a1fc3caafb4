"""Watches a source's event log for the events that call for a cycle of a policy."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_hive_federation.model.event_messages import read_event
from airflow_hive_federation.replication.dump.event_fold import check_source
from airflow_hive_federation.replication.dump.policy_events import PolicyEvents
from airflow_hive_federation.replication.format.directory import DumpDirectory
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.replication.replica.database import find_target
from airflow_hive_federation.replication.replica.position import loaded_dump

if TYPE_CHECKING:
    from airflow_hive_federation.metastore import MetastoreClient


@dataclass(frozen=True, kw_only=True)
class NoticedEvent:
    """An event that calls for a cycle.

    :param when_s: its time in seconds since 1970, by the source's clock.
    """

    event_id: int
    when_s: float


class SourceWatch:
    """Reads each event of a source once, after an event at which it begins.

    :param seen_id: the event after which it begins.
    :param open_txns: transactions with write ids of the policy's tables that are open at that event.
    """

    def __init__(self, policy: ReplicationPolicy, seen_id: int, open_txns: Iterable[int] = ()) -> None:
        self.seen_id = seen_id
        self._events = PolicyEvents(policy, open_txns)

    @classmethod
    def from_target(cls, target: MetastoreClient, policy: ReplicationPolicy) -> SourceWatch:
        """Return a watch that begins after the event that the policy's target shows.

        :param target: client of the target.
        :raises TargetNotOursError: the target database is not this policy's, or not published yet.
        """
        manifest = DumpDirectory(loaded_dump(target, policy), policy.storage_options).manifest()
        shown_id = find_target(target, policy).last_id or 0
        return cls(policy, shown_id, manifest.open_writes)

    def look(self, source: MetastoreClient, *, at_most: int) -> list[NoticedEvent]:
        """Read the source's new events; return those that call for a cycle.

        :param source: client of the source.
        :param at_most: the number of events after which the next look continues.
        :raises SourceWentBackError: the source knows fewer events than it did before.
        :raises EventCorruptError: an event cannot be read, and its heading names no database.
        """
        last_id = source.get_current_notification_event_id()
        check_source(self.seen_id, last_id)
        noticed: list[NoticedEvent] = []
        if last_id == self.seen_id:
            return noticed
        for raw in source.iter_notification_events(self.seen_id, up_to=last_id):
            event = read_event(raw)
            # Ids are dense: after a gap, events are lost, and any of them may have concerned the policy.
            is_lost = event.event_id != self.seen_id + 1
            self.seen_id = event.event_id
            if self._events.add(event) or is_lost:
                noticed.append(NoticedEvent(event_id=event.event_id, when_s=float(raw.eventTime or 0)))
            if len(noticed) >= at_most:
                return noticed
        if self.seen_id < last_id:
            self.seen_id = last_id
            noticed.append(NoticedEvent(event_id=last_id, when_s=time.time()))
        return noticed
