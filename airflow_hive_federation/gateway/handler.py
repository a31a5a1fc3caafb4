"""The interface between the fronts and the gateway: who calls, and how a call is answered."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from airflow_hive_federation.gateway.refusals import Status, refusal, refused, status_of
from airflow_hive_federation.metastore.transport import Deadline

__all__ = ["Caller", "Cancellation", "Deadline", "Handler", "Status", "refusal", "refused", "status_of"]


@dataclass(frozen=True)
class Caller:
    """Who makes a call. It holds no secret.

    :param user: name of the user; empty if the front does not know it.
    :param authentication: how the front knows: ``none``, ``asserted`` (``set_ugi``, believed on loopback),
        ``mtls``, ``token`` or a plug-in's own word.
    :param groups: the user's groups.
    :param peer: address of the client, for the log.
    :param front: ``thrift``, ``grpc`` or a front's own word, for the log and the metrics.
    """

    user: str = ""
    authentication: str = "none"
    groups: tuple[str, ...] = ()
    peer: str = field(default="", compare=False)
    front: str = field(default="thrift", compare=False)


class Cancellation:
    """A client's wish that its call should end: it may come from any thread, at any time."""

    def __init__(self) -> None:
        # Held while the action is carried out: nobody goes on with a connection that is about to be broken.
        self._lock = threading.RLock()
        self._cancelled = False
        self._action: Callable[[], None] | None = None

    @property
    def cancelled(self) -> bool:
        """Whether the client has given up."""
        return self._cancelled

    def cancel(self) -> None:
        """Give up the call: its connection to the metastore is closed, if it has one."""
        with self._lock:
            self._cancelled = True
            action, self._action = self._action, None
            if action is not None:
                action()

    def on_cancel(self, action: Callable[[], None] | None) -> None:
        """Keep what :meth:`cancel` is to do from now on; do it now if that was called before.

        The former action is not under way any more when this returns.
        """
        with self._lock:
            if not self._cancelled:
                self._action = action
            elif action is not None:
                action()


class Handler(Protocol):
    """Answers the calls of all fronts, from several threads at a time."""

    def answer(
        self,
        method: str,
        message: bytes,
        caller: Caller,
        deadline: Deadline,
        *,
        cancellation: Cancellation | None = None,
    ) -> bytes:
        """Answer a call; never fails: refusals are answers too (:func:`.refusals.refusal`).

        :param method: the name in the message, which the front has read already.
        :param message: a whole Thrift message of the kind ``CALL``, in the strict binary protocol.
        :param caller: who calls; the front has authenticated them.
        :param deadline: end of the wait for the answer, its last byte included.
        :param cancellation: a way for the front to give up.
        :return: a whole message of the kind ``REPLY`` or ``EXCEPTION``, with the call's method and number.
        """

    def ask(
        self,
        method: str,
        message: bytes,
        caller: Caller,
        deadline: Deadline,
        *,
        cancellation: Cancellation | None = None,
    ) -> bytes:
        """As :meth:`answer`, for fronts with statuses of their own.

        Faults that the metastore answered with are messages as ever; only refusals of ours are raised.

        :raises HiveFederationError: a refusal, or a metastore that does not answer; :func:`status_of` says
            which status it has, and its text is fit for the client.
        """

    def relay(
        self,
        method: str,
        message: bytes,
        caller: Caller,
        deadline: Deadline,
        *,
        emit: Callable[[bytes], None],
        cancellation: Cancellation | None = None,
    ) -> None:
        """As :meth:`ask`, and pass a long answer on while it arrives, so that it is never whole in memory.

        :param emit: takes pieces of the answer in order, and may block.
        :raises HiveFederationError: as :meth:`ask`. If ``emit`` has been called before, the front has to
            break the client's connection, since half an answer is on its way.
        """
