"""Separates the parameters that belong to one metastore only, and are never copied to another one."""

from __future__ import annotations

from collections.abc import Mapping

#: Prefixes in lower case: ours, and those of Hive's own replication (``ReplConst``, ``ReplUtils``).
SIDE_PREFIXES = ("hive.federation.", "hive.repl.", "repl.")
#: The parameter of a read-only database: Hive's ``EnforceReadOnlyDatabaseHook`` refuses writes to it.
_READ_ONLY = "readonly"

#: The parameter by which Hive before 2.0 protected tables, and by which Trino refuses writes.
PROTECT_MODE = "PROTECT_MODE"
#: The mode of a table that a cluster's view shows read-only.
READ_ONLY_MODE = "READ_ONLY"
#: The parameter of such tables: the view's cluster. No metastore has it.
SHOWN_IN = "hive.cluster.read.only.in"


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


def without_view_mark(parameters: Mapping[str, str]) -> dict[str, str]:
    """Return the parameters without the mark by which a cluster's view shows a table read-only.

    In another metastore the table belongs to no other cluster: Trino could not write to it any more, and the
    gateway refuses a table with the mark.
    """
    kept = dict(parameters)
    if kept.pop(SHOWN_IN, None) is None:
        return kept
    modes = [mode for mode in kept.pop(PROTECT_MODE, "").split(",") if mode not in {"", READ_ONLY_MODE}]
    return {**kept, PROTECT_MODE: ",".join(modes)} if modes else kept
