"""Waits in Airflow sensors for changes and new partitions at a remote."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.hooks.metastore import HiveMetastoreHook
from airflow_hive_federation.hooks.page_links import RemotesLink
from airflow_hive_federation.hooks.probes import RemoteProbe
from airflow_hive_federation.sensors.waiting import ProbeSensor


class _RemoteSensor(ProbeSensor):
    """Base of the sensors of remotes.

    :param remote: the local name of the remote. (templated)
    :param metastore_conn_id: the connection of the local metastore. (templated)
    :param database: the database of a table whose name contains none. (templated)
    """

    template_fields: Sequence[str] = (
        *ProbeSensor.template_fields,
        "metastore_conn_id",
        "database",
        "remote",
        "kind",
        "partition",
        "where",
    )
    ui_color = "#dde8f4"
    operator_extra_links = (RemotesLink(),)

    def __init__(
        self,
        *,
        remote: str,
        metastore_conn_id: str = HiveMetastoreHook.default_conn_name,
        database: str = "default",
        poke_interval: object = 30.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(poke_interval=poke_interval, **kwargs)
        self.remote = remote
        self.metastore_conn_id = metastore_conn_id
        self.database = database
        self.kind: str = "table"
        self.partition: str | None = None
        self.where: str | None = None

    def probe(self) -> RemoteProbe:
        return RemoteProbe(
            metastore_conn_id=self.metastore_conn_id,
            database=self.database,
            remote=self.remote,
            remote_kind=self.kind,
            partition=self.partition,
            where=self.where,
        )


class RemotePartitionSensor(_RemoteSensor):
    """Waits until a partition exists at the remote of a remote table.

    The sensor queries the remote itself, because the link may lack the partition until it is refreshed.

    :param partition: the name of the partition, ``day=2026-01-01/hour=7``. (templated)
    :param where: instead of a name, a condition on partition keys that one partition has to meet, in the
        syntax of Hive's metastore: ``day >= '2026-01-01' AND site = 'a'``. (templated)

    The other parameters are ``remote``, ``metastore_conn_id``, ``database``, ``timeout``, ``deferrable``, and
    those of Airflow's sensors.

    :raises ConfigurationError: neither ``partition`` nor ``where`` is given, or both are.
    """

    def __init__(self, *, partition: str | None = None, where: str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if (partition is None) == (where is None):
            given = "neither partition nor where" if partition is None else "both partition and where"
            raise ConfigurationError(
                f"{self.task_id} has {given}.",
                remedy='Give one of them: partition="day=2026-01-01", or where="day >= \'2026-01-01\'".',
            )
        self.partition = partition
        self.where = where


class RemoteTableChangedSensor(_RemoteSensor):
    """Waits until a remote has changed since the last refresh of its link.

    It detects changes by the remote's events or, if the remote has none, by comparing its definition with the
    link. A ``RefreshRemoteOperator`` after this sensor refreshes the link, so that the next run waits for the
    next change.

    :param kind: ``table`` or ``database``. (templated)

    The other parameters are those of :class:`RemotePartitionSensor`.
    """

    def __init__(self, *, kind: Literal["table", "database"] = "table", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.kind = kind
