"""Runs the gateway's gRPC server: its services, health checking and reflection on one port, and a drain."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any, Protocol, Self

import grpc
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2, reflection_pb2_grpc

from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.gateway.certificates import Certificates, ServerTls, check_exposure
from airflow_hive_federation.gateway.grpc.authentication import Authenticator, make_authenticator
from airflow_hive_federation.gateway.grpc.calls import Calls
from airflow_hive_federation.gateway.grpc.health_service import HealthService
from airflow_hive_federation.gateway.grpc.raw import RawService
from airflow_hive_federation.gateway.grpc.resets import CallThreads
from airflow_hive_federation.gateway.grpc.settings import SERVER_CLASS, GrpcFrontSettings
from airflow_hive_federation.gateway.handler import Handler
from airflow_hive_federation.metastore.plugins import load_class

log = logging.getLogger(__name__)

#: Threads in addition to those of calls, so that health checks and refusals are answered under load.
_SPARE_THREADS = 8
#: Calls that may wait for a thread, per call that may run, before grpcio itself refuses further calls.
_WAITING = 4
_METADATA_BYTES = 16 << 10


class Service(Protocol):
    """A gRPC service on the front's port."""

    @property
    def names(self) -> tuple[str, ...]:
        """Full names of the service for health checking and reflection."""

    def handler(self, calls: Calls) -> grpc.GenericRpcHandler:
        """Return the rpc handlers of the service's paths; each method goes through :class:`.Calls`."""

    def add_to(self, pool: DescriptorPool) -> None:
        """Add the service's descriptors to the pool of the reflection service."""


class GrpcFront:
    """A gRPC server; a process that makes one must not fork afterwards.

    :param handler: answers Thrift calls.
    :param services: further services beside the raw encoding.
    :param authenticator: authenticates callers in place of the class that the settings name.
    :raises ConfigurationError: the front would serve in plain text, or unknown callers, off loopback; or the
        certificates cannot be used, or the port is taken.
    """

    def __init__(
        self,
        handler: Handler,
        settings: GrpcFrontSettings,
        services: Iterable[Service] = (),
        *,
        authenticator: Authenticator | None = None,
    ) -> None:
        check_exposure(settings.host, settings.tls, allow_plain=settings.allow_plain)
        self.settings = settings
        self._calls = Calls(handler, authenticator or make_authenticator(settings), settings)
        threads = settings.max_concurrent_calls + _most_streams(settings) + _SPARE_THREADS
        self._threads = CallThreads(threads)
        self._health = HealthService(settings.max_watches)
        self._server = self._make_server([RawService(), *services])
        try:
            self.port = self._bind()
        except BaseException:
            self.stop(0)
            raise

    def start(self) -> Self:
        """Start to serve in threads of the front's own; return the front."""
        self._server.start()
        return self

    def stop(self, drain_timeout_s: float | None = None) -> None:
        """Report as unhealthy, accept no new calls, wait for the running calls, and close.

        :param drain_timeout_s: seconds that running calls have to end; ``None`` takes the setting.
        """
        self._health.enter_graceful_shutdown()
        grace = self.settings.drain_timeout_s if drain_timeout_s is None else drain_timeout_s
        stopped = self._server.stop(grace)
        self._calls.conversations.drain(grace)
        stopped.wait()
        self._threads.shutdown(wait=True)
        self._calls.close()

    def set_health(self, name: str, serves: bool) -> None:
        """Set the state of a metastore behind the gateway in the health service.

        :param name: name of the metastore, which health checks use as the name of the service.
        :param serves: the metastore answers.
        """
        states = health_pb2.HealthCheckResponse
        self._health.set(name, states.SERVING if serves else states.NOT_SERVING)

    def _make_server(self, services: list[Service]) -> grpc.Server:
        names = [name for service in services for name in service.names]
        server = grpc.server(
            self._threads,
            handlers=[service.handler(self._calls) for service in services],
            options=_options(self.settings),
            maximum_concurrent_rpcs=_most_at_a_time(self.settings),
        )
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        for name in ("", *names):
            self._health.set(name, health_pb2.HealthCheckResponse.SERVING)
        pool = DescriptorPool()
        for service in services:
            service.add_to(pool)
        reflected = [*names, health.SERVICE_NAME, reflection.SERVICE_NAME]
        for described in (health_pb2.DESCRIPTOR, reflection_pb2.DESCRIPTOR):
            pool.AddSerializedFile(described.serialized_pb)
        reflection_pb2_grpc.add_ServerReflectionServicer_to_server(
            reflection.ReflectionServicer(reflected, pool=pool), server
        )
        return server

    def _bind(self) -> int:
        settings = self.settings
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        address = f"{host}:{settings.port}"
        try:
            if settings.tls is None:
                return int(self._server.add_insecure_port(address))
            return int(self._server.add_secure_port(address, _credentials(settings.tls)))
        except RuntimeError as error:
            raise ConfigurationError(
                f"The gRPC front cannot listen at {address}: {error}", remedy="Take another address or port."
            ) from error


def _most_at_a_time(settings: GrpcFrontSettings) -> int:
    return settings.max_concurrent_calls * _WAITING + _most_streams(settings) + _SPARE_THREADS


def _most_streams(settings: GrpcFrontSettings) -> int:
    return settings.max_conversations + settings.max_watches


def check_settings(settings: GrpcFrontSettings) -> None:
    """Make the checks of :class:`GrpcFront` except that of its port.

    :raises ConfigurationError: the front would serve in plain text, or unknown callers, off loopback; or the
        certificates or the settings of the authentication class cannot be used.
    """
    check_exposure(settings.host, settings.tls, allow_plain=settings.allow_plain)
    make_authenticator(settings)
    if settings.tls is not None:
        Certificates(settings.tls)


def server_class(path: str | None) -> Any:
    """Return :class:`GrpcFront`, or the server class that ``metastore.custom.server.class`` names.

    The class takes the arguments of :class:`GrpcFront` (handler, settings, services), and has ``port``,
    ``start()`` and ``stop(drain_timeout_s)``.

    :raises ConfigurationError: the class does not exist, or lacks one of these methods.
    """
    if path is None:
        return GrpcFront
    loaded = load_class(path, None, SERVER_CLASS)
    if lacking := [name for name in ("start", "stop") if not callable(getattr(loaded, name, None))]:
        raise ConfigurationError(
            f"{SERVER_CLASS} names {path!r}, which has no {' and no '.join(lacking)}.",
            remedy=f"Name {GrpcFront.__module__}.{GrpcFront.__qualname__}, or a class that serves alike.",
        )
    return loaded


def _options(settings: GrpcFrontSettings) -> list[tuple[str, int]]:
    keepalive_ms = int(settings.keepalive_s * 1000)
    return [
        ("grpc.so_reuseport", int(settings.reuse_port)),
        ("grpc.max_receive_message_length", settings.max_request_bytes),
        ("grpc.max_send_message_length", settings.max_answer_bytes),
        ("grpc.max_metadata_size", _METADATA_BYTES),
        ("grpc.max_allowed_incoming_connections", settings.max_connections),
        ("grpc.max_concurrent_streams", settings.max_concurrent_calls),
        # With it, the limit counts streams that have ended and whose memory is not free yet: grpcio refuses
        # calls of a busy client that keeps to the limit (RST_STREAM, UNAVAILABLE). With more streams than
        # calls, it refuses none, but protects no other client from one that resets its calls without a pause
        # (docs/grpc.md has the measurement).
        ("grpc.http.overload_protection", 0),
        ("grpc.server_handshake_timeout_ms", int(settings.handshake_timeout_s * 1000)),
        ("grpc.max_connection_idle_ms", int(settings.idle_timeout_s * 1000)),
        # Closes the connections of clients that do not read or are gone, since they answer no ping.
        ("grpc.keepalive_time_ms", keepalive_ms),
        ("grpc.keepalive_timeout_ms", keepalive_ms // 3),
        ("grpc.keepalive_permit_without_calls", 1),
        # Disconnects clients that ping more often (ENHANCE_YOUR_CALM).
        ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", 10_000),
        ("grpc.http2.max_ping_strikes", 3),
    ]


def _credentials(tls: ServerTls) -> grpc.ServerCredentials:
    """Return credentials that each handshake looks up, so that changed files take effect at the next one."""
    certificates = Certificates(tls)

    def read() -> grpc.ServerCertificateConfiguration:
        chain, key, clients = tls.contents()
        return grpc.ssl_server_certificate_configuration([(key, chain)], root_certificates=clients)

    def changed() -> grpc.ServerCertificateConfiguration | None:
        try:
            return read() if certificates.changed() else None
        except ConfigurationError as error:
            log.warning("changed certificates are not used, and the former ones stay in use: %s", error)
            return None

    return grpc.dynamic_ssl_server_credentials(
        read(), changed, require_client_authentication=tls.client_ca_file is not None
    )
