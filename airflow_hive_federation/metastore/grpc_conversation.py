"""Carries one call after the other over one gRPC stream, in the caller's thread.

grpcio's public streams in both directions hand each message to two other threads, which takes longer than the
transfer of the message. Its unary streams poll in the caller's thread (``SingleThreadedUnaryStream``) by
``segregated_call``, which this module uses as well. It is not public: if a version of grpcio lacks it, the
module raises :class:`NoConversation`, and the client makes a gRPC call per method as foreign clients do.
"""

from __future__ import annotations

import time
from typing import Any

import grpc

from airflow_hive_federation.metastore.channel import Deadline, ForeignProtocol
from airflow_hive_federation.metastore.grpc_deadlines import DEADLINES
from airflow_hive_federation.metastore.grpc_wire import CONVERSATION_IDLE_S, STATUS_KEY, Answer, Question
from airflow_hive_federation.metastore.message_bounds import MalformedMessage
from airflow_hive_federation.metastore.trace_context import current_trace

Code = grpc.StatusCode
Metadata = list[tuple[str, str]]

_CODES = {code.value[0]: code for code in Code}
_NO_FLAGS = 0
_ANSWERED, _ENDED, _BEGUN = "answered", "ended", "begun"


class NoConversation(Exception):  # noqa: N818 - internal signal, never seen by callers
    """The error if grpcio or the gateway has no conversations; the gateway has not read the question."""


class Refusal(grpc.RpcError):  # type: ignore[misc]
    """The error for a refused call or an ended stream, with the methods of grpcio's errors."""

    def __init__(self, code: object, text: str, trailing: tuple[tuple[str, Any], ...] = ()) -> None:
        super().__init__(text)
        self._code, self._text, self._trailing = code, text, trailing

    def code(self) -> Any:
        """Return the status code."""
        return self._code

    def details(self) -> str:
        """Return the status's text."""
        return self._text

    def trailing_metadata(self) -> tuple[tuple[str, Any], ...]:
        """Return the metadata that came with the status."""
        return self._trailing


class Conversation:
    """An open stream for one thread; another thread may call :meth:`end`.

    :param channel: grpcio's channel.
    :param path: full path of the method.
    :param metadata: metadata of the stream; the gateway checks it again for each question.
    :raises NoConversation: if this grpcio has no segregated calls.
    :raises ValueError: if the channel is closed.
    """

    def __init__(self, channel: Any, path: str, metadata: Metadata) -> None:
        self.metadata = metadata
        self._last_used = time.monotonic()
        self._answers = 0
        self._expired = False
        self._over = False
        self._ended: Any = None
        try:
            from grpc._cython import cygrpc

            self._cygrpc: Any = cygrpc
            self._call = channel._channel.segregated_call(  # noqa: SLF001 - see the module
                cygrpc.PropagationConstants.GRPC_PROPAGATE_DEFAULTS,
                path.encode(),
                None,
                None,
                metadata,
                None,
                (
                    ((cygrpc.SendInitialMetadataOperation(metadata, _NO_FLAGS),), _BEGUN),
                    ((cygrpc.ReceiveStatusOnClientOperation(_NO_FLAGS),), _ENDED),
                    ((cygrpc.ReceiveInitialMetadataOperation(_NO_FLAGS),), _BEGUN),
                ),
                cygrpc.build_census_context(),
            )
        except (ImportError, AttributeError, TypeError) as error:
            raise NoConversation(f"this grpcio has no segregated calls: {error}") from error

    def fits(self, metadata: Metadata) -> bool:
        """Return whether a question with this metadata can use the stream, which ends after some silence."""
        if self._over or metadata != self.metadata:
            return False
        return time.monotonic() - self._last_used < CONVERSATION_IDLE_S

    def ask(self, message: bytes, deadline: Deadline) -> bytes:
        """Send a Thrift message and return its answer.

        :raises Refusal: if the gateway refused the call, the stream has ended, or the time is over.
        :raises NoConversation: if the gateway has no conversations; it has not read the message.
        :raises ForeignProtocol: if the gateway's message is no answer.
        """
        left_s = deadline.remaining_s()
        # The remaining time is cut to whole milliseconds, and 0 would mean no limit.
        question = Question(message, max(int(left_s * 1000), 1), current_trace()).to_bytes()
        wait = DEADLINES.watch(left_s, self._expire)
        try:
            data = self._exchange(question)
        finally:
            # The answer and the end of the time can come at the same moment.
            self._over |= not DEADLINES.forget(wait)
        self._answers += 1
        self._last_used = time.monotonic()
        try:
            answer = Answer.from_bytes(data)
        except MalformedMessage as error:
            raise ForeignProtocol(str(error)) from error
        if answer.code:
            raise Refusal(_CODES.get(answer.code, Code.UNKNOWN), answer.text, ((STATUS_KEY, answer.status),))
        return answer.message

    def end(self) -> None:
        """End the stream and any wait for its answer; never fails."""
        if not self._over:
            self._call.cancel(self._cygrpc.StatusCode.cancelled, "The client has ended the stream.")

    def _expire(self) -> None:
        self._expired = True
        self.end()

    def _exchange(self, question: bytes) -> bytes:
        cygrpc, call = self._cygrpc, self._call
        operations = (
            cygrpc.SendMessageOperation(question, _NO_FLAGS),
            cygrpc.ReceiveMessageOperation(_NO_FLAGS),
        )
        sent = call.operate(operations, _ANSWERED)
        while sent or self._ended is None:
            event = call.next_event()
            if event.tag is _ENDED:
                # The end may be reported before the last answer. grpcio then frees the call with that answer:
                # another wait for it would corrupt the memory of the process.
                (self._ended,) = event.batch_operations
                self._over = True
            elif event.tag is _ANSWERED:
                sent = False
                for operation in event.batch_operations:
                    is_answer = operation.type() == cygrpc.OperationType.receive_message
                    if is_answer and (data := operation.message()) is not None:
                        return data  # type: ignore[no-any-return]
        raise self._end_of(self._ended)

    def _end_of(self, ended: Any) -> Exception:
        code, text = _CODES.get(ended.code(), Code.UNKNOWN), ended.details() or ""
        trailing = tuple((key, value) for key, value in ended.trailing_metadata() or ())
        if self._expired:
            return Refusal(Code.DEADLINE_EXCEEDED, "the time is over")
        if code is Code.UNIMPLEMENTED and not self._answers:
            return NoConversation("the gateway has no conversations")
        if code is Code.OK:
            # Before the gateway ends a stream with OK, it answers every message that it has read.
            return Refusal(
                Code.UNAVAILABLE, "the gateway has ended the stream", ((STATUS_KEY, "unavailable"),)
            )
        if code is Code.UNAVAILABLE and self._answers:
            # The gateway has read the stream, so no text of grpcio's can mean that it was refused unread.
            text = f"the stream ended after {self._answers} answers: {text}"
        return Refusal(code, text, trailing)
