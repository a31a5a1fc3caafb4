"""Starts and stops one process of the gateway: its fronts, handler, probes and metrics."""

from __future__ import annotations

import logging
import sys
import threading
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any, Protocol

from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.gateway.config import GatewayConfig
from airflow_hive_federation.gateway.dispatch import Gateway, access_log
from airflow_hive_federation.gateway.handler import Handler
from airflow_hive_federation.gateway.health import Health
from airflow_hive_federation.gateway.metrics import Metrics, MetricsServer
from airflow_hive_federation.gateway.named_clusters import NamedClusters
from airflow_hive_federation.gateway.properties import GrpcSection
from airflow_hive_federation.gateway.stopping import Stopping
from airflow_hive_federation.gateway.thrift_front import ThriftFront
from airflow_hive_federation.gateway.upstream_section import Resolve

log = logging.getLogger(__name__)

#: Seconds that a thread may run while others wait for the interpreter. With Python's default of 5 ms, one
#: long message would add 5 ms to all other calls.
_SWITCH_S = 0.001


class Front(Protocol):
    """A server of the gateway that clients call."""

    @property
    def uri(self) -> str:
        """The URI for clients."""

    def stop(self, drain_timeout_s: float | None = None) -> object:
        """Accept no more clients, wait for the running calls, and close."""


@dataclass
class Serving:
    """The running parts of a gateway process; :meth:`stop` ends them."""

    handler: Gateway
    target: Any
    fronts: list[Front]
    metrics: MetricsServer | None
    health: Health | None = None

    def stop(self) -> None:
        """Drain all fronts at once, then close the metrics and the connections to the metastores."""
        if self.health is not None:
            self.health.stop()
        threads = [threading.Thread(target=front.stop) for front in self.fronts]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self.metrics is not None:
            self.metrics.close()
        self.target.close()

    def tell_health(self, name: str, up: bool) -> None:
        """Pass the state of a metastore, up or down, to the gRPC fronts."""
        for front in self.fronts:
            if isinstance(front, _GrpcFront):
                front.tell_health(name, up)


def start(config: GatewayConfig, resolve: Resolve, *, worker: int | None = None) -> Serving:
    """Start the fronts of this process.

    :param worker: number of the process among several that share the ports; ``None`` for a single process.
    :raises ConfigurationError: a port is taken, certificates cannot be used, or a package that the
        configuration needs is not installed.
    """
    _log_calls(config.log.access)
    target = config.target(resolve)
    metrics = Metrics(worker=str(worker or 0))
    handler = Gateway(target, config.decisions(), aliases=config.aliases, metrics=metrics)
    serving = Serving(handler, target, [], None)
    try:
        if isinstance(target, NamedClusters):
            target.check_catalogs(config.health.timeout_s)
        if config.thrift is not None:
            settings = replace(config.thrift, reuse_port=worker is not None or config.thrift.reuse_port)
            serving.fronts.append(ThriftFront(handler, settings).start())
        if config.grpc is not None:
            serving.fronts.append(_grpc_front(handler, config.grpc, shared=worker is not None))
        serving.health = Health(target.upstreams, config.health, serving.tell_health).start()
        _measure(metrics, serving)
        if config.metrics is not None:
            port = config.metrics.port and config.metrics.port + (worker or 0)
            serving.metrics = _metrics_server(metrics, config.metrics.host, port, worker is not None)
    except BaseException:
        serving.stop()
        raise
    return serving


def run_until_stopped(serving: Serving, *, parent: bool = False) -> None:
    """Serve until ``SIGTERM`` or ``SIGINT``, then drain.

    :param parent: end also when standard input ends, which a parent process holds open.
    """
    sys.setswitchinterval(_SWITCH_S)
    with Stopping() as stopping:
        if parent:
            threading.Thread(target=_wait_for_parent, args=(stopping,), daemon=True).start()
        try:
            stopping.wait()
        finally:
            serving.stop()


def _wait_for_parent(stopping: Stopping) -> None:
    sys.stdin.buffer.read()
    stopping.request()


@dataclass
class _GrpcFront:
    """Adapts the gRPC server to :class:`Front`."""

    server: Any
    uri: str

    def stop(self, drain_timeout_s: float | None = None) -> object:
        return self.server.stop(drain_timeout_s)

    def tell_health(self, name: str, up: bool) -> None:
        # A server class from ``metastore.custom.server.class`` may lack this method.
        if callable(set_health := getattr(self.server, "set_health", None)):
            set_health(name, up)


def grpc_server() -> Any:
    """Import the module of the gRPC front, which needs the extra ``grpc``.

    :raises ConfigurationError: a package is not installed.
    """
    try:
        return import_module("airflow_hive_federation.gateway.grpc.server")
    except ImportError as error:
        raise ConfigurationError(
            f"The gRPC front cannot be started: {error}.",
            remedy="pip install 'airflow-hive-federation[grpc]', or take [grpc] out of the file.",
        ) from error


def _grpc_front(handler: Handler, section: GrpcSection, *, shared: bool) -> Front:
    server = grpc_server()
    services = _services(handler)
    read = replace(section.settings, reuse_port=shared or section.settings.reuse_port)
    front = server.server_class(section.server_class)(handler, read, services)
    front.start()
    host = f"[{read.host}]" if ":" in read.host else read.host
    return _GrpcFront(front, f"grpc{'' if read.tls is None else '+tls'}://{host}:{front.port}")


def _services(handler: Handler) -> tuple[Any, ...]:
    """Return the typed gRPC services, which run beside the raw encoding."""
    return tuple(import_module("airflow_hive_federation.gateway.services").services(handler))


def _measure(metrics: Metrics, serving: Serving) -> None:
    def clients() -> dict[str, float]:
        return {front.uri: front.connections for front in serving.fronts if isinstance(front, ThriftFront)}

    def refused() -> dict[str, float]:
        return {front.uri: front.refused for front in serving.fronts if isinstance(front, ThriftFront)}

    def upstream() -> dict[str, float]:
        return {metastore.name: metastore.open_connections for metastore in serving.target.upstreams}

    def up() -> dict[str, float]:
        return {} if serving.health is None else serving.health.states()

    def missing() -> dict[str, float]:
        return dict(serving.target.missing_parts)

    metrics.gauge("missing_parts_total", "Parts left out of lists.", "upstream", missing, total=True)
    metrics.gauge("client_connections", "Clients connected.", "front", clients)
    metrics.gauge("refused_connections_total", "Clients refused at the limit.", "front", refused, total=True)
    metrics.gauge("upstream_up", "1 if the metastore answers, else 0.", "upstream", up)
    metrics.gauge("upstream_connections", "Connections to metastores.", "upstream", upstream)


def _metrics_server(metrics: Metrics, host: str, port: int, reserved: bool) -> MetricsServer:
    try:
        return MetricsServer(metrics, host, port, reserved=reserved)
    except (OSError, OverflowError) as error:
        raise ConfigurationError(
            f"Metrics cannot be served at {host}:{port}: {error}", remedy="Give a free port."
        ) from error


def _log_calls(where: str | None) -> None:
    if where is None:
        # Keep the access log quiet even if the root logger's level is INFO.
        access_log.setLevel(logging.WARNING)
        return
    try:
        handler = logging.StreamHandler() if where == "-" else logging.FileHandler(where, encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(
            f"The access log {where} cannot be written: {error}",
            remedy="Name a file that this user may write.",
        ) from error
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    access_log.setLevel(logging.INFO)
    access_log.propagate = False
    access_log.addHandler(handler)
