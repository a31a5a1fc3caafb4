"""Defines the settings of the Thrift front."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.gateway.certificates import ServerTls
from airflow_hive_federation.gateway.messages import HIVES_REQUEST_BYTES, check_request_size
from airflow_hive_federation.gateway.sections import LAST_PORT


@dataclass(frozen=True, kw_only=True)
class ThriftSettings:
    """Settings of the Thrift front (``[thrift]``).

    :param host: address to listen at; loopback by default.
    :param port: port to listen at; 0 takes a free port.
    :param tls: certificates; ``None`` serves in plain text.
    :param allow_plain: serve in plain text off loopback as well.
    :param believe_set_ugi: trust the user name that ``set_ugi`` carries from clients of other machines. The
        front always trusts it from clients of this machine, as Hive's metastore trusts it from everybody.
    :param max_connections: greatest number of clients; the front closes further connections at once.
    :param max_request_bytes: size of the longest call that the front accepts, at most Hive's own limit.
    :param handshake_timeout_s: seconds for a TLS handshake.
    :param request_timeout_s: seconds from the first byte of a call to its last byte.
    :param idle_timeout_s: seconds after which the front closes an unused connection.
    :param call_timeout_s: seconds for a call with its whole answer.
    :param write_timeout_s: seconds in which a client has to accept a piece of an answer.
    :param drain_timeout_s: seconds that running calls have to end when the front stops.
    :param reuse_port: share the port with other processes (``SO_REUSEPORT``).
    """

    host: str = "127.0.0.1"
    port: int = 9083
    tls: ServerTls | None = None
    allow_plain: bool = False
    believe_set_ugi: bool = False
    max_connections: int = 1000
    max_request_bytes: int = HIVES_REQUEST_BYTES
    handshake_timeout_s: float = 10.0
    request_timeout_s: float = 30.0
    idle_timeout_s: float = 3600.0
    call_timeout_s: float = 600.0
    write_timeout_s: float = 60.0
    drain_timeout_s: float = 30.0
    reuse_port: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.port <= LAST_PORT:
            raise ConfigurationError(
                f"port of the Thrift front is {self.port}.", remedy=f"Give a port from 0 to {LAST_PORT}."
            )
        check_request_size("Thrift", self.max_request_bytes)
