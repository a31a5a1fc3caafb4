"""Defines the factory of Hive metastores behind a gRPC gateway.

Tokens, key files and client classes are not properties, because any user who may alter a table's parameters
could choose the host that sees them, or the class that a worker imports. An Airflow connection has them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from airflow_hive_federation.catalog.factories import CONNECTION, Factory, Opening
from airflow_hive_federation.catalog.hive import HiveCatalog
from airflow_hive_federation.catalog.thrift import TIMEOUT, URIS, metastore_settings
from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.metastore import MetastoreSettings
from airflow_hive_federation.metastore.grpc_settings import CLUSTER, PLAINTEXT

#: The design of the gRPC metastore uses this name.
METASTORE_URIS = "metastore.uris"


def grpc_catalog_settings(opening: Opening) -> MetastoreSettings:
    """Return the settings of the remote metastore.

    :raises ConfigurationError: if a property has an invalid value, or a URI is not of gRPC.
    """
    properties = dict(opening.properties)
    if METASTORE_URIS in properties:
        if properties.get(URIS, properties[METASTORE_URIS]) != properties[METASTORE_URIS]:
            raise ConfigurationError(
                f"The properties {URIS!r} and {METASTORE_URIS!r} differ.", remedy="Give one of them."
            )
        properties[URIS] = properties.pop(METASTORE_URIS)
    settings = metastore_settings(replace(opening, properties=properties))
    others = [endpoint for endpoint in settings.endpoints() if not endpoint.is_grpc]
    if others:
        raise ConfigurationError(
            f"Remote {opening.remote} is VIA 'grpc', and {others[0]} is not of gRPC.",
            remedy="Write grpc://host:port, or VIA 'thrift'.",
        )
    return _with_grpc(settings, properties)


def _with_grpc(settings: MetastoreSettings, properties: Mapping[str, str]) -> MetastoreSettings:
    grpc = settings.grpc
    if properties.get(PLAINTEXT, "").lower() == "true":
        grpc = replace(grpc, plaintext=True)
    if cluster := properties.get(CLUSTER):
        grpc = replace(grpc, cluster=cluster)
    return replace(settings, grpc=grpc)


GRPC = Factory(
    name="grpc",
    class_names=("GrpcHiveMetastoreClientFactory",),
    properties={
        URIS: "URIs of the gateway, comma-separated: grpc://a:9084,grpc://b:9084",
        METASTORE_URIS: f"the same as {URIS}",
        CONNECTION: "id of an Airflow connection of type hive_federation, instead of URIs",
        TIMEOUT: "time a call may take, its whole answer included (120s)",
        "metastore.catalog.default": "Hive catalog of the remote (hive)",
        CLUSTER: "cluster whose locations the gateway shows",
        PLAINTEXT: "true to do without TLS off loopback as well",
    },
    required=((URIS, METASTORE_URIS, CONNECTION),),
    open=lambda opening: HiveCatalog(grpc_catalog_settings(opening)),
)
