"""Defines the type of the object to which a command adds its parser."""

from __future__ import annotations

import argparse
from typing import TypeAlias

#: The result of ``argparse.ArgumentParser.add_subparsers``.
Subparsers: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"  # noqa: SLF001 - it has no public name
