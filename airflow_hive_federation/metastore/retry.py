"""Decides which metastore calls the client may repeat."""

from __future__ import annotations

import re

from airflow_hive_federation.errors import MetastoreError
from airflow_hive_federation.metastore.struct import Fault
from airflow_hive_federation.waiting import PollPolicy

#: The pauses between the calls of one method that the metastore's database ends because of deadlocks.
DEADLOCKS = PollPolicy(first_s=0.2, factor=2.0, longest_s=2.0, timeout_s=20.0)

# The messages of PostgreSQL, Derby and Oracle, MySQL and MariaDB, and SQL Server. MySQL and MariaDB undo the
# transaction with its savepoints: Hive, which goes back to one before it falls back from SQL to JDO
# (ObjectStore.GetHelper), then reports the lost savepoint only.
_DEADLOCK = re.compile(
    r"deadlock detected|due to a deadlock|Deadlock found when trying|deadlocked on lock"
    r"|Exception rolling back to savepoint"
)

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


def is_undone_by_deadlock(method: str, error: MetastoreError) -> bool:
    """Return whether the metastore's database rolled the call back because of a deadlock.

    Hive 4.2 repeats such a call only if the exception's cause is JDO's; an update that falls back from SQL to
    JDO loses the cause (``ObjectStore.GetHelper``). The call changed nothing, so that it may be repeated.
    ``lock`` may not: it stores the locks in one transaction, and checks them in another.
    """
    fault = error.__cause__
    return method != "lock" and isinstance(fault, Fault) and bool(_DEADLOCK.search(str(fault)))
