"""Converts Hive's own settings (``HiveConf``) to the settings of a metastore client.

A setting has two names: the one of the metastore's configuration and the older one of Hive's configuration.
If both are set, the first one counts (``MetastoreConf.ConfVars``).
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.ingest.errors import InvalidConnection
from airflow_hive_federation.metastore import KerberosSettings, MetastoreSettings, TlsSettings
from airflow_hive_federation.metastore.grpc_settings import grpc_properties
from airflow_hive_federation.runtime.durations import parse_duration_s

logger = logging.getLogger(__name__)

#: A streaming connection overrides these settings, whatever value the caller's configuration gives them
#: (``HiveStreamingConnection.overrideConfSettings``). Each has its fixed value and its replacement here.
OVERRIDDEN: Mapping[str, tuple[str, str]] = {
    "hive.txn.manager": (
        "org.apache.hadoop.hive.ql.lockmgr.DbTxnManager",
        "the metastore's transactions are the only ones",
    ),
    "hive.support.concurrency": ("true", "each transaction holds locks in the metastore"),
    "hive.metastore.execute.setugi": (
        "true",
        "the user is sent to the metastore wherever nobody authenticates (MetastoreSettings.user)",
    ),
    "hive.exec.dynamic.partition.mode": (
        "nonstrict",
        "records name all of their partition; with_static_partition_values names one for all records",
    ),
    "hive.exec.orc.delta.streaming.optimizations.enabled": (
        "true",
        "with_streaming_optimizations(False) writes thorough files",
    ),
    "hive.metastore.client.cache.enabled": ("false", "the client keeps no answer of the metastore"),
}

_SITE = "hive-site.xml"
_DIRECTORY = "HIVE_CONF_DIR"


def metastore_settings(conf: Mapping[str, str]) -> MetastoreSettings:
    """Convert Hive's settings to the settings of a metastore client.

    URIs, Kerberos (with the ticket of ``kinit``), TLS and the timeout of calls are converted.

    :raises InvalidConnection: the settings name no metastore, or contradict each other.
    """
    uris = [uri.strip() for uri in _uris(conf).split(",") if uri.strip()]
    if not uris:
        raise InvalidConnection(
            "The configuration names no metastore.", remedy="Set metastore.thrift.uris to its URIs."
        )
    client_settings: dict[str, Any] = {"uris": tuple(uris)}
    client_settings |= grpc_properties(conf)
    timeout = _value(conf, "client.socket.timeout")
    if timeout:
        client_settings["call_timeout_s"] = _seconds(timeout)
    try:
        if _is_true(conf, "sasl.enabled"):
            principal = _value(conf, "kerberos.principal")
            client_settings["authentication"] = KerberosSettings(server_principal=principal)
        if _is_true(conf, "use.SSL"):
            client_settings["tls"] = _tls(conf)
        return MetastoreSettings(**client_settings)
    except ConfigurationError as error:
        raise InvalidConnection(error.message, remedy=error.remedy) from error


def warn_of_overridden(conf: Mapping[str, str]) -> None:
    """Log each setting that a streaming connection ignores because its value is fixed."""
    for name, (value, instead) in OVERRIDDEN.items():
        configured = str(conf.get(name, value)).strip()
        if configured.lower() != value.lower():
            logger.warning(
                "%s=%s is ignored: a streaming connection works as if it were %s; %s.",
                name,
                configured,
                value,
                instead,
            )


def site_settings() -> dict[str, str]:
    """Read ``hive-site.xml`` from the directory that ``HIVE_CONF_DIR`` names.

    Java finds the same file through its class path.

    :raises InvalidConnection: the file does not exist or cannot be read.
    """
    directory = os.environ.get(_DIRECTORY, "")
    path = Path(directory) / _SITE
    remedy = f"Set {_DIRECTORY} to the directory of {_SITE}, or give a configuration."
    if not directory or not path.is_file():
        raise InvalidConnection(f"No configuration is given, and there is no {_SITE}.", remedy=remedy)
    try:
        properties = ElementTree.parse(path).getroot().iter("property")  # noqa: S314 - the administrator's own
    except ElementTree.ParseError as error:
        raise InvalidConnection(f"{path} is not XML: {error}.", remedy="Correct it.") from error
    pairs = ((element.findtext("name"), element.findtext("value")) for element in properties)
    return {name.strip(): (value or "").strip() for name, value in pairs if name}


def _tls(conf: Mapping[str, str]) -> TlsSettings:
    store = _value(conf, "truststore.path")
    if store and not store.endswith((".pem", ".crt")):
        raise InvalidConnection(
            f"{store} is a key store of Java's, which is not read here.",
            remedy="Give MetastoreSettings with TlsSettings(ca_file=…), a PEM file.",
        )
    return TlsSettings(ca_file=store or None)


def _value(conf: Mapping[str, str], name: str, older: str | None = None) -> str:
    names = (f"metastore.{name}", f"hive.metastore.{older or name}")
    return next((str(conf[key]).strip() for key in names if conf.get(key)), "")


def _uris(conf: Mapping[str, str]) -> str:
    # The design of the gRPC metastore names the setting without a prefix.
    return _value(conf, "thrift.uris", "uris") or _value(conf, "uris")


def _is_true(conf: Mapping[str, str], name: str) -> bool:
    return _value(conf, name).lower() == "true"


def _seconds(text: str) -> float:
    seconds = parse_duration_s(text)
    if seconds is None:
        raise InvalidConnection(f"{text!r} is not a duration.", remedy="Write it as Hive does: 600s.")
    return seconds
