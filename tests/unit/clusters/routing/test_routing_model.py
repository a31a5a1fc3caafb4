"""The router beside a model of the design that tries every cluster and checks each rule.

``make torture ARGS="--routes 1000000"`` compares that number of random cases.
"""

from __future__ import annotations

import os
import random

import pytest

from tests.support.routing_model import CATALOGS, compare

EXAMPLES = int(os.environ.get("HIVE_FEDERATION_EXAMPLES", "500"))
#: Others in each run, multiples of the number of cases that share a statement. A difference names its seed.
FIRST = random.SystemRandom().randrange(1 << 40) // CATALOGS * CATALOGS


# -- the model -----------------------------------------------------------------------------------------------


def test_cases_of_every_kind() -> None:
    kinds = [compare(seed) for seed in range(2 * EXAMPLES)]
    assert {"refused", "session", "output", "input", "no tables", "unanalysable"} <= set(kinds)


@pytest.mark.parametrize("batch", range(4))
def test_the_router_does_what_the_model_does(batch: int) -> None:
    for seed in range(FIRST + batch * EXAMPLES, FIRST + (batch + 1) * EXAMPLES):
        compare(seed)
