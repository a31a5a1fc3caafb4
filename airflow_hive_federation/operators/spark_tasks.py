"""Provides the base of the operators that submit Spark jobs, and may leave their worker meanwhile."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow_hive_federation.errors import HiveFederationError
from airflow_hive_federation.hooks.compat import AirflowException
from airflow_hive_federation.hooks.departures import AwaitedJob, JobDeparture
from airflow_hive_federation.hooks.error_translation import airflow_error, as_airflow_error
from airflow_hive_federation.hooks.metastore import HiveMetastoreHook
from airflow_hive_federation.hooks.probes import JobProbe, ProbeAnswer
from airflow_hive_federation.hooks.spark import SparkPipelineHook
from airflow_hive_federation.operators.results import ResultOperator
from airflow_hive_federation.runtime.arguments import flag
from airflow_hive_federation.triggers.waiting import ProbeTrigger
from airflow_hive_federation.waiting import PATIENCE_S, PollPolicy

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_hive_federation.storage.options import StorageOptions

#: The pauses between two looks of the triggerer at a job, which writes a new number every five seconds.
_POLL = PollPolicy(first_s=1.0, longest_s=15.0, patience_s=PATIENCE_S)
#: Seconds by which the deferral outlives the trigger's deadline: it only catches a triggerer that has died.
_GRACE_S = 600.0


class SparkOperator(ResultOperator):
    """Base of the operators that submit Spark jobs for both ends of a replication.

    A deferrable task ends its process while a job works, and is executed anew, from its beginning, when the
    job has ended: as a task whose worker was killed, which finds the result of its job.

    :param spark_conn_id: the connection of the apache-spark provider. (templated)
    :param deferrable: leave the worker slot while a job works on a cluster, which needs deploy mode
        ``cluster``; by default if Airflow's ``[operators] default_deferrable`` is set, and the task can.
    """

    source_conn_id: str
    target_conn_id: str
    spark_conn_id: str

    def __init__(self, *, deferrable: bool | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.deferrable = None if deferrable is None else flag("deferrable", deferrable)
        self._spark: SparkPipelineHook | None = None
        self._killed = False
        self._awaited: tuple[AwaitedJob, ...] = ()
        self._borrowed: tuple[tuple[str, int], ...] = ()
        self._deadline_s: float | None = None
        #: The web page of the application for which the task has left its worker.
        self.application_url = ""
        #: The progress with which the task has left its worker, as values of JSON.
        self._progress: dict[str, object] = {}

    def on_kill(self) -> None:
        """Stop the Spark job, also if the task has not begun to submit it."""
        self._killed = True
        if self._spark:
            self._spark.on_kill()

    def spark_hook(
        self,
        options: StorageOptions | None,
        conf: Mapping[str, str] | None = None,
    ) -> SparkPipelineHook:
        """Return the Spark hook, whose job :meth:`on_kill` stops.

        :param conf: Spark properties of the jobs.
        """
        hook = SparkPipelineHook(self.spark_conn_id, storage_options=options, conf=conf)
        hook.depart(self.deferrable, self._awaited)
        self._spark = hook
        if self._killed:
            hook.on_kill()
        return hook

    @contextmanager
    def leaving(self) -> Iterator[None]:
        """Turn errors into Airflow's, and defer the task while a job of the block works on its cluster.

        :raises TaskDeferred: the task is deferred.
        """
        departed = False
        with as_airflow_error():
            try:
                yield
            except JobDeparture as left:
                departed = True
                self._leave(left)
            finally:
                if not departed:
                    self._give_back()
                    if self._spark:
                        self._spark.arrive()

    def execute_complete(
        self, context: Context, event: dict[str, object], left: Mapping[str, Any]
    ) -> dict[str, object]:
        """Execute the task anew, which finds the result of its job; the trigger resumes the task here.

        A task that another version of the package left or resumes finds its job as the next try would.

        :param left: the values with which the task has left its worker.
        """
        if "error" in event:
            # The job may still be at work: the next try finds it.
            raise airflow_error(str(event["error"]), retryable=bool(event.get("retryable", True)))
        try:
            self._borrowed = tuple((str(conn_id), int(txn_id)) for conn_id, txn_id in left["borrowed"])
            self._deadline_s = left["deadline_s"]
            answer, probe = ProbeAnswer.from_json(event), JobProbe(**left["probe"])
            awaited = tuple(AwaitedJob(**job) for job in left["awaited"])
            self._progress = left["progress"]
            self.application_url = str(left["application_url"])
        except (LookupError, TypeError, ValueError) as error:
            self.log.warning("The task begins anew, because another version ended its wait: %r", error)
            return self.execute(context)
        self._awaited = awaited
        if not answer.ready:
            with as_airflow_error():
                probe.stop()
                self._give_back()
            raise AirflowException(
                f"The Spark job did not end within the task's execution_timeout of {self.execution_timeout}."
            )
        return self.execute(context)

    def _leave(self, left: JobDeparture) -> None:
        """Defer the task until the job has ended."""
        # The leases of the block have taken the place of the earlier ones.
        self._give_back()
        if self._deadline_s is None and self.execution_timeout is not None:
            self._deadline_s = time.time() + self.execution_timeout.total_seconds()
        ends = [HiveMetastoreHook(conn_id) for conn_id in (self.source_conn_id, self.target_conn_id)]
        probe = JobProbe(
            report=left.job.report,
            attempt=left.job.attempt,
            spark_conn_id=self.spark_conn_id,
            metastore_conn_ids=[end.metastore_conn_id for end in ends],
            leases=_named(left.leases, ends),
        )
        others = [job for job in self._awaited if job.report != left.job.report]
        values = {
            "probe": probe.to_json(),
            "awaited": [asdict(job) for job in (*others, left.job)],
            "borrowed": _named(left.borrowed, ends),
            "deadline_s": self._deadline_s,
            "progress": left.progress,
            "application_url": self._spark.application_url if self._spark else "",
        }
        if left.progress and self._spark:
            # The task does not ask again for the results that it has used.
            self._spark.arrive()
        timeout_s = None if self._deadline_s is None else max(0.0, self._deadline_s - time.time())
        self.defer(
            trigger=ProbeTrigger(
                kind=probe.kind,
                probe=probe.to_json(),
                poll=asdict(replace(_POLL, timeout_s=None)),
                deadline_s=self._deadline_s,
            ),
            method_name="execute_complete",
            kwargs={"left": values},
            timeout=None if timeout_s is None else timedelta(seconds=timeout_s + _GRACE_S),
        )

    def _give_back(self) -> None:
        """End the read transactions that the triggerer has kept."""
        from airflow_hive_federation.transactions.lease import end_lease

        for conn_id, txn_id in self._borrowed:
            try:
                with HiveMetastoreHook(conn_id).pool(1) as pool:
                    end_lease(pool, txn_id)
            except HiveFederationError as error:
                # It ends by its timeout.
                self.log.warning("Read transaction %d of %s was not ended: %s", txn_id, conn_id, error)
        self._borrowed = ()


def run_name(context: Context) -> str:
    """Return a name of the task instance, the same for all its tries; empty without a task instance."""
    ti: Any = context.get("ti")
    if ti is None:
        return ""
    of = [str(getattr(ti, name, "")) for name in ("dag_id", "run_id", "task_id", "map_index")]
    return f"task-{hashlib.sha256(json.dumps(of).encode()).hexdigest()[:16]}"


def _named(
    leases: Sequence[tuple[tuple[str, ...], int]], ends: Sequence[HiveMetastoreHook]
) -> list[tuple[str, int]]:
    """Return leases with the ids of their metastores' connections."""
    conn_ids = {end.settings.uris: end.metastore_conn_id for end in ends}
    return [(conn_ids[uris], txn_id) for uris, txn_id in leases]
