"""Provides the base class and helpers of all metastore calls."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, TypeVar

from airflow_hive_federation.metastore.grpc_streams import NotStreamed
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.metastore.settings import MetastoreSettings
from airflow_hive_federation.metastore.struct import Struct

T = TypeVar("T")
S = TypeVar("S", bound=Struct)

ENGINE = "hive"  # the engine whose column statistics are read and written; Impala keeps its own


class Calls:
    """The base of the mixins: the call itself, and the request fields that describe the client."""

    settings: MetastoreSettings

    def call(self, method: str, *args: object) -> Any:
        """Call a method of the interface definition; see :meth:`MetastoreClient.call`."""
        raise NotImplementedError

    def _streamed(
        self,
        path: str,
        kind: type[S],  # noqa: ARG002
        query: bytes,  # noqa: ARG002
        *,
        timeout_s: float | None = None,  # noqa: ARG002
    ) -> Iterator[S]:
        """Yield the structs of one of the server's streams.

        :param path: path of the stream, see :mod:`..grpc_streams`.
        :param timeout_s: seconds for the whole stream, if they are fewer than those of a call.
        :raises NotStreamed: if the server offers no streams, or the stream broke.
        """
        raise NotStreamed(f"{path} is for clients", offered=False)

    def _catalog(self, catalog: str | None = None) -> str:
        return catalog or self.settings.catalog

    def _database_name(self, database: str) -> str:
        # Methods that are older than catalogs expect the catalog in the database's name: Hive's
        # MetaStoreUtils.prependCatalogToDbName.
        return database if self.settings.catalog == "hive" else f"@{self.settings.catalog}#{database}"

    def _processor(self) -> dict[str, Any]:
        return {
            "processorCapabilities": list(self.settings.capabilities),
            "processorIdentifier": self.settings.identifier,
        }


def environment_context(environment: Mapping[str, str] | None) -> types.EnvironmentContext | None:
    """Wrap properties for the server's event listeners and checks; return ``None`` for ``None``."""
    return None if environment is None else types.EnvironmentContext(properties=dict(environment))


def batches(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Divide items into lists of at most ``size`` items, and keep one list in memory at a time."""
    if size < 1:
        raise ValueError(f"batch of {size}")
    rest = iter(items)
    while batch := list(islice(rest, size)):
        yield batch
