"""Translates the errors of HDFS' clients; those of ``hdfs-native`` are texts of Rust with Java's traces."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType

from airflow_hive_federation.errors import (
    StorageError,
    StorageFullError,
    StoragePermissionError,
    StorageUnavailableError,
)
from airflow_hive_federation.runtime.kerberos import KerberosFailure, explain, minor_status

#: Hadoop's environment variable for the user, without Kerberos.
USER_VARIABLE = "HADOOP_USER_NAME"
#: The driver's text for an error of the NameNode, in Rust's notation: class, and message with Java's trace.
_JAVA = re.compile(r'(?:Fatal)?RPCError\("(?P<java>[\w.$]+)", "(?P<text>.*)"\)?', re.DOTALL)
#: The driver's text for an error of the Kerberos library: its number and its message.
_KERBEROS = re.compile(r'GSSAPIError\(.*?\}, (?P<code>\d+), "(?P<text>.*)"\)', re.DOTALL)
_CONNECTIONS = frozenset(
    {
        "ConnectException",
        "ConnectTimeoutException",
        "EOFException",
        "NoRouteToHostException",
        "SocketException",
        "SocketTimeoutException",
        "UnknownHostException",
    }
)
_UNAVAILABLE = {"SafeModeException", "StandbyException", "RetriableException", *_CONNECTIONS}
#: Java's errors of a login by Kerberos.
_LOGINS = frozenset({"GSSException", "KerberosAuthException", "KrbException", "LoginException"})
_FULL = re.compile(r"\w*Quota\w*ExceededException|MaxDirectoryItemsExceededException")
#: The NameNode's text for a quota that is exceeded.
_QUOTA = re.compile(
    r"The (?P<kind>NameSpace|DiskSpace) quota .*?of directory (?P<directory>/.*) is exceeded: "
    r"quota ?= ?(?P<quota>\d+)"
)
_OPTIONS = {"NameSpace": "-setQuota", "DiskSpace": "-setSpaceQuota"}
_NO_ROOM = "could only be written to 0 of"
#: The driver's text for its own errors, in Rust's notation.
_OWN = re.compile(r'OperationFailed\("(?P<text>.*)"\)', re.DOTALL)
#: The driver's texts for the key server of an encryption zone: none is known, none answers, it refuses.
_NO_KEY_SERVER = "no KMS provider is configured"
_KEY_SERVER_AWAY = "KMS HTTP error"
_KEY_SERVER_REFUSES = re.compile(r"KMS request failed \((?P<status>\d+)[^)]*\):? ?(?P<text>.*)", re.DOTALL)
_UNAUTHORIZED, _FORBIDDEN, _SERVERS_OWN = 401, 403, 500
#: The part of a key server's address that may have a delegation token.
_QUERY = re.compile(r"\?[^\s)]*")


@contextmanager
def native_errors(uri: str, login: Mapping[str, str] = MappingProxyType({})) -> Iterator[None]:
    """Translate the driver's errors in the block, except Python's errors for missing or existing files.

    :param login: principal, keytab and cache of the Kerberos login, for its errors.
    :raises StoragePermissionError: if the NameNode or a key server denies the permission, or Kerberos fails.
    :raises StorageFullError: if a quota is used up.
    :raises StorageUnavailableError: if no NameNode answers, none is active, the NameNode is in safe mode, no
        DataNode accepts a block, or the key server of an encryption zone does not answer.
    :raises StorageError: for any other error.
    """
    try:
        yield
    except (FileNotFoundError, FileExistsError, NotADirectoryError, IsADirectoryError) as error:
        number = _NUMBERS[type(error)]
        raise type(error)(number, _first_line(str(error)) or os.strerror(number), uri) from error
    except OSError as error:
        raise StorageUnavailableError(
            f"{uri} does not answer: {_first_line(str(error))}.",
            remedy="Check that NameNode and DataNodes run and can be reached from here under the addresses "
            "of HADOOP_CONF_DIR. Check hadoop.security.authentication, too, and run again.",
            path=uri,
        ) from error
    except RuntimeError as error:
        if (match := _KERBEROS.search(str(error))) is not None:
            raise _kerberos_error(match, uri, login) from error
        raise _translated(str(error), uri) from error


def _kerberos_error(match: re.Match[str], uri: str, login: Mapping[str, str]) -> StorageError:
    failure = KerberosFailure(code=minor_status(int(match["code"])), text=_first_line(match["text"]))
    client = login.get("kerberos_principal", "the ticket's principal")
    if failure.is_absence:
        return StorageUnavailableError(
            f"Kerberos to {uri} as {client}: no KDC of the realm answers ({failure.text}).",
            remedy="Check the KDC's address in krb5.conf (KRB5_CONFIG) and the way to it; then run again.",
            path=uri,
        )
    reason, remedy = explain(failure, login.get("kerberos_keytab"))
    return StoragePermissionError(
        f"Kerberos to {uri} as {client}: {reason or 'failed'} ({failure.text}).",
        remedy=remedy,
        path=uri,
        user=client,
    )


def _translated(text: str, uri: str) -> StorageError:
    match = _JAVA.match(text)
    java = match["java"].rpartition(".")[2].rpartition("$")[2] if match else ""
    own = _OWN.fullmatch(text)
    reason = _first_line(match["text"] if match else own["text"] if own else text)
    if own and (error := _of_key_server(reason, uri)) is not None:
        return error
    return java_error(java, reason, uri)


def java_error(java: str, reason: str, uri: str) -> StorageError:
    """Return the error of this package for an error of Hadoop's.

    :param java: its class, without the package.
    :param reason: its message; only the first line is shown.
    """
    reason = _first_line(reason)
    if java in _LOGINS:
        return StoragePermissionError(
            f"Kerberos to {uri}: {reason}.",
            remedy="Get a ticket by kinit, and name its cache (kerberos_cache, or KRB5CCNAME).",
            path=uri,
        )
    if java == "AccessControlException":
        return StoragePermissionError(
            f"No right to use {uri}: {reason}.",
            remedy="Grant it to the user that runs this (HADOOP_USER_NAME, or the Kerberos principal), by "
            "owner, mode or access list.",
            path=uri,
            user=os.environ.get(USER_VARIABLE, ""),
        )
    if _FULL.fullmatch(java):
        return _full(reason, uri)
    if java in _UNAVAILABLE or _NO_ROOM in reason:
        return StorageUnavailableError(
            f"{uri} cannot be used now: {reason}.",
            remedy=_REMEDIES.get(java, "Check that DataNodes run and have room (hdfs dfsadmin -report)")
            + ", then run again.",
            path=uri,
            java=java,
        )
    remedy = next((known for part, known in _REMEDIES_BY_TEXT.items() if part in reason), _READ_LOG)
    return StorageError(f"{uri}: {reason}.", remedy=remedy, path=uri, java=java)


def _of_key_server(reason: str, uri: str) -> StorageError | None:
    """Return the error of a file in an encryption zone whose key cannot be had; ``None`` for other errors."""
    if _NO_KEY_SERVER in reason:
        return StorageError(
            f"{uri} lies in an encryption zone, and no key server (KMS) is configured here.",
            remedy="Set hadoop.security.key.provider.path in the core-site.xml of HADOOP_CONF_DIR, or as a "
            "storage option of this HDFS, then run again.",
            path=uri,
        )
    if _KEY_SERVER_AWAY in reason:
        return StorageUnavailableError(
            f"The key server (KMS) of {uri}, in an encryption zone, does not answer: "
            f"{_QUERY.sub('', reason)}.",
            remedy="Check that it runs, and that it can be reached from here under the address of "
            "hadoop.security.key.provider.path, then run again.",
            path=uri,
        )
    if (refusal := _KEY_SERVER_REFUSES.match(reason)) is None:
        return None
    status, text = int(refusal["status"]), f"{refusal['status']}: {_QUERY.sub('', refusal['text'])}"
    message = f"The key server (KMS) of {uri}, in an encryption zone, refuses the key: {text}."
    if status in {_UNAUTHORIZED, _FORBIDDEN}:
        return StoragePermissionError(
            message,
            remedy="Grant the user that runs this (HADOOP_USER_NAME, or the Kerberos principal) the key's "
            "operations in the key server's kms-acls.xml (DECRYPT_EEK, and GENERATE_EEK for the NameNode).",
            path=uri,
            user=os.environ.get(USER_VARIABLE, ""),
        )
    kind = StorageUnavailableError if status >= _SERVERS_OWN else StorageError
    return kind(message, remedy="Read the key server's log, then run again.", path=uri)


def _full(reason: str, uri: str) -> StorageFullError:
    quota = _QUOTA.search(reason)
    option = _OPTIONS[quota["kind"]] if quota else "-setQuota, -setSpaceQuota"
    return StorageFullError(
        f"{uri} does not fit: {reason}.",
        remedy=f"Raise the quota of {quota['directory'] if quota else 'the directory'} (hdfs dfsadmin "
        f"{option}), or remove what is not needed, then run again; it goes on from there.",
        path=uri,
        **({"directory": quota["directory"], "quota": int(quota["quota"])} if quota else {}),
    )


_READ_LOG = "Read the NameNode's log."
_REMEDIES_BY_TEXT = {
    "an encryption zone": "HDFS renames nothing into or out of an encryption zone: keep the directory of a "
    "table and the places to which it is moved in one zone.",
}
_NUMBERS = {
    FileNotFoundError: errno.ENOENT,
    FileExistsError: errno.EEXIST,
    NotADirectoryError: errno.ENOTDIR,
    IsADirectoryError: errno.EISDIR,
}
_REMEDIES = {
    "SafeModeException": "Wait until the NameNode has left safe mode (hdfs dfsadmin -safemode get)",
    "StandbyException": "Check which NameNode is active (hdfs haadmin -getAllServiceState); name that "
    "one, or the name service with HADOOP_CONF_DIR",
    **dict.fromkeys(
        _CONNECTIONS, "Check that NameNode and DataNodes run, and that they can be reached from here"
    ),
}


def _first_line(text: str) -> str:
    # In Rust's notation of a text, a line break is a backslash and an n.
    return re.split(r"\n|\\n|\s+at org\.apache", text, maxsplit=1)[0].replace('\\"', '"').strip().rstrip(".")
