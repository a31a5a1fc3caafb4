"""Reads remote tables on Spark, also transactional ones, through the metastore that owns them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from airflow_hive_federation.catalog.roles import MetastoreOwner
from airflow_hive_federation.errors import ConfigurationError, RemoteUnsupportedError
from airflow_hive_federation.remotes.session import OpenRemote, Remotes
from airflow_hive_federation.remotes.statement import Kind, parse_name
from airflow_hive_federation.storage.options import StorageOptions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def read_remote_table(
    spark: SparkSession,
    remotes: Remotes,
    name: str,
    *,
    storage_options: StorageOptions | None = None,
    **choice: Any,
) -> DataFrame:
    """Read a remote table as the remote's own Hive would.

    The whole DataFrame uses one snapshot of the owning metastore's valid write ids. The read takes no lock at
    the remote: files that the remote's cleaner removes before they are read fail the query
    (:class:`FileVanishedError`, or Spark's own error), and never change its rows.
    :func:`reading_remote_tables` takes a lock.

    :param remotes: the local metastore's remotes.
    :param name: local name, ``[database.]table``.
    :param storage_options: options of the remote's store, for listing its directories.
    :param choice: further arguments of :func:`~airflow_hive_federation.tables.read.reader.read_table`:
        ``partitions``, ``columns``, ….
    :raises NotARemoteError: if the remote does not exist.
    :raises RemoteUnsupportedError: if the remote is not a Hive metastore.
    :raises RemoteUnavailableError: if the remote does not answer.
    """
    opened = remotes.open(Kind.TABLE, parse_name(Kind.TABLE, name))
    owner = _owner(opened)
    from airflow_hive_federation.tables.read.reader import read_table

    with opened.breaker.guard(), owner.client() as client:
        return read_table(spark, client, _there(opened), storage_options=storage_options, **choice)


@contextmanager
def reading_remote_tables(
    spark: SparkSession,
    remotes: Remotes,
    names: Sequence[str],
    *,
    storage_options: StorageOptions | None = None,
) -> Iterator[dict[str, DataFrame]]:
    """Read tables of one remote in one snapshot, under a read lock at the remote that keeps their files.

    DataFrames are lazy: collect or write them before the block ends.

    :param names: local names, ``[database.]table``.
    :return: DataFrames by these names.
    :raises ConfigurationError: if the tables belong to several remotes, which have no common snapshot.

    Other parameters and errors are those of :func:`read_remote_table` and
    :func:`~airflow_hive_federation.tables.read.sessions.reading`.
    """
    opened = {name: remotes.open(Kind.TABLE, parse_name(Kind.TABLE, name)) for name in names}
    catalogs = {id(opened_remote.catalog) for opened_remote in opened.values()}
    if len(catalogs) != 1:
        raise ConfigurationError(
            f"{', '.join(names)} are of {len(catalogs)} remotes.",
            remedy="Read one remote's tables at a time.",
        )
    first = next(iter(opened.values()))
    owner = _owner(first)
    from airflow_hive_federation.tables.read.sessions import reading

    remote_names = {name: _there(opened_remote) for name, opened_remote in opened.items()}
    with ExitStack() as stack:
        # The guard does not cover the caller's block, whose errors are not the remote's.
        with first.breaker.guard():
            client = stack.enter_context(owner.client())
            block = reading(spark, client, list(remote_names.values()), storage_options=storage_options)
            tables = stack.enter_context(block)
            frames = {name: tables.read(qualified_name) for name, qualified_name in remote_names.items()}
        yield frames


def _owner(opened: OpenRemote) -> MetastoreOwner:
    if not isinstance(opened.catalog, MetastoreOwner):
        raise RemoteUnsupportedError(
            f"{opened.link.local} is of a catalog that has no transactions.",
            remedy="Read it as the local table that it is.",
            remote=str(opened.link.local),
        )
    return opened.catalog


def _there(opened: OpenRemote) -> str:
    return f"{opened.link.remote.database}.{opened.link.remote.table}"
