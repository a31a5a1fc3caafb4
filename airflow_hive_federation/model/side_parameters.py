"""Separates the parameters that belong to one metastore only, and are never copied to another one."""

from __future__ import annotations

from collections.abc import Mapping

#: Prefixes in lower case: ours, and those of Hive's own replication (``ReplConst``, ``ReplUtils``).
SIDE_PREFIXES = ("hive.federation.", "hive.repl.", "repl.")
#: The parameter of a read-only database: Hive's ``EnforceReadOnlyDatabaseHook`` refuses writes to it.
_READ_ONLY = "readonly"


def is_side_parameter(name: str) -> bool:
    """Return whether a parameter belongs to one side only, in upper or lower case.

    Otherwise a user who may alter a table of a source could use such a parameter to claim that a target is
    at a certain event, or to link a table to a remote with properties of the user's choice.
    """
    lower = name.lower()
    return lower == _READ_ONLY or lower.startswith(SIDE_PREFIXES)


def without_side_parameters(parameters: Mapping[str, str] | None) -> dict[str, str]:
    """Return the parameters without those that belong to one side only."""
    return {key: value for key, value in (parameters or {}).items() if not is_side_parameter(key)}
