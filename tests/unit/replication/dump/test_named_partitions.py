"""The partitions that a cycle's events name."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from airflow_hive_federation.model import events as ev
from airflow_hive_federation.replication.dump.named_partitions import NamedPartitions

HEAD = {"event_id": 1, "event_type": "?", "database": "d", "table": "t"}


def named(*events: ev.TableEvent) -> Mapping[str, frozenset[str] | None]:
    collected = NamedPartitions()
    for event in events:
        collected.add(event)
    return collected.by_table()


def test_events_name_partitions_together() -> None:
    added = ev.PartitionsChanged(**HEAD, named=("p=1",))
    described = ev.StatisticsChanged(**HEAD, named=("p=2",))
    constrained = ev.ConstraintsChanged(**HEAD)
    of_table = ev.StatisticsChanged(**{**HEAD, "table": "u"}, named=())
    assert named(added, described, constrained, of_table) == {"t": {"p=1", "p=2"}, "u": frozenset()}


@pytest.mark.parametrize(
    "event",
    [
        ev.PartitionsChanged(**HEAD),
        ev.StatisticsChanged(**HEAD),
        ev.TableAltered(**HEAD, old_database="d", old_table="t"),
        ev.TableCreated(**HEAD),
        ev.Inserted(**HEAD),
        ev.Reloaded(**HEAD),
    ],
    ids=lambda event: type(event).__name__,
)
def test_an_event_that_names_none_stands_for_all(event: ev.TableEvent) -> None:
    other = ev.PartitionsChanged(**HEAD, named=("p=1",))
    assert named(other, event, other) == {"t": None}
