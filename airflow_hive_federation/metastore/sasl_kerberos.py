"""Proves the client's identity by Kerberos: the SASL mechanism GSSAPI (RFC 4752).

The Kerberos library obtains tickets from a KDC, and waits for it without a limit that the client could set.
So the first step runs in a thread of its own, and the call ends at its deadline.
"""

from __future__ import annotations

import importlib
import threading
from typing import Any, NoReturn

from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.metastore.channel import Deadline, ForeignProtocol
from airflow_hive_federation.metastore.kerberos_failures import kerberos_error
from airflow_hive_federation.metastore.settings import Endpoint, KerberosSettings
from airflow_hive_federation.runtime.kerberos import KerberosFailure, credentials, minor_status

#: Maximum bytes to wrap in one frame; the server may require less.
_PIECE = 1 << 20


class Kerberos:
    """The client's side of GSSAPI, with the strongest protection that the server offers.

    Servers offer the protection that ``hadoop.rpc.protection`` sets: authentication alone, integrity, or
    privacy.

    :raises ConfigurationError: if the package gssapi is not installed.
    """

    name = "GSSAPI"
    complete = False
    _NOTHING, _INTEGRITY, _PRIVACY = 1, 2, 4
    #: The protections, the strongest first.
    _LAYERS = (_PRIVACY, _INTEGRITY, _NOTHING)

    def __init__(self, settings: KerberosSettings, endpoint: Endpoint) -> None:
        try:
            self._gssapi: Any = importlib.import_module("gssapi")
        except ImportError as error:
            raise ConfigurationError(
                "Kerberos needs the package gssapi.",
                remedy="pip install 'airflow-hive-federation[kerberos]'; it is built against Kerberos' "
                "headers (Debian: libkrb5-dev, Red Hat: krb5-devel).",
            ) from error
        self._errors: type[Exception] = self._gssapi.exceptions.GSSError
        self._endpoint = endpoint
        self._settings = settings
        self._server = settings.server_of(endpoint.host)
        self._layer = self._NOTHING
        self._piece = _PIECE
        self._context: Any = None

    def step(self, challenge: bytes, deadline: Deadline) -> bytes:
        """See :meth:`.sasl.Mechanism.step`.

        :raises KdcUnreachableError: if no KDC answers, within the deadline or at all.
        """
        try:
            if self._context is None:
                self._context, token = self._begun(deadline)
                return token
            if not self._context.complete:
                return bytes(self._context.step(challenge or None) or b"")
            return self._agreed(self._context.unwrap(challenge).message)
        except self._errors as error:
            self._fail(error)

    def finish(self, payload: bytes) -> None:
        """See :meth:`.sasl.Mechanism.finish`; the server has proved its identity before."""

    def shown(self, text: str) -> str:
        """See :meth:`.sasl.Mechanism.shown`."""
        return text

    def wrap(self, data: bytes) -> list[bytes]:
        """See :meth:`.sasl.Mechanism.wrap`."""
        if self._layer == self._NOTHING:
            return [data]
        pieces = [data[first : first + self._piece] for first in range(0, len(data), self._piece)]
        try:
            return [self._context.wrap(piece, self._layer == self._PRIVACY).message for piece in pieces]
        except self._errors as error:
            raise ValueError(f"Kerberos cannot protect the call: {error}") from error

    def unwrap(self, frame: bytes) -> bytes:
        """See :meth:`.sasl.Mechanism.unwrap`."""
        if self._layer == self._NOTHING:
            return frame
        try:
            return bytes(self._context.unwrap(frame).message)
        except self._errors as error:
            raise ValueError(f"Kerberos cannot read the answer: {error}") from error

    def _begun(self, deadline: Deadline) -> tuple[Any, bytes]:
        results: list[tuple[Any, bytes]] = []
        failures: list[Exception] = []

        def begin() -> None:
            try:
                results.append(self._begin())
            except Exception as error:  # noqa: BLE001 - the caller raises it
                failures.append(error)

        thread = threading.Thread(target=begin, name="kerberos", daemon=True)
        thread.start()
        thread.join(deadline.remaining_s())
        if failures:
            raise failures[0]
        if not results:
            silent = KerberosFailure(silent=True, text=f"no answer within {deadline.seconds:g} s")
            raise kerberos_error(silent, self._settings, self._endpoint)
        return results[0]

    def _begin(self) -> tuple[Any, bytes]:
        gssapi = self._gssapi
        flags = gssapi.RequirementFlag
        context = gssapi.SecurityContext(
            name=gssapi.Name(self._server, gssapi.NameType.kerberos_principal),
            creds=credentials(
                gssapi, principal=self._settings.client_principal, keytab=self._settings.keytab
            ),
            mech=gssapi.MechType.kerberos,
            flags=(
                flags.mutual_authentication,
                flags.integrity,
                flags.confidentiality,
                flags.replay_detection,
                flags.out_of_sequence_detection,
            ),
            usage="initiate",
        )
        return context, bytes(context.step(None) or b"")

    def _agreed(self, offer: bytes) -> bytes:
        if len(offer) != 4:
            raise ForeignProtocol("its offer of protection is not four bytes (RFC 4752)")
        layers = [layer for layer in self._LAYERS if offer[0] & layer]
        if not layers:
            raise ForeignProtocol(f"it offers no protection that is known ({offer[0]})")
        self._layer = layers[0]
        longest = b"\0\0\0"
        if self._layer != self._NOTHING:
            theirs = int.from_bytes(offer[1:], "big")
            limit = self._context.get_wrap_size_limit(theirs, self._layer == self._PRIVACY)
            # A server may offer a buffer that holds no byte.
            self._piece = max(1, min(_PIECE, limit))
            longest = b"\xff\xff\xff"
        self.complete = True
        return bytes(self._context.wrap(bytes([self._layer]) + longest, False).message)

    def _fail(self, error: Exception) -> NoReturn:
        raise kerberos_error(
            KerberosFailure(
                code=minor_status(getattr(error, "min_code", 0)),
                text=str(error),
                expired=isinstance(error, self._gssapi.exceptions.ExpiredCredentialsError),
            ),
            self._settings,
            self._endpoint,
        ) from error
