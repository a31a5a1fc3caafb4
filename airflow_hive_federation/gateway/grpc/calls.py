"""What all services of the gRPC front share: who calls, until when, and how a refusal is sent.

A service wraps each of its methods in :meth:`Calls.answer`, in :meth:`Calls.stream` if it answers in pieces,
or in :meth:`Calls.converse` if it answers one question after the other.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar

import grpc

from airflow_hive_federation.errors import HiveFederationError
from airflow_hive_federation.gateway.grpc.authentication import Authenticator, Evidence
from airflow_hive_federation.gateway.grpc.conversations import Conversations
from airflow_hive_federation.gateway.grpc.settings import GrpcFrontSettings
from airflow_hive_federation.gateway.handler import (
    Caller,
    Cancellation,
    Deadline,
    Handler,
    Status,
    refused,
    status_of,
)
from airflow_hive_federation.metastore.grpc_wire import NO_MORE_CONVERSATIONS, STATUS_KEY, Answer, Question
from airflow_hive_federation.metastore.message_bounds import MalformedMessage

log = logging.getLogger(__name__)

T = TypeVar("T")

#: gRPC's code for each reason. A write whose outcome is unknown is UNKNOWN: no client repeats it by itself.
CODES = {
    Status.INVALID: grpc.StatusCode.INVALID_ARGUMENT,
    Status.UNKNOWN_METHOD: grpc.StatusCode.UNIMPLEMENTED,
    Status.UNAUTHENTICATED: grpc.StatusCode.UNAUTHENTICATED,
    Status.DENIED: grpc.StatusCode.PERMISSION_DENIED,
    Status.UNAVAILABLE: grpc.StatusCode.UNAVAILABLE,
    Status.DEADLINE: grpc.StatusCode.DEADLINE_EXCEEDED,
    Status.EXHAUSTED: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Status.CANCELLED: grpc.StatusCode.CANCELLED,
    Status.OUTCOME_UNKNOWN: grpc.StatusCode.UNKNOWN,
    Status.FAILED: grpc.StatusCode.INTERNAL,
}
#: Pieces that wait for a slow client; the producer waits, too, when there are so many.
_PIECES_AHEAD = 4
#: Longest text of a status, in bytes as they are sent: HTTP/2 headers of many clients end at 8 kB.
_LONGEST_TEXT = 3000
#: Text of the status of a call that failed by a defect.
_DEFECT = "The gateway failed; its log says why."
#: Seconds after which a producer looks whether its client has gone.
_LOOK_S = 0.2


@dataclass(frozen=True, kw_only=True)
class Call:
    """One call under way.

    :param caller: who makes it.
    :param deadline: when it ends.
    :param cancellation: becomes cancelled when the client gives up or is gone.
    """

    caller: Caller
    deadline: Deadline
    cancellation: Cancellation


class Calls:
    """Lets calls in, and turns their errors into statuses.

    :param handler: answers Thrift calls.
    :param authenticator: says who calls.
    """

    def __init__(self, handler: Handler, authenticator: Authenticator, settings: GrpcFrontSettings) -> None:
        self.handler = handler
        self.settings = settings
        self._authenticator = authenticator
        self._slots = threading.BoundedSemaphore(settings.max_concurrent_calls)
        self.conversations = Conversations(settings.max_conversations)
        self._producers = ThreadPoolExecutor(settings.max_concurrent_calls, thread_name_prefix="grpc-pieces")

    def answer(self, context: grpc.ServicerContext, work: Callable[[Call], T]) -> T:
        """Return what ``work`` returns, or end the call with the status of the error that it raises.

        :param context: the call, as grpcio has it.
        :param work: answers it; what it raises is a :class:`.HiveFederationError`.
        """
        with _Slot(self._slots, context):
            try:
                return work(self._begin(context))
            except HiveFederationError as error:
                end_with(context, error)
            except Exception as error:  # noqa: BLE001 - the edge: the client gets no text of a defect
                _end_with_defect(context, error)

    def stream(
        self, context: grpc.ServicerContext, work: Callable[[Call, Callable[[T], None]], None]
    ) -> Iterator[T]:
        """Yield the pieces that ``work`` emits, or end the call with the status of the error that it raises.

        ``work`` is in another thread, and held up while the client does not read.

        :param work: is given the call, and a function that takes pieces and raises
            :class:`ConnectionAbortedError` once the client is gone.
        """
        with _Slot(self._slots, context):
            pieces: queue.Queue[Any] = queue.Queue(_PIECES_AHEAD)
            try:
                call = self._begin(context)
            except HiveFederationError as error:
                end_with(context, error)
            except Exception as error:  # noqa: BLE001 - see answer()
                _end_with_defect(context, error)
            done = self._producers.submit(_produce, pieces, call, work)
            try:
                yield from _taken(pieces, call)
            finally:
                call.cancellation.cancel()
            failure = done.exception()
            if isinstance(failure, HiveFederationError):
                end_with(context, failure)
            elif failure is not None and context.is_active():
                _end_with_defect(context, failure)

    def converse(
        self,
        context: grpc.ServicerContext,
        questions: Iterator[bytes],
        work: Callable[[bytes, Call], bytes],
    ) -> Iterator[bytes]:
        """Yield the answer, or the refusal, of each question of a stream, until the client ends it.

        Each question is let in as a call of its own: who asks is looked at again, and it counts among the
        calls at work.

        :param questions: messages of the stream, as grpcio has them.
        :param work: is given a Thrift message and its call, and answers it; what it raises is a
            :class:`.HiveFederationError`.
        """
        conversation = self.conversations.open(context)
        if conversation is None:
            context.set_trailing_metadata(((STATUS_KEY, NO_MORE_CONVERSATIONS),))
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "There is no room for another conversation.")
            raise AssertionError("unreachable")
        with conversation:
            evidence = _evidence(context)
            for data in questions:
                if (cancellation := conversation.begin()) is None:
                    # The message that came last of all is not looked at, which its status says.
                    return
                answer = self._answered(data, evidence, cancellation, work).to_bytes()
                conversation.answer()
                yield answer
                if not conversation.rest():
                    return

    def _answered(
        self,
        data: bytes,
        evidence: Evidence,
        cancellation: Cancellation,
        work: Callable[[bytes, Call], bytes],
    ) -> Answer:
        if not self._slots.acquire(blocking=False):
            return _refusal(_too_many())
        try:
            question = Question.from_bytes(data)
            caller = self._authenticator.authenticate(evidence)
            limit = self.settings.call_timeout_s
            seconds = min(question.timeout_ms / 1000, limit) if question.timeout_ms else limit
            call = Call(caller=caller, deadline=Deadline(seconds), cancellation=cancellation)
            return Answer(work(question.message, call))
        except HiveFederationError as error:
            return _refusal(error)
        except MalformedMessage as error:
            return _refusal(refused(Status.INVALID, f"The message is no question: {error}."))
        except Exception as error:
            log.error("a call failed for a reason that is no refusal", exc_info=error)
            code = grpc.StatusCode.INTERNAL.value[0]
            return Answer(code=code, status=str(Status.OUTCOME_UNKNOWN), text=_DEFECT)
        finally:
            self._slots.release()

    def close(self) -> None:
        """Wait for the producers; their calls have ended."""
        self.conversations.close()
        self._producers.shutdown(wait=True, cancel_futures=True)

    def _begin(self, context: grpc.ServicerContext) -> Call:
        cancellation = Cancellation()
        if not context.add_callback(cancellation.cancel):
            cancellation.cancel()
        caller = self._authenticator.authenticate(_evidence(context))
        # Nothing is negative: a call that is over fails by itself at its first wait.
        left = context.time_remaining()
        limit = self.settings.call_timeout_s
        deadline = Deadline(limit if left is None else max(min(left, limit), 0.0))
        return Call(caller=caller, deadline=deadline, cancellation=cancellation)


class _Slot:
    """One of the calls that may be at work at a time."""

    def __init__(self, slots: threading.BoundedSemaphore, context: grpc.ServicerContext) -> None:
        self._slots = slots
        self._context = context

    def __enter__(self) -> None:
        if not self._slots.acquire(blocking=False):
            end_with(self._context, _too_many())

    def __exit__(self, *_: object) -> None:
        self._slots.release()


def _too_many() -> HiveFederationError:
    return refused(
        Status.EXHAUSTED,
        "The gateway is at work on as many calls as it may be.",
        remedy="Try again, or raise metastore.grpc.max.concurrent.calls.",
    )


def _refusal(error: HiveFederationError) -> Answer:
    status = status_of(error)
    return Answer(code=CODES[status].value[0], status=str(status), text=_text(str(error)))


_END = object()


def _produce(
    pieces: queue.Queue[Any], call: Call, work: Callable[[Call, Callable[[Any], None]], None]
) -> None:
    def emit(piece: Any) -> None:
        while not call.cancellation.cancelled:
            try:
                pieces.put(piece, timeout=min(_LOOK_S, call.deadline.remaining_s()))
            except queue.Full:
                continue
            return
        raise ConnectionAbortedError("the client is gone")

    try:
        work(call, emit)
    finally:
        # The consumer takes everything up to here, unless it is gone.
        while not call.cancellation.cancelled:
            try:
                pieces.put(_END, timeout=_LOOK_S)
            except queue.Full:
                continue
            break


def _taken(pieces: queue.Queue[Any], call: Call) -> Iterator[Any]:
    while True:
        try:
            piece = pieces.get(timeout=_LOOK_S)
        except queue.Empty:
            # The producer of a call that nobody waits for puts no end.
            if call.cancellation.cancelled:
                return
            continue
        if piece is _END:
            return
        yield piece


def end_with(context: grpc.ServicerContext, error: HiveFederationError) -> NoReturn:
    """End a call with the status of an error; its text is fit for clients."""
    status = status_of(error)
    context.set_trailing_metadata(((STATUS_KEY, str(status)),))
    context.abort(CODES[status], _text(str(error)))
    raise AssertionError("unreachable")


def _end_with_defect(context: grpc.ServicerContext, error: BaseException) -> NoReturn:
    log.error("a call failed for a reason that is no refusal", exc_info=error)
    context.set_trailing_metadata(((STATUS_KEY, str(Status.OUTCOME_UNKNOWN)),))
    context.abort(grpc.StatusCode.INTERNAL, _DEFECT)
    raise AssertionError("unreachable")


def _text(text: str) -> str:
    room = _LONGEST_TEXT
    for end, letter in enumerate(text):
        # gRPC sends other letters as ``%XX``, byte by byte.
        room -= 1 if " " <= letter <= "~" and letter != "%" else 3 * len(letter.encode(errors="replace"))
        if room < 0:
            return f"{text[:end]}…"
    return text


def _evidence(context: grpc.ServicerContext) -> Evidence:
    metadata = {
        entry.key.lower(): entry.value
        for entry in context.invocation_metadata()
        if isinstance(entry.value, str)
    }
    names = context.auth_context().get("x509_common_name", ())
    subject = names[0].decode(errors="replace") if names else ""
    return Evidence(metadata=metadata, peer=context.peer(), subject=subject)
