"""Clients of the translated services that know the port and the descriptors, and the gateway before them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import grpc
import pytest
from google.protobuf import message_factory
from google.protobuf.descriptor_pool import DescriptorPool

from airflow_hive_federation.gateway.dispatch import Gateway, Metastore
from airflow_hive_federation.gateway.grpc.server import GrpcFront
from airflow_hive_federation.gateway.grpc.settings import GrpcFrontSettings
from airflow_hive_federation.gateway.rules import Rules
from airflow_hive_federation.gateway.services import layout, pools
from airflow_hive_federation.gateway.services.streams import StreamsService
from airflow_hive_federation.gateway.services.unary import HivesService, TranslatedService
from airflow_hive_federation.gateway.upstream import Upstream
from airflow_hive_federation.metastore import MetastoreClient, MetastoreSettings
from airflow_hive_federation.metastore.grpc_settings import GrpcSettings
from tests.support.gateways import Peers
from tests.support.metastore_peers import Thrift

HIVES = f"{pools.hives().package}.GrpcHiveMetastore"


class Client:
    """A foreign client: it knows the port and the descriptors."""

    def __init__(self, channel: grpc.Channel, uri: str) -> None:
        self.channel = channel
        self.uri = uri
        self.pool = DescriptorPool()
        pools.add_to(self.pool, pools.OURS)
        pools.add_to(self.pool, pools.HIVES)

    def method(self, service: str, name: str) -> Any:
        return self.pool.FindServiceByName(service).methods_by_name[name]

    def request(self, service: str, name: str, **fields: Any) -> bytes:
        kind = message_factory.GetMessageClass(self.method(service, name).input_type)
        return bytes(kind(**fields).SerializeToString())

    def call(self, service: str, name: str, **fields: Any) -> Any:
        kind = message_factory.GetMessageClass(self.method(service, name).output_type)
        return kind.FromString(self.send(service, name, self.request(service, name, **fields)))

    def send(self, service: str, name: str, request: bytes) -> bytes:
        return self.channel.unary_unary(f"/{service}/{name}")(request, timeout=30)  # type: ignore[no-any-return]

    def stream(self, name: str, *, timeout: float = 30, **fields: Any) -> Any:
        kind = message_factory.GetMessageClass(self.method(layout.STREAMS, name).output_type)
        return self.channel.unary_stream(f"/{layout.STREAMS}/{name}", response_deserializer=kind.FromString)(
            self.request(layout.STREAMS, name, **fields), timeout=timeout
        )


Serve = Callable[..., Client]


@pytest.fixture
def serve(stack: ExitStack, peer: Peers) -> Serve:
    """Start a gateway with the services before a peer; return a client of it."""

    def make(
        answer: Callable[[str, Any], Any], *, streams: bool = True, rules: Rules | None = None
    ) -> Client:
        target = Metastore(Upstream("main", MetastoreSettings(uris=(peer(Thrift(answer)).uri,))))
        stack.callback(target.close)
        services = [TranslatedService(), HivesService(), *([StreamsService()] if streams else [])]
        front = GrpcFront(Gateway(target, rules), GrpcFrontSettings(port=0), services).start()
        stack.callback(front.stop, 0)
        channel = stack.enter_context(grpc.insecure_channel(f"127.0.0.1:{front.port}"))
        return Client(channel, f"grpc://127.0.0.1:{front.port}")

    return make


def ours(client: Client) -> MetastoreClient:
    return MetastoreClient(MetastoreSettings(uris=(client.uri,), grpc=GrpcSettings(plaintext=True)))
