"""Defines the interface of a channel, which carries requests to one server, and the deadlines of calls.

A channel carries one request and its answer at a time. Every wait ends at the deadline: a peer that sends a
byte now and then cannot extend it. A channel raises :class:`OSError` (no answer, connection lost, time over)
or :class:`ForeignProtocol` (the server is no metastore).
"""

from __future__ import annotations

import time
from typing import Protocol

#: Part of the error for an answer above the limit: the place where the limit is set.
BOUND = "max_answer_bytes of the connection or the settings may allow more"


class ForeignProtocol(Exception):  # noqa: N818 - internal signal, never seen by callers
    """The error for a peer that answers, but not as a metastore does."""


class NotSent(ConnectionError):  # noqa: N818 - internal signal, never seen by callers
    """The error for a connection that broke before the request was sent, so that no server executed it.

    :param remedy: the server's own remedy; empty if it has given none.
    """

    def __init__(self, *args: object, remedy: str = "") -> None:
        super().__init__(*args)
        self.remedy = remedy


class Deadline:
    """A point in time on the monotonic clock, at which a call has to end.

    :param seconds: seconds from now.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._at = time.monotonic() + seconds

    def remaining_s(self) -> float:
        """Return the remaining seconds.

        :raises TimeoutError: if the deadline has passed.
        """
        if (left := self._at - time.monotonic()) <= 0:
            raise self.passed()
        return left

    def passed(self) -> TimeoutError:
        """Return the error of a call that missed this deadline."""
        return TimeoutError(f"no complete answer within {self.seconds:g} s")

    def sooner(self, seconds: float) -> Deadline:
        """Return the deadline ``seconds`` from now, or this one if it comes first."""
        return Deadline(min(seconds, self.remaining_s()))


class Channel(Protocol):
    """A connection to one server."""

    #: ``True`` if the server learns the user only from ``set_ugi``.
    needs_greeting: bool

    def send(self, request: bytes, deadline: Deadline) -> None:
        """Send one whole request.

        :raises NotSent: if the connection broke before the last byte was out.
        """

    def receive(self, size: int, deadline: Deadline) -> bytes:
        """Return between 1 and ``size`` bytes of the answer.

        :raises ConnectionError: if the peer has closed the connection.
        """

    def is_stale(self) -> bool:
        """Return whether the peer closed the connection, or sent bytes, while no call was under way."""

    def has_more(self) -> bool:
        """Return whether unread bytes of the answer are left."""

    def close(self) -> None:
        """Close the channel; never fails."""
