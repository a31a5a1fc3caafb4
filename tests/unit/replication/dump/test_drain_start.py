"""The start of a bootstrap, as tasks hand it to each other."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.replication.dump.drain import DrainStart

START = DrainStart(database="shop", event_id=7, transactions=(3, 5), moment_ms=1)


@pytest.mark.parametrize(
    "value", ["{{ start }}", {}, {**START.to_json(), "event_id": "7"}, {**START.to_json(), "transactions": 3}]
)
def test_other_values_are_refused(value: Any) -> None:
    with pytest.raises(ConfigurationError, match="not the result of a drain"):
        DrainStart.from_json(value)
