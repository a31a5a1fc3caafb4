"""Settings of the gRPC front, by their own names and by those of the design."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.gateway.certificates import ServerTls
from airflow_hive_federation.metastore.grpc_settings import DEFAULT_GRPC_PORT

AUTHENTICATION_CLASS = "metastore.grpc.authentication.class"
#: Names that begin so, ``.class`` apart, are for the class that says who calls.
AUTHENTICATION = "metastore.grpc.authentication."
#: The design's names of numbers → the settings here.
NUMBERS = {
    "metastore.grpc.port": "port",
    "metastore.grpc.max.request.size": "max_request_bytes",
    "metastore.grpc.max.answer.size": "max_answer_bytes",
    "metastore.grpc.max.connections": "max_connections",
    "metastore.grpc.max.concurrent.calls": "max_concurrent_calls",
}

#: Clients that may be connected and mostly silent, per call that may be at work.
_CONVERSATIONS_PER_CALL = 4


@dataclass(frozen=True, kw_only=True)
class GrpcFrontSettings:
    """Where and how the gRPC front serves.

    :param host: address to listen at; loopback by default.
    :param port: port; 0 takes a free one.
    :param tls: certificates; ``None`` serves in plain text.
    :param allow_plain: serve in plain text off loopback as well.
    :param authentication_class: dotted path of a class that says who calls (see
        :class:`.authentication.Authenticator`); ``None`` takes subjects of certificates where clients need
        one, and believes clients of this machine where the front listens at loopback.
    :param authentication: what that class is made with; its names have no prefix.
    :param max_connections: connections at a time; further ones are closed at once.
    :param max_concurrent_calls: calls at work at a time; further ones are refused as exhausted.
    :param max_request_bytes: longest call that is accepted.
    :param max_answer_bytes: longest answer that is sent in one message; longer ones go in pieces only.
    :param call_timeout_s: seconds a call may take at most, whatever its client asks for.
    :param handshake_timeout_s: seconds for a client to finish its handshakes.
    :param idle_timeout_s: seconds a connection may lie unused.
    :param keepalive_s: seconds of silence after which a client is pinged; it has a third of it to answer.
    :param drain_timeout_s: seconds that calls under way are given when the front stops.
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
    max_request_bytes: int = 100 << 20
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

    @property
    def max_conversations(self) -> int:
        """How many streams of calls may be open; each keeps a thread."""
        return self.max_concurrent_calls * _CONVERSATIONS_PER_CALL

    def with_properties(self, properties: Mapping[str, str]) -> GrpcFrontSettings:
        """Return these settings with those of the design in their place, as ``hive-site.xml`` has them.

        :param properties: ``metastore.grpc.port``, ``metastore.grpc.max.request.size`` and the like; names
            that begin with ``metastore.grpc.authentication.`` are for the class that ends in ``.class``.
        :raises ConfigurationError: a number is none.
        """
        taken: dict[str, object] = {}
        for name, argument in NUMBERS.items():
            if properties.get(name):
                taken[argument] = _number(name, properties[name])
        if properties.get(AUTHENTICATION_CLASS):
            taken["authentication_class"] = properties[AUTHENTICATION_CLASS].strip()
        given = {
            name.removeprefix(AUTHENTICATION): value
            for name, value in properties.items()
            if name.startswith(AUTHENTICATION) and name != AUTHENTICATION_CLASS
        }
        if given:
            taken["authentication"] = given
        return replace(self, **taken)  # type: ignore[arg-type]


def _number(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ConfigurationError(f"{name} is {text!r}, which is no number.", remedy="Correct it.") from None
