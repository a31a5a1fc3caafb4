"""Adds a default master to the provider's spark-submit hook."""

from __future__ import annotations

from typing import Any

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.sdk import Connection

from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.hooks.compat import AirflowNotFoundException

#: The master if the default connection is not defined.
DEFAULT_MASTER = "local[*]"


class PipelineSubmitHook(SparkSubmitHook):
    """Runs spark-submit once."""

    @classmethod
    def get_connection(cls, conn_id: str) -> Any:
        """Return the connection, or a local one if it is the default connection and not defined.

        :raises ConfigurationError: another connection is not defined. (The provider would take YARN.)
        """
        try:
            return super().get_connection(conn_id)
        except AirflowNotFoundException:
            if conn_id != cls.default_conn_name:
                raise ConfigurationError(
                    f"Connection {conn_id} is not defined.",
                    remedy="Define it with type spark, or leave it out to run on this machine.",
                    conn_id=conn_id,
                ) from None
            return Connection(conn_id=conn_id, conn_type="spark", host=DEFAULT_MASTER)

    def submit(self, application: str = "", **kwargs: Any) -> str | None:
        """Run spark-submit to its end, and close the pipe of its log, which the provider leaves open."""
        try:
            return super().submit(application, **kwargs)
        finally:
            if self._submit_sp is not None and self._submit_sp.stdout is not None:
                self._submit_sp.stdout.close()

    @property
    def master(self) -> str:
        """Spark's master URL."""
        return str(self._connection["master"])

    @property
    def deploy_mode(self) -> str | None:
        """The deploy mode ``client`` or ``cluster``; ``None`` for Spark's default, client."""
        mode = self._connection["deploy_mode"]
        return str(mode) if mode else None
