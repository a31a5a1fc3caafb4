"""Waits in Airflow sensors for changes and new partitions at a remote."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

from airflow.sdk import BaseSensorOperator

from airflow_hive_federation.hooks.compat import AirflowException, AirflowSkipException
from airflow_hive_federation.hooks.error_translation import airflow_error, as_airflow_error
from airflow_hive_federation.hooks.metastore import HiveMetastoreHook
from airflow_hive_federation.hooks.remotes import remotes_of
from airflow_hive_federation.triggers.remote import RemoteTrigger

if TYPE_CHECKING:
    from airflow.sdk import Context

#: Seconds by which the deferral outlives the trigger's own deadline.
_GRACE_S = 60.0


class _RemoteSensor(BaseSensorOperator):
    """Base of the sensors of remotes.

    :param remote: the local name of the remote. (templated)
    :param metastore_conn_id: the connection of the local metastore. (templated)
    :param database: the database of a table whose name contains none. (templated)
    :param deferrable: wait in the triggerer instead of a worker slot.
    """

    template_fields: Sequence[str] = ("metastore_conn_id", "database", "remote", "kind", "partition", "where")
    ui_color = "#dde8f4"

    def __init__(
        self,
        *,
        remote: str,
        metastore_conn_id: str = HiveMetastoreHook.default_conn_name,
        database: str = "default",
        deferrable: bool = True,
        poke_interval: float = 30.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(poke_interval=poke_interval, **kwargs)
        self.remote = remote
        self.metastore_conn_id = metastore_conn_id
        self.database = database
        self.deferrable = deferrable
        self.kind: str = "table"
        self.partition: str | None = None
        self.where: str | None = None

    def poke(self, context: Context) -> bool:
        from airflow_hive_federation.remotes.probes import happened
        from airflow_hive_federation.remotes.statement import Kind, parse_name

        kind = Kind(self.kind)
        with as_airflow_error(), remotes_of(self.metastore_conn_id, database=self.database) as remotes:
            name = parse_name(kind, self.remote)
            return happened(remotes, kind, name, partition=self.partition, where=self.where)

    def execute(self, context: Context) -> None:
        if not self.deferrable:
            super().execute(context)
            return
        if self.poke(context):
            return
        timeout_s = _seconds(self.timeout)
        self.defer(
            trigger=RemoteTrigger(
                metastore_conn_id=self.metastore_conn_id,
                database=self.database,
                remote=self.remote,
                kind=self.kind,
                partition=self.partition,
                where=self.where,
                poll_s=_seconds(self.poke_interval),
                deadline_s=time.time() + timeout_s,
            ),
            method_name="execute_complete",
            # The trigger ends by itself; this timeout only catches a triggerer that has died.
            timeout=timedelta(seconds=timeout_s + _GRACE_S),
        )

    def execute_complete(self, context: Context, event: dict[str, Any]) -> None:
        """Finish the task after the trigger's event, or raise its error or timeout."""
        if event["state"] == "error":
            raise airflow_error(event["message"], retryable=event["retryable"])
        if event["state"] == "timeout":
            message = f"{self.remote}: it did not happen within {_seconds(self.timeout):g} s."
            raise AirflowSkipException(message) if self.soft_fail else AirflowException(message)


class RemotePartitionSensor(_RemoteSensor):
    """Waits until a partition exists at the remote of a remote table.

    The sensor queries the remote itself, because the link may lack the partition until it is refreshed.

    :param partition: the name of the partition, ``day=2026-01-01/hour=7``. (templated)
    :param where: instead of a name, a condition on partition keys that one partition has to meet, in the
        syntax of Hive's metastore: ``day >= '2026-01-01' AND site = 'a'``. (templated)

    The other parameters are ``remote``, ``metastore_conn_id``, ``database``, ``deferrable``, and those of
    Airflow's sensors.

    :raises ValueError: neither ``partition`` nor ``where`` is given, or both are.
    """

    def __init__(self, *, partition: str | None = None, where: str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if (partition is None) == (where is None):
            raise ValueError("A RemotePartitionSensor needs either partition or where.")
        self.partition = partition
        self.where = where


class RemoteTableChangedSensor(_RemoteSensor):
    """Waits until a remote has changed since the last refresh of its link.

    It detects changes by the remote's events or, if the remote has none, by comparing its definition with the
    link. A ``SyncRemoteOperator`` after this sensor refreshes the link, so that the next run waits for the
    next change.

    :param kind: ``table`` or ``database``. (templated)

    The other parameters are those of :class:`RemotePartitionSensor`.
    """

    def __init__(self, *, kind: Literal["table", "database"] = "table", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.kind = kind


def _seconds(value: Any) -> float:
    return value.total_seconds() if isinstance(value, timedelta) else float(value)
