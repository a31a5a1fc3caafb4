"""Tasks and commands publish documents about remotes; nothing here needs a metastore."""

from __future__ import annotations

import pytest

from airflow_hive_federation.published.directory import StateDirectory, key_of
from airflow_hive_federation.published.documents import Publisher
from airflow_hive_federation.published.remotes import REMOTE, REMOTES, RemotePublisher, RemoteState
from airflow_hive_federation.remotes.reports import RefreshReport

TASK = Publisher(dag_id="d", run_id="r", task_id="t")


@pytest.fixture
def place(tmp_path: object) -> StateDirectory:
    return StateDirectory(f"file:{tmp_path}/state")


@pytest.fixture
def publisher(place: StateDirectory) -> RemotePublisher:
    return RemotePublisher(place, metastore="hive", remote="far", kind="database", by=TASK)


def state(place: StateDirectory) -> RemoteState:
    found = place.read(REMOTES, key_of("far", "hive", "database"), REMOTE)
    assert found is not None
    return found


def test_a_refresh_says_what_it_has_changed(place: StateDirectory, publisher: RemotePublisher) -> None:
    report = RefreshReport(
        remote="far",
        event_id=9,
        created=["a", "b"],
        gone=["c"],
        skipped={f"t{number:03}": "x" * 900 for number in range(200)},
        partitions_added=2,
        partitions_dropped=1,
    )
    publisher.refresh(report, points_to="sales", via="thrift")
    found = state(place)
    assert (found.points_to, found.via, found.event_id, found.by) == ("sales", "thrift", 9, TASK)
    assert (found.created, found.altered, found.partitions, found.gone) == (2, 0, 3, 1)
    assert (found.skipped_total, len(found.skipped), len(found.skipped["t000"])) == (200, 50, 300)
    assert found.changed_s == found.refreshed_s == found.published_s


def test_a_refresh_without_a_change_keeps_the_time_of_the_last(
    place: StateDirectory, publisher: RemotePublisher
) -> None:
    publisher.refresh(RefreshReport(remote="far", created=["a"]), points_to="sales", via="")
    changed_s = state(place).changed_s
    publisher.refresh(RefreshReport(remote="far"), points_to="sales", via="")
    assert (state(place).created, state(place).changed_s) == (0, changed_s)


def test_failures_are_counted_until_a_refresh_succeeds(
    place: StateDirectory, publisher: RemotePublisher
) -> None:
    publisher.refresh(RefreshReport(remote="far", event_id=9), points_to="sales", via="")
    for _ in range(3):
        publisher.failure("RemoteUnavailableError: away", "Start it.")
    found = state(place)
    assert (found.failures, found.error, found.remedy) == (3, "RemoteUnavailableError: away", "Start it.")
    assert (found.event_id, found.points_to) == (9, "sales")
    publisher.refresh(RefreshReport(remote="far", event_id=10), points_to="sales", via="")
    assert (state(place).failures, state(place).error) == (0, "")


def test_a_dropped_remote_may_come_again(place: StateDirectory, publisher: RemotePublisher) -> None:
    publisher.refresh(RefreshReport(remote="far"), points_to="sales", via="")
    publisher.drop()
    assert state(place).is_dropped
    publisher.refresh(RefreshReport(remote="far"), points_to="sales", via="")
    assert not state(place).is_dropped
