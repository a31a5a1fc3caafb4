"""Exports the Hive metastore client, its settings, its pool and the check of a metastore's configuration.

>>> from airflow_hive_federation.metastore import MetastoreClient, MetastoreSettings
>>> with MetastoreClient(MetastoreSettings(uris=("thrift://localhost:9083",))) as client:  # doctest: +SKIP
...     table = client.get_table("default", "flights")
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow_hive_federation.metastore.client import MetastoreClient
    from airflow_hive_federation.metastore.doctor import Finding, examine
    from airflow_hive_federation.metastore.hms import hms_client
    from airflow_hive_federation.metastore.pool import MetastorePool
    from airflow_hive_federation.metastore.settings import (
        CAPABILITIES,
        DelegationTokenSettings,
        KerberosSettings,
        MetastoreSettings,
        PlainSettings,
        TlsSettings,
    )

__all__ = [
    "CAPABILITIES",
    "DelegationTokenSettings",
    "Finding",
    "KerberosSettings",
    "MetastoreClient",
    "MetastorePool",
    "MetastoreSettings",
    "PlainSettings",
    "TlsSettings",
    "examine",
    "hms_client",
]

_HOME = {
    "CAPABILITIES": "settings",
    "DelegationTokenSettings": "settings",
    "Finding": "doctor",
    "KerberosSettings": "settings",
    "MetastoreClient": "client",
    "MetastorePool": "pool",
    "MetastoreSettings": "settings",
    "PlainSettings": "settings",
    "TlsSettings": "settings",
    "examine": "doctor",
    "hms_client": "hms",
}


def __getattr__(name: str) -> Any:
    # Modules are imported at first use, so that importing the package costs nothing while DAGs are parsed.
    from importlib import import_module

    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
