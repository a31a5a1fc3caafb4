"""Reads the extras of Airflow connections to metastores."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from airflow_hive_federation.errors import ConfigurationError

if TYPE_CHECKING:
    from airflow.sdk import Connection

CONN_TYPE = "hive_federation"


def own_extras(connection: Connection) -> dict[str, object]:
    """Return the extras of a connection of this package's type.

    Airflow reads an extra that is no JSON object as no extra at all: TLS and Kerberos would be off.

    :raises ConfigurationError: the connection is of another type, or its extra is no JSON object. The error
        does not repeat the extra, which may hold secrets.
    """
    given = connection.conn_type
    # A connection by its URI has a hyphen in the type, and one by JSON in the environment may have none.
    if given and given.replace("-", "_") != CONN_TYPE:
        raise ConfigurationError(
            f"Connection {connection.conn_id!r} is of type {given!r}, and no connection to a metastore.",
            remedy=f"Name a connection of type {CONN_TYPE}.",
            conn_id=connection.conn_id,
            field="conn_type",
        )
    if not (connection.extra or "").strip():
        return {}
    try:
        found = json.loads(connection.extra or "")
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise ConfigurationError(
            f"Connection {connection.conn_id!r}: the extra is no JSON object.",
            remedy='Write it as {"transport": "https"}.',
            conn_id=connection.conn_id,
            field="extra",
        )
    # Airflow masks the secrets among them in its logs.
    extras: dict[str, object] = connection.extra_dejson
    return extras
