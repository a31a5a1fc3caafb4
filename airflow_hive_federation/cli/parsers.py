"""Names the type of the parsers that a command adds its own parser to."""

from __future__ import annotations

import argparse
from typing import TypeAlias

#: What ``argparse.ArgumentParser.add_subparsers``.
Subparsers: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"  # noqa: SLF001 - it has no public name
