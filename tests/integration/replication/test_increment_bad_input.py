"""Faults of a source while increments run: each has one outcome, and the next cycle goes on.

Elsewhere: a source restored from a backup, and events that have expired (test_lost_events); a target changed
by hand (test_target_protection, test_cycles, test_repair); a full disk under a bootstrap (test_bad_input).
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.errors import (
    DumpIncompleteError,
    EventCorruptError,
    NoSuchObjectError,
    StorageFullError,
    UnknownEventError,
)
from airflow_hive_federation.metastore import MetastoreClient
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.replication.cycle import is_published
from airflow_hive_federation.replication.status import read_lag
from airflow_hive_federation.storage.filesystem import local_path
from tests.support.disks import disk
from tests.support.increment_site import DATABASE, Site, site
from tests.support.incrementing import run_copy
from tests.support.small_source import add_partition, connected, make_table

__all__ = ["site"]

Events = Callable[[list[Any]], list[Any]]


def deliver(monkeypatch: pytest.MonkeyPatch, change: Events) -> None:
    """Change the events that the metastore returns to events that no metastore sends."""
    original = MetastoreClient.iter_notification_events

    def changed(client: MetastoreClient, after: int, **more: Any) -> Iterator[Any]:
        events = list(original(client, after, **more))
        # A cycle reads one event alone to recognize the source.
        return iter(events if more.get("batch_size") == 1 else change(events))

    monkeypatch.setattr(MetastoreClient, "iter_notification_events", changed)


def damaged(events: list[Any]) -> list[Any]:
    for event in events:
        event.message = event.message[: len(event.message) // 2]
    return events


def of_a_future_format(events: list[Any]) -> list[Any]:
    for event in events:
        event.messageFormat = "json-9"
    return events


def of_a_future_type(events: list[Any]) -> list[Any]:
    events[-1].eventType = "ENTANGLE_TABLE"
    events[-1].dbName = DATABASE
    return events


def without_a_database(events: list[Any]) -> list[Any]:
    for event in events:
        event.dbName = None
    return damaged(events)


@pytest.mark.parametrize(
    ("change", "error"), [(without_a_database, EventCorruptError), (of_a_future_type, UnknownEventError)]
)
def test_events_that_cannot_be_understood_stop_the_replica_where_it_is(
    site: Site, monkeypatch: pytest.MonkeyPatch, change: Events, error: type[Exception]
) -> None:
    site.bootstrap()
    before = site.last_id()
    site.commit()
    with monkeypatch.context() as patch:
        deliver(patch, change)
        with pytest.raises(error):
            site.cycle()
    assert site.last_id() == before
    assert site.cycle().transactions == 1
    assert site.high_watermarks() == [3, 3]


@pytest.mark.parametrize("change", [damaged, of_a_future_format])
def test_an_event_that_cannot_be_read_has_its_table_compared_anew(
    site: Site, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, change: Events
) -> None:
    site.bootstrap()
    site.commit()
    with connected(site.source) as client:
        client.create_database(types.Database(name=f"{DATABASE}_beside"))
        make_table(client, f"{DATABASE}_beside", "other")
        client.drop_database(f"{DATABASE}_beside", delete_data=True, cascade=True)

    def of_transactions_read(events: list[Any]) -> list[Any]:
        change([event for event in events if event.dbName])
        return events

    with monkeypatch.context() as patch:
        deliver(patch, of_transactions_read)
        report = site.cycle()
    assert not report.lost
    assert "ALLOC_WRITE_ID_EVENT" in "".join(report.unreadable)
    assert f"compares table {DATABASE}.acid anew" in caplog.text
    assert not re.search(r"\bother\b", caplog.text)
    assert site.high_watermarks() == [3, 3]
    site.commit()
    with monkeypatch.context() as patch:
        deliver(patch, change)
        # Which transaction has ended is unknown: every table is looked at.
        assert site.cycle().lost
    assert site.high_watermarks() == [4, 4]
    site.commit()
    assert site.cycle().unreadable == []
    assert site.high_watermarks() == [5, 5]
    with connected(site.source) as source, connected(site.target) as other:
        assert len(files_of(source)) == 10
        assert files_of(other) == files_of(source)


def test_a_partition_that_has_taken_the_name_of_another_is_found_without_its_events(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its files have the names and lengths of those that the target has: nothing else would copy them."""
    site.bootstrap()
    with connected(site.source) as client:
        (before,) = client.get_partitions_of(DATABASE, "acid", ["p=one"])
        client.drop_partitions(DATABASE, "acid", ["p=one"], delete_data=True)
        add_partition(client, DATABASE, "one")
    location = Path(local_path(str(before.sd and before.sd.location)) or "")
    for write_id in (1, 2):
        delta = location / f"delta_{write_id:07d}_{write_id:07d}_0000"
        delta.mkdir(parents=True)
        (delta / "bucket_00000_0").write_text(f"p=ONE {write_id}", encoding="utf-8")

    def of_tables(events: list[Any]) -> list[Any]:
        damaged([event for event in events if event.dbName])
        return events

    with monkeypatch.context() as patch:
        deliver(patch, of_tables)
        report = site.cycle()
    assert "DROP_PARTITION" in "".join(report.unreadable)
    assert not report.lost
    texts = [
        sorted(
            path.read_text(encoding="utf-8") for path in (warehouse / f"{DATABASE}.db/acid").rglob("bucket_*")
        )
        for warehouse in (site.source.warehouse, site.target.warehouse)
    ]
    assert texts[0][:2] == ["p=ONE 1", "p=ONE 2"]
    assert texts[1] == texts[0]


def files_of(client: MetastoreClient) -> list[str]:
    """Of the ACID table, below its directory."""
    table: Any = client.get_table(DATABASE, "acid")
    root = Path(local_path(table.sd.location) or "")
    return sorted(str(path.relative_to(root)) for path in root.rglob("bucket_*"))


def test_events_out_of_order_are_taken_as_lost_and_nothing_is_missing(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.bootstrap()
    for _ in range(3):
        site.commit()
    with monkeypatch.context() as patch:
        deliver(patch, lambda events: events[::-1])
        assert site.cycle().lost
    assert site.high_watermarks() == [5, 5]
    site.commit()
    assert not site.cycle().lost
    assert site.high_watermarks() == [6, 6]


def test_a_source_database_that_is_gone_or_has_another_name(site: Site) -> None:
    """(Hive renames no database: who wants another name makes another database.)"""
    site.bootstrap()
    before = site.last_id()
    with connected(site.source) as client:
        client.drop_database(DATABASE, delete_data=True, cascade=True)
    with pytest.raises(NoSuchObjectError, match=DATABASE):
        site.cycle()
    assert site.last_id() == before
    with connected(site.target) as client:
        assert sorted(client.list_tables(DATABASE)) == ["acid", "ext", "seen"]


def test_a_target_database_that_is_gone_is_bootstrapped(site: Site) -> None:
    site.bootstrap()
    with connected(site.target) as client:
        client.drop_database(DATABASE, delete_data=True, cascade=True)
        assert not is_published(client, site.policy)
    site.bootstrap()
    assert site.high_watermarks() == [2, 2]


def test_a_table_dropped_while_it_is_copied(site: Site) -> None:
    site.bootstrap()
    before = site.last_id()
    with connected(site.source) as client:
        make_table(client, DATABASE, "brief", partitioned=True)
    site.commit()

    def copy(plan: str, outcomes: str) -> None:
        with connected(site.source) as client:
            client.drop_table(DATABASE, "acid", delete_data=True)
        run_copy(plan, outcomes)

    with pytest.raises(DumpIncompleteError, match="acid"):
        site.load(site.dump().dump, copy)
    assert site.last_id() == before
    site.cycle()
    with connected(site.target) as client:
        assert sorted(client.list_tables(DATABASE)) == ["brief", "ext", "seen"]


def test_a_target_out_of_space_goes_on_when_there_is_room(site: Site, tmp_path: Path) -> None:
    with disk(tmp_path / "base", "size=64k") as remount:
        site.bootstrap()
        before = site.last_id()
        site.external().write_bytes(b"x" * 100_000)
        dump = site.dump().dump
        with pytest.raises(StorageFullError):
            site.load(dump)
        assert site.last_id() == before
        remount("size=4m")
        site.load(dump)
        replica = next((tmp_path / "base").rglob("data"))
        assert replica.stat().st_size == 100_000


class CopyFailedError(Exception):
    """The error of a failing copy job."""


def test_definitions_wait_for_their_data(site: Site) -> None:
    """A column that is another one now is not read from old files while the copy of the new ones fails."""

    def failing(plan: str, outcomes: str) -> None:
        raise CopyFailedError

    def definition(metastore: EmbeddedMetastore) -> tuple[list[str], list[str]]:
        with connected(metastore) as client:
            table: Any = client.get_table(DATABASE, "acid")
            names = client.list_partition_names(DATABASE, "acid")
            return [column.name for column in table.sd.cols], sorted(names)

    site.bootstrap()
    with connected(site.source) as client:
        table: Any = client.get_table(DATABASE, "acid")
        table.sd.cols[1].name = "renamed"
        client.alter_table(DATABASE, "acid", table)
        add_partition(client, DATABASE, "later")
    site.commit()
    dump, before = site.dump().dump, definition(site.target)
    with pytest.raises(CopyFailedError):
        site.load(dump, failing)
    assert definition(site.target) == before
    site.load(dump)
    assert definition(site.target) == definition(site.source) != before


def test_clocks_that_differ(site: Site, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Order is by ids, changes are told by another time, not a later one; only seconds of lag ask a clock."""
    site.bootstrap()
    real, real_ns = time.time, time.time_ns
    for number, hours in enumerate((-24, 24, -48)):
        site.commit()
        content = f"{number}".encode() * 6
        site.external().write_bytes(content)
        # As long as before, and older.
        os.utime(site.external(), (1000 - number, 1000 - number))
        with monkeypatch.context() as patch:
            patch.setattr(time, "time", lambda hours=hours: real() + 3600 * hours)
            patch.setattr(time, "time_ns", lambda hours=hours: real_ns() + 3_600_000_000_000 * hours)
            with connected(site.source) as client, connected(site.target) as target:
                lag = read_lag(client, target, site.policy)
            assert lag
            assert lag.events > 0
            assert lag.seconds == 0.0 if hours < 0 else lag.seconds > 80_000
            site.cycle()
        assert site.high_watermarks() == [3 + number, 3 + number]
        assert next((tmp_path / "base").rglob("data")).read_bytes() == content
