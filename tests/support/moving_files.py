"""Files of servers that run: some come and go while a test looks through a directory."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path


def paths_below(root: Path) -> Iterator[Path]:
    """Yield the files and directories below a directory, without those that vanish meanwhile."""

    def refuse(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):
            raise error

    for directory, folders, files in os.walk(root, onerror=refuse):
        yield from (Path(directory, name) for name in (*folders, *files))


def content_of(path: Path) -> bytes | None:
    """Return the bytes of a file; ``None`` of what is no file, or has vanished meanwhile."""
    with contextlib.suppress(FileNotFoundError):
        if path.is_file():
            return path.read_bytes()
    return None
