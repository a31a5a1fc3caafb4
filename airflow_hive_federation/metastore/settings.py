"""Defines the settings of a Hive metastore client: servers, transport, authentication and user."""

from __future__ import annotations

import getpass
import os
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlsplit

from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.metastore.delegation_token import DelegationToken, read_delegation_token
from airflow_hive_federation.metastore.grpc_settings import DEFAULT_GRPC_PORT, LOOPBACK, GrpcSettings
from airflow_hive_federation.metastore.message_bounds import MAX_MESSAGE_BYTES
from airflow_hive_federation.runtime.durations import LONGEST_TIMEOUT_S

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


DEFAULT_PORT = 9083
DEFAULT_HTTP_PATH = "/metastore"

# Capabilities of this package's reader and writer, by the names of the server's translation layer
# (org.apache.hadoop.hive.metastore.MetastoreDefaultTransformer). Without the ACID capabilities the server
# refuses to create ACID tables and turns managed tables into external ones.
CAPABILITIES = (
    "EXTREAD",
    "EXTWRITE",
    "HIVEBUCKET2",
    "HIVECACHEINVALIDATE",
    "HIVEFULLACIDREAD",
    "HIVEFULLACIDWRITE",
    "HIVEMANAGEDINSERTREAD",
    "HIVEMANAGEDINSERTWRITE",
    "HIVEMANAGESTATS",
    "HIVEMQT",
    "HIVEONLYMQTWRITE",
    "HIVESQL",
)

_PLAIN, _TLS = ("thrift", "http", "grpc"), ("thrift+tls", "https", "grpc+tls")
# A field name and a field value of HTTP (RFC 9110, 5.1 and 5.5), the latter in the letters that Hive decodes.
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE = re.compile(r"[\t\x20-\x7e\xa0-\xff]*")
_HTTP_PATH = re.compile(r"[\x21-\x7e]*")
_PORTS = {"http": 80, "https": 443, "grpc": DEFAULT_GRPC_PORT, "grpc+tls": DEFAULT_GRPC_PORT}


@dataclass(frozen=True, kw_only=True)
class TlsSettings:
    """TLS files that authenticate the server, and the client to the server.

    :param ca_file: PEM file of the authorities to trust; ``None`` trusts the system's.
    :param cert_file: PEM file of our certificate, where the server requires one.
    :param key_file: PEM file of its key; ``None`` if it is in ``cert_file``.
    :param key_password: password of the key.
    :param verify: ``False`` accepts any certificate for any host: for tests only.
    """

    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    key_password: str | None = field(default=None, repr=False)
    verify: bool = True

    def context(self) -> ssl.SSLContext:
        """Build the TLS context.

        :raises ConfigurationError: if a file is missing or is no certificate or key.
        """
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
            if self.cert_file:
                context.load_cert_chain(self.cert_file, self.key_file, lambda: self.key_password or "")
        except OSError as error:  # ssl.SSLError is one
            files = ", ".join(filter(None, (self.ca_file, self.cert_file, self.key_file)))
            raise ConfigurationError(
                f"TLS files {files} cannot be used: {error}.",
                remedy="Give readable PEM files; the key must belong to the certificate.",
            ) from error
        if not self.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context


@dataclass(frozen=True, kw_only=True)
class KerberosSettings:
    """Principals and keytab for Kerberos (Hive's ``hive.metastore.sasl.enabled``).

    :param server_principal: ``hive/_HOST@EXAMPLE.COM``; ``_HOST`` stands for the host of the URI
        (``hive.metastore.kerberos.principal``).
    :param client_principal: the client's principal; ``None`` takes the principal of the keytab's first key,
        or of the ticket.
    :param keytab: file with the client's keys; ``None`` takes the ticket that ``kinit`` or
        ``airflow kerberos`` obtained (``KRB5CCNAME``).
    """

    server_principal: str
    client_principal: str | None = None
    keytab: str | None = None

    def __post_init__(self) -> None:
        service, slash, rest = self.server_principal.partition("/")
        host, at, realm = rest.partition("@")
        if not (service and slash and host and at and realm):
            raise ConfigurationError(
                f"{self.server_principal!r} is no Kerberos principal of a server.",
                remedy="Write it as hive-site.xml has it: hive/_HOST@EXAMPLE.COM.",
            )

    def server_of(self, host: str) -> str:
        """Return the principal of the server on a host (``SecurityUtil.getServerPrincipal``)."""
        service, _, rest = self.server_principal.partition("/")
        named, _, realm = rest.partition("@")
        return f"{service}/{host.lower() if named == '_HOST' else named}@{realm}"


@dataclass(frozen=True, kw_only=True)
class PlainSettings:
    """User and password for SASL PLAIN (Hive's ``metastore.authentication``: LDAP, PAM, CUSTOM or CONFIG)."""

    user: str
    password: str = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class DelegationTokenSettings:
    """A metastore's delegation token, for a process without a keytab and without a ticket (SASL DIGEST-MD5).

    :param token: the text that ``get_delegation_token`` returned. It is a secret.
    :raises ConfigurationError: if the text is no token.
    """

    token: str = field(repr=False)

    def __post_init__(self) -> None:
        self.read()

    def read(self) -> DelegationToken:
        """Return the token's parts."""
        return read_delegation_token(self.token)


#: The ways in which a client can prove its identity by SASL.
Authentication = KerberosSettings | PlainSettings | DelegationTokenSettings


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """Scheme, host, port and path of one metastore URI."""

    scheme: str
    host: str
    port: int
    path: str = ""

    @property
    def is_http(self) -> bool:
        """Return whether the client sends Thrift in HTTP requests."""
        return self.scheme in {"http", "https"}

    @property
    def is_grpc(self) -> bool:
        """Return whether the server is a gRPC gateway."""
        return self.scheme in {"grpc", "grpc+tls"}

    @property
    def is_tls(self) -> bool:
        """Return whether the scheme itself requires TLS."""
        return self.scheme in _TLS

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}{self.path}"


class Wire(Protocol):
    """The interface of a connection that is no socket of this machine, a channel of a tunnel for instance."""

    def settimeout(self, seconds: float | None) -> None:
        """Limit each of the following calls to ``seconds``, after which it raises :class:`TimeoutError`."""

    def send(self, data: bytes | memoryview) -> int:
        """Send some of the bytes; return their number."""

    def recv(self, size: int) -> bytes:
        """Return between 1 and ``size`` bytes, none at the end."""

    def recv_into(self, buffer: WriteableBuffer) -> int:
        """Read into a buffer; return the number of bytes."""

    def has_input(self) -> bool:
        """Return whether the peer has sent bytes, or closed the connection."""

    def close(self) -> None:
        """Close the connection; never fails."""


class Dialer(Protocol):
    """A route that connects to servers without a direct TCP connection, an SSH tunnel for instance."""

    def dial(self, host: str, port: int, timeout_s: float) -> Wire:
        """Connect to a server.

        :raises HiveFederationError: if the route to the server fails.
        """

    def close(self) -> None:
        """Close the route; never fails."""


@dataclass(frozen=True, kw_only=True)
class MetastoreSettings:
    """Addresses of a metastore's servers, and the transport, credentials and limits of its clients.

    :param uris: servers of the same metastore: ``thrift://host:9083`` (TCP), ``thrift+tls://host:9083``,
        ``http://host:9001/metastore`` or ``https://…`` (Hive's HTTP transport); ``grpc://host:9084`` or
        ``grpc+tls://host:9084`` (a gateway).
    :param tls: TLS files; with them ``thrift://`` uses TLS as well, and ``grpc://`` on loopback.
    :param http_headers: HTTP headers to send with every request, a bearer token for instance.
    :param authentication: Kerberos, a delegation token or a password; ``None`` sends no credentials: the
        server trusts ``user``.
    :param user: user that the calls act for (``set_ugi``, or the user header of HTTP); ``None`` takes the
        authenticated user, or the operating system's user.
    :param groups: the user's groups, sent with ``set_ugi``.
    :param connect_timeout_s: seconds to connect to one URI, ``set_ugi`` included.
    :param call_timeout_s: seconds that a call may take, including its whole answer.
    :param max_answer_bytes: longest answer that is accepted, 256 MiB by default: some 150,000 partitions.
    :param catalog: Hive catalog of every call that names none.
    :param capabilities: capabilities that the client declares to Hive; see ``CAPABILITIES``.
    :param identifier: name of the client in the server's log.
    :param dialer: route to the servers; ``None`` connects by TCP from here. TLS goes through the route.
    :param grpc: TLS and tokens for a gRPC gateway.
    :param client_class: dotted path of a subclass of ``MetastoreClient`` to use in its place (the setting
        ``metastore.custom.client.class`` of the gRPC metastore's design, Hive's ``metastore.client.impl``).
    """

    uris: tuple[str, ...]
    tls: TlsSettings | None = None
    authentication: Authentication | None = None
    http_headers: Mapping[str, str] = field(default_factory=dict, repr=False, hash=False)
    user: str | None = None
    groups: tuple[str, ...] = ()
    connect_timeout_s: float = 10.0
    call_timeout_s: float = 600.0
    max_answer_bytes: int = MAX_MESSAGE_BYTES
    catalog: str = "hive"
    capabilities: tuple[str, ...] = CAPABILITIES
    identifier: str = "airflow-hive-federation"
    dialer: Dialer | None = field(default=None, repr=False, compare=False)
    grpc: GrpcSettings = field(default_factory=GrpcSettings)
    client_class: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "http_headers", MappingProxyType(dict(self.http_headers)))
        if not self.uris:
            raise ConfigurationError(
                "No metastore URI given.", remedy="Give at least one, thrift://host:9083.", field="uris"
            )
        for name in ("connect_timeout_s", "call_timeout_s"):
            if not 0 < getattr(self, name) <= LONGEST_TIMEOUT_S:
                raise ConfigurationError(
                    f"{name} is {getattr(self, name)}.",
                    remedy=f"Give seconds above 0, and no more than {LONGEST_TIMEOUT_S} (a week).",
                    field=name,
                )
        if self.max_answer_bytes < 1:
            raise ConfigurationError(
                f"max_answer_bytes is {self.max_answer_bytes}.",
                remedy="Give a number of bytes above 0.",
                field="max_answer_bytes",
            )
        endpoints = self.endpoints()
        self._check_authentication(endpoints)
        self._check_http(endpoints)
        self._check_grpc(endpoints)

    def _check_http(self, endpoints: tuple[Endpoint, ...]) -> None:
        plain = [endpoint for endpoint in endpoints if endpoint.scheme == "http"]
        if self.tls is not None and plain:
            raise ConfigurationError(
                f"There are TLS files for {plain[0]}, which does without TLS.",
                remedy="Write https://, or remove the TLS files.",
                field="tls",
            )
        exposed = [endpoint for endpoint in plain if endpoint.host not in LOOPBACK]
        if self.http_headers and self.dialer is None and exposed:
            raise ConfigurationError(
                f"The HTTP headers, a bearer token perhaps, would travel to {exposed[0]} unencrypted.",
                remedy="Use https:// URIs, or an SSH route.",
                field="http_headers",
            )
        for name, value in self.http_headers.items():
            # A line break would begin another header, or another request. The value may be a secret.
            if not (_HEADER_NAME.fullmatch(name) and _HEADER_VALUE.fullmatch(value)):
                raise ConfigurationError(
                    f"The HTTP header {name!r} holds characters that no header may have.",
                    remedy="Remove line breaks and control characters, a line break at its end, too.",
                    field="http_headers",
                )
        if any(endpoint.is_http for endpoint in endpoints) and not _HEADER_VALUE.fullmatch(self.user or ""):
            raise ConfigurationError(
                f"The user {self.user!r} cannot be sent over HTTP: its header has letters of Latin-1 only.",
                remedy="Use another user for this metastore, or a thrift:// URI.",
                field="user",
            )

    def _check_authentication(self, endpoints: tuple[Endpoint, ...]) -> None:
        if self.authentication is None:
            return
        if any(endpoint.is_http or endpoint.is_grpc for endpoint in endpoints):
            raise ConfigurationError(
                "Kerberos and passwords of SASL do not go over HTTP or gRPC.",
                remedy="Use thrift:// or thrift+tls:// URIs, or a bearer token.",
                field="uris",
            )
        if isinstance(self.authentication, PlainSettings) and self.tls is None and self.dialer is None:
            exposed = [
                endpoint for endpoint in endpoints if not endpoint.is_tls and endpoint.host not in LOOPBACK
            ]
            if exposed:
                raise ConfigurationError(
                    f"The password would travel to {exposed[0]} unencrypted.",
                    remedy="Use thrift+tls:// URIs, or an SSH route.",
                    field="authentication",
                )

    def _check_grpc(self, endpoints: tuple[Endpoint, ...]) -> None:
        ours = [endpoint for endpoint in endpoints if endpoint.is_grpc]
        if not ours:
            if self.grpc != GrpcSettings():
                raise ConfigurationError(
                    "There are settings of gRPC, and no URI is grpc://.",
                    remedy="Write grpc://host:port.",
                    field="uris",
                )
            return
        if self.tls is not None and self.grpc.plaintext:
            raise ConfigurationError(
                "There are TLS files, and gRPC is to do without TLS.",
                remedy="Remove the files, or plaintext.",
                field="tls",
            )
        if self.tls is not None and not self.tls.verify:
            raise ConfigurationError(
                "gRPC verifies its server's certificate always.",
                remedy="Give the authority's certificate as ca_file.",
                field="tls",
            )
        exposed = [
            endpoint
            for endpoint in ours
            if self.is_plaintext_grpc(endpoint) and endpoint.host not in LOOPBACK
        ]
        if exposed and self.grpc.has_token and self.dialer is None:
            raise ConfigurationError(
                f"The bearer token would travel to {exposed[0]} unencrypted.",
                remedy="Do without grpc.plaintext, or use an SSH route.",
                field="grpc",
            )

    def is_plaintext_grpc(self, endpoint: Endpoint) -> bool:
        """Return whether the client connects to a gRPC gateway without TLS.

        ``grpc://`` means TLS, except on loopback without TLS files; ``grpc+tls://`` always means TLS.
        """
        if endpoint.is_tls or self.tls is not None:
            return False
        return self.grpc.plaintext or endpoint.host in LOOPBACK

    @property
    def has_credentials(self) -> bool:
        """Return whether calls carry a proof of identity: of SASL, a header, or a bearer token."""
        return self.authentication is not None or bool(self.http_headers) or self.grpc.has_token

    def is_verified_by_tls(self) -> bool:
        """Return whether each server must show a certificate for its name."""
        if self.tls is not None and not self.tls.verify:
            return False
        return self.tls is not None or all(
            endpoint.is_tls or (endpoint.is_grpc and not self.is_plaintext_grpc(endpoint))
            for endpoint in self.endpoints()
        )

    def endpoints(self) -> tuple[Endpoint, ...]:
        """Parse the URIs.

        :raises ConfigurationError: if one of them does not have one of the forms above.
        """
        return tuple(_parse(uri) for uri in self.uris)

    def effective_user(self) -> str:
        """Return the user that calls act for.

        :raises ConfigurationError: if it is the user of this process, and that user has no name.
        """
        if self.user:
            return self.user
        if isinstance(self.authentication, PlainSettings):
            return self.authentication.user
        if isinstance(self.authentication, KerberosSettings) and self.authentication.client_principal:
            return _short_name(self.authentication.client_principal)
        if isinstance(self.authentication, DelegationTokenSettings) and (
            owner := self.authentication.read().owner
        ):
            return _short_name(owner)
        try:
            return getpass.getuser()
        except (KeyError, OSError) as error:
            raise ConfigurationError(
                f"The user {os.getuid()} of this process has no name on this machine.",
                remedy="Set user, or the environment variable USER.",
            ) from error

    def __reduce__(self) -> tuple[object, ...]:
        # A mapping proxy cannot be pickled.
        fields = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return _rebuild, ({**fields, "http_headers": dict(self.http_headers)},)


def _short_name(principal: str) -> str:
    """Return the user of a principal, as Hadoop's ``KerberosName`` does where no rules are configured."""
    return re.split("[/@]", principal, maxsplit=1)[0]


def _rebuild(fields: dict[str, object]) -> MetastoreSettings:
    return MetastoreSettings(**fields)  # type: ignore[arg-type]


def _parse(uri: str) -> Endpoint:
    try:
        parts = urlsplit(uri)
    except ValueError:
        # The message repeats neither the URI nor the parser's message: both may hold a password.
        raise ConfigurationError(
            "A metastore URI is malformed: it has brackets, and no address of IPv6 between them.",
            remedy="Write thrift://host:port, or thrift://[::1]:port.",
            field="uris",
        ) from None
    try:
        port = parts.port
    except ValueError:
        port = -1
    if "@" in (parts.netloc or uri):
        # The message does not repeat the URI, which may hold a password.
        raise ConfigurationError(
            f"A metastore URI names a user before its host ({parts.hostname}).",
            remedy="Give the user as a setting of its own, and secrets as headers or files.",
            field="uris",
        )
    if "?" in uri or "#" in uri:
        # The message does not repeat the query, which may be a token. No transport would send it.
        raise ConfigurationError(
            f"The metastore URI of host {parts.hostname} has a query or a fragment, which no metastore has.",
            remedy="Leave it out; settings are keys of their own, and secrets are headers or files.",
            field="uris",
        )
    if parts.scheme not in _PLAIN + _TLS or not parts.hostname or port == -1:
        raise ConfigurationError(
            f"{uri!r} is no metastore URI.",
            remedy="Write thrift://host:port, thrift+tls://host:port, http(s)://host:port/path, grpc://host:port.",
            field="uris",
        )
    is_http = parts.scheme in {"http", "https"}
    default = _PORTS.get(parts.scheme, DEFAULT_PORT)
    path = (parts.path or DEFAULT_HTTP_PATH) if is_http else ""
    if not _HTTP_PATH.fullmatch(path):
        raise ConfigurationError(
            f"The path of {uri!r} has characters that no URI may have.",
            remedy="Write them as percent-encoded bytes: a space is %20.",
            field="uris",
        )
    return Endpoint(scheme=parts.scheme, host=parts.hostname, port=port or default, path=path)
