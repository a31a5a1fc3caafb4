"""Reading remote tables on Spark, transactional ones included: by the metastore that owns them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from airflow_hive_federation.catalog.roles import MetastoreOwner
from airflow_hive_federation.errors import RemoteUnsupportedError
from airflow_hive_federation.remotes.session import Remotes
from airflow_hive_federation.remotes.statement import Kind, parse_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def read_remote_table(
    spark: SparkSession,
    remotes: Remotes,
    name: str,
    *,
    storage_options: Mapping[str, Any] | None = None,
    **choice: Any,
) -> DataFrame:
    """Read a remote table as the remote's own Hive would.

    One snapshot of the owning metastore's valid write ids holds for the whole DataFrame. It takes no lock
    there: files that the remote's cleaner removes before they are read fail the query
    (:class:`FileVanishedError`, or Spark's own error), and never change its rows.

    :param remotes: the local metastore's remotes.
    :param name: local name, ``[database.]table``.
    :param storage_options: options of the remote's store, for listing its directories.
    :param choice: as :func:`~airflow_hive_federation.acid.reader.read_table` takes it: ``partitions``,
        ``columns``, ….
    :raises NotARemoteError: if there is no such remote.
    :raises RemoteUnsupportedError: if the remote is no Hive metastore.
    :raises RemoteUnavailableError: if the remote does not answer.
    """
    from airflow_hive_federation.acid.reader import read_table

    opened = remotes.open(Kind.TABLE, parse_name(Kind.TABLE, name))
    if not isinstance(opened.catalog, MetastoreOwner):
        raise RemoteUnsupportedError(
            f"{opened.link.local} is of a catalog that has no transactions.",
            remedy="Read it as the local table that it is.",
            remote=str(opened.link.local),
        )
    remote = opened.link.remote
    with opened.breaker.guard(), opened.catalog.client() as client:
        return read_table(
            spark, client, f"{remote.database}.{remote.table}", storage_options=storage_options, **choice
        )
