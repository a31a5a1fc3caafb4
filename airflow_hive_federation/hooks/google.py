"""Reads Airflow connections of type ``google_cloud_platform``, which need no provider for it.

Their fields are those of ``GoogleBaseHook`` of apache-airflow-providers-google.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.hooks.compat import mask_secret

if TYPE_CHECKING:
    from airflow.sdk import Connection

    from airflow_hive_federation.storage.options import StorageValue


CONNECTION_TYPES = frozenset({"google_cloud_platform"})
_EXTRAS = frozenset({"project", "key_path", "keyfile_dict", "is_anonymous"})
#: Extras that change nothing here: gcsfs has its own retries, and asks for access to storage alone.
_IGNORED = frozenset({"num_retries", "scope"})
_FIELDS = {
    "service_account": ("client_email", "private_key", "token_uri"),
    "authorized_user": ("client_id", "client_secret", "refresh_token"),
}
_SECRETS = ("private_key", "private_key_id", "client_secret", "refresh_token")


def google_options(connection: Connection, extras: dict[str, object]) -> dict[str, StorageValue]:
    """Return the options of gcsfs for a connection.

    A key file is read here, because Spark's executors need not have it. Without a key, gcsfs has the default
    credentials of the machine.

    :param extras: the connection's extras that have a value.
    :raises ConfigurationError: an extra is unknown here, or the key cannot be read.
    """
    unknown = sorted(extras.keys() - _EXTRAS - _IGNORED)
    if unknown:
        raise ConfigurationError(
            f"Connection {connection.conn_id!r} has extras that are not read for a store: "
            f"{', '.join(unknown)}.",
            remedy="Give it a key (key_path or keyfile_dict); without one, it has the machine's credentials.",
            conn_id=connection.conn_id,
        )
    project = extras.get("project")
    return {"token": _token(connection, extras), **({"project": str(project)} if project else {})}


def _token(connection: Connection, extras: dict[str, object]) -> StorageValue:
    if "key_path" in extras and "keyfile_dict" in extras:
        raise ConfigurationError(
            f"Connection {connection.conn_id!r} has key_path and keyfile_dict.",
            remedy="Keep one of them.",
            conn_id=connection.conn_id,
        )
    if "key_path" in extras:
        return _key(connection, _read(connection, str(extras["key_path"])))
    if "keyfile_dict" in extras:
        return _key(connection, extras["keyfile_dict"])
    if str(extras.get("is_anonymous", "")).lower() == "true":
        return "anon"
    # Without it, gcsfs would end as an anonymous user where the machine has no credentials.
    return "google_default"


def _read(connection: Connection, path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(
            f"The key of connection {connection.conn_id!r}, {path}, cannot be read: {type(error).__name__}.",
            remedy="Put the key there, or into keyfile_dict.",
            conn_id=connection.conn_id,
        ) from None


def _key(connection: Connection, written: object) -> StorageValue:
    from airflow_hive_federation.model import bounded_json

    try:
        key = bounded_json.loads(written) if isinstance(written, str) else written
    except ValueError:
        # The parser's error would show the key.
        key = None
    fields = {str(name): value for name, value in key.items()} if isinstance(key, dict) else {}
    kind = str(fields.get("type"))
    missing = [name for name in _FIELDS.get(kind, ()) if not isinstance(fields.get(name), str)]
    if kind not in _FIELDS or missing:
        reason = f"lacks {', '.join(missing)}" if missing else "is no service account or authorized user"
        raise ConfigurationError(
            f"The key of connection {connection.conn_id!r} {reason}.",
            remedy="Give the JSON key of a service account, as Google makes it.",
            conn_id=connection.conn_id,
        )
    texts = {name: value for name, value in fields.items() if isinstance(value, str)}
    for name in _SECRETS:
        if texts.get(name):
            mask_secret(texts[name])
    return texts
