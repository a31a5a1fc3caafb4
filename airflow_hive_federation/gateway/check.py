"""What a client of a gateway would see, found without starting one: ``hive-federation gateway check``."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from airflow_hive_federation.errors import HiveFederationError
from airflow_hive_federation.gateway.certificates import ServerTls
from airflow_hive_federation.gateway.cluster_view import ClusterView
from airflow_hive_federation.gateway.config import GatewayConfig, Resolve
from airflow_hive_federation.gateway.dispatch import Gateway, Metastore
from airflow_hive_federation.gateway.federation.target import Federation
from airflow_hive_federation.gateway.handler import Caller, Deadline
from airflow_hive_federation.gateway.health import probe
from airflow_hive_federation.gateway.messages import CALL, EXCEPTION, head_bytes, read_head
from airflow_hive_federation.gateway.methods import ACCESS, Access
from airflow_hive_federation.gateway.upstream import Upstream
from airflow_hive_federation.metastore.connection import message_types
from airflow_hive_federation.metastore.protocol import ApplicationFault, encode
from airflow_hive_federation.metastore.struct import Fault
from airflow_hive_federation.metastore.wire import from_bytes

_TIMEOUT_S = 20.0
_SHOWN = 10


@dataclass(frozen=True, kw_only=True)
class Sight:
    """One thing that a client would see.

    :param name: what it is about.
    :param state: ``ok``, ``refused`` or ``error``.
    :param detail: what was seen.
    :param remedy: what to change, empty where nothing is to be changed.
    """

    name: str
    state: str
    detail: str
    remedy: str = ""

    def to_json(self) -> dict[str, str]:
        """Return the fields as JSON has them."""
        return {name: str(value) for name, value in asdict(self).items()}


def examine(config: GatewayConfig, resolve: Resolve, caller: Caller) -> list[Sight]:
    """Look at the metastore as a caller would through the gateway.

    :raises ConfigurationError: the gateway could not even be started.
    """
    target = config.target(resolve)
    try:
        gateway = Gateway(target, config.decisions(), aliases=config.aliases)
        return list(_look(config, target, gateway, caller))
    finally:
        target.close()


def _look(
    config: GatewayConfig, target: Metastore | Federation | ClusterView, gateway: Gateway, caller: Caller
) -> Iterator[Sight]:
    yield from _fronts(config)
    for upstream in target.upstreams:
        yield _metastore(upstream)
    yield _access(config, caller)
    asked = {"version": "getVersion", "databases": "get_all_databases", "open transactions": "get_open_txns"}
    for name, method in asked.items():
        yield _ask(gateway, caller, name, method)
    for alias, database in config.aliases.items():
        said = f"stands for {database}"
        yield _ask(gateway, caller, f"alias {alias}", "get_database", said, name=alias)
    # No such table: the answer says whether an old client's way to ask is there.
    where = {"dbname": "default", "tbl_name": "hive_federation_gateway_check"}
    yield _ask(gateway, caller, "clients of Hive 2 and 3", "get_table", "get_table is answered", **where)


def _fronts(config: GatewayConfig) -> Iterator[Sight]:
    front = config.thrift
    if front is not None:
        yield Sight(name="Thrift front", state="ok", detail=f"{front.host}:{front.port}, {_how(front.tls)}")
    if config.grpc is not None:
        settings = config.grpc.settings
        yield Sight(
            name="gRPC front", state="ok", detail=f"{settings.host}:{settings.port}, {_how(settings.tls)}"
        )


def _metastore(upstream: Upstream) -> Sight:
    name, since = f"metastore {upstream.name}", time.monotonic()
    try:
        probe(upstream, Deadline(_TIMEOUT_S))
    except HiveFederationError as error:
        return Sight(name=name, state="error", detail=error.message, remedy=error.remedy)
    took = (time.monotonic() - since) * 1000
    return Sight(name=name, state="ok", detail=f"answers ({took:.1f} ms)")


def _how(tls: ServerTls | None) -> str:
    if tls is None:
        return "plain text"
    return "TLS, clients need a certificate" if tls.client_ca_file else "TLS"


def _access(config: GatewayConfig, caller: Caller) -> Sight:
    rules, permitted = config.decisions(), []
    for access in Access:
        method = next(name for name, one in sorted(ACCESS.items()) if one is access)
        try:
            rules.unlimited(method, caller)
        except HiveFederationError:
            continue
        permitted.append(str(access))
    who = f"user {caller.user!r}"
    if not permitted:
        return Sight(
            name="rules", state="refused", detail=f"{who} may call nothing", remedy="Add a [[rule]]."
        )
    return Sight(name="rules", state="ok", detail=f"{who} may {', '.join(permitted)}")


def _ask(gateway: Gateway, caller: Caller, name: str, method: str, detail: str = "", /, **args: Any) -> Sight:
    arguments, result, _ = message_types(method)
    message = head_bytes(method, CALL, 1) + encode(arguments(**args))
    since = time.monotonic()
    try:
        answer = gateway.ask(method, message, caller, Deadline(_TIMEOUT_S))
    except HiveFederationError as error:
        state = "refused" if error.facts.get("status") == "denied" else "error"
        return Sight(name=name, state=state, detail=error.message, remedy=error.remedy)
    took = f"{(time.monotonic() - since) * 1000:.1f} ms"
    head = read_head(answer)
    kind = ApplicationFault if head.kind == EXCEPTION else result
    found = from_bytes(kind, answer[head.body :])
    if isinstance(found, ApplicationFault):
        return Sight(name=name, state="error", detail=str(found.message))
    fault = next((one for one in found.set_fields().values() if isinstance(one, Fault)), None)
    if fault is not None and type(fault).__name__ != "NoSuchObjectException":
        return Sight(name=name, state="error", detail=f"{type(fault).__name__}: {fault.message}")
    said = detail or _short(found.set_fields().get("success"))
    return Sight(name=name, state="ok", detail=f"{said} ({took})")


def _short(value: Any) -> str:
    if isinstance(value, list):
        shown = ", ".join(map(str, value[:_SHOWN]))
        return f"{len(value)}: {shown}{', …' if len(value) > _SHOWN else ''}"
    if hasattr(value, "open_txns"):
        return f"{len(value.open_txns or [])}, the last one is {value.txn_high_water_mark}"
    return str(value)
