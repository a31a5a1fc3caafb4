"""The router beside a model of the design that tries every cluster and checks each rule.

``make torture ARGS="--routes 1000000"`` compares that number of random cases.
"""

from __future__ import annotations

import os

import pytest

from tests.support.routing_model import compare

EXAMPLES = int(os.environ.get("HIVE_FEDERATION_EXAMPLES", "1000"))


# -- the model -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch", range(5))
def test_the_router_does_what_the_model_does(batch: int) -> None:
    kinds = [compare(seed) for seed in range(batch * EXAMPLES, (batch + 1) * EXAMPLES)]
    assert {"refused", "session", "output", "input", "no tables", "unanalysable"} <= set(kinds)
