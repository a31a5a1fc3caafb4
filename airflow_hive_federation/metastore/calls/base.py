"""What every group of calls builds on."""

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

ENGINE = "hive"  # whose column statistics are meant; Impala keeps its own


class Calls:
    """The one method the mixins need, and how they fill in what every request says about the caller."""

    settings: MetastoreSettings

    def call(self, method: str, *args: Any) -> Any:
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
        """Yield structs of a stream of the server's.

        :param path: of the stream, see :mod:`..grpc_streams`.
        :param timeout_s: seconds for the whole stream, if they are fewer than those of a call.
        :raises NotStreamed: if it offers none, or the stream broke.
        """
        raise NotStreamed(f"{path} is for clients", offered=False)

    def _catalog(self, catalog: str | None = None) -> str:
        return catalog or self.settings.catalog

    def _database_name(self, database: str) -> str:
        # How methods older than catalogs name a database of another catalog: Hive's
        # MetaStoreUtils.prependCatalogToDbName.
        return database if self.settings.catalog == "hive" else f"@{self.settings.catalog}#{database}"

    def _processor(self) -> dict[str, Any]:
        return {
            "processorCapabilities": list(self.settings.capabilities),
            "processorIdentifier": self.settings.identifier,
        }


def environment_context(environment: Mapping[str, str] | None) -> types.EnvironmentContext | None:
    """Wrap properties for the server's event listeners and checks; nothing stays nothing."""
    return None if environment is None else types.EnvironmentContext(properties=dict(environment))


def batches(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Cut into lists of at most ``size``, of which one stands in memory at a time."""
    if size < 1:
        raise ValueError(f"batch of {size}")
    rest = iter(items)
    while some := list(islice(rest, size)):
        yield some
