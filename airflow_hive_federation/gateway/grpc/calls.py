"""Authenticates, limits and answers the calls of all gRPC services, and sends errors as gRPC statuses.

A service wraps each of its methods in :meth:`Calls.answer`; in :meth:`Calls.stream` if it answers in pieces;
or in :meth:`Calls.converse` if one stream carries several questions, one after the other.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, NoReturn, TypeVar

import grpc

from airflow_hive_federation.errors import HiveFederationError
from airflow_hive_federation.gateway.grpc.authentication import Authenticator, Evidence, is_local
from airflow_hive_federation.gateway.grpc.conversations import Conversations
from airflow_hive_federation.gateway.grpc.settings import GrpcFrontSettings
from airflow_hive_federation.gateway.handler import Call as HandlerCall
from airflow_hive_federation.gateway.handler import (
    Caller,
    Cancellation,
    Deadline,
    Handler,
    Session,
    Status,
    refused,
    status_of,
)
from airflow_hive_federation.metastore.grpc_wire import (
    CLUSTER_KEY,
    NO_MORE_CONVERSATIONS,
    STATUS_KEY,
    Answer,
    Question,
)
from airflow_hive_federation.metastore.message_bounds import MalformedMessage
from airflow_hive_federation.metastore.trace_context import trace_of

log = logging.getLogger(__name__)

T = TypeVar("T")

#: gRPC's code of each status. A write with an unknown outcome is UNKNOWN: no client retries it by itself.
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
#: Greatest number of pieces that wait for a slow client, until their producer waits, too.
_PIECES_AHEAD = 4
#: Longest text of a status, in bytes on the wire: many clients limit HTTP/2 headers to 8 kB.
_LONGEST_TEXT = 3000
#: Text of the status of a call that failed because of a defect in the gateway.
_DEFECT = "The gateway failed; its log has the reason."
#: Seconds between a waiting producer's checks for a disconnected client.
_LOOK_S = 0.2


@dataclass(frozen=True, kw_only=True)
class Call:
    """One running call of a gRPC client.

    :param caller: the authenticated caller.
    :param deadline: end of the call's time.
    :param cancellation: is triggered when the client cancels the call or disconnects.
    """

    caller: Caller
    deadline: Deadline
    cancellation: Cancellation

    def of(self, method: str, message: bytes) -> HandlerCall:
        """Return the call that carries a Thrift message."""
        return HandlerCall(method, message, self.caller, self.deadline, self.cancellation)


class Calls:
    """Admits calls up to the limit, authenticates their callers, and turns errors into statuses.

    :param handler: answers Thrift calls.
    :param authenticator: authenticates the callers.
    :param settings: the limits of the front.
    """

    def __init__(self, handler: Handler, authenticator: Authenticator, settings: GrpcFrontSettings) -> None:
        self.handler = handler
        self.settings = settings
        self._authenticator = authenticator
        self._slots = threading.BoundedSemaphore(settings.max_concurrent_calls)
        self.conversations = Conversations(settings.max_conversations)
        self._producers = ThreadPoolExecutor(settings.max_concurrent_calls, thread_name_prefix="grpc-pieces")

    def answer(self, context: grpc.ServicerContext, work: Callable[[Call], T]) -> T:
        """Return the result of ``work``, or end the call with the status of the error that it raises.

        :param context: grpcio's context of the call.
        :param work: answers the call; raises :class:`.HiveFederationError`.
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

        ``work`` runs in another thread, and blocks while the client does not read.

        :param context: grpcio's context of the call.
        :param work: receives the call and a function that takes pieces. The function raises
            :class:`ConnectionAbortedError` once the client has disconnected.
        """
        with _Slot(self._slots, context):
            pieces: queue.Queue[Any] = queue.Queue(_PIECES_AHEAD)
            try:
                call = self._begin(context)
            except HiveFederationError as error:
                end_with(context, error)
            except Exception as error:  # noqa: BLE001 - see answer()
                _end_with_defect(context, error)
            future = self._producers.submit(_produce, pieces, call, work)
            try:
                yield from _taken(pieces, call)
            finally:
                call.cancellation.cancel()
            failure = future.exception()
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
        """Yield the answer, or the refusal, to each question of a stream, until the client ends the stream.

        Each question counts as a call of its own: its caller is authenticated again, and it takes one of the
        slots for concurrent calls.

        :param context: grpcio's context of the stream.
        :param questions: messages of the stream, as grpcio delivers them.
        :param work: receives a Thrift message and its call, and returns the answer; raises
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
                    # The front has not processed this last message; the status of the stream shows that.
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
            caller = replace(self._caller(evidence), trace=question.trace)
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
        """End the thread for silent streams, and wait for the producers, whose calls have ended."""
        self.conversations.close()
        self._producers.shutdown(wait=True, cancel_futures=True)

    def _begin(self, context: grpc.ServicerContext) -> Call:
        cancellation = Cancellation()
        if not context.add_callback(cancellation.cancel):
            cancellation.cancel()
        caller = self._caller(_evidence(context))
        # No deadline is negative: a call whose time is over fails at its first wait.
        remaining_s = context.time_remaining()
        limit = self.settings.call_timeout_s
        deadline = Deadline(limit if remaining_s is None else max(min(remaining_s, limit), 0.0))
        return Call(caller=caller, deadline=deadline, cancellation=cancellation)

    def _caller(self, evidence: Evidence) -> Caller:
        caller = self._authenticator.authenticate(evidence)
        # A plug-in may return the same caller again, whose memory would pass from one client to another.
        cluster = evidence.metadata.get(CLUSTER_KEY, "").strip()
        trace = trace_of(evidence.metadata)
        remote = not is_local(evidence.peer)
        return replace(caller, cluster=cluster, trace=trace, session=Session(lasting=False), remote=remote)


class _Slot:
    """A slot for one of the calls that may run at the same time; ends the call if none is free."""

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
        "The gateway has reached its limit of concurrent calls.",
        remedy="Try again, or raise metastore.grpc.max.concurrent.calls.",
    )


def _refusal(error: HiveFederationError) -> Answer:
    status = status_of(error)
    return Answer(code=CODES[status].value[0], status=str(status), text=status_text(str(error)))


_END = object()


def _produce(
    pieces: queue.Queue[Any], call: Call, work: Callable[[Call, Callable[[Any], None]], None]
) -> None:
    def emit(piece: object) -> None:
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
        # The consumer reads all pieces up to this mark, unless the client has disconnected.
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
            # The producer of a cancelled call puts no end mark into the queue.
            if call.cancellation.cancelled:
                return
            continue
        if piece is _END:
            return
        yield piece


def end_with(context: grpc.ServicerContext, error: HiveFederationError) -> NoReturn:
    """End a call with the status of an error, whose text is fit for clients."""
    status = status_of(error)
    context.set_trailing_metadata(((STATUS_KEY, str(status)),))
    context.abort(CODES[status], status_text(str(error)))
    raise AssertionError("unreachable")


def _end_with_defect(context: grpc.ServicerContext, error: BaseException) -> NoReturn:
    log.error("a call failed for a reason that is no refusal", exc_info=error)
    context.set_trailing_metadata(((STATUS_KEY, str(Status.OUTCOME_UNKNOWN)),))
    context.abort(grpc.StatusCode.INTERNAL, _DEFECT)
    raise AssertionError("unreachable")


def status_text(text: str, room: int = _LONGEST_TEXT) -> str:
    """Return the text of a status, cut to the bytes that it may take on the wire."""
    for end, letter in enumerate(text):
        # gRPC encodes all other characters as ``%XX`` per byte.
        room -= 1 if " " <= letter <= "~" and letter != "%" else 3 * len(letter.encode(errors="replace"))
        if room < 0:
            return f"{text[:end]}…"
    return text


def _evidence(context: grpc.ServicerContext) -> Evidence:
    metadata: dict[str, str] = {}
    for entry in context.invocation_metadata():
        if isinstance(entry.value, str):
            key = entry.key.lower()
            # Two names of clusters become a name that no cluster has, so that neither is ignored.
            before = metadata.get(key, entry.value) if key == CLUSTER_KEY else entry.value
            metadata[key] = entry.value if before == entry.value else f"{before}, {entry.value}"
    names = context.auth_context().get("x509_common_name", ())
    subject = names[0].decode(errors="replace") if names else ""
    return Evidence(metadata=metadata, peer=context.peer(), subject=subject)
