"""The decisions of a follower: the errors that it bears, its pauses, and its end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from airflow_hive_federation import errors
from airflow_hive_federation.errors import GroupMembershipError, HiveFederationError
from airflow_hive_federation.progress.cycle_events import CycleFailed, FollowEnded
from airflow_hive_federation.progress.events import Event
from airflow_hive_federation.replication.follow import FollowPauses, follow
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.waiting import StopRequest

POLICY = ReplicationPolicy(name="p", source_database="d", dump_root="file:/d")


class Failing:
    """A pool whose every use fails."""

    def __init__(self, error: HiveFederationError) -> None:
        self.error = error

    @contextmanager
    def client(self) -> Iterator[None]:
        raise self.error
        yield


def followed(error: HiveFederationError, failures: int = 1, **settings: Any) -> list[Event]:
    """Follow until a number of failures, and return the events."""
    events: list[Event] = []
    stop = StopRequest()

    def observer(event: Event) -> None:
        events.append(event)
        if isinstance(event, CycleFailed) and event.failures == failures:
            stop.make()

    pool: Any = Failing(error)
    pauses = FollowPauses(look_s=0.001, longest_s=0.003)
    follow(
        pool, pool, POLICY, run_copy=lambda *_: None, stop=stop, pauses=pauses, observer=observer, **settings
    )
    return events


@pytest.mark.parametrize(
    "error",
    [
        errors.MetastoreUnreachableError("away", remedy="Start it."),
        errors.CycleRunningError("runs", policy="p", holder="h"),
        errors.FileVanishedError("gone", path="file:/f"),
        errors.DumpIncompleteError("gone", dump="file:/d", path="file:/f"),
        errors.OutcomeUnknownError("broken", remedy="Look."),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_that_another_cycle_may_mend_are_borne(error: HiveFederationError) -> None:
    *failed, ended = followed(error, failures=4)
    assert [(event.failures, event.pause_s, event.error) for event in failed] == [  # type: ignore[attr-defined]
        (1, 0.002, str(error)),
        (2, 0.003, str(error)),
        (3, 0.003, str(error)),
        (4, 0.003, str(error)),
    ]
    assert ended == FollowEnded(database="d", event_id=0, cycles=0)


@pytest.mark.parametrize(
    "error",
    [
        errors.TargetNotOursError("another's", database="d", owner="q"),
        errors.StorageCredentialsExpiredError("expired", path="s3://b"),
        errors.StorageFullError("full", path="file:/f"),
        errors.EventCorruptError("damaged", event_id=1, event_type="T"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_other_errors_end_the_follower(error: HiveFederationError) -> None:
    with pytest.raises(type(error)):
        followed(error)


def test_a_follower_ends_after_its_time() -> None:
    away = errors.MetastoreUnreachableError("away", remedy="Start it.")
    events = followed(away, failures=1_000_000, for_s=0.01)
    assert isinstance(events[-1], FollowEnded)


def test_a_member_of_a_group_is_not_followed() -> None:
    member = ReplicationPolicy(name="p", source_database="d", dump_root="file:/d", group="g")
    nobody: Any = None
    with pytest.raises(GroupMembershipError, match="follow its source"):
        follow(nobody, nobody, member, run_copy=lambda *_: None)
