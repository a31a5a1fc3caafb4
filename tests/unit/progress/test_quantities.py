"""Counts, sizes, rates and durations have one form."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from airflow_hive_federation.progress.quantities import (
    count_rate,
    duration,
    part_of_size,
    rate,
    several,
    size,
)

PACKAGE = Path(__file__).parents[3] / "airflow_hive_federation"


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [
        (0, "0 bytes"),
        (1, "1 byte"),
        (999, "999 bytes"),
        (1_000, "1.0 kB"),
        (999_949, "999.9 kB"),
        (999_950, "1.0 MB"),
        (5_567_910, "5.6 MB"),
        (999_960_000_000, "1.0 TB"),
        (3 * 10**18, "3.0 EB"),
        (1_500 * 10**18, "1,500.0 EB"),
    ],
)
def test_a_size(size_bytes: int, text: str) -> None:
    assert size(size_bytes) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0.0 s"),
        (0.44, "0.4 s"),
        (59.94, "59.9 s"),
        (59.96, "1 min 0 s"),
        (303.4, "5 min 3 s"),
        (3_599.4, "59 min 59 s"),
        (3_599.6, "1 h 0 min"),
        (96_000.0, "26 h 40 min"),
    ],
)
def test_a_duration(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_rates_and_counts() -> None:
    assert rate(3_400_000.4) == "3.4 MB/s"
    assert count_rate(2_000.4, "records") == "2,000 records/s"
    assert part_of_size(2_000_000, 9_000_000) == "2.0 of 9.0 MB"
    assert [several(count, "copy", "copies") for count in (1, 1_200)] == ["1 copy", "1,200 copies"]
    assert [several(count, "file") for count in (0, 1)] == ["0 files", "1 file"]


def test_no_other_module_writes_sizes_and_times() -> None:
    """A message that formats a size or a time itself would differ from the others."""
    own = re.compile(
        r"(_bytes|\bsize):,|_bytes\}? (kB|MB|GB|KiB|MiB|GiB)|\.seconds:[,.]|/ 1e[69]\b|\"KiB\"|\"MB\""
    )
    found = [
        f"{path.relative_to(PACKAGE)}: {line.strip()}"
        for folder in ("cli", "demo", "clusters", "operators", "progress", "ingest", "replication")
        for path in sorted((PACKAGE / folder).rglob("*.py"))
        if path.name != "quantities.py"
        for line in path.read_text(encoding="utf-8").splitlines()
        if own.search(line)
    ]
    assert found == []
