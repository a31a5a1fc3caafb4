"""Each target of ``make fuzz`` with a fixed seed and few inputs, in a process of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz.targets import NAMES, gateway_grpc, target
from tests.fuzz.watching import Finding, watched


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_found(name: str, tmp_path: Path) -> None:
    result = watched(name, 1, tmp_path, ["--inputs", str(min(target(name).INPUTS, 200))])
    assert not isinstance(result, Finding), (result.summary, result.errors, result.data[:200])


def test_the_raw_encoding_reads_calls_to_their_end() -> None:
    """A target that refuses each input compares nothing."""
    for call in gateway_grpc.SEEDS[:3]:
        gateway_grpc.run(call)
