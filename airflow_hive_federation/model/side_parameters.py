"""Separates the parameters that belong to one metastore only, and are never copied to another one."""

from __future__ import annotations

from collections.abc import Mapping

#: Prefixes in lower case: ours, and those of Hive's own replication (``ReplConst``, ``ReplUtils``). The
#: parameters of clusters name clusters of one metastore's registry, and copies of the rows in this metastore.
SIDE_PREFIXES = ("hive.cluster.", "hive.federation.", "hive.repl.", "repl.")
#: The parameter of Hive before 2.0 by which Trino refuses writes: to overwrite partitions, it makes no call.
PROTECTION = "PROTECT_MODE"
#: The parameter of tables that a gateway's view of a cluster shows read-only: that cluster. No metastore has
#: it.
SHOWN_IN = "hive.cluster.read.only.in"
_PROTECTED = "READ_ONLY"
#: The parameter of a read-only database: Hive's ``EnforceReadOnlyDatabaseHook`` refuses writes to it.
_READ_ONLY = "readonly"


def is_side_parameter(name: str) -> bool:
    """Return whether a parameter belongs to one side only, in upper or lower case.

    Otherwise a user who may alter a table of a source could use such a parameter to claim that a target is
    at a certain event, to link a table to a remote with properties of the user's choice, or to route the
    queries of a replica to a cluster that has no copy of it.
    """
    lower = name.lower()
    return lower == _READ_ONLY or lower.startswith(SIDE_PREFIXES)


def without_side_parameters(parameters: Mapping[str, str] | None) -> dict[str, str]:
    """Return the parameters without those that belong to one side only."""
    return {key: value for key, value in as_stored(parameters).items() if not is_side_parameter(key)}


def shown_read_only(parameters: Mapping[str, str] | None, cluster: str) -> dict[str, str]:
    """Return the parameters of a table as the view of a cluster shows them, in which nobody may write it.

    A table that its owner has made read-only stays as it is.
    """
    modes = _modes(parameters)
    if _PROTECTED in modes:
        return dict(parameters or {})
    return {**(parameters or {}), PROTECTION: ",".join([*modes, _PROTECTED]), SHOWN_IN: cluster}


def as_stored(parameters: Mapping[str, str] | None) -> dict[str, str]:
    """Return parameters as a metastore has them: what :func:`shown_read_only` has added is left out."""
    stored = dict(parameters or {})
    if stored.pop(SHOWN_IN, None) is None:
        return stored
    modes = [mode for mode in _modes(stored) if mode != _PROTECTED]
    stored.pop(PROTECTION, None)
    return {**stored, PROTECTION: ",".join(modes)} if modes else stored


def _modes(parameters: Mapping[str, str] | None) -> list[str]:
    return [mode for mode in (parameters or {}).get(PROTECTION, "").split(",") if mode]
