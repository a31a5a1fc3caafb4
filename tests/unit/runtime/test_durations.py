from __future__ import annotations

import pytest

from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.runtime.durations import duration_s, parse_duration_s


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("86400s", 86400),
        ("10d", 864000),
        ("2 hours", 7200),
        ("90", 90),
        ("500ms", 0.5),
        ("x", None),
        ("1y", None),
    ],
)
def test_durations(text: str, seconds: float | None) -> None:
    assert parse_duration_s(text) == seconds


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("3600s", 3600), ("5m", 300), ("500ms", 0.5), ("1h", 3600), ("7", 7), (" 2 d ", 172800)],
)
def test_a_duration_is_read_as_hive_writes_it(text: str, seconds: float) -> None:
    assert duration_s(text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "-1s", "1 fortnight", "1:30"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="not a duration"):
        duration_s(text)
