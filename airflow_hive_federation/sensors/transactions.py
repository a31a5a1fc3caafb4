"""Waits in an Airflow sensor for the open transactions that a bootstrap has to wait for."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseSensorOperator

from airflow_hive_federation.hooks.error_translation import airflow_error, as_airflow_error
from airflow_hive_federation.hooks.metastore import HiveMetastoreHook
from airflow_hive_federation.replication.policy import duration_s
from airflow_hive_federation.triggers.transactions import OpenTransactionsDrainTrigger

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_hive_federation.metastore import MetastoreClient
    from airflow_hive_federation.replication.dump.drain import DrainStart

#: Seconds by which the deferral outlives the trigger's own deadline.
_GRACE_S = 600.0


class OpenTransactionsDrainSensor(BaseSensorOperator):
    """Records the source's last event id, then waits until the transactions open at that moment have ended.

    Only transactions count that hold write ids of the database's tables or write locks in the database. Those
    still open after the timeout are aborted; transactions that begin later, and those of other databases,
    stay untouched. The sensor notices the end of a transaction within two seconds.

    Returns ``{"database", "event_id", "transactions", "moment_ms", "aborted"}``, which
    :class:`BootstrapDumpOperator` takes.

    :param source_conn_id: the connection of the source's metastore. (templated)
    :param database: the database to be dumped. (templated)
    :param open_txn_timeout: the time to wait before aborting: seconds, or text in Hive's form (``1h``)
        (``hive.repl.bootstrap.dump.open.txn.timeout``). (templated)
    :param deferrable: wait in the triggerer instead of a worker slot.

    Of the parameters of Airflow's sensors, ``poke_interval``, ``timeout``, ``mode`` and ``soft_fail`` have no
    effect: this sensor has its own interval, and its own action at the timeout.
    """

    template_fields: Sequence[str] = ("source_conn_id", "database", "open_txn_timeout")
    ui_color = "#e8f0d8"

    def __init__(
        self,
        *,
        source_conn_id: str,
        database: str,
        open_txn_timeout: float | str = "1h",
        deferrable: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.source_conn_id = source_conn_id
        self.database = database
        self.open_txn_timeout = open_txn_timeout
        self.deferrable = deferrable

    def execute(self, context: Context) -> dict[str, Any]:
        with as_airflow_error(), HiveMetastoreHook(self.source_conn_id).client() as client:
            return self._wait(client)

    def execute_complete(self, context: Context, event: dict[str, Any]) -> dict[str, Any]:
        """Abort the transactions still open; the trigger resumes the task here."""
        from airflow_hive_federation.replication.dump.drain import DrainStart, abort_remaining

        if event["state"] == "error":
            raise airflow_error(event["message"], retryable=event["retryable"])
        start = DrainStart.from_json(event["start"])
        with as_airflow_error(), HiveMetastoreHook(self.source_conn_id).client() as client:
            aborted = abort_remaining(client, start)
        return self._result(start, aborted)

    def _wait(self, client: MetastoreClient) -> dict[str, Any]:
        from airflow_hive_federation.replication.dump.drain import begin_drain, drain

        # Rendered templates are text, and "None" if a parameter is left empty.
        timeout = str(self.open_txn_timeout).strip()
        timeout_s = duration_s("1h" if timeout in {"", "None"} else timeout)
        start = begin_drain(client, str(self.database).lower())
        self.log.info(
            "%s: event %d; %d transaction(s) to wait for: %s",
            start.database,
            start.event_id,
            len(start.transactions),
            _listed(start.transactions),
        )
        if start.transactions and self.deferrable:
            self.defer(
                trigger=OpenTransactionsDrainTrigger(
                    source_conn_id=self.source_conn_id,
                    start=start.to_json(),
                    deadline_s=time.time() + timeout_s,
                ),
                method_name="execute_complete",
                # The trigger ends by itself; this timeout only catches a triggerer that has died.
                timeout=timedelta(seconds=timeout_s + _GRACE_S),
            )
        aborted = drain(
            client,
            start,
            timeout_s=timeout_s,
            on_wait=lambda ids: self.log.info("Still open: %s", _listed(ids)),
        )
        return self._result(start, aborted)

    def _result(self, start: DrainStart, aborted: Sequence[int]) -> dict[str, Any]:
        if aborted:
            self.log.warning("Aborted after the timeout: %s", _listed(aborted))
        else:
            self.log.info("%s: all transactions have ended.", start.database)
        return {**start.to_json(), "aborted": list(aborted)}


def _listed(ids: Sequence[int]) -> str:
    return ", ".join(map(str, ids)) or "none"
