"""Lends metastore clients to several threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Self

from airflow_hive_federation.errors import MetastoreTimeoutError
from airflow_hive_federation.metastore.client import MetastoreClient
from airflow_hive_federation.metastore.settings import MetastoreSettings


class MetastorePool:
    """A pool of at most ``size`` metastore clients, whose connections stay open between uses.

    :param size: maximum number of connections.
    :param wait_timeout_s: seconds to wait for a client while all are in use.
    """

    def __init__(self, settings: MetastoreSettings, size: int = 4, *, wait_timeout_s: float = 600.0) -> None:
        self.settings = settings
        self.size = size
        self._wait_timeout_s = wait_timeout_s
        self._idle: list[MetastoreClient] = []
        self._lock = threading.Lock()
        self._free = threading.BoundedSemaphore(size)

    @contextmanager
    def client(self) -> Iterator[MetastoreClient]:
        """Lend a client to the caller's thread.

        A client drops a broken connection by itself, and connects anew at its next call.

        :raises MetastoreTimeoutError: if no client became free in time.
        """
        if not self._free.acquire(timeout=self._wait_timeout_s):
            raise MetastoreTimeoutError(
                f"All {self.size} connections to {', '.join(self.settings.uris)} were in use for "
                f"{self._wait_timeout_s:g} s.",
                remedy="Look at the load of the metastore, and run it again.",
            )
        try:
            with self._lock:
                client = self._idle.pop() if self._idle else MetastoreClient(self.settings)
            try:
                yield client
            finally:
                with self._lock:
                    self._idle.append(client)
        finally:
            self._free.release()

    def guarded(self, guard: Callable[[str], None]) -> MetastorePool:
        """Return a pool of the same clients that runs ``guard`` before each call that writes.

        :param guard: the guard of :meth:`MetastoreClient.guarded`; several threads call it.
        """
        return _GuardedPool(self, guard)

    def close(self) -> None:
        """Close all clients that no thread is using."""
        with self._lock:
            while self._idle:
                self._idle.pop().close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _GuardedPool(MetastorePool):
    """A pool that lends the clients of another pool, with a guard."""

    def __init__(self, pool: MetastorePool, guard: Callable[[str], None]) -> None:
        super().__init__(pool.settings, pool.size)
        self._pool = pool
        self._guard = guard

    @contextmanager
    def client(self) -> Iterator[MetastoreClient]:
        with self._pool.client() as client, client.guarded(self._guard):
            yield client
