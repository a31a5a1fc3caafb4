"""The memory and the threads of a process."""

from __future__ import annotations

import re
from pathlib import Path


def peak_memory_bytes(process: int | str = "self") -> int:
    """Return the most memory that a program has had in use, this one by default.

    ``ru_maxrss`` of a child begins with what its parent had when it forked; the kernel's count per address
    space (``proc(5)``, ``VmHWM``) begins anew with the program.
    """
    return _status(process, r"VmHWM:\s+(\d+) kB") << 10


def threads_of(process: int | str) -> int:
    """Return how many threads a program has."""
    return _status(process, r"Threads:\s+(\d+)")


def _status(process: int | str, line: str) -> int:
    text = Path(f"/proc/{process}/status").read_text(encoding="ascii")
    search = re.search(f"^{line}$", text, re.MULTILINE)
    assert search, "the kernel does not report it"
    return int(search[1])
