"""Holds the gRPC front's settings, and reads them from properties of the design of the gRPC metastore."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.gateway.certificates import ServerTls
from airflow_hive_federation.gateway.messages import HIVES_REQUEST_BYTES, check_request_size
from airflow_hive_federation.gateway.sections import LAST_PORT
from airflow_hive_federation.metastore.grpc_settings import DEFAULT_GRPC_PORT

SERVER_CLASS = "metastore.custom.server.class"
AUTHENTICATION_CLASS = "metastore.grpc.authentication.class"
#: Prefix of the properties that go to the authentication class; only ``.class`` itself does not.
AUTHENTICATION = "metastore.grpc.authentication."
#: Properties with numbers → fields of :class:`GrpcFrontSettings`.
NUMBERS = {
    "metastore.grpc.port": "port",
    "metastore.grpc.max.request.size": "max_request_bytes",
    "metastore.grpc.max.answer.size": "max_answer_bytes",
    "metastore.grpc.max.connections": "max_connections",
    "metastore.grpc.max.concurrent.calls": "max_concurrent_calls",
}

#: Number of open streams, most of which are silent, per call that may run at the same time.
_CONVERSATIONS_PER_CALL = 4


@dataclass(frozen=True, kw_only=True)
class GrpcFrontSettings:
    """Settings of the gRPC front (``[grpc]``).

    :param host: address to listen at; loopback by default.
    :param port: port to listen at; 0 takes a free port.
    :param tls: certificates; ``None`` serves in plain text.
    :param allow_plain: serve in plain text off loopback as well.
    :param authentication_class: dotted path of a class that authenticates callers (see
        :class:`.authentication.Authenticator`). With ``None``, the user is the subject of the client's
        certificate if clients need one, or else, at loopback, the name that a client of this machine sends.
    :param authentication: settings of that class, without their prefix.
    :param max_connections: greatest number of connections; the front closes further ones at once.
    :param max_concurrent_calls: greatest number of running calls; the front refuses further ones as
        exhausted.
    :param max_request_bytes: size of the longest call that the front accepts, at most Hive's own limit.
    :param max_answer_bytes: size of the longest answer in one message; longer answers need a stream.
    :param call_timeout_s: greatest time of a call in seconds, even if the client sets a later deadline.
    :param handshake_timeout_s: seconds for a client to finish its handshakes.
    :param idle_timeout_s: seconds after which the front closes an unused connection.
    :param keepalive_s: seconds of silence after which the front pings a client. The client has a third of
        this time to answer.
    :param drain_timeout_s: seconds that running calls have to end when the front stops.
    :param reuse_port: share the port with other processes (``SO_REUSEPORT``).
    """

    host: str = "127.0.0.1"
    port: int = DEFAULT_GRPC_PORT
    tls: ServerTls | None = None
    allow_plain: bool = False
    authentication_class: str | None = None
    authentication: Mapping[str, str] = field(default_factory=dict, repr=False, hash=False)
    max_connections: int = 1000
    max_concurrent_calls: int = 64
    max_request_bytes: int = HIVES_REQUEST_BYTES
    max_answer_bytes: int = 256 << 20
    call_timeout_s: float = 600.0
    handshake_timeout_s: float = 10.0
    idle_timeout_s: float = 3600.0
    keepalive_s: float = 60.0
    drain_timeout_s: float = 30.0
    reuse_port: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "authentication", MappingProxyType(dict(self.authentication)))
        for name in (*NUMBERS.values(), "call_timeout_s", "handshake_timeout_s", "keepalive_s"):
            if getattr(self, name) < (0 if name == "port" else 1):
                raise ConfigurationError(
                    f"{name} of the gRPC front is {getattr(self, name)}.", remedy="Give a number above 0."
                )
        if self.port > LAST_PORT:
            # grpcio takes the remainder by 65536, and serves at another port.
            raise ConfigurationError(
                f"port of the gRPC front is {self.port}.", remedy=f"Give a port up to {LAST_PORT}."
            )
        check_request_size("gRPC", self.max_request_bytes)

    @property
    def max_conversations(self) -> int:
        """Greatest number of open streams of calls, each of which occupies a thread."""
        return self.max_concurrent_calls * _CONVERSATIONS_PER_CALL

    @property
    def max_watches(self) -> int:
        """Greatest number of clients that watch the health service, each of which occupies a thread."""
        return self.max_conversations

    def with_properties(self, properties: Mapping[str, str]) -> GrpcFrontSettings:
        """Return a copy of these settings in which properties of ``hive-site.xml`` take precedence.

        :param properties: ``metastore.grpc.port``, ``metastore.grpc.max.request.size`` and the like. Names
            with the prefix ``metastore.grpc.authentication.`` go to the class that
            ``metastore.grpc.authentication.class`` names.
        :raises ConfigurationError: the value of a number is no number.
        """
        changes: dict[str, object] = {}
        for name, argument in NUMBERS.items():
            if properties.get(name):
                changes[argument] = _number(name, properties[name])
        if properties.get(AUTHENTICATION_CLASS):
            changes["authentication_class"] = properties[AUTHENTICATION_CLASS].strip()
        of_class = {
            name.removeprefix(AUTHENTICATION): value
            for name, value in properties.items()
            if name.startswith(AUTHENTICATION) and name != AUTHENTICATION_CLASS
        }
        if of_class:
            changes["authentication"] = of_class
        return replace(self, **changes)  # type: ignore[arg-type]


def _number(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ConfigurationError(f"{name} is {text!r}, which is no number.", remedy="Correct it.") from None
