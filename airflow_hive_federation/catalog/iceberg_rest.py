"""Keeps the server of an Iceberg REST catalog from redirecting the worker's credentials.

The answer to ``GET /v1/config`` overrides the client's properties. So a server could turn on request signing
(``rest.sigv4-enabled``), and get a session token of the worker's cloud. It could name another authentication,
even by a class of its choice, or another host that gets the tokens of the connection.
"""

from __future__ import annotations

from typing import Any

from pyiceberg.catalog.rest import RestCatalog

from airflow_hive_federation.errors import ConfigurationError

#: A server may set these properties only: the place of the catalog on the server, and the pages of its lists.
_OF_THE_SERVER = frozenset({"prefix", "warehouse", "namespace-separator", "rest-page-size"})


class ConfinedRestCatalog(RestCatalog):
    """pyiceberg's REST catalog with the caller's properties and only the harmless ones of the server."""

    def _fetch_config(self) -> None:
        own = dict(self.properties)
        super()._fetch_config()
        harmless = {name: self.properties[name] for name in _OF_THE_SERVER & self.properties.keys()}
        server_uri = self.uri
        self.properties = {**harmless, **own}
        self.uri = own["uri"]
        if server_uri.rstrip("/") != self.uri.rstrip("/"):
            raise ConfigurationError(
                f"The Iceberg catalog at {self.uri} sends its clients on to {server_uri}.",
                remedy="If that is right, give that URI instead.",
            )

    def _load_file_io(self, properties: object = None, location: str | None = None) -> Any:
        # No file is read here, and the server's properties of files could name a class to import.
        del properties
        return super()._load_file_io({}, location)
