"""Parts of the gRPC front's tests: a running front before a peer, and raw calls."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import grpc
import pytest

from airflow_hive_federation.gateway.dispatch import Gateway, Metastore
from airflow_hive_federation.gateway.grpc.server import GrpcFront
from airflow_hive_federation.gateway.grpc.settings import GrpcFrontSettings
from airflow_hive_federation.gateway.messages import read_head
from airflow_hive_federation.gateway.upstream import Upstream
from airflow_hive_federation.metastore import MetastoreClient, MetastoreSettings
from airflow_hive_federation.metastore.grpc_wire import CALL, SERVICE, unwrap, wrap
from tests.support.gateways import call_bytes, outcome


@dataclass
class Fronted:
    """A gateway with a gRPC front."""

    handler: Gateway
    upstream: Upstream
    front: GrpcFront

    @property
    def uri(self) -> str:
        return f"grpc://127.0.0.1:{self.front.port}"

    def channel(self, *options: tuple[str, Any]) -> grpc.Channel:
        return grpc.insecure_channel(
            f"127.0.0.1:{self.front.port}", options=[("grpc.use_local_subchannel_pool", 1), *options]
        )


Fronts = Callable[..., Fronted]
GrpcClients = Callable[..., MetastoreClient]


@pytest.fixture
def fronted(stack: ExitStack) -> Fronts:
    """Start a gRPC front before the metastore behind some URIs."""

    def make(*uris: str, upstream: dict[str, Any] | None = None, **front: Any) -> Fronted:
        settings = MetastoreSettings(uris=uris, connect_timeout_s=5)
        made = Upstream("main", settings, **(upstream or {}))
        target = Metastore(made)
        stack.callback(target.close)
        handler = Gateway(target)
        authenticator = front.pop("authenticator", None)
        started = GrpcFront(handler, GrpcFrontSettings(port=0, **front), authenticator=authenticator).start()
        stack.callback(started.stop, 0)
        return Fronted(handler, made, started)

    return make


def ask(
    channel: grpc.Channel,
    method: str,
    *,
    timeout: float = 20,
    metadata: tuple[tuple[str, str], ...] = (),
    **arguments: Any,
) -> dict[str, Any]:
    """Call a method raw, and return the fields that its answer sets."""
    request = wrap(call_bytes(method, **arguments))
    answer = unwrap(raw(channel)(request, timeout=timeout, metadata=metadata))
    return outcome(read_head(answer), answer)


def raw(channel: grpc.Channel, method: str = CALL) -> Any:
    """The raw call of a channel, bytes in and out."""
    return channel.unary_unary(f"/{SERVICE}/{method}")


def refused(call: Callable[[], Any]) -> Any:
    """The error that a call ends with."""
    with pytest.raises(grpc.RpcError) as caught:
        call()
    return caught.value


def until(holds: Callable[[], bool]) -> None:
    """Wait for a state that another thread brings about."""
    end = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)
