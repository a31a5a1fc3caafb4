"""Translates pyiceberg's errors, and distinguishes the answer of a catalog from that of another server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from airflow_hive_federation.catalog.factories import HIDDEN
from airflow_hive_federation.errors import (
    ConfigurationError,
    HiveFederationError,
    MetastoreUnreachableError,
    NoSuchObjectError,
)
from airflow_hive_federation.model import bounded_json

PATH = "iceberg.table.path"
PREFIX = "iceberg.catalog."
_NOT_FOUND = 404
#: OneLake sends such a text in place of the number, and no type.
_NOT_FOUND_TEXTS = ("404", "NotFound")
#: Google's APIs, of which BigLake is one, send the number with this status, and no type.
_GOOGLES_STATUS = "NOT_FOUND"
#: With this type, Polaris sends 404 for a table whose store it cannot find (``IcebergExceptionMapper``).
_UNKNOWN_HOST = "FileIOUnknownHostException"


@contextmanager
def translated(subject: str, *, hidden: Sequence[str] = (), is_path: bool = False) -> Iterator[None]:
    """Translate pyiceberg's errors, and hide secrets in their texts.

    :param subject: the table, namespace or path in question.
    :param hidden: secrets.
    :param is_path: the table is given by its path, so a missing file means that there is no table.
    :raises NoSuchObjectError: if the catalog answers that it has no such table or namespace.
    :raises ConfigurationError: if the catalog refuses the caller, or a setting is wrong.
    :raises MetastoreUnreachableError: if no catalog answers.
    """
    from pyiceberg.exceptions import (
        AuthorizationExpiredError,
        BadRequestError,
        ForbiddenError,
        NoSuchNamespaceError,
        NoSuchTableError,
        OAuthError,
        RESTError,
        UnauthorizedError,
        ValidationError,
    )

    refusals = (UnauthorizedError, OAuthError, ForbiddenError, AuthorizationExpiredError, BadRequestError)
    cause: Exception
    made: HiveFederationError
    try:
        yield
        return
    except (NoSuchTableError, NoSuchNamespaceError) as error:
        cause, text = error, f"Iceberg, {subject}: {_shown(error, hidden)}"
        made = NoSuchObjectError(text) if _is_a_denial(error) else _no_catalog(text)
    except FileNotFoundError as error:
        cause, text = error, f"Iceberg, {subject}: {_shown(error, hidden)}"
        made = NoSuchObjectError(text) if is_path else _misconfigured(text)
    except (*refusals, ValidationError, ValueError, ImportError) as error:
        cause, made = error, _misconfigured(f"Iceberg, {subject}: {_shown(error, hidden)}")
    except (RESTError, OSError) as error:
        cause, made = (
            error,
            MetastoreUnreachableError(
                f"Iceberg, {subject}: {_shown(error, hidden)}", remedy="Look at the store."
            ),
        )
    # A traceback also shows the cause, so a cause with secrets is dropped.
    raise made from (cause if _shown(cause, hidden) == str(cause) else None)


def _is_a_denial(error: Exception) -> bool:
    """Return false if the error is a 404 by which no Iceberg REST catalog denies a table or namespace.

    pyiceberg takes each 404 for a missing table or namespace, also that of a proxy whose catalog is down. A
    catalog sends Iceberg's error model (``ErrorModel`` of its REST specification), or that of its vendor.
    """
    from requests import HTTPError

    answer = error.__cause__
    if not isinstance(answer, HTTPError) or answer.response is None:
        return True  # of a catalog that is not reached by HTTP
    try:
        body = bounded_json.loads(answer.response.text)
    except ValueError:
        return False
    model = body.get("error") if isinstance(body, dict) else None
    return isinstance(model, dict) and isinstance(model.get("message"), str) and _denies(model)


def _denies(model: Mapping[str, object]) -> bool:
    code = model.get("code")
    if code == _NOT_FOUND:
        kind = model.get("type")
        return (isinstance(kind, str) and kind != _UNKNOWN_HOST) or model.get("status") == _GOOGLES_STATUS
    return code in _NOT_FOUND_TEXTS


def _no_catalog(text: str) -> MetastoreUnreachableError:
    return MetastoreUnreachableError(
        f"{text} The server's answer is 404, and not that of an Iceberg catalog that denies it.",
        remedy=f"Check {PREFIX}uri, the proxies before it, and the catalog's log.",
    )


def _misconfigured(text: str) -> ConfigurationError:
    return ConfigurationError(text, remedy=f"Check {PATH}, or the properties {PREFIX}….")


def _shown(error: BaseException, hidden: Sequence[str]) -> str:
    text = str(error)
    for secret in hidden:
        text = text.replace(secret, HIDDEN)
    return text
