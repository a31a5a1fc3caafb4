"""Resolves the metastores of the command line: URIs, or the id of an Airflow connection."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from airflow_hive_federation.cli.airflow_logs import log_to_stderr
from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.storage.options import StorageOptions

if TYPE_CHECKING:
    from airflow_hive_federation.hooks.remotes import AirflowConnections
    from airflow_hive_federation.metastore import MetastoreSettings
    from airflow_hive_federation.remotes.session import Remotes


@dataclass(frozen=True)
class End:
    """A metastore, and the options of the stores that hold its tables.

    :param written_storage_options: the options as the Airflow connection has them.
    """

    name: str
    settings: MetastoreSettings
    written_storage_options: StorageOptions = field(default_factory=dict, repr=False)

    @cached_property
    def storage_options(self) -> StorageOptions:
        """The options, in which those that name connections have become the credentials of these.

        :raises ConfigurationError: see :func:`.store_connections.with_credentials`.
        """
        if not self.written_storage_options:
            return {}
        from airflow_hive_federation.hooks.store_connections import with_credentials

        return with_credentials(self.written_storage_options)


#: Names the kind of a process for Airflow's search of connections; servers search its database, too.
_PROCESS_CONTEXT = "_AIRFLOW_PROCESS_CONTEXT"

#: Longest answer of a metastore in bytes; ``None`` if the command line does not limit it.
_MAX_ANSWER_BYTES: ContextVar[int | None] = ContextVar("max_answer_bytes", default=None)


@contextmanager
def answers_up_to(size_bytes: int | None) -> Iterator[None]:
    """Limit the answers of all metastores that are named within the block.

    :param size_bytes: the longest answer; ``None`` leaves the default, or the limit of an Airflow connection.
    """
    token = _MAX_ANSWER_BYTES.set(size_bytes)
    try:
        yield
    finally:
        _MAX_ANSWER_BYTES.reset(token)


@contextmanager
def connections_of_the_database() -> Iterator[None]:
    """Let Airflow find the connections of its database within the block, after those of the environment.

    Outside of tasks and servers, Airflow searches the environment and configured backends alone.
    """
    if _PROCESS_CONTEXT in os.environ:
        yield
        return
    os.environ[_PROCESS_CONTEXT] = "server"
    try:
        yield
    finally:
        os.environ.pop(_PROCESS_CONTEXT, None)


def settings_for(connection: str) -> MetastoreSettings:
    """Return the settings of a client.

    :param connection: URIs, comma-separated, or the id of an Airflow connection.
    :raises ConfigurationError: ``connection`` is neither.
    """
    return end_for(connection).settings


def end_for(connection: str) -> End:
    """Return the settings of a client, and the storage options of an Airflow connection.

    :param connection: URIs, comma-separated, or the id of an Airflow connection.
    :raises ConfigurationError: ``connection`` is neither.
    """
    end = _end_for(connection)
    size_bytes = _MAX_ANSWER_BYTES.get()
    if size_bytes is None:
        return end
    return replace(end, settings=replace(end.settings, max_answer_bytes=size_bytes))


def _end_for(connection: str) -> End:
    if "://" in connection:
        from airflow_hive_federation.metastore import MetastoreSettings

        uris = tuple(uri.strip() for uri in connection.split(",") if uri.strip())
        return End(connection, MetastoreSettings(uris=uris))
    if not connection.strip():
        raise ConfigurationError(
            "The name of the metastore is empty.",
            remedy="Give its URIs, thrift://host:9083, or the id of an Airflow connection.",
        )
    log_to_stderr()
    from airflow_hive_federation.hooks.compat import AirflowNotFoundException
    from airflow_hive_federation.hooks.metastore import HiveMetastoreHook

    hook = HiveMetastoreHook(connection)
    try:
        return End(connection, hook.settings, hook.written_storage_options)
    except AirflowNotFoundException:
        remedy = "Write thrift://host:9083, or define the connection: in Airflow's database, "
        variable = f"AIRFLOW_CONN_{connection.upper()}"
        if variable.isidentifier():
            remedy += f"in a secrets backend, or as {variable} in the environment."
        else:
            remedy += "or in a secrets backend."
        raise ConfigurationError(
            f"{connection!r} is neither a URI nor the id of an Airflow connection.", remedy=remedy
        ) from None


def common_storage_options(source: End, target: End) -> StorageOptions:
    """Return the storage options of both ends, for work that reads one and writes the other.

    :raises ConfigurationError: they differ and are not separated by URI prefix.
    """
    from airflow_hive_federation.hooks.metastore import merged_storage_options

    return merged_storage_options(
        (source.name, source.written_storage_options), (target.name, target.written_storage_options)
    )


def remotes_for(connection: str, *, database: str = "default") -> Remotes:
    """Return the remotes of a metastore, whose properties name Airflow connections. The caller closes them.

    :param connection: URIs, comma-separated, or the id of an Airflow connection.
    :param database: the current database.
    :raises ConfigurationError: ``connection`` is neither.
    """
    from airflow_hive_federation.remotes.session import Remotes

    return Remotes(settings_for(connection), connections=_LateConnections(), database=database)


class _LateConnections:
    """Airflow's connections, imported only when a property names one: Airflow takes a second to import."""

    def metastore(self, connection_id: str) -> MetastoreSettings:
        return self._airflow().metastore(connection_id)

    def passphrase(self, connection_id: str) -> str | None:
        return self._airflow().passphrase(connection_id)

    def session(self, connection_id: str) -> Mapping[str, Any]:
        return self._airflow().session(connection_id)

    def iceberg(self, connection_id: str) -> Mapping[str, str]:
        return self._airflow().iceberg(connection_id)

    def _airflow(self) -> AirflowConnections:
        log_to_stderr()
        from airflow_hive_federation.hooks.remotes import AirflowConnections

        return AirflowConnections()
