"""Defines the factories of Hive metastores over Thrift, directly and through SSH."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from airflow_hive_federation.catalog.allowed import check_ssh_file
from airflow_hive_federation.catalog.factories import CONNECTION, Factory, Opening
from airflow_hive_federation.catalog.hive import HiveCatalog
from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.metastore import KerberosSettings, MetastoreSettings, TlsSettings
from airflow_hive_federation.runtime.durations import parse_duration_s
from airflow_hive_federation.tunnel.route import (
    DEFAULT_TIMEOUT_S,
    KNOWN_HOSTS,
    TunnelSettings,
    by_configuration,
    parse_route,
)

URIS = "hive.metastore.uris"
PRINCIPAL = "hive.metastore.kerberos.principal"
SASL = "hive.metastore.sasl.enabled"
TIMEOUT = "hive.metastore.client.socket.timeout"
ROUTE = "ssh.tunnel.route"
SSH_CONNECTION = "ssh.tunnel.connection"
#: These properties name files of the worker.
SSH_FILES = ("ssh.tunnel.private.keys", "ssh.tunnel.known.hosts", "ssh.tunnel.config")
#: A remote must not delay its callers as long as the local metastore may.
CALL_TIMEOUT_S = 120.0

PROPERTIES = {
    URIS: "URIs of the metastore, comma-separated",
    CONNECTION: "id of an Airflow connection of type hive_federation, instead of URIs",
    TIMEOUT: "time a call may take, its whole answer included (120s)",
    "metastore.catalog.default": "Hive catalog of the remote (hive)",
    "hive.metastore.use.SSL": "true for TLS with the system's authorities",
    PRINCIPAL: "the metastore's Kerberos principal, hive/_HOST@EXAMPLE.COM",
    SASL: "true for Kerberos; the same as giving the principal",
}


def metastore_settings(opening: Opening) -> MetastoreSettings:
    """Return the settings of the remote metastore.

    :raises ConfigurationError: if a property has an invalid value.
    """
    properties = opening.properties
    if properties.get(CONNECTION):
        settings = opening.connections.metastore(properties[CONNECTION])
    else:
        uris = tuple(uri.strip() for uri in properties[URIS].split(",") if uri.strip())
        settings = MetastoreSettings(uris=uris, call_timeout_s=CALL_TIMEOUT_S)
    if settings.user is None:
        settings = replace(settings, user=opening.user)
    if "metastore.catalog.default" in properties:
        settings = replace(settings, catalog=properties["metastore.catalog.default"])
    if TIMEOUT in properties:
        deadline_s = duration_s(properties, TIMEOUT)
        # A mute server keeps the first call of a connection (set_ugi) waiting, too.
        settings = replace(
            settings,
            call_timeout_s=deadline_s,
            connect_timeout_s=min(settings.connect_timeout_s, deadline_s),
        )
    if properties.get("hive.metastore.use.SSL", "").lower() == "true" and settings.tls is None:
        settings = replace(settings, tls=TlsSettings())
    return _by_kerberos(settings, properties)


def _by_kerberos(settings: MetastoreSettings, properties: Mapping[str, str]) -> MetastoreSettings:
    enabled = properties.get(SASL, str(PRINCIPAL in properties)).lower() == "true"
    if not enabled or settings.authentication is not None:
        return settings
    if not properties.get(PRINCIPAL):
        raise ConfigurationError(
            f"The property {SASL!r} is true, and the metastore's principal is not known.",
            remedy=f"Add '{PRINCIPAL}' = 'hive/_HOST@EXAMPLE.COM'.",
        )
    return replace(settings, authentication=KerberosSettings(server_principal=properties[PRINCIPAL]))


def duration_s(properties: Mapping[str, str], name: str) -> float:
    """Return the seconds of a property that is a duration in Hive's syntax.

    :raises ConfigurationError: if the value is not a duration.
    """
    seconds = parse_duration_s(properties[name])
    if not seconds:
        raise ConfigurationError(
            f"The property {name!r} is {properties[name]!r}, which is not a duration.",
            remedy="Write it as Hive does: 30s, 5m.",
        )
    return seconds


def _by_tunnel(opening: Opening) -> HiveCatalog:
    # Imported here, with paramiko: a gateway without tunnels loads its modules in two thirds of the time.
    from airflow_hive_federation.tunnel.tunnel import Tunnel

    settings = metastore_settings(opening)
    if CONNECTION in opening.properties:
        _check_route_beside_connection(opening, settings)
    tunnel = Tunnel(tunnel_settings(opening))
    return HiveCatalog(replace(settings, dialer=tunnel))


def _check_route_beside_connection(opening: Opening, settings: MetastoreSettings) -> None:
    """Refuse a route of the properties that would get what the connection's owner sends by another route.

    Any user who may alter a table's parameters can choose the machine at which the route ends, and so the
    server that the metastore's address leads to. Only TLS shows that it is the metastore.

    :raises ConfigurationError: if the connection has a route, or credentials without TLS.
    """
    if settings.dialer is not None:
        reason = "has a route of its own"
    elif settings.has_credentials and not settings.is_verified_by_tls():
        reason = "has credentials, and does not verify by TLS which server gets them"
    else:
        return
    raise ConfigurationError(
        f"Remote {opening.remote} has the property {ROUTE!r} beside connection "
        f"{opening.properties[CONNECTION]!r}, which {reason}.",
        remedy="Put the route into the connection (extra 'ssh_route'), and connect VIA 'thrift'.",
    )


def tunnel_settings(opening: Opening) -> TunnelSettings:
    """Return the settings of a remote's SSH tunnel.

    :raises ConfigurationError: if a property has an invalid value.
    """
    properties = opening.properties
    for name in SSH_FILES:
        for path in _listed(properties.get(name, "")):
            check_ssh_file(name, path)
    keys = _listed(properties.get("ssh.tunnel.private.keys", ""))
    hops = parse_route(properties[ROUTE], keys)
    known = _listed(properties.get("ssh.tunnel.known.hosts", "")) or (KNOWN_HOSTS,)
    if "ssh.tunnel.config" in properties:
        hops, configured = by_configuration(hops, properties["ssh.tunnel.config"])
        known = known if "ssh.tunnel.known.hosts" in properties else configured or known
    timeout_s = DEFAULT_TIMEOUT_S
    if "ssh.tunnel.timeout" in properties:
        timeout_s = duration_s(properties, "ssh.tunnel.timeout")
    return TunnelSettings(
        hops=hops,
        known_hosts=known,
        timeout_s=timeout_s,
        agent=properties.get("ssh.tunnel.agent", "").lower() == "true",
        passphrase=opening.connections.passphrase(properties[SSH_CONNECTION])
        if SSH_CONNECTION in properties
        else None,
    )


def _listed(text: str) -> tuple[str, ...]:
    return tuple(entry.strip() for entry in text.split(",") if entry.strip())


SSH = Factory(
    name="ssh",
    class_names=("SSHThriftHiveMetastoreClientFactory",),
    properties={
        **PROPERTIES,
        ROUTE: "user@host[:port] -> user@host…, one entry per hop",
        "ssh.tunnel.private.keys": "files of private keys, comma-separated: one per hop, or one for all",
        "ssh.tunnel.known.hosts": "files of known host keys, comma-separated (~/.ssh/known_hosts)",
        "ssh.tunnel.timeout": "time to connect one hop, and to open a channel (60s)",
        "ssh.tunnel.localhost": "taken and not used: no local port is opened",
        "ssh.tunnel.agent": "true to ask an SSH agent for keys as well",
        "ssh.tunnel.config": "an OpenSSH configuration file to complete the hops by",
        SSH_CONNECTION: "id of an Airflow connection whose password is the keys' passphrase",
    },
    required=((URIS, CONNECTION), (ROUTE,)),
    open=_by_tunnel,
)
THRIFT = Factory(
    name="thrift",
    class_names=("ThriftHiveMetastoreClientFactory",),
    properties=PROPERTIES,
    required=((URIS, CONNECTION),),
    open=lambda opening: HiveCatalog(metastore_settings(opening)),
)
