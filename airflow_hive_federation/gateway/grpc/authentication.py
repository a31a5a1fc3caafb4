"""Who calls: the interface of authentication plug-ins, and those that need no tokens.

``metastore.grpc.authentication.class`` names a plug-in by its dotted path. It is made once, with the settings
that begin with ``metastore.grpc.authentication.``, and asked for each call.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Protocol

from airflow_hive_federation.errors import ConfigurationError, GatewayError
from airflow_hive_federation.gateway.certificates import is_loopback
from airflow_hive_federation.gateway.grpc.settings import AUTHENTICATION_CLASS, GrpcFrontSettings
from airflow_hive_federation.gateway.handler import Caller, Status, refused
from airflow_hive_federation.metastore.grpc_wire import USER_KEY
from airflow_hive_federation.metastore.plugins import load_class

FRONT = "grpc"


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What a call brings to prove who makes it.

    :param metadata: the call's metadata, names in lower case; it may hold a token and is never shown.
    :param peer: address of the client.
    :param subject: common name of the client's certificate, which TLS has verified; empty without one.
    """

    metadata: Mapping[str, str] = field(default_factory=dict, repr=False)
    peer: str = ""
    subject: str = ""

    @property
    def bearer_token(self) -> str | None:
        """The token of the header ``authorization``."""
        kind, _, token = self.metadata.get("authorization", "").partition(" ")
        return token.strip() if kind.lower() == "bearer" and token.strip() else None


class Authenticator(Protocol):
    """Says who makes a call; several threads ask at a time."""

    def authenticate(self, evidence: Evidence) -> Caller:
        """Return the caller.

        :raises GatewayError: (:func:`unauthenticated`) if the evidence does not prove one.
        """


def unauthenticated(reason: str) -> GatewayError:
    """Make the error that refuses an unknown caller.

    :param reason: it is sent to the client, so it holds neither the token nor a secret.
    """
    return refused(Status.UNAUTHENTICATED, f"The gateway does not accept who calls: {reason}.")


class Asserted:
    """Believes the name that a client of this machine gives, as Hive's metastore believes everybody."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        refuse_unknown(properties, ())

    def authenticate(self, evidence: Evidence) -> Caller:
        """See :meth:`Authenticator.authenticate`."""
        if not is_local(evidence.peer):
            raise unauthenticated("only clients of this machine are believed without a proof")
        user = evidence.metadata.get(USER_KEY, "")
        kind = "asserted" if user else "none"
        return Caller(user=user, authentication=kind, peer=evidence.peer, front=FRONT)


class Anybody:
    """Believes the name that any client gives: for trusted networks only, and it must be named to be used."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        refuse_unknown(properties, ())

    def authenticate(self, evidence: Evidence) -> Caller:
        """See :meth:`Authenticator.authenticate`."""
        user = evidence.metadata.get(USER_KEY, "")
        kind = "asserted" if user else "none"
        return Caller(user=user, authentication=kind, peer=evidence.peer, front=FRONT)


class CertificateSubject:
    """Takes the common name of the client's certificate for the user's name (mutual TLS)."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        refuse_unknown(properties, ())

    def authenticate(self, evidence: Evidence) -> Caller:
        """See :meth:`Authenticator.authenticate`."""
        if not evidence.subject:
            raise unauthenticated("there is no client certificate with a common name")
        return Caller(user=evidence.subject, authentication="mtls", peer=evidence.peer, front=FRONT)


def make_authenticator(settings: GrpcFrontSettings) -> Authenticator:
    """Make the plug-in that the settings name, or the one that fits them.

    :raises ConfigurationError: there is no such class, it does not take its settings, or none is named where
        clients of other machines call and prove nothing.
    """
    if settings.authentication_class is not None:
        made: Any = load_class(settings.authentication_class, None, AUTHENTICATION_CLASS)(
            settings.authentication
        )
        if not callable(getattr(made, "authenticate", None)):
            raise ConfigurationError(
                f"{AUTHENTICATION_CLASS} names {settings.authentication_class!r}, which cannot authenticate.",
                remedy="Give it a method authenticate(evidence) that returns a Caller.",
            )
        return made  # type: ignore[no-any-return]
    if settings.tls is not None and settings.tls.client_ca_file:
        return CertificateSubject(settings.authentication)
    if is_loopback(settings.host):
        return Asserted(settings.authentication)
    raise ConfigurationError(
        f"The gRPC front would serve {settings.host or 'all addresses'}, and nothing says who calls.",
        remedy=f"Set {AUTHENTICATION_CLASS} to airflow_hive_federation.gateway.grpc.tokens.BearerTokens or "
        "another class, give client_ca_file, or listen at 127.0.0.1.",
    )


@lru_cache(maxsize=4096)
def is_local(peer: str) -> bool:
    """Tell whether a peer, as gRPC names it, is of this machine."""
    kind, _, address = peer.partition(":")
    if kind == "unix":
        return True
    host = address.rpartition(":")[0].replace("%5B", "").replace("%5D", "").strip("[]")
    return kind in {"ipv4", "ipv6"} and is_loopback(host)


def refuse_unknown(properties: Mapping[str, str], known: tuple[str, ...]) -> None:
    """Refuse settings that a plug-in does not know.

    :raises ConfigurationError: there are some.
    """
    unknown = sorted(set(properties) - set(known))
    if unknown:
        raise ConfigurationError(
            f"The authentication class knows no {', '.join(unknown)}.",
            remedy=f"Known are {', '.join(known)}." if known else "Remove it.",
        )
