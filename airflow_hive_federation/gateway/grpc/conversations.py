"""Limits the number of open streams of calls, ends silent streams, and ends all streams in a drain."""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import Self

import grpc

from airflow_hive_federation.gateway.handler import Cancellation
from airflow_hive_federation.metastore.grpc_wire import CONVERSATION_IDLE_S

#: Seconds of silence after which a stream is ended; the project's own clients stop using it earlier.
_SILENT_S = CONVERSATION_IDLE_S * 1.5
#: Seconds between two searches for silent streams.
_LOOK_S = 15.0
#: Seconds in which a draining gateway refuses messages that still arrive, before it ends silent streams.
_LINGER_S = 0.5


class Conversation:
    """One open stream of calls; the end of its ``with`` block removes it from its :class:`Conversations`."""

    def __init__(self, conversations: Conversations, context: grpc.ServicerContext) -> None:
        self._conversations = conversations
        self._context = context
        self._lock = threading.Lock()
        self._call: Cancellation | None = None
        self._sending = False
        self._ends = False
        self._silent_since = time.monotonic()
        if not context.add_callback(self._cancel):
            self._cancel()

    def begin(self) -> Cancellation | None:
        """Begin a call on the stream.

        :return: the call's cancellation, which the client's disconnection triggers; ``None`` if the front
            must not process the question.
        """
        with self._lock:
            if self._ends:
                return None
            self._call = Cancellation()
            return self._call

    def answer(self) -> None:
        """Begin to send the answer, which takes until the client reads it."""
        with self._lock:
            self._call, self._sending, self._silent_since = None, True, time.monotonic()

    def rest(self) -> bool:
        """Note that the answer has been sent; return whether another question may follow."""
        with self._lock:
            self._sending, self._silent_since = False, time.monotonic()
            return not self._ends

    def drain(self) -> None:
        """Accept no more questions."""
        with self._lock:
            self._ends = True

    def end_if_silent(self, seconds: float) -> None:
        """End the stream if the client has neither sent a question nor read for a number of seconds."""
        with self._lock:
            if self._call is not None or time.monotonic() - self._silent_since < seconds:
                return
            self._ends = True
        self._context.cancel()

    def end_if_waiting(self) -> None:
        """End the stream now if it waits for a question, or else after its running answer."""
        with self._lock:
            self._ends = True
            if self._call is not None or self._sending:
                return
        self._context.cancel()

    def _cancel(self) -> None:
        with self._lock:
            self._ends = True
            call = self._call
        if call is not None:
            call.cancel()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._conversations.leave(self)


class Conversations:
    """The set of all open streams.

    :param limit: greatest number of open streams.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._changed = threading.Condition()
        self._open: set[Conversation] = set()
        self._closed = False
        self._draining = False
        self._thread: threading.Thread | None = None

    def open(self, context: grpc.ServicerContext) -> Conversation | None:
        """Accept a new stream; return ``None`` if too many are open, or the gateway drains."""
        with self._changed:
            if len(self._open) >= self._limit or self._closed or self._draining:
                return None
            conversation = Conversation(self, context)
            self._open.add(conversation)
            if self._thread is None:
                self._thread = threading.Thread(target=self._look, name="grpc-front-silent", daemon=True)
                self._thread.start()
            return conversation

    def leave(self, conversation: Conversation) -> None:
        """Remove a stream that has ended."""
        with self._changed:
            self._open.discard(conversation)
            self._changed.notify_all()

    def drain(self, seconds: float) -> None:
        """End all streams: those with a running call after its answer, silent ones in a moment."""
        with self._changed:
            self._draining = True
            for conversation in self._open:
                conversation.drain()
            # Messages that clients sent before they knew of the drain are refused, not lost.
            self._changed.wait_for(lambda: not self._open, min(_LINGER_S, seconds))
            remaining = list(self._open)
        for conversation in remaining:
            conversation.end_if_waiting()

    def close(self) -> None:
        """End the thread that searches for silent streams."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            thread = self._thread
        if thread is not None:
            thread.join()

    def _look(self) -> None:
        with self._changed:
            while not self._changed.wait_for(lambda: self._closed, _LOOK_S):
                for conversation in list(self._open):
                    conversation.end_if_silent(_SILENT_S)
