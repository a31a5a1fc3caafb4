"""Runs small requests to a store in parallel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from airflow_hive_federation.storage.filesystem import local_path

T = TypeVar("T")
_THREADS = 8
_LOCAL_FILES_PER_THREAD = 64


def side_by_side(ask: Callable[[str], T], uris: Sequence[str]) -> list[T]:
    """Call a function with each URI in parallel, and return the results in the same order.

    A few local files are handled one after the other: reading one takes less time than starting a thread for
    it (the footers of 20 ORC files took 1.3 ms this way, and 6 ms in threads).

    :param ask: the function to call; its errors are raised here.
    """
    threads = _THREADS
    if all(local_path(uri) is not None for uri in uris):
        threads = min(threads, len(uris) // _LOCAL_FILES_PER_THREAD)
    if threads < 2 or len(uris) < 2:
        return [ask(uri) for uri in uris]
    with ThreadPoolExecutor(threads, thread_name_prefix="store") as pool:
        return list(pool.map(ask, uris))
