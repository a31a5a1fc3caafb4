"""Parameters that belong to one metastore and are never copied to another one. Pure."""

from __future__ import annotations

from collections.abc import Mapping

#: Prefixes in lower case: ours, and those of Hive's own replication (``ReplConst``, ``ReplUtils``).
SIDE_PREFIXES = ("hive.federation.", "hive.repl.", "repl.")
#: Makes Hive refuse statements that write, where its ``EnforceReadOnlyDatabaseHook`` is configured.
_READ_ONLY = "readonly"


def is_side_parameter(name: str) -> bool:
    """Whether a parameter belongs to one side, in upper or lower case.

    Whoever may alter a table of a source could claim by such a parameter that a target is at a certain event,
    or that a table stands for a remote with properties of their choice.
    """
    lower = name.lower()
    return lower == _READ_ONLY or lower.startswith(SIDE_PREFIXES)


def without_side_parameters(parameters: Mapping[str, str] | None) -> dict[str, str]:
    """Return the parameters that belong on both sides."""
    return {key: value for key, value in (parameters or {}).items() if not is_side_parameter(key)}
