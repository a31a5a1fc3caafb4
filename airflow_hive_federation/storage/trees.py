"""Removes directories with all that lies below them."""

from __future__ import annotations

import errno
import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from airflow_hive_federation.storage.filesystem import OBJECT_STORES, protocols

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

_THREADS = 8
#: Characters by which fsspec takes a path for a pattern (``glob.has_magic``).
_PATTERN = frozenset("*?[")
#: Stores whose drivers remove a directory by its name. Those of others look for paths that match
#: (``AbstractFileSystem.expand_path``): they would remove other directories as well, or find none.
_BY_NAME = frozenset({"file", "hdfs"})


def remove_tree(filesystem: AbstractFileSystem, path: str) -> None:
    """Remove a directory with all that lies below it, whatever characters are in its name.

    :raises FileNotFoundError: nothing lies there.
    """
    schemes = set(protocols(filesystem))
    if _PATTERN.isdisjoint(path) or schemes & _BY_NAME:
        filesystem.rm(path, recursive=True)
        return
    below = filesystem.find(path, detail=True, withdirs=True)
    files = [name for name, info in below.items() if info["type"] == "file"]
    if not below and not filesystem.exists(path):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="remove") as workers:
        list(workers.map(filesystem.rm_file, files))
    if schemes.isdisjoint(OBJECT_STORES):
        for directory in sorted({*below.keys() - {*files}, path}, reverse=True):
            filesystem.rmdir(directory)
