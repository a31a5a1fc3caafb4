"""Finds out what a client of a gateway would see, without starting one: ``hive-federation gateway check``."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from airflow_hive_federation.errors import ConfigurationError, GatewayError, HiveFederationError
from airflow_hive_federation.gateway.certificates import Certificates, ServerTls, check_exposure
from airflow_hive_federation.gateway.config import GatewayConfig
from airflow_hive_federation.gateway.dispatch import Gateway
from airflow_hive_federation.gateway.handler import Call, Caller, Deadline
from airflow_hive_federation.gateway.health import probe
from airflow_hive_federation.gateway.messages import CALL, EXCEPTION, head_bytes, read_head
from airflow_hive_federation.gateway.methods import ACCESS, Access
from airflow_hive_federation.gateway.named_clusters import NamedClusters
from airflow_hive_federation.gateway.properties import GrpcSection
from airflow_hive_federation.gateway.serving import grpc_server
from airflow_hive_federation.gateway.thrift_settings import ThriftSettings
from airflow_hive_federation.gateway.upstream import Upstream
from airflow_hive_federation.gateway.upstream_section import Resolve
from airflow_hive_federation.gateway.workers import reserve_port
from airflow_hive_federation.metastore.connection import message_types
from airflow_hive_federation.metastore.protocol import ApplicationFault, encode
from airflow_hive_federation.metastore.struct import Fault
from airflow_hive_federation.metastore.wire import from_bytes

_TIMEOUT_S = 20.0
_SHOWN = 10


@dataclass(frozen=True, kw_only=True)
class Sight:
    """The result of one check of a gateway's configuration.

    :param name: subject of the check.
    :param state: ``ok``, ``refused`` or ``error``.
    :param detail: the observation.
    :param remedy: the change that would help; empty if none is needed.
    """

    name: str
    state: str
    detail: str
    remedy: str = ""

    def to_json(self) -> dict[str, str]:
        """Return the fields as JSON has them."""
        return {name: str(value) for name, value in asdict(self).items()}


def examine(config: GatewayConfig, resolve: Resolve, caller: Caller) -> list[Sight]:
    """Make a caller's typical calls through a gateway of this configuration, and return the results.

    A port that is in use is no error, since the gateway itself may be listening at it.

    :raises ConfigurationError: a gateway with this configuration would not start, for another reason than a
        front's settings.
    """
    config.refuse_no_front()
    target = config.target(resolve)
    try:
        gateway = Gateway(target, config.decisions(), aliases=config.aliases)
        return [*_look(config, target.upstreams, gateway, caller), *_catalogs(config, target)]
    finally:
        target.close()


def _look(
    config: GatewayConfig, upstreams: tuple[Upstream, ...], gateway: Gateway, caller: Caller
) -> Iterator[Sight]:
    yield from _fronts(config)
    if config.metrics is not None:
        host, port = config.metrics.host, config.metrics.port
        yield _front("metrics", _where(host, port, None), host, port)
    if config.log.access not in {None, "-"}:
        yield _access_log(Path(str(config.log.access)))
    states = [_metastore(upstream) for upstream in upstreams]
    yield from states
    access = _access(config, caller)
    yield access
    # The first metastore answers most calls. If it does not answer, five more errors about it would not help.
    if states[0].state == "ok" and access.state == "ok":
        yield from _calls(config, gateway, caller)


def _calls(config: GatewayConfig, gateway: Gateway, caller: Caller) -> Iterator[Sight]:
    methods = {
        "version": "getVersion",
        "databases": "get_all_databases",
        "open transactions": "get_open_txns",
    }
    for name, method in methods.items():
        yield _ask(gateway, caller, name, method)
    for alias, database in config.aliases.items():
        detail = f"stands for {database}"
        yield _ask(gateway, caller, f"alias {alias}", "get_database", detail, must_exist=True, name=alias)
    # This table does not exist; the kind of the answer shows whether old clients' ``get_table`` works.
    arguments: dict[str, Any] = {
        "dbname": _visible_database(config, caller),
        "tbl_name": "hive_federation_gateway_check",
    }
    yield _ask(gateway, caller, "clients of Hive 2 and 3", "get_table", "get_table is answered", **arguments)


def _visible_database(config: GatewayConfig, caller: Caller) -> str:
    """Return a database that the rules let the caller read; it need not exist."""
    rules = config.decisions()
    patterns = [name for rule in config.rules for name in rule.databases]
    names = ["default", *config.aliases, *(name.replace("*", "x").replace("?", "x") for name in patterns)]
    try:
        return next((name for name in names if rules.shown("get_table", caller, name, "x")), "default")
    except GatewayError:
        # The caller may not read at all, as the result of the call will show.
        return "default"


def _fronts(config: GatewayConfig) -> Iterator[Sight]:
    if (front := config.thrift) is not None:
        where = _where(front.host, front.port, front.tls)
        # A file that has no [thrift] may be meant for gRPC alone.
        by_default = config.grpc is not None and front == ThriftSettings()
        detail = f"{where} (by default; thrift = false leaves it out)" if by_default else where
        yield _front("Thrift front", detail, front.host, front.port, lambda: _check_thrift(front))
    if (section := config.grpc) is not None:
        settings = section.settings
        where = _where(settings.host, settings.port, settings.tls)
        check = partial(_check_grpc, section)
        yield _front("gRPC front", where, settings.host, settings.port, check)


def _front(name: str, detail: str, host: str, port: int, check: Callable[[], None] = lambda: None) -> Sight:
    try:
        check()
        detail += _use(host, port)
    except ConfigurationError as error:
        return Sight(name=name, state="error", detail=error.message, remedy=error.remedy)
    return Sight(name=name, state="ok", detail=detail)


def _use(host: str, port: int) -> str:
    """Try to bind an address, and return a remark if it is in use.

    :raises ConfigurationError: nothing can listen at the address.
    """
    try:
        reserve_port(host, port)[0].close()
    except ConfigurationError as error:
        if isinstance(error.__cause__, OSError) and error.__cause__.errno == errno.EADDRINUSE:
            return " (in use now, perhaps by this gateway)"
        raise
    return ""


def _access_log(path: Path) -> Sight:
    """Check that the file can be written, without creating it."""
    if os.access(path if path.exists() else path.parent, os.W_OK) and not path.is_dir():
        return Sight(name="access log", state="ok", detail=str(path))
    return Sight(
        name="access log",
        state="error",
        detail=f"The access log {path} cannot be written.",
        remedy="Name a file that this user may write.",
    )


def _catalogs(config: GatewayConfig, target: Any) -> Iterator[Sight]:
    """Compare the names of clusters with the metastore's catalogs, if requests name clusters."""
    if not isinstance(target, NamedClusters):
        return
    try:
        target.check_catalogs(config.health.timeout_s)
    except ConfigurationError as error:
        yield Sight(name="clusters", state="error", detail=error.message, remedy=error.remedy)


def _check_thrift(settings: ThriftSettings) -> None:
    check_exposure(settings.host, settings.tls, allow_plain=settings.allow_plain)
    if settings.tls is not None:
        Certificates(settings.tls)


def _check_grpc(section: GrpcSection) -> None:
    server = grpc_server()
    # Another class has rules of its own, which only its start can show.
    if issubclass(server.server_class(section.server_class), server.GrpcFront):
        server.check_settings(section.settings)


def _metastore(upstream: Upstream) -> Sight:
    name, since = f"metastore {upstream.name}", time.monotonic()
    try:
        probe(upstream, Deadline(_TIMEOUT_S))
    except HiveFederationError as error:
        return Sight(name=name, state="error", detail=error.message, remedy=error.remedy)
    took = (time.monotonic() - since) * 1000
    return Sight(name=name, state="ok", detail=f"answers ({took:.1f} ms)")


def _where(host: str, port: int, tls: ServerTls | None) -> str:
    how = "plain text" if tls is None else "TLS"
    needs = ", clients need a certificate" if tls is not None and tls.client_ca_file else ""
    return f"would listen at {host}:{port or '(a free port)'}, {how}{needs}"


def _access(config: GatewayConfig, caller: Caller) -> Sight:
    rules, permitted = config.decisions(), []
    for access in Access:
        method = next(name for name, method_class in sorted(ACCESS.items()) if method_class is access)
        try:
            rules.unlimited(method, caller)
        except HiveFederationError:
            continue
        permitted.append(str(access))
    client = f"user {caller.user!r}" if caller.user else "a client without a name"
    if not permitted:
        return Sight(
            name="rules", state="refused", detail=f"{client} may make no calls", remedy="Add a [[rule]]."
        )
    return Sight(name="rules", state="ok", detail=f"{client} may {', '.join(permitted)}")


def _ask(
    gateway: Gateway,
    caller: Caller,
    name: str,
    method: str,
    detail: str = "",
    /,
    *,
    must_exist: bool = False,
    **args: object,
) -> Sight:
    arguments, result, _ = message_types(method)
    message = head_bytes(method, CALL, 1) + encode(arguments(**args))
    since = time.monotonic()
    try:
        answer = gateway.ask(Call(method, message, caller, Deadline(_TIMEOUT_S)))
    except HiveFederationError as error:
        state = "refused" if error.facts.get("status") == "denied" else "error"
        return Sight(name=name, state=state, detail=error.message, remedy=error.remedy)
    took = f"{(time.monotonic() - since) * 1000:.1f} ms"
    head = read_head(answer)
    kind = ApplicationFault if head.kind == EXCEPTION else result
    decoded = from_bytes(kind, answer[head.body :])
    if isinstance(decoded, ApplicationFault):
        return Sight(name=name, state="error", detail=str(decoded.message))
    fault = next((value for value in decoded.set_fields().values() if isinstance(value, Fault)), None)
    if fault is not None and (must_exist or type(fault).__name__ != "NoSuchObjectException"):
        remedy = "Correct [aliases], or create the database." if must_exist else ""
        return Sight(
            name=name, state="error", detail=f"{type(fault).__name__}: {fault.text()}", remedy=remedy
        )
    shown = detail or _short(decoded.set_fields().get("success"))
    return Sight(name=name, state="ok", detail=f"{shown} ({took})")


def _short(value: Any) -> str:
    if value == []:
        return "none"
    if isinstance(value, list):
        shown = ", ".join(map(str, value[:_SHOWN]))
        return f"{len(value)}: {shown}{', …' if len(value) > _SHOWN else ''}"
    if hasattr(value, "open_txns"):
        return f"{len(value.open_txns or [])}; the newest transaction is {value.txn_high_water_mark}"
    return str(value)
