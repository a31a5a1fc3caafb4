"""Closes connections whose clients begin calls and reset them without a pause ("rapid reset").

grpcio hands over one new call at a time. If more than a thousand wait for that, it ends new calls of any
client with ``CANCELLED`` (``grpc.server.max_pending_requests``); a higher limit holds the waiting calls in
memory instead, 13 kB each. None of its limits counts calls that have been reset.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar
from urllib.parse import unquote

log = logging.getLogger(__name__)

T = TypeVar("T")

#: Calls that one connection may reset early within some seconds; at the last one, the front closes it.
_MOST_RESETS, _WITHIN_S = 500, 10.0
#: Seconds of a call in which each reset is early. Later, a reset at the call's deadline is not.
_EARLY_S = 0.1
#: Greatest number of connections whose resets are counted.
_MOST_CONNECTIONS = 10_000
#: grpcio's word for a call that its client has reset.
_RESET = "cancelled"
#: grpcio may listen by IPv6, in which addresses of IPv4 have this prefix.
_MAPPED = "::ffff:"
_OPEN_FILES = Path("/proc/self/fd")
_FAMILIES = {socket.AF_INET, socket.AF_INET6}


def close_connections(peer: str) -> int:
    """Shut down the sockets of this process that are connected to a peer; return their number.

    :param peer: grpcio's name of the peer, ``ipv4:127.0.0.1:4711`` for instance.
    """
    kind, _, place = unquote(peer).partition(":")
    wanted_host, _, wanted_port = place.rpartition(":")
    closed = 0
    if kind not in {"ipv4", "ipv6"} or not _OPEN_FILES.is_dir():
        return closed
    for name in os.listdir(_OPEN_FILES):  # noqa: PTH208 - names are all that is needed
        with contextlib.suppress(OSError), _socket_of(int(name)) as sock:
            if sock.family not in _FAMILIES:
                continue
            host, port = sock.getpeername()[:2]
            if (host.removeprefix(_MAPPED), str(port)) == (wanted_host.strip("[]"), wanted_port):
                sock.shutdown(socket.SHUT_RDWR)
                closed += 1
    return closed


def _socket_of(number: int) -> socket.socket:
    # The copy stays the same connection if other threads close and open files meanwhile.
    copied = os.dup(number)
    try:
        return socket.socket(fileno=copied)
    except OSError:
        # The file is no socket.
        os.close(copied)
        raise


class Resets:
    """Counts, per connection, the calls that were reset early.

    :param close: closes the connections of a peer.
    :param clock: returns seconds.
    """

    def __init__(
        self, close: Callable[[str], int] = close_connections, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._close = close
        self._clock = clock
        self._lock = threading.Lock()
        self._counts: OrderedDict[str, tuple[float, int]] = OrderedDict()

    def note(self, peer: str) -> None:
        """Count one call, and close its connection if there were too many.

        :param peer: grpcio's name of the connection.
        """
        now = self._clock()
        with self._lock:
            since, count = self._counts.pop(peer, (now, 0))
            if now - since > _WITHIN_S:
                since, count = now, 0
            self._counts[peer] = since, count + 1
            if len(self._counts) > _MOST_CONNECTIONS:
                self._counts.popitem(last=False)
        if count + 1 == _MOST_RESETS and self._close(peer):
            log.warning("the connection of %s was closed: its client has reset %s calls", peer, count + 1)


class CallThreads(ThreadPoolExecutor):
    """The threads in which grpcio's server answers calls.

    :param threads: greatest number of threads.
    :param resets: counts the calls that are reset.
    """

    def __init__(self, threads: int, resets: Resets | None = None) -> None:
        super().__init__(threads, thread_name_prefix="grpc-front")
        self._resets = resets or Resets()

    def submit(self, fn: Callable[..., T], /, *args: object, **kwargs: object) -> Future[T]:
        """Run a function of grpcio, whose arguments include the event and the state of the call."""
        return super().submit(self._run, fn, args, kwargs)

    def _run(self, fn: Callable[..., T], args: tuple[object, ...], kwargs: dict[str, object]) -> T:
        begun = time.monotonic()
        try:
            return fn(*args, **kwargs)
        finally:
            if peer := reset_early(args, time.monotonic() - begun):
                self._resets.note(peer)


def reset_early(arguments: tuple[object, ...], seconds: float) -> str:
    """Return the peer of a call that its client has reset early; for other calls, an empty text.

    The attributes of the arguments are not public. A version of grpcio without them counts no resets.

    :param arguments: arguments of grpcio's function, with the event and the state of the call.
    :param seconds: time that the function took.
    """
    if not any(getattr(argument, "client", None) == _RESET for argument in arguments):
        return ""
    for event in arguments:
        if (details := getattr(event, "call_details", None)) is not None:
            early = seconds < _EARLY_S or time.time() < details.deadline
            return str(getattr(event, "call").peer(), "ascii") if early else ""  # noqa: B009 - it has no type
    return ""
