"""Decides which metastore calls the client may repeat."""

from __future__ import annotations

# Beginnings of the names of reading methods.
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

# Methods whose names begin like a read, but that hand out work, take a lock or make a token.
_NO_READS = frozenset(
    {
        "find_next_compact",
        "find_next_compact2",
        "get_delegation_token",
        "get_lock_materialization_rebuild",
    }
)

# Writes that leave the same state and return the same answer when they are carried out twice.
_SAME_TWICE = frozenset({"flushCache", "setMetaConf", "setOption", "set_ugi", "update_creation_metadata"})


def is_idempotent(method: str) -> bool:
    """Return whether a call may be repeated while its outcome is unknown.

    Calls that create, alter or drop objects may not: the second call would find the work of the first and
    report a false conflict. Nor may commits and aborts: for a finished transaction that the metastore no
    longer keeps, the second call raises ``NoSuchTxnException``, as if the commit had failed.
    """
    return method in _SAME_TWICE or (method.startswith(_READS) and method not in _NO_READS)
