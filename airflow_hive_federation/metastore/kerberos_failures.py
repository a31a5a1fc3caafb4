"""Turns a failure of the Kerberos library into the metastore's error, with principals, realm and remedy."""

from __future__ import annotations

from airflow_hive_federation.errors import (
    KdcUnreachableError,
    MetastoreAuthenticationError,
    MetastoreError,
)
from airflow_hive_federation.metastore.settings import Endpoint, KerberosSettings
from airflow_hive_federation.runtime.kerberos import KerberosFailure, explain


def kerberos_error(
    failure: KerberosFailure, settings: KerberosSettings, endpoint: Endpoint
) -> MetastoreError:
    """Return the error for a failure.

    :return: ``KdcUnreachableError`` if no KDC answers, ``MetastoreAuthenticationError`` otherwise.
    """
    server = settings.server_of(endpoint.host)
    client = settings.client_principal or (
        "the keytab's principal" if settings.keytab else "the ticket's principal"
    )
    realm = (settings.client_principal or server).rpartition("@")[2]
    facts = {
        "uri": str(endpoint),
        "principal": server,
        "client_principal": settings.client_principal,
        "realm": realm,
    }
    head = f"Kerberos to {server} at {endpoint} as {client}"
    if failure.is_absence:
        return KdcUnreachableError(
            f"{head}: no KDC of the realm {realm} answers ({failure.text}).",
            remedy="Check the KDC's address in krb5.conf (KRB5_CONFIG) and the way to it; then run again.",
            **facts,
        )
    reason, remedy = explain(failure, settings.keytab)
    cause = f"{reason} ({failure.text})." if reason else failure.text
    return MetastoreAuthenticationError(f"{head}: {cause}", remedy=remedy, reason=reason, **facts)
