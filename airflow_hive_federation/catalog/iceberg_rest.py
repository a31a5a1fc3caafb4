"""A REST catalog of Iceberg that does not do what its server says with the worker's credentials.

The answer to ``GET /v1/config`` overrides the client's properties. A server may turn request signing on
(``rest.sigv4-enabled``), by which it gets a session token of the worker's cloud; name another authentication,
one by a class of its choice included; or another host, for the tokens of the connection.
"""

from __future__ import annotations

from typing import Any

from pyiceberg.catalog.rest import RestCatalog

from airflow_hive_federation.errors import ConfigurationError

#: Properties that a server may set: where in it the catalog is, and how its lists are paged.
_OF_THE_SERVER = frozenset({"prefix", "warehouse", "namespace-separator", "rest-page-size"})


class ConfinedRestCatalog(RestCatalog):
    """pyiceberg's REST catalog with the properties it was given, and of the server's only harmless ones."""

    def _fetch_config(self) -> None:
        given = dict(self.properties)
        super()._fetch_config()
        taken = {name: self.properties[name] for name in _OF_THE_SERVER & self.properties.keys()}
        other = self.uri
        self.properties = {**taken, **given}
        self.uri = given["uri"]
        if other.rstrip("/") != self.uri.rstrip("/"):
            raise ConfigurationError(
                f"The Iceberg catalog at {self.uri} sends its clients on to {other}.",
                remedy="If that is right, give that URI instead.",
            )

    def _load_file_io(self, properties: Any = None, location: str | None = None) -> Any:
        # No file is read; what the server says of files includes the name of a class.
        del properties
        return super()._load_file_io({}, location)
