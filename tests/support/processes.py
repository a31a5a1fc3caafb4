"""Processes of other parents, which may end between two questions about them."""

from __future__ import annotations

import psutil


def is_alive(pid: int) -> bool:
    """Return whether a process runs; one that has ended, and whose parent has not noticed it, does not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
