"""The memory of the process that asks."""

from __future__ import annotations

import re
from pathlib import Path


def peak_memory_bytes() -> int:
    """Return the most memory that this program has had in use.

    ``ru_maxrss`` of a child begins with what its parent had when it forked; the kernel's count per address
    space (``proc(5)``, ``VmHWM``) begins anew with the program.
    """
    found = re.search(
        r"^VmHWM:\s+(\d+) kB$", Path("/proc/self/status").read_text(encoding="ascii"), re.MULTILINE
    )
    assert found, "the kernel does not say"
    return int(found[1]) << 10
