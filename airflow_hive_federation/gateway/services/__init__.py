"""The translated encodings of the gRPC front: the service of ours, its streams, and Hive's own service."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow_hive_federation.gateway.grpc.server import Service
    from airflow_hive_federation.gateway.handler import Handler


def services(_handler: Handler) -> tuple[Service, ...]:
    """Return the services for a front; they are given its handler with each call.

    :raises ImportError: grpcio or protobuf is not installed (the extra ``grpc``).
    """
    from airflow_hive_federation.gateway.services.streams import StreamsService
    from airflow_hive_federation.gateway.services.unary import HivesService, TranslatedService

    return TranslatedService(), StreamsService(), HivesService()
