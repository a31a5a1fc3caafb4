"""Open streams of calls: how many there may be, the end of silent ones, and that of all in a drain."""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import Self

import grpc

from airflow_hive_federation.gateway.handler import Cancellation
from airflow_hive_federation.metastore.grpc_wire import CONVERSATION_IDLE_S

#: Seconds of silence after which a stream is ended. Clients of ours do not use it any more by then.
_SILENT_S = CONVERSATION_IDLE_S * 1.5
#: Seconds between two looks at all streams.
_LOOK_S = 15.0
#: Seconds for messages on their way to be refused when the gateway drains, before silent streams are ended.
_LINGER_S = 0.5


class Conversation:
    """One stream; it leaves the others at the end of its ``with`` block."""

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
        """Begin with a question.

        :return: becomes cancelled when the client gives up; ``None`` if the question must not be looked at.
        """
        with self._lock:
            if self._ends:
                return None
            self._call = Cancellation()
            return self._call

    def answer(self) -> None:
        """Begin to send the answer, which lasts while the client does not read."""
        with self._lock:
            self._call, self._sending, self._silent_since = None, True, time.monotonic()

    def rest(self) -> bool:
        """The answer is out; return whether there may be another question."""
        with self._lock:
            self._sending, self._silent_since = False, time.monotonic()
            return not self._ends

    def drain(self) -> None:
        """Look at no more questions."""
        with self._lock:
            self._ends = True

    def end_if_silent(self, seconds: float) -> None:
        """End the stream if the client has neither asked nor read for so long."""
        with self._lock:
            if self._call is not None or time.monotonic() - self._silent_since < seconds:
                return
            self._ends = True
        self._context.cancel()

    def end_if_waiting(self) -> None:
        """End the stream if it waits for a question; an answer on its way is its last."""
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
    """All open streams.

    :param limit: how many there may be.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._changed = threading.Condition()
        self._open: set[Conversation] = set()
        self._closed = False
        self._draining = False
        self._thread: threading.Thread | None = None

    def open(self, context: grpc.ServicerContext) -> Conversation | None:
        """Let a stream in; ``None`` if there are too many."""
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
        """Forget a stream, which has ended."""
        with self._changed:
            self._open.discard(conversation)
            self._changed.notify_all()

    def drain(self, seconds: float) -> None:
        """End all streams: those with a call at work when it is answered, silent ones in a moment."""
        with self._changed:
            self._draining = True
            for conversation in self._open:
                conversation.drain()
            # What was sent before the client knew of the drain is refused, not lost.
            self._changed.wait_for(lambda: not self._open, min(_LINGER_S, seconds))
            left = list(self._open)
        for conversation in left:
            conversation.end_if_waiting()

    def close(self) -> None:
        """End the thread that looks for silent streams."""
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
