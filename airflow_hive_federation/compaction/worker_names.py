"""Names this process in the metastore's compaction queue."""

from __future__ import annotations

import os
import socket


def worker_name() -> str:
    """Return the name of this process as a worker, and as one that requests compactions.

    The name must not begin with the host's name, because a metastore that starts on this host would treat
    such entries as those of its own dead workers (``CompactionTxnHandler.revokeFromLocalWorkers``).
    """
    return f"{host_prefix()}{os.getpid()}"


def host_prefix() -> str:
    """Return the beginning of the names of this machine's processes; the process id follows."""
    return f"hive-federation-{socket.gethostname()}-"
