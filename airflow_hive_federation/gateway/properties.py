"""Reads ``[properties]``: settings of the gateway under their names in the design of the gRPC metastore.

These are names of ``hive-site.xml``. The other sections of the gateway's file have keys for the same
settings; a file may set each of them in one place only.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass

from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.gateway.grpc.settings import (
    AUTHENTICATION,
    AUTHENTICATION_CLASS,
    NUMBERS,
    SERVER_CLASS,
    GrpcFrontSettings,
)
from airflow_hive_federation.gateway.sections import read_section
from airflow_hive_federation.metastore.grpc_settings import (
    AUDIENCE,
    CLIENT_CLASSES,
    CLUSTER,
    KEYFILE,
    PLAINTEXT,
    TOKEN_FILE,
)
from airflow_hive_federation.metastore.settings import MetastoreSettings

URIS = "metastore.uris"
PORT = "metastore.grpc.port"
#: Properties of clients, which the gateway ignores: clients and the server often share one file.
_OF_CLIENTS = (*CLIENT_CLASSES, AUDIENCE, CLUSTER, TOKEN_FILE, PLAINTEXT)
_KNOWN = (SERVER_CLASS, URIS, KEYFILE, *NUMBERS, *_OF_CLIENTS)


@dataclass(frozen=True, kw_only=True)
class GrpcSection:
    """The settings of the gRPC front, from ``[grpc]`` and ``[properties]``.

    :param server_class: dotted path of the server's class (``metastore.custom.server.class``); ``None`` is
        :class:`.grpc.server.GrpcFront`.
    """

    settings: GrpcFrontSettings
    server_class: str | None = None


def grpc_section(written: object, properties: Mapping[str, str]) -> GrpcSection | None:
    """Merge ``[grpc]`` and ``[properties]`` into the gRPC front's settings.

    :param written: ``[grpc]``, as TOML has it; ``None`` or false if there is none.
    :param properties: ``[properties]``.
    :return: ``None`` if the file has no gRPC front.
    :raises ConfigurationError: a setting is unknown, impossible or in both sections, or it is for a gRPC
        front and the file has none.
    """
    _refuse_unknown(properties)
    front_properties = {name: value for name, value in properties.items() if _is_of_front(name)}
    server_class = properties.get(SERVER_CLASS, "").strip() or None
    if (written is None or written is False) and server_class is None:
        if front_properties:
            raise ConfigurationError(
                f"[properties] has {min(front_properties)}, and there is no gRPC front.",
                remedy=f"Add [grpc], or {SERVER_CLASS}.",
            )
        return None
    settings = read_section(GrpcFrontSettings, "grpc", {} if written is None else written)
    section = written if isinstance(written, Mapping) else {}
    _refuse_twice(section, front_properties)
    port = _port_of_uris(properties.get(URIS, ""))
    if port is not None and "port" not in section:
        front_properties.setdefault(PORT, str(port))
    return GrpcSection(settings=settings.with_properties(front_properties), server_class=server_class)


def upstream_keyfile(properties: Mapping[str, str]) -> str | None:
    """Return the key file of the service account with which the gateway authenticates to its metastore."""
    return properties.get(KEYFILE, "").strip() or None


def read_properties(values: object) -> dict[str, str]:
    """Read ``[properties]``: quoted names with dots, and strings, whole numbers or booleans as values.

    :raises ConfigurationError: the section is no table, or a value is of another type.
    """
    if not isinstance(values, Mapping):
        raise ConfigurationError("[properties] is no section.", remedy="Write [properties].")
    properties: dict[str, str] = {}
    for name, value in values.items():
        if not isinstance(value, str | int):
            raise ConfigurationError(
                f"[properties] {name} is no text.", remedy='Write names in quotes: "metastore.uris" = "…".'
            )
        properties[name] = str(value).lower() if isinstance(value, bool) else str(value)
    return properties


def _is_of_front(name: str) -> bool:
    return name in NUMBERS or name.startswith(AUTHENTICATION)


def _refuse_unknown(properties: Mapping[str, str]) -> None:
    for name in properties:
        if name in _KNOWN or name.startswith(AUTHENTICATION):
            continue
        near = difflib.get_close_matches(name, _KNOWN, n=1)
        raise ConfigurationError(
            f"[properties] has {name!r}, which is not known.",
            remedy=f"Did you mean {near[0]}?" if near else f"Known are {', '.join(sorted(_KNOWN))}.",
        )


def _refuse_twice(section: Mapping[str, object], given: Mapping[str, str]) -> None:
    names_by_argument = {argument: name for name, argument in NUMBERS.items() if name in given}
    if AUTHENTICATION_CLASS in given:
        names_by_argument["authentication_class"] = AUTHENTICATION_CLASS
    of_class = [key for key in given if key.startswith(AUTHENTICATION) and key != AUTHENTICATION_CLASS]
    if of_class:
        names_by_argument["authentication"] = of_class[0]
    for argument, name in names_by_argument.items():
        if argument in section:
            raise ConfigurationError(
                f"[grpc] has {argument}, and [properties] has {name}.", remedy="Keep one of them."
            )


def _port_of_uris(text: str) -> int | None:
    """Return the port of ``metastore.uris``; the gateway ignores the hosts, which are for clients."""
    uris = tuple(uri.strip() for uri in text.split(",") if uri.strip())
    if not uris:
        return None
    endpoints = MetastoreSettings(uris=uris).endpoints()
    others = [str(endpoint) for endpoint in endpoints if not endpoint.is_grpc]
    if others:
        raise ConfigurationError(
            f"{URIS} names {others[0]}, which is no socket of the gRPC front.",
            remedy="Write grpc://host:port; [thrift] has the Thrift front's port.",
        )
    ports = {endpoint.port for endpoint in endpoints}
    if len(ports) > 1:
        raise ConfigurationError(
            f"{URIS} has several ports: {', '.join(map(str, sorted(ports)))}.",
            remedy="Give this gateway's own URI alone, or the same port to all of them.",
        )
    return ports.pop()
