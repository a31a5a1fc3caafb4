"""Targets with a fault, for the test of the fuzzer: it lies three comparisons deep, and no seed meets it."""

from __future__ import annotations

SEEDS = (b"abc", b"", b"\xff" * 8)
TOKENS = (b"x", b"y", b"z")


def met(data: bytes) -> bool:
    """Tell whether an input meets the fault."""
    if data[:1] != b"x":
        return False
    if data[1:2] != b"y":
        return False
    return data[2:3] == b"z"
