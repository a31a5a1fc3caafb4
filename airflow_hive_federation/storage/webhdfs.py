"""Sends requests to a NameNode's web server (WebHDFS), for the calls that HDFS' clients lack.

A name service has several NameNodes: the client asks each of them until one is active. With Kerberos, each
request has a token of SPNEGO. ``dfs.http.policy`` decides between HTTP and HTTPS.
"""

from __future__ import annotations

import base64
import getpass
import http.client
import importlib
import json
import os
import ssl
from collections.abc import Mapping
from types import ModuleType
from urllib.parse import quote, urlencode

from airflow_hive_federation.errors import (
    ConfigurationError,
    StorageError,
    StoragePermissionError,
    StorageUnavailableError,
)
from airflow_hive_federation.model import json_values
from airflow_hive_federation.model.json_values import Fields
from airflow_hive_federation.runtime.kerberos import KerberosFailure, credentials, explain, minor_status
from airflow_hive_federation.storage.filesystem import options_for, parse_location
from airflow_hive_federation.storage.hadoop_access import AUTHENTICATION, KERBEROS
from airflow_hive_federation.storage.hadoop_configuration import WebAddress, hadoop_settings, web_addresses
from airflow_hive_federation.storage.hdfs_errors import USER_VARIABLE, java_error
from airflow_hive_federation.storage.options import StorageOptions

_TIMEOUT_S = 60.0
#: The text of a NameNode with Kerberos whose web server does not ask for it.
_UNFILTERED = "user not authenticated by filter"
_NO_SPNEGO = (
    "Set hadoop.http.authentication.type to kerberos on the NameNode, with the principal and keytab of its "
    "web server."
)
_REFUSALS = frozenset(
    {"AccessControlException", "AuthorizationException", "InvalidToken", "SecurityException"}
)
_UNAUTHORIZED, _FORBIDDEN = 401, 403
_AWAY = frozenset({"StandbyException", "SafeModeException", "RetriableException"})


class NameNodeWeb:
    """The web servers of the NameNodes of one HDFS.

    :param uri: URI of a directory or file of the HDFS.
    :param options: storage options.
    :param user: the user without Kerberos; by default that of the environment at each call.
    :raises ConfigurationError: if the settings name no web server, or Kerberos lacks the package gssapi.
    """

    def __init__(self, uri: str, options: StorageOptions | None = None, *, user: str = "") -> None:
        chosen = options_for(uri, options)
        settings = self._settings = hadoop_settings(chosen, os.environ)
        authority = parse_location(uri).authority
        self._store = f"hdfs://{authority}"
        self._user = user
        self._addresses = web_addresses(authority, settings)
        self._login = {name: str(value) for name, value in chosen.items() if name.startswith("kerberos_")}
        secured = settings.get(AUTHENTICATION, "").lower() == KERBEROS
        self._gssapi = _gssapi() if secured else None

    def call(self, method: str, operation: str, path: str, **parameters: str) -> Mapping[str, object]:
        """Call an operation of the active NameNode, and return its answer.

        :param method: HTTP method.
        :param path: path of the file or directory.
        :raises StoragePermissionError: if the user may not do it, or Kerberos fails.
        :raises StorageUnavailableError: if no NameNode answers, or none is active.
        :raises StorageError: if the NameNode refuses it; ``java`` is the class of its error.
        """
        # With Kerberos the NameNode takes the user from the ticket.
        user = {} if self._gssapi else {"user.name": self._user or current_user()}
        query = urlencode({"op": operation, **user, **parameters}, quote_via=quote)
        return self._answer(method, f"/webhdfs/v1{quote(path)}?{query}", f"{self._store}{path}")

    def setting(self, name: str) -> str | None:
        """Return a setting of the NameNode; of Hadoop's files or the storage options if it shows none.

        :raises StorageUnavailableError: if no NameNode answers.
        """
        query = urlencode({"name": name})
        try:
            shown = self._answer("GET", f"/conf?{query}", self._store)
            return Fields(Fields(shown).needed("property", json_values.json_object)).needed(
                "value", json_values.text
            )
        except StorageUnavailableError:
            raise
        except (StorageError, ValueError):
            # It has no such setting, or shows its settings to administrators only.
            return self._settings.get(name)

    def _answer(self, method: str, target: str, uri: str) -> Mapping[str, object]:
        refused: StorageError | None = None
        for address in self._addresses:
            try:
                return self._asked(address, method, target, uri)
            except StorageUnavailableError as error:
                refused = error
        if refused is None:
            raise ConfigurationError(
                f"{self._store} has no NameNode.",
                remedy="Name them in hdfs-site.xml (dfs.ha.namenodes).",
            )
        raise refused

    def _asked(self, address: WebAddress, method: str, target: str, uri: str) -> Mapping[str, object]:
        headers = {"X-XSRF-HEADER": "", "Accept": "application/json"}
        if self._gssapi is not None:
            headers["Authorization"] = f"Negotiate {self._token(address, self._gssapi)}"
        connection = _connection(address)
        try:
            connection.request(method, target, headers=headers)
            response = connection.getresponse()
            status, body = response.status, response.read()
        except (OSError, http.client.HTTPException) as error:
            raise StorageUnavailableError(
                f"The web server of a NameNode of {self._store} ({address}) does not answer: {error}.",
                remedy="Check dfs.namenode.http-address, or dfs.namenode.https-address, of hdfs-site.xml or "
                "of the storage options, and the way to that address; then run again.",
                path=uri,
            ) from error
        finally:
            connection.close()
        if status != http.client.OK:
            raise _refusal(uri, address, status, body)
        try:
            return json_values.json_object(json.loads(body)) if body else {}
        except ValueError as error:
            raise StorageError(
                f"{uri}: {address} answers as no NameNode does ({error}).",
                remedy="Check that the address is that of a NameNode's web server.",
                path=uri,
            ) from error

    def _token(self, address: WebAddress, gssapi: ModuleType) -> str:
        keytab = self._login.get("kerberos_keytab")
        name = gssapi.Name(f"HTTP@{address.host}", gssapi.NameType.hostbased_service)
        try:
            context = gssapi.SecurityContext(
                name=name,
                creds=credentials(
                    gssapi,
                    principal=self._login.get("kerberos_principal"),
                    keytab=keytab,
                    cache=self._login.get("kerberos_cache"),
                ),
                usage="initiate",
            )
            return base64.b64encode(context.step()).decode()
        except gssapi.exceptions.GSSError as error:
            code = minor_status(getattr(error, "min_code", 0))
            failure = KerberosFailure(
                code=code,
                text=str(error),
                expired=isinstance(error, gssapi.exceptions.ExpiredCredentialsError),
            )
            reason, remedy = explain(failure, keytab)
            raise StoragePermissionError(
                f"Kerberos to {address}: {reason or 'failed'} ({error}).",
                remedy=remedy,
                path=self._store,
            ) from error


def current_user() -> str:
    """Return the user of this process in an HDFS without Kerberos."""
    return os.environ.get(USER_VARIABLE) or getpass.getuser()


def _connection(address: WebAddress) -> http.client.HTTPConnection:
    if address.scheme == "https":
        context = ssl.create_default_context()
        return http.client.HTTPSConnection(address.host, address.port, timeout=_TIMEOUT_S, context=context)
    return http.client.HTTPConnection(address.host, address.port, timeout=_TIMEOUT_S)


def _refusal(uri: str, address: WebAddress, status: int, body: bytes) -> StorageError:
    java, reason = _remote_exception(body)
    if java in _AWAY:
        return StorageUnavailableError(
            f"{uri} cannot be used now: {reason}.",
            remedy="Wait until a NameNode is active and has left safe mode, then run again.",
            path=uri,
            java=java,
        )
    # The NameNode answers 403 (Forbidden) to most errors.
    if java in _REFUSALS or status == _UNAUTHORIZED or (status == _FORBIDDEN and not java):
        return StoragePermissionError(
            f"No right to use {uri}: {reason or f'{address} answers {status}'}.",
            remedy=_NO_SPNEGO
            if _UNFILTERED in reason
            else "Grant it to the user that runs this (HADOOP_USER_NAME, or the Kerberos principal).",
            path=uri,
        )
    if java:
        return java_error(java, reason, uri)
    return StorageError(
        f"{uri}: {address} answers {status}.",
        remedy="Check that the address is that of a NameNode's web server, and read the NameNode's log.",
        path=uri,
    )


def _remote_exception(body: bytes) -> tuple[str, str]:
    try:
        remote = json.loads(body)["RemoteException"]
        return str(remote["exception"]), str(remote["message"]).splitlines()[0].rstrip(".")
    except (ValueError, KeyError, TypeError, IndexError):
        return "", ""


def _gssapi() -> ModuleType:
    try:
        return importlib.import_module("gssapi")
    except ImportError as error:
        raise ConfigurationError(
            "WebHDFS with Kerberos needs the package gssapi.",
            remedy="pip install 'airflow-hive-federation[kerberos]'; it is built against Kerberos' headers "
            "(Debian: libkrb5-dev, Red Hat: krb5-devel).",
        ) from error
