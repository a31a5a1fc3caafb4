"""An error that is not among those allowed."""

from __future__ import annotations

from tests.fuzz.planted import SEEDS, TOKENS, met

__all__ = ["SEEDS", "TOKENS"]
ALLOWED = (ValueError,)
TRACED = ("tests.fuzz.planted",)
INPUTS = 100_000


def run(data: bytes) -> None:
    """Meet the fault, or refuse the input."""
    if met(data):
        raise KeyError(data)
    raise ValueError(data)
