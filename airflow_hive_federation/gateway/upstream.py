"""Sends raw calls to one metastore over pooled connections, per identity, on any transport of the client."""

from __future__ import annotations

import random
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from airflow_hive_federation import errors
from airflow_hive_federation.gateway.handler import Caller, Cancellation, Deadline, Status, refused
from airflow_hive_federation.gateway.messages import (
    EXCEPTION,
    HIVES_REQUEST_BYTES,
    REPLY,
    Emit,
    Head,
    MessageReader,
    numbered,
    read_head,
)
from airflow_hive_federation.gateway.session_settings import SET_META_CONF, call_that_sets, fault_of
from airflow_hive_federation.metastore.channel import ForeignProtocol, NotSent
from airflow_hive_federation.metastore.connection import Connection
from airflow_hive_federation.metastore.message_bounds import MalformedMessage
from airflow_hive_federation.metastore.retry import is_idempotent
from airflow_hive_federation.metastore.settings import Endpoint, MetastoreSettings
from airflow_hive_federation.metastore.struct import Fault
from airflow_hive_federation.metastore.trace_context import passing_on
from airflow_hive_federation.metastore.translation import translate

_RANDOM = random.SystemRandom()
#: Number of sequence ids, which are signed numbers of 32 bits; negative ones are not used.
_NUMBERS = 1 << 31
#: Text in the errors of Python's TLS, and of gRPC's, about an untrusted certificate.
_NO_TRUST = "CERTIFICATE_VERIFY_FAILED"
_DISTRUSTED = "Give the authorities of the server's certificate (ca_file), and a name that it is for."
_UNREACHED = (
    "Start the metastore, or correct the upstream's URIs and authentication; a server that speaks TLS wants "
    "thrift+tls://, and one that speaks gRPC grpc://."
)

#: User and groups in whose name a connection makes calls.
Identity = tuple[str, tuple[str, ...]]


@dataclass(frozen=True)
class Probe:
    """A question that a server answers before it gets a call, on the same connection.

    :param message: the question, which changes nothing.
    :param permits: takes the whole answer, and returns whether this server may get the call.
    """

    message: bytes
    permits: Callable[[bytes], bool]


@dataclass
class _Link:
    """One pooled connection, which serves one call at a time."""

    identity: Identity
    connection: Connection
    max_answer_bytes: int
    #: Class by which the metastore reads expressions of this connection's calls; empty for its own choice.
    expression_proxy: str = ""
    is_set: bool = False
    reader: MessageReader = field(init=False)
    #: Sequence id of the last call. Clients' own ids are often equal and could not tell two answers apart. It
    #: is random, so that no client can prepare an answer to the call of another one.
    number: int = 0
    idle_since: float = 0.0
    deadline: Deadline = field(init=False)

    def __post_init__(self) -> None:
        self.reader = MessageReader(self._receive, max_bytes=self.max_answer_bytes)

    def _receive(self, size: int) -> bytes:
        return self.connection.channel.receive(size, self.deadline)


class Upstream:
    """A connection pool for one metastore behind the gateway, for any number of threads.

    :param name: name of the metastore in errors, logs and metrics.
    :param settings: the metastore's addresses, transport and authentication.
    :param impersonate: the metastore trusts the gateway, which passes each caller's name and groups by
        ``set_ugi``. A caller without a name is the gateway's own user, if it is on this machine.
    :param max_connections: greatest number of open connections, over all identities.
    :param idle_s: seconds after which the pool closes an unused connection.
    :raises ConfigurationError: neither the settings nor the operating system names the gateway's own user.
    """

    def __init__(
        self,
        name: str,
        settings: MetastoreSettings,
        *,
        impersonate: bool = False,
        max_connections: int = 64,
        idle_s: float = 300.0,
    ) -> None:
        self.name = name
        self.settings = settings
        self.impersonate = impersonate
        self.max_connections = max_connections
        self._idle_s = idle_s
        # Computed once: the lookup of the process's user reads a file.
        self._own_identity: Identity = settings.effective_user(), settings.groups
        self._endpoints = list(settings.endpoints())
        _RANDOM.shuffle(self._endpoints)
        self._changed = threading.Condition()
        self._idle: OrderedDict[int, _Link] = OrderedDict()
        self._open = 0
        self._closed = False

    @property
    def open_connections(self) -> int:
        """Number of open connections, including those that calls are using."""
        return self._open

    def exchange(
        self,
        method: str,
        message: bytes,
        caller: Caller,
        deadline: Deadline,
        *,
        emit: Emit | None = None,
        cancellation: Cancellation | None = None,
        probe: Probe | None = None,
        expression_proxy: str = "",
    ) -> bytes:
        """Send a call and return its answer, both undecoded.

        The pool checks an idle connection for closure before it uses it. It sends a writing call again only
        if the metastore cannot have carried it out.

        :param emit: receives the answer in pieces while it arrives; the method then returns no bytes.
        :param probe: decides about the server of each connection. If it forbids the call, the method returns
            no bytes, and ``emit`` receives none.
        :param expression_proxy: class by which the metastore shall read the call's expressions; empty for its
            own choice.
        :raises MetastoreUnreachableError: no server answers, or the connection broke in a call that reads.
        :raises MetastoreTimeoutError: the answer to a reading call is not complete in time.
        :raises OutcomeUnknownError: the connection broke, or time ran out, inside a call that writes.
        :raises MetastoreProtocolError: the server is no metastore.
        :raises MetastoreAuthenticationError: the metastore does not accept the gateway.
        :raises GatewayError: all connections are in use, the client cancelled the call, the call is longer
            than Hive reads, the metastore does not accept ``expression_proxy``, or the upstream impersonates
            its callers and this one of another machine has no name.
        """
        self._check_size(method, message)
        head = read_head(message)
        passing = _Passing(emit)
        for attempt in range(len(self._endpoints) + 1):
            link = self._lend(self.identity_of(caller), expression_proxy, method, deadline, cancellation)
            if cancellation is not None:
                channel = link.connection.channel
                cancellation.on_cancel(getattr(channel, "interrupt", channel.close))
            try:
                self._configure(link, deadline)
                permitted = probe is None or self._permitted(link, probe, deadline)
                with passing_on(caller.trace):
                    answer = self._ask(link, head, message, deadline, passing) if permitted else b""
            except (OSError, ValueError) as error:
                self._drop(link, failed=True)
                _check_cancelled(method, cancellation, error)
                again = not passing.began and (
                    isinstance(error, NotSent)
                    or (isinstance(error, ConnectionError) and is_idempotent(method))
                )
                if not again or attempt == len(self._endpoints) or _is_over(deadline):
                    raise self._broken(method, link.connection.endpoint, error, deadline) from error
            except (ForeignProtocol, MalformedMessage) as error:
                self._drop(link)
                raise self._foreign(method, link.connection.endpoint, error) from error
            except BaseException:
                # The connection may hold half an answer, which no later call may read as its own.
                self._drop(link)
                raise
            else:
                if cancellation is not None:
                    cancellation.on_cancel(None)
                self._give_back(link)
                return answer
        raise AssertionError("unreachable")

    def identity_of(self, caller: Caller) -> Identity:
        """Return the user and groups in whose name the upstream is called for a caller.

        :raises GatewayError: the upstream impersonates its callers, and this one of another machine has no
            name.
        """
        if self.impersonate and caller.user:
            return caller.user, caller.groups
        if self.impersonate and caller.remote:
            # The metastore lets the gateway's own user act for others, so that it may do more than they.
            raise refused(
                Status.UNAUTHENTICATED,
                f"The metastore {self.name} wants the user's name, and the gateway believes none of yours.",
                remedy="Present a certificate or a token; ask the operator of the gateway for "
                "client_ca_file, or for believe_set_ugi if all machines that reach the front are trusted.",
            )
        return self._own_identity

    def close(self) -> None:
        """Close all idle connections now, and the others when their calls end."""
        with self._changed:
            self._closed = True
            links = list(self._idle.values())
            self._idle.clear()
            self._open -= len(links)
            self._changed.notify_all()
        for link in links:
            link.connection.close()

    def _check_size(self, method: str, message: bytes) -> None:
        # The fronts have limited the client's own call. Names of the metastore's own, an alias' for instance,
        # may have made it longer.
        if len(message) > HIVES_REQUEST_BYTES:
            raise refused(
                Status.INVALID,
                f"{method}: with the names of {self.name}, the call has {len(message)} bytes, and Hive reads "
                f"no more than {HIVES_REQUEST_BYTES}.",
                remedy="Divide the call, or give the gateway's databases longer names than the metastore's.",
            )

    def _configure(self, link: _Link, deadline: Deadline) -> None:
        if link.is_set or not link.expression_proxy:
            return
        endpoint = link.connection.endpoint
        if endpoint.is_http or endpoint.is_grpc:
            # The setting would belong to a thread of the server, whoever's request it serves next.
            raise self._unsettable(f"{endpoint.scheme} has no connections that could be configured")
        message = call_that_sets(link.expression_proxy)
        try:
            answer = self._ask(link, read_head(message), message, deadline, _Passing(None))
        except (OSError, ForeignProtocol, MalformedMessage) as error:
            raise NotSent(f"the server did not answer {SET_META_CONF}: {error}") from error
        if fault := fault_of(answer):
            raise self._unsettable(fault)
        link.is_set = True

    def _unsettable(self, reason: str) -> errors.GatewayError:
        return refused(
            Status.FAILED,
            f"The metastore {self.name} cannot read the names of stale partitions by MSCK's class: {reason}.",
            remedy="Run MSCK REPAIR TABLE … DROP PARTITIONS at the metastore itself, or drop them by name.",
        )

    def _permitted(self, link: _Link, probe: Probe, deadline: Deadline) -> bool:
        try:
            answer = self._ask(link, read_head(probe.message), probe.message, deadline, _Passing(None))
        except (OSError, ForeignProtocol, MalformedMessage) as error:
            raise NotSent(f"the server did not answer a question about its version: {error}") from error
        return probe.permits(answer)

    def _ask(self, link: _Link, head: Head, message: bytes, deadline: Deadline, passing: _Passing) -> bytes:
        link.deadline = deadline
        link.number = number = _other_number(link.number)
        link.connection.channel.send(numbered(message, head, number), deadline)

        def check(answer: Head) -> None:
            is_answer = answer.kind in {REPLY, EXCEPTION}
            if (answer.method, answer.sequence_id) != (head.method, number) or not is_answer:
                raise MalformedMessage(
                    f"an answer to {answer.method!r} ({answer.sequence_id}), "
                    f"not to {head.method!r} ({number})"
                )

        if passing.emit is not None:
            link.reader.relay(passing, check, head.sequence_id)
            return b""
        answer, data = link.reader.message()
        check(answer)
        return numbered(data, answer, head.sequence_id)

    def _lend(
        self,
        identity: Identity,
        expression_proxy: str,
        method: str,
        deadline: Deadline,
        cancellation: Cancellation | None,
    ) -> _Link:
        stale: list[_Link] = []
        if cancellation is not None:
            cancellation.on_cancel(self._wake)
        try:
            with self._changed:
                while True:
                    # Also before the first wait: a cancellation before this point would wake no thread.
                    _check_cancelled(method, cancellation)
                    if (link := self._fitting(identity, expression_proxy, stale)) is not None:
                        return link
                    if self._open < self.max_connections:
                        self._open += 1
                        break
                    self._wait(method, deadline)
        finally:
            for old in stale:
                old.connection.close()
        try:
            connection = self._connect(identity, method, deadline)
            return _Link(identity, connection, self.settings.max_answer_bytes, expression_proxy)
        except BaseException:
            self._closed_one()
            raise

    def _fitting(self, identity: Identity, expression_proxy: str, stale: list[_Link]) -> _Link | None:
        """Return an idle connection of that identity and setting; move unusable ones to ``stale``."""
        wanted = identity, expression_proxy
        oldest = time.monotonic() - self._idle_s
        for key, link in reversed(list(self._idle.items())):
            if (link.identity, link.expression_proxy) == wanted or link.idle_since < oldest:
                del self._idle[key]
                if link.idle_since >= oldest and not link.reader.pending and not link.connection.is_stale():
                    return link
                stale.append(link)
                self._open -= 1
        if self._open >= self.max_connections and self._idle:
            # Identities share the limit: close another identity's connection, the longest unused one.
            stale.append(self._idle.popitem(last=False)[1])
            self._open -= 1
        return None

    def _wait(self, method: str, deadline: Deadline) -> None:
        try:
            self._changed.wait(deadline.remaining_s())
            deadline.remaining_s()
        except TimeoutError as error:
            raise refused(
                Status.EXHAUSTED,
                f"{method}: all {self.max_connections} connections to {self.name} were in use for "
                f"{deadline.seconds:g} s.",
                remedy="Look at that metastore, or raise max_connections of the upstream.",
            ) from error

    def _connect(self, identity: Identity, method: str, deadline: Deadline) -> Connection:
        user, groups = identity
        settings = replace(self.settings, user=user, groups=groups) if self.impersonate else self.settings
        causes: list[str] = []
        for endpoint in self._endpoints:
            try:
                return Connection(endpoint, settings, deadline.sooner(settings.connect_timeout_s))
            except Fault as fault:
                raise translate(fault, "set_ugi", str(endpoint)) from fault
            except (OSError, ForeignProtocol) as error:
                self._put_last(endpoint)
                if _is_over(deadline):
                    # A write has not been carried out, whatever broke the connection.
                    unsent = NotSent(str(deadline.passed()))
                    raise self._broken(method, endpoint, unsent, deadline) from error
                causes.append(f"{endpoint}: {error}")
        raise errors.MetastoreUnreachableError(
            f"Upstream {self.name} does not answer: {'; '.join(causes)}",
            remedy=_DISTRUSTED if any(_NO_TRUST in cause for cause in causes) else _UNREACHED,
            upstream=self.name,
        )

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _give_back(self, link: _Link) -> None:
        link.idle_since = time.monotonic()
        with self._changed:
            if not self._closed:
                self._idle[id(link)] = link
                self._changed.notify()
                return
        self._drop(link)

    def _drop(self, link: _Link, *, failed: bool = False) -> None:
        link.connection.close()
        self._closed_one()
        if failed:
            self._put_last(link.connection.endpoint)

    def _put_last(self, endpoint: Endpoint) -> None:
        """Move a failed server to the end, so that the next call tries another one first."""
        with self._changed:
            # A list of its own, since other threads iterate over the former one.
            self._endpoints = sorted(self._endpoints, key=lambda other: other == endpoint)

    def _closed_one(self) -> None:
        with self._changed:
            self._open -= 1
            self._changed.notify()

    def _broken(
        self, method: str, endpoint: Endpoint, error: Exception, deadline: Deadline
    ) -> errors.MetastoreError:
        place = f"upstream {self.name} ({endpoint})"
        facts = {"upstream": self.name, "uri": str(endpoint), "method": method}
        reads = is_idempotent(method)
        late = isinstance(error, TimeoutError) or _is_over(deadline)
        # The error of a deadline leaves open whether a write was carried out; this one does not.
        if isinstance(error, NotSent) and not (reads and late):
            return errors.MetastoreUnreachableError(
                f"{method}: the call could not be sent to {place}: {error}",
                remedy=error.remedy or "Start the metastore.",
                **facts,
            )
        if not reads:
            return errors.OutcomeUnknownError(
                f"{method} at {place} may have been carried out or not: {error}",
                remedy="Look at what the call should have changed before it is made again.",
                **facts,
            )
        if late:
            return errors.MetastoreTimeoutError(
                f"{method} at {place}: {error}",
                remedy="Look at the metastore, or raise call_timeout_s.",
                **facts,
            )
        return errors.MetastoreUnreachableError(
            f"{method}: the connection to {place} broke: {error}",
            remedy="Check that the metastore runs, and the network to it; then run it again.",
            **facts,
        )

    def _foreign(self, method: str, endpoint: Endpoint, error: Exception) -> errors.MetastoreError:
        facts = {"upstream": self.name, "uri": str(endpoint), "method": method}
        text = f"{method}: upstream {self.name} ({endpoint}) gave no answer of a Hive metastore: {error}"
        if not is_idempotent(method):
            return errors.OutcomeUnknownError(
                text, remedy="Look at what the call should have changed before it is made again.", **facts
            )
        return errors.MetastoreProtocolError(text, remedy="Check the upstream's URIs.", **facts)


def _is_over(deadline: Deadline) -> bool:
    try:
        deadline.remaining_s()
    except TimeoutError:
        return True
    return False


def _other_number(last: int) -> int:
    return (last + 1 + _RANDOM.randrange(_NUMBERS - 1)) % _NUMBERS


class _Passing:
    """Passes pieces of an answer on, and remembers whether the first one has arrived."""

    def __init__(self, emit: Callable[[bytes], None] | None) -> None:
        self.emit = emit
        self.began = False

    def __call__(self, piece: bytes) -> None:
        if self.emit is None:
            raise AssertionError("the answer has no receiver")
        self.began = True
        try:
            self.emit(piece)
        except OSError as error:
            raise ClientGone(*error.args) from error


class ClientGone(Exception):  # noqa: N818 - internal signal of the fronts
    """The front cannot send to its client; the upstream is not at fault."""


def _check_cancelled(method: str, cancellation: Cancellation | None, error: Exception | None = None) -> None:
    if cancellation is not None and cancellation.cancelled:
        raise refused(
            Status.CANCELLED,
            f"{method}: the client gave up.",
            remedy="A call that writes may have been done.",
        ) from error
