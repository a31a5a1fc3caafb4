"""Follows the jobs of a Spark hook: waits for them, kills them, takes their results, and leaves them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from airflow.sdk import BaseHook

from airflow_hive_federation.errors import ConfigurationError, HiveFederationError, SparkJobError
from airflow_hive_federation.hooks.compat import AirflowException, default_deferrable
from airflow_hive_federation.hooks.departures import AwaitedJob, JobDeparture
from airflow_hive_federation.waiting import Departure

if TYPE_CHECKING:
    from airflow_hive_federation.hooks.pipeline_submit import PipelineSubmitHook
    from airflow_hive_federation.spark.runs import JobRun, RunFiles
    from airflow_hive_federation.storage.options import StorageOptions


class JobFollower(BaseHook):
    """Base of the hook that submits jobs: it knows the jobs of this process, and those of earlier tries."""

    conn_id: str
    _storage_options: StorageOptions

    def __init__(self) -> None:
        super().__init__()
        self._running: PipelineSubmitHook | None = None
        #: The files of the run for which this hook waits, and the id of its submission.
        self._followed: tuple[RunFiles, str] | None = None
        self._killed = False
        #: The web page of the last application; empty if it is not known.
        self.application_url = ""
        self._departs = False
        #: The jobs for which this try has left its worker, and which are over, by URI of the report.
        self._awaited: dict[str, AwaitedJob] = {}
        #: Files of runs whose results the rest of the task may need once more.
        self._taken: list[tuple[RunFiles, str]] = []

    @abstractmethod
    def _provider_hook(self) -> PipelineSubmitHook:
        """Return the provider's hook of the connection."""

    def depart(self, deferrable: bool | None, awaited: Iterable[AwaitedJob] = ()) -> None:
        """Leave the worker by a :class:`JobDeparture` while a job works on the cluster, if that can be.

        :param deferrable: the task is to leave; ``None`` leaves if the connection's deploy mode is cluster,
            and Airflow's ``[operators] default_deferrable`` is set.
        :param awaited: the jobs for which this try has left before, and which are over now.
        :raises ConfigurationError: the task is to leave, and the driver is a child of the worker.
        """
        self._awaited = {job.report: job for job in awaited}
        if deferrable is False or (deferrable is None and not default_deferrable()):
            return
        # In client mode, the driver is a child of this process.
        self._departs = self._provider_hook().deploy_mode == "cluster"
        if deferrable and not self._departs:
            raise ConfigurationError(
                f"Connection {self.conn_id} has deploy mode client: Spark's driver runs in the worker, which "
                f"a deferrable task leaves.",
                remedy="Set deploy-mode cluster in the connection, or leave deferrable out.",
                conn_id=self.conn_id,
            )

    def arrive(self) -> None:
        """Remove the files of the runs whose results the task has used; the task is over."""
        for files, attempt in self._taken:
            try:
                files.forget(attempt)
            except HiveFederationError as error:
                self.log.warning("The files of the run of %s were not removed: %s", files.report, error)
        self._taken.clear()

    def on_kill(self) -> None:
        """Kill the running job, also on the cluster, or the job of an earlier try that the hook waits for."""
        self._killed = True
        running, followed = self._running, self._followed
        if running is not None:
            running.on_kill()
        if followed is not None and (running is None or running.deploy_mode == "cluster"):
            # The job reads the file of its run every few seconds, wherever its driver is.
            files, attempt = followed
            try:
                files.stop(attempt)
            except HiveFederationError as error:
                self.log.warning("The request to end the Spark job was not written: %s", error)

    @contextmanager
    def _following(
        self, files: RunFiles, attempt: str, running: PipelineSubmitHook | None = None
    ) -> Iterator[None]:
        """Let a kill reach the job of a submission while the block waits for it.

        A timeout of the task is a kill, too. It passes through the block before Airflow calls ``on_kill``.

        :param running: the hook that has started the job, if this process has.
        """
        self._running, self._followed = running, (files, attempt)
        try:
            yield
        except BaseException as error:
            if not isinstance(error, Exception | Departure):
                self.on_kill()
            raise
        finally:
            if running is not None:
                self.application_url = running.application_url or self.application_url
            self._running = self._followed = None

    def _note_application(self, files: RunFiles, run: JobRun, application: str) -> None:
        """Write down the cluster's id of the application; without it, the files of the run decide."""
        try:
            files.write_application(run, application)
        except HiveFederationError as error:
            # If this raised an error, nobody would read on what spark-submit writes.
            self.log.warning("The id of application %s is not written down: %s", application, error)

    def _settle(
        self, files: RunFiles, key: str, holds: Callable[[dict[str, object], bool], bool] = lambda *_: True
    ) -> dict[str, object] | None:
        """Wait for the application of an earlier try; return its result if it did the same job and holds."""
        from airflow_hive_federation.hooks.job_runs import result_of_run
        from airflow_hive_federation.spark.runs import killed

        run = files.run()
        if run is None:
            return None
        awaited = self._awaited.get(files.report)
        if awaited is None or awaited.attempt != run.attempt:
            awaited = None
            self._wait_for_earlier(files, run)
        if self._killed:
            raise killed()
        if run.key != key:
            return None
        own = awaited is not None and awaited.own
        result = self._result(None, None, files, run.attempt) if own else result_of_run(files, run)
        if result is None or not holds(result, own):
            return None
        if self._departs:
            self._taken.append((files, run.attempt))
        else:
            files.forget(run.attempt)
        return result

    def _wait_for_earlier(self, files: RunFiles, run: JobRun) -> None:
        from airflow_hive_federation.hooks.job_runs import RunOver, wait_for_run
        from airflow_hive_federation.spark.runs import JobState

        if self._leaves(files.report):
            look = RunOver(files, run.attempt, alive=self._cluster_has)
            if look.state(run.application) is not JobState.ENDED:
                raise JobDeparture(AwaitedJob(report=files.report, attempt=run.attempt, own=False))
            return
        with self._following(files, run.attempt):
            wait_for_run(files, run, alive=self._cluster_has, stopped=lambda: self._killed)

    def _cluster_has(self, application: str) -> bool | None:
        return self._provider_hook().has(application)

    def _leaves(self, report: str) -> bool:
        """Return whether a submission leaves the worker: once per report, so that each return moves on."""
        awaited = self._awaited.get(report)
        return self._departs and not (awaited is not None and awaited.own)

    def _begin(self, files: RunFiles, run: JobRun) -> None:
        """Give the run to this call's submission, and wait for a job that has claimed the run before."""
        from airflow_hive_federation.hooks.job_runs import wait_for_run
        from airflow_hive_federation.storage.publishing import remove_file

        earlier = files.run()
        # The report of an earlier run would be taken for the report of this one.
        remove_file(files.report, self._storage_options)
        files.write_run(run)
        if earlier is not None:
            wait_for_run(files, earlier)
            files.forget_job(earlier.attempt)

    def _result(
        self,
        submit_hook: PipelineSubmitHook | None,
        failed: AirflowException | None,
        files: RunFiles,
        attempt: str,
    ) -> dict[str, object]:
        from airflow_hive_federation.spark.failures import has_lost_spark, read_report
        from airflow_hive_federation.spark.runs import killed

        report = files.report_of(attempt)
        # A Python driver outlives its killed JVM for a moment, and may report the lost connection to it.
        if self._killed and (report is None or b'"result"' not in report):
            raise killed()
        if report is not None:
            try:
                return read_report(report)
            except SparkJobError as error:
                if has_lost_spark(error):
                    self._explain(error, submit_hook, failed, files)
                raise
        raise self._unreported(submit_hook, failed, files, attempt) from failed

    def _explain(
        self,
        error: SparkJobError,
        submit_hook: PipelineSubmitHook | None,
        failed: AirflowException | None,
        files: RunFiles,
    ) -> None:
        """Explain why Spark has ended under a job: by the cluster's reason, else by the end of its log."""
        if refused := self._refused(submit_hook, failed, files.run()):
            raise refused from error
        # A JVM that has ended gives Python no cause; its log has it.
        if submit_hook and (last := submit_hook.last_error):
            error.message = f"{error.message.rstrip('.')}. Its log ends with: {last}"

    def _refused(
        self, submit_hook: PipelineSubmitHook | None, failed: AirflowException | None, run: JobRun | None
    ) -> SparkJobError | None:
        if submit_hook and failed and (refused := submit_hook.refusal):
            return refused
        # Spark itself only knows that the application has failed; YARN knows the cause.
        return self._provider_hook().refusal_of(run.application) if run is not None else None

    def _unreported(
        self,
        submit_hook: PipelineSubmitHook | None,
        failed: AirflowException | None,
        files: RunFiles,
        attempt: str,
    ) -> SparkJobError:
        from airflow_hive_federation.spark.runs import taken

        run = files.run()
        if (run is not None and run.attempt != attempt) or files.overwritten(attempt):
            return taken(files.report, attempt)
        if refused := self._refused(submit_hook, failed, run):
            return refused
        return SparkJobError(
            "spark-submit failed: " + (submit_hook.last_error or "\n".join(submit_hook.tail))
            if failed and submit_hook
            else "The Spark job reported no result.",
            remedy="Look further up in the task's log."
            if submit_hook and not submit_hook.application
            else "Look at the log of the application's driver on the cluster.",
        )
