"""Keeps metrics of progress, and writes them in Prometheus' text format."""

from __future__ import annotations

import threading
from collections import defaultdict

from airflow_hive_federation.progress.metrics import PREFIX


class Exposition:
    """Receives the metrics of one process, from any number of threads.

    ``hive_federation.<database>.<name>`` becomes ``hive_federation_<name>{database="<database>"}``. The name
    of a counter ends with ``_total``; a duration is a summary in seconds.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counters: defaultdict[str, int] = defaultdict(int)
        self._gauges: dict[str, float] = {}
        self._counts: defaultdict[str, int] = defaultdict(int)
        self._sums_s: defaultdict[str, float] = defaultdict(float)

    def incr(self, stat: str, count: int, /) -> None:
        """Add to a counter."""
        with self._lock:
            self._counters[stat] += count

    def gauge(self, stat: str, value: float, /) -> None:
        """Set a gauge."""
        with self._lock:
            self._gauges[stat] = value

    def timing(self, stat: str, dt: float, /) -> None:
        """Record a duration, in milliseconds."""
        with self._lock:
            self._counts[stat] += 1
            self._sums_s[stat] += dt / 1000

    def text(self) -> str:
        """Return all metrics in Prometheus' text format."""
        families: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
        with self._lock:
            for stat, count in self._counters.items():
                name, labels = _series(stat)
                families[f"{name}_total", "counter"].append(f"{name}_total{labels} {count}")
            for stat, value in self._gauges.items():
                name, labels = _series(stat)
                families[name, "gauge"].append(f"{name}{labels} {_number(value)}")
            for stat, count in self._counts.items():
                name, labels = _series(stat)
                lines = families[f"{name}_seconds", "summary"]
                lines.append(f"{name}_seconds_sum{labels} {_number(self._sums_s[stat])}")
                lines.append(f"{name}_seconds_count{labels} {count}")
        blocks = (
            "\n".join([f"# TYPE {name} {kind}", *sorted(lines)])
            for (name, kind), lines in sorted(families.items())
        )
        return "".join(f"{block}\n" for block in blocks)


def _series(stat: str) -> tuple[str, str]:
    """Return the name of a metric, and its labels; a database has no dots in the names of metrics."""
    database, dot, name = stat.removeprefix(f"{PREFIX}.").partition(".")
    if not dot:
        database, name = "", database
    plain = name.replace(".", "_").replace("-", "_")
    return f"{PREFIX}_{plain}", f'{{database="{database}"}}' if database else ""


def _number(value: float) -> str:
    # All digits count: a sum grows by small steps for as long as the process lives.
    return repr(value).removesuffix(".0")
