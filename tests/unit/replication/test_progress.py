"""Long steps report their progress."""

from __future__ import annotations

from itertools import count

from airflow_hive_federation.replication.progress import counted


def test_a_line_twice_a_minute_with_count_and_rate() -> None:
    lines: list[str] = []
    items = range(130)
    assert list(counted(items, "db.t: partitions read", lines.append, clock=count(0, 0.5).__next__)) == [
        *items
    ]
    assert lines == [
        "db.t: partitions read: 60 so far, 2 a second",
        "db.t: partitions read: 120 so far, 2 a second",
    ]
