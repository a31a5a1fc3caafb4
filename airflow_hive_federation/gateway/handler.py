"""Defines the interface between the fronts and the gateway: callers, cancellation and the call handler."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from airflow_hive_federation.gateway.messages import Emit
from airflow_hive_federation.gateway.names import Reference
from airflow_hive_federation.gateway.refusals import Status, refusal, refused, status_of
from airflow_hive_federation.metastore.channel import Deadline
from airflow_hive_federation.metastore.trace_context import Trace

__all__ = [
    "Call",
    "Caller",
    "Cancellation",
    "Deadline",
    "Handler",
    "Status",
    "refusal",
    "refused",
    "status_of",
]


@dataclass
class Session:
    """The memory of one Thrift connection.

    :param cluster: the catalog by which a call named a cluster last, in the client's spelling.
    :param expression_proxy: the class by which the metastore reads this client's expressions about
        partitions; empty for the metastore's own choice.
    :param lasting: false if the front gives each call a memory of its own.
    """

    cluster: str = ""
    expression_proxy: str = ""
    lasting: bool = True


@dataclass(frozen=True)
class Caller:
    """The user and client that make a call, without any secret.

    :param user: name of the user; empty if the front does not know it.
    :param authentication: the front's source of the name: ``none``, ``asserted`` (``set_ugi``, believed on
        loopback), ``mtls``, ``token`` or a plug-in's own term.
    :param groups: the user's groups.
    :param peer: address of the client, for the log.
    :param remote: the client is on another machine.
    :param cluster: the cluster that the call names beside its message; empty if it names none.
    :param trace: the trace context of the call; empty without one.
    :param session: the memory of the client's connection, if the front has connections with several calls.
    :param front: ``thrift``, ``grpc`` or another front's own name, for the log and the metrics.
    """

    user: str = ""
    authentication: str = "none"
    groups: tuple[str, ...] = ()
    peer: str = field(default="", compare=False)
    remote: bool = field(default=False, compare=False)
    front: str = field(default="thrift", compare=False)
    cluster: str = field(default="", compare=False)
    trace: Trace = field(default=(), compare=False)
    session: Session = field(default_factory=Session, compare=False, repr=False)


class Cancellation:
    """A client's request to end its call; any thread may make it, at any time."""

    def __init__(self) -> None:
        # Held during the action, so that no thread goes on with a connection that the action breaks.
        self._lock = threading.RLock()
        self._cancelled = False
        self._action: Callable[[], None] | None = None

    @property
    def cancelled(self) -> bool:
        """True if the client has cancelled the call."""
        return self._cancelled

    def cancel(self) -> None:
        """Cancel the call, and close its connection to the metastore, if it has one."""
        with self._lock:
            self._cancelled = True
            action, self._action = self._action, None
            if action is not None:
                action()

    def on_cancel(self, action: Callable[[], None] | None) -> None:
        """Set the action of :meth:`cancel`; run it now if :meth:`cancel` has been called before.

        The former action is no longer running when this method returns.
        """
        with self._lock:
            if not self._cancelled:
                self._action = action
            elif action is not None:
                action()


@dataclass
class CallFacts:
    """Facts about a call that its target finds out, for the access log.

    :param cluster: name of the cluster whose view answers; empty if the call names none.
    """

    cluster: str = ""


@dataclass(frozen=True)
class Call:
    """A call on its way to a metastore.

    :param method: the method's name, as the message has it.
    :param message: a whole Thrift message of the kind ``CALL``, in the strict binary protocol.
    :param caller: the caller, whom the front has authenticated.
    :param deadline: end of the wait for the answer's last byte.
    :param cancellation: lets the front cancel the call.
    :param named: databases and tables that the call names, under the upstream's names; empty if no component
        needed them.
    :param facts: the target adds to them while it answers.
    :param permits: decides whether the caller may make such a call about a database, or a table of it, under
        the upstream's names; ``None`` permits everything.
    """

    method: str
    message: bytes
    caller: Caller
    deadline: Deadline
    cancellation: Cancellation | None = None
    named: tuple[Reference, ...] = ()
    facts: CallFacts = field(default_factory=CallFacts, compare=False)
    permits: Callable[[str, str | None], bool] | None = field(default=None, compare=False, repr=False)


class Handler(Protocol):
    """Answers the calls of all fronts, from several threads at a time."""

    def answer(self, call: Call) -> bytes:
        """Answer a call; never fails: refusals are answers, too (:func:`.refusals.refusal`).

        :return: a whole message of the kind ``REPLY`` or ``EXCEPTION``, with the call's method and sequence
            id.
        """

    def ask(self, call: Call) -> bytes:
        """Answer a call for a front with statuses of its own.

        The metastore's faults are still messages; the method raises only the gateway's refusals.

        :raises HiveFederationError: the gateway refuses the call, or the metastore does not answer.
            :func:`status_of` returns the error's status; the error's text is fit for the client.
        """

    def relay(self, call: Call, emit: Emit) -> None:
        """Answer as :meth:`ask`, and pass a long answer on while it arrives, without holding it in memory.

        :param emit: receives the pieces of the answer in order, and may block.
        :raises HiveFederationError: as :meth:`ask`. If ``emit`` has been called before, the front has to
            break the client's connection, since the client has half an answer.
        """
