"""One module per target: ``SEEDS`` to begin with, ``TOKENS`` to put in, ``ALLOWED`` errors, and ``run``.

``run`` takes the bytes of an input. It may raise the errors of ``ALLOWED``; any other is a finding, and so is
an ``AssertionError`` about what came out. ``TRACED`` names modules: an input that reaches a new line of them
is kept, and changed further. ``INPUTS`` is how many the suite tries.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Sequence
from typing import Protocol, cast


class Target(Protocol):
    """A target: a module of this package."""

    SEEDS: Sequence[bytes]
    TOKENS: Sequence[bytes]
    ALLOWED: tuple[type[Exception], ...]
    TRACED: Sequence[str]
    INPUTS: int

    @staticmethod
    def run(data: bytes) -> None: ...


NAMES = sorted(module.name for module in pkgutil.iter_modules(__path__))


def target(name: str) -> Target:
    """Import a target, of this package or, by a name with dots, of another one."""
    return cast("Target", importlib.import_module(name if "." in name else f"{__name__}.{name}"))
