"""Finds a metastore server that answers, calls it, and never repeats a write whose outcome is unknown."""

from __future__ import annotations

import logging
import random
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Self

from airflow_hive_federation.errors import (
    MetastoreError,
    MetastoreProtocolError,
    MetastoreTimeoutError,
    MetastoreUnreachableError,
    OutcomeUnknownError,
)
from airflow_hive_federation.metastore.calls.base import S
from airflow_hive_federation.metastore.calls.history import HistoryCalls
from airflow_hive_federation.metastore.channel import Channel, Deadline, ForeignProtocol, NotSent
from airflow_hive_federation.metastore.compat import FALLBACKS, is_too_old
from airflow_hive_federation.metastore.connection import Connection
from airflow_hive_federation.metastore.grpc_streams import NotStreamed, read_stream
from airflow_hive_federation.metastore.idl.service import METHODS
from airflow_hive_federation.metastore.plugins import load_class
from airflow_hive_federation.metastore.retry import DEADLOCKS, is_idempotent, is_undone_by_deadlock
from airflow_hive_federation.metastore.settings import Endpoint, MetastoreSettings
from airflow_hive_federation.metastore.struct import Fault
from airflow_hive_federation.metastore.translation import translate

log = logging.getLogger(__name__)


class MetastoreClient(HistoryCalls):
    """A client of one metastore, for one thread; :class:`MetastorePool` serves several.

    It connects at the first call. Every method of Hive's interface definition is an attribute
    (``client.get_table_req(request)``). Where one of our own methods has the same name,
    ``client.call("get_tables", …)`` calls Hive's.
    """

    def __new__(cls, settings: MetastoreSettings) -> Self:
        """Create an instance of the class that the settings name, wherever the code creates a client.

        :raises ConfigurationError: if the class cannot be imported or is no ``MetastoreClient``.
        """
        kind = cls
        if cls is MetastoreClient and settings.client_class is not None:
            kind = load_class(settings.client_class, MetastoreClient, "metastore.custom.client.class")
        return super().__new__(kind)

    def __init__(self, settings: MetastoreSettings) -> None:
        self.settings = settings
        # Spread the clients over the servers.
        self._endpoints = list(settings.endpoints())
        random.SystemRandom().shuffle(self._endpoints)
        self._connection: Connection | None = None
        self._unsupported: set[str] = set()
        self._guard: Callable[[str], None] | None = None

    def call(self, method: str, *args: object) -> Any:
        """Call a method of Hive's interface definition with its arguments in the definition's order.

        :raises MetastoreUnreachableError: if no server answers; the error has each server and its reason.
        :raises MetastoreTimeoutError: if the answer to a reading call is not complete in time.
        :raises OutcomeUnknownError: if the connection broke, or time ran out, inside a call that writes.
        :raises MetastoreProtocolError: if the server is no metastore.
        :raises MetastoreAuthenticationError: if the server rejects our credentials.
        :raises UnsupportedMethodError: if this server's version lacks the method and no fallback exists.
        :raises MetastoreError: (a subclass) if the server raised an exception.
        """
        if method not in self._unsupported:
            try:
                return self._call(method, args)
            except MetastoreError as error:
                if not is_too_old(method, error):
                    raise
                log.debug("no %s at %s: falling back", method, self.uri)
                self._unsupported.add(method)
        return FALLBACKS[method](self._call, *args)

    def __getattr__(self, name: str) -> Any:
        if name not in METHODS:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return lambda *args: self.call(name, *args)

    def connect(self) -> Self:
        """Connect to a server now instead of at the first call."""
        self._connected()
        return self

    @contextmanager
    def guarded(self, guard: Callable[[str], None]) -> Iterator[Self]:
        """Run ``guard`` immediately before each call that writes, while the block runs.

        :param guard: receives the method's name, and raises if the call must not be made.
        """
        before, self._guard = self._guard, guard
        try:
            yield self
        finally:
            self._guard = before

    @property
    def uri(self) -> str | None:
        """Return the URI of the connected server; ``None`` while no server is connected."""
        return str(self._connection.endpoint) if self._connection else None

    @property
    def channel(self) -> Channel:
        """Return the connection's channel, over which a client of another library can send its calls.

        :raises MetastoreUnreachableError: if no server answers.
        """
        return self._connected().channel

    def close(self) -> None:
        """Close the connection; the next call opens another."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
            self._unsupported.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _streamed(
        self, path: str, kind: type[S], query: bytes, *, timeout_s: float | None = None
    ) -> Iterator[S]:
        """See :meth:`.Calls._streamed`."""
        if path in self._unsupported:
            raise NotStreamed("the server offers no streams", offered=False)
        seconds = self.settings.call_timeout_s
        deadline = Deadline(seconds if timeout_s is None else min(seconds, timeout_s))
        try:
            yield from read_stream(self._connected().channel, path, kind, query, deadline)
        except NotStreamed as error:
            if not error.offered:
                self._unsupported.add(path)
            raise

    def _call(self, method: str, args: tuple[object, ...]) -> object:
        pauses = DEADLOCKS.pauses()
        while True:
            try:
                return self._exchange(method, args)
            except MetastoreError as error:
                if not is_undone_by_deadlock(method, error) or (pause_s := next(pauses, None)) is None:
                    raise
                log.info("%s at %s: a deadlock of the database ended it; trying again", method, self.uri)
            # Two callers that met must not meet again.
            time.sleep(pause_s * random.SystemRandom().uniform(0.5, 1.0))

    def _exchange(self, method: str, args: tuple[object, ...]) -> object:
        deadline: Deadline | None = None
        for attempt in range(len(self._endpoints) + 1):
            connection = self._connected()
            if self._guard is not None and not is_idempotent(method):
                self._guard(method)
            deadline = deadline or Deadline(self.settings.call_timeout_s)
            try:
                return connection.exchange(method, args, deadline)
            except Fault as fault:
                raise translate(fault, method, str(connection.endpoint)) from fault
            except ForeignProtocol as error:
                self.close()
                raise _foreign(connection.endpoint, error, method) from error
            except OSError as error:
                self._drop(connection)
                again = isinstance(error, NotSent) or (
                    isinstance(error, ConnectionError) and is_idempotent(method)
                )
                if not again or attempt == len(self._endpoints):
                    raise _broken(method, connection.endpoint, error) from error
                log.debug("%s at %s: %s; trying the next server", method, connection.endpoint, error)
            except BaseException:
                # The rest of this answer may still arrive, and the next call must not read it as its own.
                self.close()
                raise
        raise AssertionError("unreachable")

    def _drop(self, connection: Connection) -> None:
        self.close()
        # Try the failed server last next time.
        self._endpoints.remove(connection.endpoint)
        self._endpoints.append(connection.endpoint)

    def _connected(self) -> Connection:
        if self._connection is not None and self._connection.is_stale():
            # The server closed an idle connection: no call was under way, so no outcome is unknown.
            self.close()
        if self._connection is None:
            self._connection = self._open()
        return self._connection

    def _open(self) -> Connection:
        causes: list[tuple[Endpoint, Exception]] = []
        for endpoint in self._endpoints:
            try:
                return Connection(endpoint, self.settings, Deadline(self.settings.connect_timeout_s))
            except Fault as fault:
                raise translate(fault, "set_ugi", str(endpoint)) from fault
            except (OSError, ForeignProtocol) as error:
                causes.append((endpoint, error))
        raise _unreachable(causes)


def _foreign(endpoint: Endpoint, error: Exception, method: str) -> MetastoreProtocolError:
    done = "" if is_idempotent(method) else " The call may have been carried out."
    return MetastoreProtocolError(
        f"{method}: the server at {endpoint} is not a Hive metastore: {error}.{done}",
        remedy="Check host and port, and the scheme: thrift://, thrift+tls://, http://, https:// or grpc://.",
        uri=str(endpoint),
        method=method,
    )


def _broken(method: str, endpoint: Endpoint, error: OSError) -> Exception:
    facts = {"uri": str(endpoint), "method": method}
    if isinstance(error, NotSent):
        return MetastoreUnreachableError(
            f"{method}: the call could not be sent to {endpoint}: {error}",
            remedy=error.remedy or "Start the metastore.",
            **facts,
        )
    if not is_idempotent(method):
        return OutcomeUnknownError(
            f"{method} at {endpoint} may have been carried out or not: {error}",
            remedy="Look at what the call should have changed before it is made again.",
            **facts,
        )
    if isinstance(error, TimeoutError):
        return MetastoreTimeoutError(
            f"{method} at {endpoint}: {error}", remedy="Look at the server, or raise call_timeout_s.", **facts
        )
    return MetastoreUnreachableError(
        f"{method}: the connection to {endpoint} broke: {error}",
        remedy="Check that the metastore runs, and the network to it; then run it again.",
        **facts,
    )


def _unreachable(causes: list[tuple[Endpoint, Exception]]) -> Exception:
    reasons = "; ".join(f"{endpoint}: {error}" for endpoint, error in causes)
    uris = [str(endpoint) for endpoint, _ in causes]
    if all(isinstance(error, ssl.SSLCertVerificationError) for _, error in causes):
        return MetastoreProtocolError(
            f"The metastore's certificate is refused: {reasons}",
            remedy="Give the file of the authority that signed it, and an address that it names. From Python "
            "3.13 on, certificates also need the extensions that RFC 5280 demands, such as the Authority Key "
            "Identifier: have others signed again.",
            uris=uris,
        )
    if all(isinstance(error, ForeignProtocol | ssl.SSLError) for _, error in causes):
        return MetastoreProtocolError(
            f"The server is not a Hive metastore, or it uses a different transport: {reasons}",
            remedy="Check host and port, the scheme (thrift://, thrift+tls://, http://, https://, "
            "grpc://), the certificates, and whether the server asks for Kerberos or a password.",
            uris=uris,
        )
    return MetastoreUnreachableError(
        f"No metastore answers: {reasons}",
        remedy="Start the metastore, correct the URIs, or give the authentication that it asks for.",
        uris=uris,
    )
