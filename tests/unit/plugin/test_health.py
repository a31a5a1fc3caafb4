"""The page advises a repair only where one helps."""

from __future__ import annotations

import pytest

from airflow_hive_federation.plugin.views import Health, PolicyState, health
from airflow_hive_federation.published.documents import PolicyName, PolicyVerification


@pytest.mark.parametrize(
    ("differences", "failures", "remedy"),
    [
        (1, 0, "Stop the writer of the target. Then run hive-federation replicate repair POLICY_FILE"),
        (1, 1, "Stop the writer of the target. Then run hive-federation replicate repair POLICY_FILE"),
        (0, 1, "Read these tables with Hive"),
    ],
)
def test_rows_that_cannot_be_read_are_not_repaired(differences: int, failures: int, remedy: str) -> None:
    verified = PolicyVerification(
        policy=PolicyName(name="p", source_database="d", target_database="d"),
        event_id=7,
        tables=2,
        differences=differences,
        failures=failures,
        not_compared=0,
        lines=("t: it differs",),
        published_s=1.0,
    )
    state, reason, advice = health(PolicyState(key="p", verification=verified))
    assert (state, reason) == (Health.DIFFERS, "t: it differs")
    assert advice.startswith(remedy)
    assert ("repair does not change them" in advice) == (not differences)
