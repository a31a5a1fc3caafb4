"""Which calls may be made twice: data, and the rule it follows."""

from __future__ import annotations

# Names that read.
_READS = (
    "aliveSince",
    "check_lock",
    "fetch_",
    "find_",
    "get",
    "heartbeat",
    "isPartitionMarkedForEvent",
    "list_",
    "partition_name_",
    "show_",
    "translate_table_dryrun",
)

# Names that begin like a read and are none: they hand out work, take a lock or make a token.
_NO_READS = frozenset(
    {
        "find_next_compact",
        "find_next_compact2",
        "get_delegation_token",
        "get_lock_materialization_rebuild",
    }
)

# Writes that leave the same state, and give the same answer, when they are carried out twice.
_SAME_TWICE = frozenset({"flushCache", "setMetaConf", "setOption", "set_ugi", "update_creation_metadata"})


def is_idempotent(method: str) -> bool:
    """Tell whether a call may be repeated when it is unknown whether it was carried out.

    Creating, altering and dropping are not: the second try would meet the first one's work and report a
    conflict that is none. Nor are commits and aborts: a transaction that is finished and forgotten gives
    ``NoSuchTxnException`` the second time, which would say that the commit had failed.
    """
    return method in _SAME_TWICE or (method.startswith(_READS) and method not in _NO_READS)
