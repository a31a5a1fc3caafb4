"""Submits the package's Spark jobs through the apache-spark provider's connection.

**Secrets.** Storage options (keys of an object store) reach the driver in an environment variable of
its own process and the tasks inside Spark's serialized closures. They are never on a command line, in a Spark
property (the UI shows those) or on shared storage. A driver in cluster mode starts on another machine, which
environment variables do not reach: there, give the machines the right to the store (an instance or pod role),
and leave the options empty; anything else is refused.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseHook

from airflow_hive_federation.errors import (
    ConfigurationError,
    HiveFederationError,
    JavaNotFoundError,
    SparkJobError,
)
from airflow_hive_federation.hooks.compat import AirflowException

if TYPE_CHECKING:
    from airflow_hive_federation.hooks.pipeline_submit import PipelineSubmitHook
    from airflow_hive_federation.progress.observers import Observer
    from airflow_hive_federation.replication.policy import ReplicationPolicy
    from airflow_hive_federation.spark.runs import JobRun, RunFiles
    from airflow_hive_federation.storage.hadoop_access import HadoopAccess
    from airflow_hive_federation.storage.options import StorageOptions

#: Settings for every master; the caller's and the hook's own conf take precedence.
_CONF = {
    "spark.log.level": "WARN",
    "spark.ui.showConsoleProgress": "false",
}

#: Settings for local masters, where the start takes most of a small job's time.
_LOCAL_CONF = {
    "spark.ui.enabled": "false",
    "spark.sql.catalogImplementation": "in-memory",
}

#: Jobs that work in Python and in the kernel: a quick compiler serves their JVM better than a good one.
_LIGHT_JOBS = frozenset({"copy-files"})
_LIGHT_CONF = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}

#: Java's system property for the path of ``krb5.conf``.
_JAVA_KRB5 = "java.security.krb5.conf"


class SparkPipelineHook(BaseHook):
    """Submits the jobs of ``airflow_hive_federation.spark`` and waits for them.

    :param conn_id: the connection of the apache-spark provider (type ``spark``). If it is ``spark_default``
        and not defined, jobs run on ``local[*]``. (Note that Airflow defines ``spark_default`` as YARN where
        it creates its default connections.)
    :param storage_options: the fsspec options of the stores that jobs read and write; see
        :func:`airflow_hive_federation.storage.filesystem.options_for`.
    :param conf: Spark properties for all jobs of this hook.
    :param env: environment variables for spark-submit, and thus for a driver in client mode.
    :param observer: receives the events of the jobs' progress; by default, they are lines of the task's log.
    """

    conn_name_attr = "conn_id"
    default_conn_name = "spark_default"
    hook_name = "Hive federation on Spark"

    def __init__(
        self,
        conn_id: str = default_conn_name,
        *,
        storage_options: StorageOptions | None = None,
        conf: Mapping[str, str] | None = None,
        env: Mapping[str, str] | None = None,
        observer: Observer | None = None,
    ) -> None:
        super().__init__()
        self.conn_id = conn_id
        self._storage_options = dict(storage_options or {})
        self._conf = dict(conf or {})
        self._env = dict(env or {})
        self._observer = observer
        self._running: PipelineSubmitHook | None = None
        #: The files of the run for which this hook waits, and the id of its submission.
        self._followed: tuple[RunFiles, str] | None = None
        self._killed = False

    def submit(
        self,
        job: str,
        arguments: Sequence[str],
        *,
        report_uri: str,
        name: str | None = None,
        conf: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        """Run a job with spark-submit, write its log to the task's log, and return its result.

        If an earlier call with the same job, arguments and report was killed, and its application still runs,
        the call waits for that application, returns its result, and starts none.

        :param job: a name of :data:`airflow_hive_federation.spark.job.JOBS`.
        :param arguments: the job's command line; no secrets, because process lists show it.
        :param report_uri: the URI of a file for the job's result or error, on storage that the driver shares.
        :param name: the name of the application.
        :param conf: Spark properties for this job; they take precedence over the hook's.
        :raises HiveFederationError: the job raised this error, which keeps its class and facts.
        :raises SparkJobError: the job failed otherwise, was killed, or reported no result.
        :raises SparkRunTakenError: another call has submitted the same job in the meantime.
        :raises ConfigurationError: spark-submit is missing, or the deploy mode is ``cluster`` with storage
            options, or on a standalone cluster.
        :raises JavaNotFoundError: the master is local, and no Java that Spark runs on was found.
        """
        from airflow_hive_federation.spark.runs import RunFiles, new_run, run_key

        files = RunFiles(report_uri, self._storage_options)
        run = new_run(run_key(job, arguments))
        submit_hook, environment = self._prepared(
            job,
            ["--report", report_uri, "--attempt", run.attempt, job, *arguments],
            name=name or f"hive-federation {job}",
            conf={**self._conf, **(conf or {})},
            on_application=lambda known: files.write_application(run, known),
        )
        result = self._settle(files, run.key)
        if result is not None:
            return result
        self._begin(files, run)
        self._running, self._followed = submit_hook, (files, run.attempt)
        try:
            return self._run(submit_hook, environment, files, run.attempt)
        finally:
            self._running = self._followed = None
            files.forget(run.attempt)

    def wait_for_copy(self, dump: str) -> None:
        """Wait for the copy job of an earlier, killed load of a dump, if the job still runs.

        A load calls it before it takes the lock of its target: the lock's fence would end the job.

        :param dump: URI of the dump.
        :raises SparkJobError: :meth:`on_kill` has ended the wait, and the job.
        :raises StorageError: the store of the dump cannot be read.
        """
        from airflow_hive_federation.spark.runs import RunFiles

        report_uri = _report_of_copy(f"{dump}/load/outcomes")
        self._settle(RunFiles(report_uri, self._storage_options), "")

    def copy_runner(self, policy: ReplicationPolicy | None = None) -> Callable[[str, str], None]:
        """Return a function of (URI of a copy plan, URI for the outcomes) that runs the copy job.

        :param policy: the policy that bounds the job's bandwidth, tasks and concurrent files; without it,
            they are unbounded.
        """
        bounds = _copy_bounds(policy) if policy else []

        def run_copy(plan_uri: str, outcomes_uri: str) -> None:
            self.submit(
                "copy-files",
                ["--plan", plan_uri, "--outcomes", outcomes_uri, *bounds],
                report_uri=_report_of_copy(outcomes_uri),
            )

        return run_copy

    def verify_runner(self) -> Callable[[str, str], None]:
        """Return a function of (URI of the plans, URI for the results) that reads both sides of a replica."""

        def run_verify(plan_uri: str, results_uri: str) -> None:
            self.submit(
                "verify-replica",
                ["--plan", plan_uri, "--results", results_uri],
                report_uri=f"{results_uri}/_report.json",
            )

        return run_verify

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

    def _settle(self, files: RunFiles, key: str) -> dict[str, object] | None:
        """Wait for the application of an earlier try; return its result if it did the same job."""
        from airflow_hive_federation.hooks.job_runs import result_of_run, wait_for_run
        from airflow_hive_federation.spark.runs import killed

        run = files.run()
        if run is None:
            return None
        self._followed = (files, run.attempt)
        try:
            wait_for_run(files, run, alive=self._cluster_has, stopped=lambda: self._killed)
        finally:
            self._followed = None
        if self._killed:
            raise killed()
        result = result_of_run(files, run) if run.key == key else None
        if result is not None:
            files.forget(run.attempt)
        return result

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

    def _prepared(
        self, job: str, application_args: Sequence[str], **settings: Any
    ) -> tuple[PipelineSubmitHook, dict[str, str]]:
        """Return the provider's hook for a job, and the environment of its spark-submit."""
        from airflow_hive_federation.spark.package_zip import package_zip
        from airflow_hive_federation.storage.hadoop_access import HadoopAccess

        access = HadoopAccess.of(self._storage_options)
        submit_hook = self._submit_hook(
            access,
            light=job in _LIGHT_JOBS,
            py_files=str(package_zip()),
            application_args=list(application_args),
            **settings,
        )
        self._check_deploy_mode(submit_hook.master, submit_hook.deploy_mode)
        local = submit_hook.master.startswith("local")
        environment = spark_environment(os.environ, self._env, self._storage_options, local=local)
        return submit_hook, environment | java_kerberos(environment, access)

    def _cluster_has(self, application: str) -> bool:
        return self._provider_hook().has(application)

    def _provider_hook(self) -> PipelineSubmitHook:
        # The provider's module takes long to import, and every DAG imports this module.
        from airflow_hive_federation.hooks.pipeline_submit import PipelineSubmitHook

        return PipelineSubmitHook(conn_id=self.conn_id)

    def _submit_hook(
        self, access: HadoopAccess, *, light: bool, conf: Mapping[str, str], **settings: Any
    ) -> PipelineSubmitHook:
        from airflow_hive_federation.hooks.pipeline_submit import PipelineSubmitHook

        master = self._provider_hook().master
        local = master.startswith("local")
        defaults = {
            **_CONF,
            **kerberos_properties(master, access),
            **(_LOCAL_CONF if local else {}),
            **(_LIGHT_CONF if local and light else {}),
        }
        return PipelineSubmitHook(
            conn_id=self.conn_id, observer=self._observer, conf={**defaults, **conf}, **settings
        )

    def _check_deploy_mode(self, master: str, deploy_mode: str | None) -> None:
        if deploy_mode == "cluster" and self._storage_options:
            raise ConfigurationError(
                f"Connection {self.conn_id} has deploy mode cluster, where storage options cannot be handed "
                f"to the driver in secret.",
                remedy="Give the cluster's machines the right to the store and remove the storage options, "
                "or use deploy mode client.",
                conn_id=self.conn_id,
            )
        if deploy_mode == "cluster" and master.startswith("spark://"):
            raise ConfigurationError(
                f"Connection {self.conn_id} has deploy mode cluster, in which a standalone cluster of Spark "
                f"runs no Python applications; {master} is one.",
                remedy="Use deploy mode client.",
                conn_id=self.conn_id,
            )

    def _run(
        self, submit_hook: PipelineSubmitHook, environment: Mapping[str, str], files: RunFiles, attempt: str
    ) -> dict[str, Any]:
        from airflow_hive_federation.spark.package_zip import main_file

        if self._killed:
            raise SparkJobError("The Spark job was killed before it began.")
        failed: AirflowException | None = None
        try:
            submit_hook.submit(str(main_file()), env=dict(environment))
        except AirflowException as error:
            failed = error
        except FileNotFoundError as error:
            raise ConfigurationError(
                f"spark-submit cannot be started: {error}.",
                remedy="Install pyspark beside Airflow, or put the spark-submit of your Spark on the PATH.",
            ) from error
        return self._result(submit_hook, failed, files, attempt)

    def _result(
        self,
        submit_hook: PipelineSubmitHook,
        failed: AirflowException | None,
        files: RunFiles,
        attempt: str,
    ) -> dict[str, object]:
        from airflow_hive_federation.spark.failures import read_report
        from airflow_hive_federation.spark.runs import killed

        report = files.report_of(attempt)
        # A Python driver outlives its killed JVM for a moment, and may report the lost connection to it.
        if self._killed and (report is None or b'"result"' not in report):
            raise killed()
        if report is not None:
            return read_report(report)
        raise self._unreported(submit_hook, failed, files, attempt) from failed

    def _unreported(
        self,
        submit_hook: PipelineSubmitHook,
        failed: AirflowException | None,
        files: RunFiles,
        attempt: str,
    ) -> SparkJobError:
        from airflow_hive_federation.spark.runs import taken

        run = files.run()
        if run is not None and run.attempt != attempt:
            return taken(files.report, attempt)
        return SparkJobError(
            "spark-submit failed: " + "\n".join(submit_hook.tail)
            if failed
            else "The Spark job reported no result.",
            remedy="Look further up in the task's log.",
        )


def _report_of_copy(outcomes_uri: str) -> str:
    return f"{outcomes_uri}/_report.json"


def spark_environment(
    environ: Mapping[str, str],
    extra: Mapping[str, str],
    storage_options: StorageOptions,
    *,
    local: bool,
) -> dict[str, str]:
    """Return the environment of spark-submit.

    It adds, where missing: the folder of this Python's scripts at the end of PATH (pip puts spark-submit
    there, and a service's PATH often lacks it); this Python for a driver in client mode, and on local masters
    also for tasks; a Java that Spark runs on; and for local masters the loopback address. It omits
    connections, variables and settings of Airflow, which no job needs.

    :param environ: the environment of this process.
    :param extra: variables that take precedence over all others.
    :param storage_options: storage options, which become the JSON value of one variable.
    :param local: true if the master is local.
    :raises JavaNotFoundError: the master is local, and no Java was found.
    :raises SparkEnvironmentError: the installed pyspark mixes files of two versions.
    """
    from airflow_hive_federation.runtime.environment import without_secrets
    from airflow_hive_federation.runtime.installed_spark import (
        installed_spark,
        pyspark_home,
        refuse_mixed_pyspark,
    )
    from airflow_hive_federation.spark.job import OPTIONS_VARIABLE

    scripts = str(Path(sys.executable).parent)
    made = {**without_secrets(environ), **extra}
    made["PATH"] = os.pathsep.join([*filter(None, [made.get("PATH")]), scripts])
    made.setdefault("PYSPARK_DRIVER_PYTHON", made.get("PYSPARK_PYTHON", sys.executable))
    if local:
        made.setdefault("PYSPARK_PYTHON", sys.executable)
        made.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        # The launcher is a separate JVM that lives for half a second.
        made.setdefault("SPARK_LAUNCHER_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    if "SPARK_HOME" not in made and (home := pyspark_home()):
        refuse_mixed_pyspark(installed_spark())
        made["SPARK_HOME"] = home
    if "JAVA_HOME" not in extra and (java_home := _java_home(made, needed=local)):
        made["JAVA_HOME"] = java_home
    if storage_options:
        made[OPTIONS_VARIABLE] = json.dumps(storage_options)
    return made


def java_kerberos(environ: Mapping[str, str], access: HadoopAccess) -> dict[str, str]:
    """Return the variables by which spark-submit's JVM finds the realm, the tickets and Hadoop's files.

    Kerberos' library in Python and Java's own read the same files, but not the same variables.

    :param environ: the environment of spark-submit.
    :param access: the HDFS part of the storage options.
    """
    made: dict[str, str] = {}
    caches = [login.cache for login in access.logins if login.cache]
    if cache := (caches[0] if len(access.logins) == 1 and caches else environ.get("KRB5CCNAME")):
        # Java takes the value as a path; for the library, a path without a type is a file, too.
        made["KRB5CCNAME"] = cache.removeprefix("FILE:")
    if access.config_dir and "HADOOP_CONF_DIR" not in environ:
        made["HADOOP_CONF_DIR"] = access.config_dir
    options = environ.get("SPARK_SUBMIT_OPTS", "")
    files = [path for path in environ.get("KRB5_CONFIG", "").split(os.pathsep) if path]
    if files and _JAVA_KRB5 not in options:
        # Java reads one file only.
        made["SPARK_SUBMIT_OPTS"] = f'{options} "-D{_JAVA_KRB5}={files[0]}"'.strip()
    return made


def kerberos_properties(master: str, access: HadoopAccess) -> dict[str, str]:
    """Return the Spark properties by which YARN and Kubernetes hand delegation tokens to executors.

    A driver on a local master logs in by itself, with an error that names the remedy. The properties, which a
    command line shows, hold the path of the keytab and no key.
    """
    if not master.startswith(("yarn", "k8s://")) or len(access.logins) != 1:
        return {}
    login = access.logins[0]
    if not (login.principal and login.keytab):
        return {}
    made = {"spark.kerberos.principal": login.principal, "spark.kerberos.keytab": login.keytab}
    if access.stores:
        made["spark.kerberos.access.hadoopFileSystems"] = ",".join(access.stores)
    return made


def _java_home(environ: Mapping[str, str], *, needed: bool) -> str | None:
    from airflow_hive_federation.runtime.java import spark_java_home

    try:
        return str(spark_java_home(environ))
    except JavaNotFoundError:
        # The launcher scripts of a cluster may know a Java that this process does not know.
        if needed:
            raise
        return None


def _copy_bounds(policy: ReplicationPolicy) -> list[str]:
    bounds = {
        "--bandwidth": policy.bandwidth_bytes_per_s,
        "--parallel": policy.parallel_copies,
        "--max-tasks": policy.max_load_tasks,
        "--preserve": policy.preserve,
    }
    roots = [part for root in policy.sources.roots for part in ("--source-root", root)]
    leniently = [] if policy.preserve_strictly else ["--preserve-leniently"]
    arguments = [part for name, bound in bounds.items() if bound for part in (name, str(bound))]
    return [*arguments, *leniently, *roots]
