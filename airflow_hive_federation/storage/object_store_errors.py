"""Translates the refusals of object stores, whichever driver raises them, to errors of this package.

The stores name a refusal by a code: S3's ``SlowDown`` in botocore's ``ClientError``, which s3fs turns into an
``OSError`` with the former as its cause; Azure's ``ServerBusy`` in an ``HttpResponseError``; GCS by the HTTP
status in gcsfs's ``HttpError``, or in the text of an ``OSError``; pyarrow's own S3 client in the text of an
``OSError``. A HEAD request has an answer without a body, so that its code is the HTTP status alone.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from airflow_hive_federation.errors import (
    BucketMissingError,
    StorageCredentialsExpiredError,
    StorageError,
    StorageFullError,
    StoragePermissionError,
    StorageUnavailableError,
)

_BUSY = frozenset(
    {
        "slowdown",
        "throttling",
        "throttlingexception",
        "throttled",
        "toomanyrequests",
        "requestlimitexceeded",
        "requestthrottled",
        "bandwidthlimitexceeded",
        "serverbusy",
        "ratelimitexceeded",
        "userratelimitexceeded",
        "429",
        "503",
    }
)
_FAILING = frozenset(
    {
        "internalerror",
        "internalfailure",
        "internalservererror",
        "serviceunavailable",
        "requesttimeout",
        "operationtimedout",
        "operationaborted",
        "408",
        "500",
        "502",
        "504",
    }
)
_EXPIRED = frozenset({"expiredtoken", "expiredtokenexception", "requestexpired", "tokenrefreshrequired"})
_DENIED = frozenset(
    {
        "accessdenied",
        "allaccessdisabled",
        "accountproblem",
        "invalidaccesskeyid",
        "invalidtoken",
        "invalidsecurity",
        "signaturedoesnotmatch",
        "notsignedup",
        "requesttimetooskewed",
        "unrecognizedclientexception",
        "authenticationfailed",
        "authorizationfailure",
        "authorizationpermissionmismatch",
        "insufficientaccountpermissions",
        "noauthenticationinformation",
        "invalidauthenticationinfo",
        "forbidden",
        "401",
        "403",
    }
)
_NO_BUCKET = frozenset({"nosuchbucket", "containernotfound", "filesystemnotfound", "accountnotfound"})
_TOO_LARGE = frozenset({"entitytoolarge", "requestbodytoolarge"})


@dataclass(frozen=True, kw_only=True)
class _Kind:
    codes: frozenset[str]
    error: type[StorageError]
    message: str
    remedy: str


_KINDS = (
    _Kind(
        codes=_NO_BUCKET,
        error=BucketMissingError,
        message="The bucket or container of {path} does not exist: {shown}.",
        remedy="Create it, or correct the URI or the endpoint.",
    ),
    _Kind(
        codes=_EXPIRED,
        error=StorageCredentialsExpiredError,
        message="The credentials for {path} have expired: {shown}.",
        remedy="Run again with new ones; those of a role or of an Airflow connection are renewed.",
    ),
    _Kind(
        codes=_DENIED,
        error=StoragePermissionError,
        message="No right to use {path}: {shown}.",
        remedy="Grant the owner of the credentials the right to read sources and write targets.",
    ),
    _Kind(
        codes=_BUSY,
        error=StorageUnavailableError,
        message="{path}: the store limits the rate of requests: {shown}.",
        remedy="Run again later, with fewer parallel copies; finished files are not copied again.",
    ),
    _Kind(
        codes=_FAILING,
        error=StorageUnavailableError,
        message="{path}: the store fails: {shown}.",
        remedy="Run again later.",
    ),
    _Kind(
        codes=_TOO_LARGE,
        error=StorageFullError,
        message="{path} does not fit: {shown}.",
        remedy="Write smaller files to this store.",
    ),
)

#: Azure's reasons for refusals whose code is that of a wrong key: of a signature, a token and a secret.
_AZURE_EXPIRED = re.compile(
    r"Signature not valid in the specified time frame|token is expired|AADSTS7000222", re.IGNORECASE
)
#: gcsfs' text of some refusals: ``validate_response`` in ``gcsfs.retry``.
_GCSFS = re.compile(r"(?P<kind>Forbidden|Bad Request): \S+\n?(?P<message>.*)", re.DOTALL)
_GOOGLE_CREDENTIALS = re.compile(
    r"authentication credential|invalid credentials|invalid_token", re.IGNORECASE
)
#: pyarrow's text: the code in capitals, or S3's own if the client does not know it.
_PYARROW = re.compile(
    r"AWS Error (?P<code>[A-Z0-9_]+)(?: \(HTTP status \d+\))? during"
    r"(?:.*Unable to parse ExceptionName: (?P<own>\w+))?",
    re.DOTALL,
)
#: Errors of botocore, aiohttp and google-auth that reach no store.
_UNREACHABLE = frozenset(
    {
        "EndpointConnectionError",
        "ConnectTimeoutError",
        "ReadTimeoutError",
        "ConnectionClosedError",
        "ProxyConnectionError",
        "HTTPClientError",
        "ClientConnectionError",
        "ClientConnectorError",
        "ServerDisconnectedError",
        "ServiceRequestError",
        "ServiceResponseError",
        "TransportError",
        # gcsfs raises it for the status 502.
        "ProxyError",
    }
)
_NO_CREDENTIALS = frozenset(
    {
        "NoCredentialsError",
        "PartialCredentialsError",
        "CredentialRetrievalError",
        "TokenRetrievalError",
        "UnauthorizedSSOTokenError",
        "SSOTokenLoadError",
        "ProfileNotFound",
        "DefaultCredentialsError",
        "RefreshError",
    }
)
#: The drivers' error classes that do not derive from OSError.
_DRIVERS_CLASSES = (
    ("botocore.exceptions", "BotoCoreError"),
    ("botocore.exceptions", "ClientError"),
    ("aiohttp", "ClientError"),
    ("azure.core.exceptions", "AzureError"),
    ("gcsfs.retry", "HttpError"),
    ("gcsfs.retry", "NonRetryableError"),
    ("google.api_core.exceptions", "GoogleAPIError"),
    ("google.auth.exceptions", "GoogleAuthError"),
)
_CHAIN = 6


@dataclass(frozen=True, kw_only=True)
class _Refusal:
    """The answer of a store.

    :param code: the store's code in lower case, without punctuation; the HTTP status if it has none.
    :param shown: the code as the store wrote it, and its message.
    """

    code: str
    shown: str


def object_store_error(
    error: BaseException, path: str, handled: BaseException | None = None
) -> StorageError | None:
    """Return the error of this package for a refusal of an object store.

    :param path: URI for the error.
    :param handled: the error that was being handled when the store was asked. Python makes it the context of
        ``error``, but it is no answer of the store; Airflow's exceptions have a ``status_code``, too.
    :return: ``None`` if the error is no answer of an object store, or has no class of its own: a missing
        file, for instance.
    """
    for link in _chain(error, handled):
        refusal = _refusal(link)
        if refusal is not None:
            return _classified(refusal, path)
        names = _names(link)
        if names & _NO_CREDENTIALS:
            return StoragePermissionError(
                f"There are no credentials for {path}: {link}.",
                remedy="Set them by storage options, or give the machine a role.",
                path=path,
            )
        if names & _UNREACHABLE:
            return StorageUnavailableError(
                f"{path}: the store does not answer: {link}.",
                remedy="Check the endpoint and the network, then run again.",
                path=path,
            )
    return None


def driver_errors() -> tuple[type[Exception], ...]:
    """Return the drivers' error classes that do not derive from OSError; an unloaded driver raises none."""
    classes: list[type[Exception]] = []
    for module, name in _DRIVERS_CLASSES:
        loaded = sys.modules.get(module)
        # Some versions of a driver lack a class.
        if (known := getattr(loaded, name, None)) is not None:
            classes.append(known)
    return tuple(classes)


def _classified(refusal: _Refusal, path: str) -> StorageError | None:
    for kind in _KINDS:
        if refusal.code in kind.codes:
            message = kind.message.format(path=path, shown=refusal.shown)
            return kind.error(message, remedy=kind.remedy, path=path)
    return None


def _chain(error: BaseException, handled: BaseException | None) -> Iterator[BaseException]:
    link: BaseException | None = error
    for _ in range(_CHAIN):
        if link is None or link is handled:
            return
        yield link
        link = link.__cause__ or link.__context__


def _refusal(error: BaseException) -> _Refusal | None:
    for answer in (_of_botocore(error), _of_azure(error), _of_gcs(error), _of_pyarrow(error)):
        if answer is not None:
            code, message = answer
            # The message of a refusal ends with a dot or not.
            shown = f"{code}, {message.strip().rstrip('.')}" if message.strip() else code
            return _Refusal(code=re.sub(r"[^a-z0-9]", "", code.lower()), shown=shown)
    return None


def _of_botocore(error: BaseException) -> tuple[str, str] | None:
    response = getattr(error, "response", None)
    details = response.get("Error") if isinstance(response, Mapping) else None
    if not isinstance(details, Mapping) or not details.get("Code"):
        return None
    return str(details["Code"]), str(details.get("Message", ""))


def _of_azure(error: BaseException) -> tuple[str, str] | None:
    status = getattr(error, "status_code", None)
    code = getattr(error, "error_code", None)
    if "ClientAuthenticationError" in _names(error) and not code:
        # Of the service that issues tokens, whose status is that of a wrong request; or a key that is none.
        return _token_refusal(error)
    if not isinstance(status, int):
        return None
    reason = str(getattr(error, "reason", "") or "")
    if status in {400, 401, 403} and _AZURE_EXPIRED.search(str(error)):
        return "ExpiredToken", reason
    return str(getattr(code, "value", code) or status), reason


def _token_refusal(error: BaseException) -> tuple[str, str]:
    text = str(error)
    return ("ExpiredToken" if _AZURE_EXPIRED.search(text) else "401"), text.partition("\n")[0]


def _of_gcs(error: BaseException) -> tuple[str, str] | None:
    if type(error) in {OSError, ValueError}:
        match = _GCSFS.match(str(error))
        if match is None:
            return None
        forbidden = match["kind"] == "Forbidden" or _GOOGLE_CREDENTIALS.search(match["message"])
        return ("403" if forbidden else "400"), match["message"]
    code = getattr(error, "code", None)
    if code is None or not _names(error) & {"HttpError", "GoogleAPICallError"}:
        return None
    return str(int(code) if isinstance(code, int) else code), str(getattr(error, "message", "") or "")


def _names(error: BaseException) -> set[str]:
    return {cls.__name__ for cls in type(error).__mro__}


def _of_pyarrow(error: BaseException) -> tuple[str, str] | None:
    match = (
        _PYARROW.search(str(error)) if type(error) in {OSError, FileNotFoundError, PermissionError} else None
    )
    return None if match is None else (match["own"] or match["code"], "")
