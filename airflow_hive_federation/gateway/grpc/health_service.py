"""Answers grpcio's health checks, such that clients who watch can neither stop the server nor its drain."""

from __future__ import annotations

import threading
from typing import Any

import grpc
from grpc_health.v1 import health


class HealthService(health.HealthServicer):  # type: ignore[misc]
    """The health service of one front; each watch occupies a thread.

    grpcio's own watches without threads send while they hold a lock, and their ends, which run in the thread
    that serves all connections, take that lock: the server would stop for good.

    :param most_watches: greatest number of watches at the same time.
    """

    def __init__(self, most_watches: int) -> None:
        super().__init__(experimental_non_blocking=False)
        self._most_watches = most_watches
        self._watches: set[Any] = set()
        self._draining = False
        self._changing = threading.Lock()

    def Watch(self, request: object, context: grpc.ServicerContext, _: object = None) -> Any:  # noqa: N802
        """Return the states of a service, the present one first; a drain ends them with ``NOT_SERVING``."""
        watch = super().Watch(request, context)
        with self._changing:
            has_room = len(self._watches) < self._most_watches
            if has_room:
                self._watches.add(watch)
            draining = self._draining
        if not has_room:
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "There is no room for another watch.")
        if not context.add_callback(lambda: self._leave(watch)):
            self._leave(watch)
        if draining:
            watch.close()
        return watch

    def enter_graceful_shutdown(self) -> None:
        """Report all services as not serving, and end the watches, for whom the drain would wait."""
        super().enter_graceful_shutdown()
        with self._changing:
            self._draining = True
            watches = list(self._watches)
        for watch in watches:
            watch.close()

    def _leave(self, watch: Any) -> None:
        with self._changing:
            self._watches.discard(watch)
        watch.close()
