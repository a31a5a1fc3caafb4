"""Opens catalogs of all kinds; only this module imports every factory."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Self

from airflow_hive_federation.catalog.breaker import CircuitBreaker
from airflow_hive_federation.catalog.factories import (
    Connections,
    Factory,
    NoConnections,
    Opening,
    find_factory,
)
from airflow_hive_federation.catalog.glue import GLUE
from airflow_hive_federation.catalog.grpc import GRPC
from airflow_hive_federation.catalog.iceberg import ICEBERG
from airflow_hive_federation.catalog.roles import Catalog
from airflow_hive_federation.catalog.thrift import SSH, THRIFT

FACTORIES: tuple[Factory, ...] = (THRIFT, SSH, GLUE, ICEBERG, GRPC)


class Catalogs:
    """The open catalogs of one task, one per configuration.

    Each has its own connections, deadline and circuit breaker: a catalog that is down delays no other.

    :param connections: looks up the connections that properties name.
    :param user: user of the calls to remotes whose properties name none.
    :param factories: factories besides those of entry points.
    """

    def __init__(
        self,
        connections: Connections | None = None,
        *,
        user: str | None = None,
        factories: tuple[Factory, ...] = FACTORIES,
    ) -> None:
        self._connections = connections or NoConnections()
        self._user = user
        self._factories = factories
        self._opened: dict[tuple[str, tuple[tuple[str, str], ...]], tuple[Catalog, CircuitBreaker]] = {}
        self._lock = threading.Lock()

    def factory(self, via: str | None) -> Factory:
        """Find a factory; see :func:`.factories.find_factory`."""
        return find_factory(via, self._factories)

    def open(
        self, via: str | None, properties: Mapping[str, str], *, remote: str
    ) -> tuple[Catalog, CircuitBreaker]:
        """Open a catalog, or return the open one of the same configuration.

        :param remote: name of the remote, for errors.
        :raises ConfigurationError: if the factory or its properties are invalid.
        """
        factory = self.factory(via)
        factory.check(properties)
        key = (factory.name, tuple(sorted(properties.items())))
        with self._lock:
            if key not in self._opened:
                opening = Opening(
                    remote=remote, properties=properties, connections=self._connections, user=self._user
                )
                self._opened[key] = (factory.open(opening), CircuitBreaker(remote))
            return self._opened[key]

    def close(self) -> None:
        """Close all catalogs without raising an error."""
        with self._lock:
            while self._opened:
                _, (catalog, _) = self._opened.popitem()
                catalog.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
