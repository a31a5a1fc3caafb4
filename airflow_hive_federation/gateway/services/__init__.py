"""Serves the metastore in Protocol Buffers: this project's gRPC service, its streams, and Hive's service."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow_hive_federation.gateway.grpc.server import Service
    from airflow_hive_federation.gateway.handler import Handler


def services(_handler: Handler) -> tuple[Service, ...]:
    """Return the services for a gRPC front, which passes its handler with each call.

    :raises ImportError: grpcio or protobuf is not installed (the extra ``grpc``).
    """
    from airflow_hive_federation.gateway.services.streams import StreamsService
    from airflow_hive_federation.gateway.services.unary import HivesService, TranslatedService

    return TranslatedService(), StreamsService(), HivesService()
