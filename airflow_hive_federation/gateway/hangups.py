"""Cancels calls whose clients disconnect; one thread watches the connections of all running calls.

A thread that waits for a metastore does not read from its client. The kernel reports at once that a client
has closed its connection (``EPOLLRDHUP``, ``epoll_ctl(2)``). A client that closes only its sending side
counts as gone, too: no Thrift client does that and still reads.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import threading
from collections.abc import Iterator

from airflow_hive_federation.gateway.handler import Cancellation

_HAS_EPOLL = hasattr(select, "epoll")


class Hangups:
    """Cancels the calls of clients that disconnect; does nothing on kernels without ``epoll``."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: dict[int, Cancellation] = {}
        self._closed = False
        if not _HAS_EPOLL:
            return
        self._epoll = select.epoll()
        self._wake_read, self._wake_write = os.pipe()
        self._epoll.register(self._wake_read, select.EPOLLIN)
        self._thread = threading.Thread(target=self._watch, name="thrift-hangups", daemon=True)
        self._thread.start()

    @contextlib.contextmanager
    def watching(self, sock: socket.socket, cancellation: Cancellation) -> Iterator[None]:
        """Cancel a call if its client disconnects before the block ends.

        :param sock: the client's connection.
        """
        fd = sock.fileno()
        with self._lock:
            watched = _HAS_EPOLL and not self._closed and fd >= 0
            if watched:
                self._calls[fd] = cancellation
                self._epoll.register(fd, select.EPOLLRDHUP | select.EPOLLONESHOT)
        try:
            yield
        finally:
            if watched:
                with self._lock:
                    del self._calls[fd]
                    if not self._closed:
                        self._epoll.unregister(fd)

    def close(self) -> None:
        """End the thread; running calls are no longer watched."""
        with self._lock:
            if not _HAS_EPOLL or self._closed:
                return
            self._closed = True
        os.write(self._wake_write, b"\0")
        self._thread.join()
        self._epoll.close()
        os.close(self._wake_read)
        os.close(self._wake_write)

    def _watch(self) -> None:
        while True:
            ready = [fd for fd, _ in self._epoll.poll()]
            for fd in ready:
                self._look_at(fd)
            if self._wake_read in ready:
                return

    def _look_at(self, fd: int) -> None:
        with self._lock:
            call = self._calls.get(fd)
            # The call may have ended since the event, and another connection may have its descriptor now.
            if call is None or not _has_left(fd):
                return
        call.cancel()


def _has_left(fd: int) -> bool:
    poll = select.poll()
    poll.register(fd, select.POLLRDHUP)
    return bool(poll.poll(0))
