"""Describes the machine that the measurements ran on."""

from __future__ import annotations

import os
import platform
from pathlib import Path


def description() -> str:
    """Cores, processor, memory and the load of the last minute, in a line."""
    memory_gb = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    return (
        f"{os.cpu_count()} cores ({_processor()}), {memory_gb:.0f} GB, {platform.system()} "
        f"{platform.release()}, Python {platform.python_version()}, load {os.getloadavg()[0]:.1f}"
    )


def _processor() -> str:
    path = Path("/proc/cpuinfo")
    if path.exists():
        for line in path.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.machine()
