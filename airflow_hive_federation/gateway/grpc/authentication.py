"""Authenticates callers of the gRPC front; defines the plug-in interface and the plug-ins without tokens.
``metastore.grpc.authentication.class`` names a plug-in by its dotted path. The front makes it once, with the
settings that have the prefix ``metastore.grpc.authentication.``, and calls it for each call of a client.
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
    """The parts of a call that can prove the caller's identity.

    :param metadata: the call's metadata, with names in lower case; it may hold a token and is never logged.
    :param peer: address of the client.
    :param subject: common name of the client's certificate, which TLS has verified; empty without one.
    """

    metadata: Mapping[str, str] = field(default_factory=dict, repr=False)
    peer: str = ""
    subject: str = ""

    @property
    def bearer_token(self) -> str | None:
        """Token of the header ``authorization``; ``None`` without a bearer token."""
        kind, _, token = self.metadata.get("authorization", "").partition(" ")
        return token.strip() if kind.lower() == "bearer" and token.strip() else None


class Authenticator(Protocol):
    """Authenticates callers, for several threads at a time."""

    def authenticate(self, evidence: Evidence) -> Caller:
        """Return the caller.

        :raises GatewayError: (:func:`unauthenticated`) the evidence proves no identity.
        """


def unauthenticated(reason: str) -> GatewayError:
    """Make the error that refuses an unknown caller.

    :param reason: text for the client, without the token or any secret.
    """
    return refused(Status.UNAUTHENTICATED, f"The gateway does not accept the caller: {reason}.")


class Asserted:
    """Trusts the user name that a client of this machine sends, as Hive's metastore trusts every client."""

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
    """Trusts the user name that any client sends; for trusted networks only, and never chosen by default."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        refuse_unknown(properties, ())

    def authenticate(self, evidence: Evidence) -> Caller:
        """See :meth:`Authenticator.authenticate`."""
        user = evidence.metadata.get(USER_KEY, "")
        kind = "asserted" if user else "none"
        return Caller(user=user, authentication=kind, peer=evidence.peer, front=FRONT)


class CertificateSubject:
    """Takes the common name of the client's certificate as the user's name (mutual TLS)."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        refuse_unknown(properties, ())

    def authenticate(self, evidence: Evidence) -> Caller:
        """See :meth:`Authenticator.authenticate`."""
        if not evidence.subject:
            raise unauthenticated("there is no client certificate with a common name")
        return Caller(user=evidence.subject, authentication="mtls", peer=evidence.peer, front=FRONT)


def make_authenticator(settings: GrpcFrontSettings) -> Authenticator:
    """Make the plug-in that the settings name, or the default plug-in for them.

    :raises ConfigurationError: the class does not exist or rejects its settings; or the settings name no
        class, and clients of other machines could call without any proof.
    """
    if settings.authentication_class is not None:
        plugin: Any = load_class(settings.authentication_class, None, AUTHENTICATION_CLASS)(
            settings.authentication
        )
        if not callable(getattr(plugin, "authenticate", None)):
            raise ConfigurationError(
                f"{AUTHENTICATION_CLASS} names {settings.authentication_class!r}, which cannot authenticate.",
                remedy="Give it a method authenticate(evidence) that returns a Caller.",
            )
        return plugin  # type: ignore[no-any-return]
    if settings.tls is not None and settings.tls.client_ca_file:
        return CertificateSubject(settings.authentication)
    if is_loopback(settings.host):
        return Asserted(settings.authentication)
    raise ConfigurationError(
        f"The gRPC front would serve {settings.host or 'all addresses'}, and no authentication is set.",
        remedy=f"Set {AUTHENTICATION_CLASS} to airflow_hive_federation.gateway.grpc.tokens.BearerTokens or "
        "another class, give client_ca_file, or listen at 127.0.0.1.",
    )


@lru_cache(maxsize=4096)
def is_local(peer: str) -> bool:
    """Return whether a peer, in gRPC's notation, is a client of this machine."""
    kind, _, address = peer.partition(":")
    if kind == "unix":
        return True
    host = address.rpartition(":")[0].replace("%5B", "").replace("%5D", "").strip("[]")
    return kind in {"ipv4", "ipv6"} and is_loopback(host)


def refuse_unknown(properties: Mapping[str, str], known: tuple[str, ...]) -> None:
    """Refuse settings that a plug-in does not know.

    :raises ConfigurationError: a setting is unknown.
    """
    unknown = sorted(set(properties) - set(known))
    if unknown:
        raise ConfigurationError(
            f"The authentication class knows no {', '.join(unknown)}.",
            remedy=f"Known are {', '.join(known)}." if known else "Remove it.",
        )
