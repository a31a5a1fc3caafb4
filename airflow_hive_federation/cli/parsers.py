"""Parses the command line: options may stand before, between and after the other arguments."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from typing import TypeAlias

#: The result of ``argparse.ArgumentParser.add_subparsers``.
Subparsers: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"  # noqa: SLF001 - it has no public name

#: The variable by which a shell asks for completions (argcomplete).
COMPLETING = "_ARGCOMPLETE"


class CommandParser(argparse.ArgumentParser):
    """A parser that takes options and other arguments in any order, as do the parsers of its commands.

    ``argparse`` itself gives an optional argument its default once an option follows the arguments before it.
    """

    _is_intermixed = False

    def parse_known_args(  # type: ignore[override] # the overloads of typeshed
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parse the arguments as ``ArgumentParser.parse_known_args`` does, in any order.

        The parser of commands keeps the order: options after a command belong to the command. So does a line
        with ``--``, behind which nothing is an option, and so does a completion, which looks at one parser.
        """
        if (
            COMPLETING in os.environ
            or self._is_intermixed
            or self._subparsers is not None
            or args is None
            or "--" in args
        ):
            return super().parse_known_args(args, namespace)
        self._is_intermixed = True
        try:
            return self.parse_known_intermixed_args(args, namespace)
        finally:
            self._is_intermixed = False


def count(text: str) -> int:
    """Return the whole number above 0 in an option's text."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a whole number above 0")
    return int(text)


def seconds(text: str) -> float:
    """Return the number of seconds, 0 or more, in an option's text."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not a number of seconds of 0 or more")
    return value
