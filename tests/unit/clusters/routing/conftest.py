"""A catalog of tables in three clusters."""

from __future__ import annotations

import pytest

from tests.support.catalogs import Catalog, placed

DS = [("ds", "string")]


@pytest.fixture
def catalog() -> Catalog:
    made = Catalog()
    made.add("a", placed("C1", "C2"), size=10)
    made.add("b", placed("C2"), size=1000)
    made.add("c", placed("C3"), size=100)
    made.add("plain", None)
    made.add_partitioned(
        "logs",
        placed("C1"),
        DS,
        {(f"2026-03-0{n}",): placed("C1", "C2") if n > 3 else placed("C1") for n in range(1, 8)},
        size=1 << 20,
    )
    made.add_partitioned(
        "split", placed("C1"), DS, {("1",): placed("C1"), ("2",): placed("C2"), ("3",): None}
    )
    return made
