"""Small requests to a store, side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from airflow_hive_federation.storage.filesystem import local_path

T = TypeVar("T")
_THREADS = 8
_LOCAL_FILES_A_THREAD = 64


def side_by_side(ask: Callable[[str], T], uris: Sequence[str]) -> list[T]:
    """Ask something of each URI; answers in the same order.

    Few files on this machine are asked one after the other: looking into one takes less than starting a
    thread for it (the footers of 20 ORC files took 1.3 ms so, and 6 ms in threads).

    :param ask: what it raises is raised here.
    """
    threads = _THREADS
    if all(local_path(uri) is not None for uri in uris):
        threads = min(threads, len(uris) // _LOCAL_FILES_A_THREAD)
    if threads < 2 or len(uris) < 2:
        return [ask(uri) for uri in uris]
    with ThreadPoolExecutor(threads, thread_name_prefix="store") as pool:
        return list(pool.map(ask, uris))
