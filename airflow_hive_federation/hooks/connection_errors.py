"""Names the Airflow connection in errors about settings that it makes impossible."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from airflow_hive_federation.errors import ConfigurationError

#: Fields of a connection by the settings that they become, where the names differ.
_FIELDS: Mapping[str, str] = {
    "authentication": "password",
    "grpc": "grpc_…",
    "tls": "tls_…",
}


@contextmanager
def naming(conn_id: str, field: str = "", *, fields: Mapping[str, str] | None = None) -> Iterator[None]:
    """Put the connection, and its field, before errors of settings that are made from it.

    A task may have several connections, and the settings do not know from which one they come. Their errors
    never repeat secrets, and this adds none.

    :param field: the field, if the block makes settings of this one alone; otherwise the error names it as
        ``field``.
    :param fields: names of fields by settings, beside those of the module.
    :raises ConfigurationError: has ``conn_id`` and ``field`` as facts; an error that has a ``conn_id`` stays.
    """
    try:
        yield
    except ConfigurationError as error:
        if "conn_id" in error.facts:
            raise
        setting = str(error.facts.get("field", ""))
        name = field or {**_FIELDS, **(fields or {})}.get(setting, setting)
        place = f", {name}" if name and name not in error.message else ""
        raise type(error)(
            f"Connection {conn_id!r}{place}: {error.message}",
            remedy=error.remedy,
            **{**error.facts, "conn_id": conn_id, "field": name},
        ) from error
