"""Submits the package's Spark jobs through the apache-spark provider's connection.

**Secrets.** Storage options (keys of an object store) reach the driver in an environment variable of
its own process and the tasks inside Spark's serialized closures. They are never on a command line, in a Spark
property (the UI shows those) or on shared storage. A driver in cluster mode starts on another machine, which
this variable does not reach. There, the command line of the job has HDFS's settings, and YARN and Kubernetes
hand out delegation tokens of HDFS. On Kubernetes, a secret of the cluster may hold the options. Otherwise,
give the machines the right to other stores (an instance or pod role), and leave the options empty; anything
else is refused.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_hive_federation.errors import (
    ConfigurationError,
    JavaNotFoundError,
    SparkJobError,
)
from airflow_hive_federation.hooks.compat import AirflowException
from airflow_hive_federation.hooks.departures import AwaitedJob, JobDeparture
from airflow_hive_federation.hooks.job_following import JobFollower
from airflow_hive_federation.hooks.job_runners import JobRunners
from airflow_hive_federation.hooks.standalone import (
    RUNNER,
    archive_uri,
    driver_arguments,
    driver_conf,
    driver_environment,
    starts_drivers,
)
from airflow_hive_federation.waiting import Departure

if TYPE_CHECKING:
    from airflow_hive_federation.hooks.pipeline_submit import PipelineSubmitHook
    from airflow_hive_federation.metastore import MetastorePool
    from airflow_hive_federation.progress.observers import Observer
    from airflow_hive_federation.spark.runs import JobRun, RunFiles
    from airflow_hive_federation.storage.hadoop_access import HadoopAccess
    from airflow_hive_federation.storage.options import StorageOptions

#: Settings for every master; the caller's and the hook's own conf take precedence.
_CONF = {
    "spark.log.level": "WARN",
    "spark.ui.showConsoleProgress": "false",
    # YARN would start a failed driver again; only the task knows whether to try again.
    "spark.yarn.maxAppAttempts": "1",
}

#: Settings for local masters, where the start takes most of a small job's time.
_LOCAL_CONF = {
    "spark.ui.enabled": "false",
    "spark.sql.catalogImplementation": "in-memory",
}

#: Jobs that work in Python and in the kernel: a quick compiler serves their JVM better than a good one.
_LIGHT_JOBS = frozenset({"copy-files"})
_LIGHT_CONF = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}

#: Settings by which spark-submit ends when the cluster has taken the application.
_LEAVING_CONF = {
    "spark.yarn.submit.waitAppCompletion": "false",
    "spark.kubernetes.submission.waitAppCompletion": "false",
}

#: The property that names the secret of Kubernetes, and its key, with the storage options of a driver.
OPTIONS_PROPERTY = "spark.kubernetes.driver.secretKeyRef.HIVE_FEDERATION_STORAGE_OPTIONS"
#: The program in the image of deploy/spark.Dockerfile, which also has this package.
_PROGRAM_OF_IMAGE = "local:///opt/hive-federation/spark/main.py"
#: The property with the store to which spark-submit uploads files for Kubernetes.
_UPLOADS = "spark.kubernetes.file.upload.path"

#: Java's system property for the path of ``krb5.conf``.
_JAVA_KRB5 = "java.security.krb5.conf"


class SparkPipelineHook(JobRunners, JobFollower):
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

    def submit(
        self,
        job: str,
        arguments: Sequence[str],
        *,
        report_uri: str,
        name: str | None = None,
        conf: Mapping[str, str] | None = None,
        key: str = "",
        holds: Callable[[dict[str, object], bool], bool] = lambda *_: True,
    ) -> dict[str, Any]:
        """Run a job with spark-submit, write its log to the task's log, and return its result.

        If an earlier call with the same job, arguments and report was killed, and its application still runs,
        the call waits for that application, returns its result, and starts none if the result holds.

        :param job: a name of :data:`airflow_hive_federation.spark.job.JOBS`.
        :param arguments: the job's command line; no secrets, because process lists show it.
        :param report_uri: the URI of a file for the job's result or error, on storage that the driver shares.
        :param name: the name of the application.
        :param conf: Spark properties for this job; they take precedence over the hook's.
        :param key: identifies the work of the job, in place of its arguments.
        :param holds: returns whether a result still holds, given the result, and whether this try has
            submitted the application; that of an earlier try may be days old.
        :raises JobDeparture: after :meth:`depart`, and no error: the job works on its cluster.
        :raises HiveFederationError: the job raised this error, which keeps its class and facts.
        :raises SparkJobError: the job failed otherwise, was killed, or reported no result.
        :raises SparkRunTakenError: another call has submitted the same job in the meantime.
        :raises ConfigurationError: spark-submit is missing, or the deploy mode is ``cluster``, and storage
            options cannot reach the driver in secret.
        :raises JavaNotFoundError: the master is local, and no Java that Spark runs on was found.
        """
        from airflow_hive_federation.spark.runs import RunFiles, new_run, run_key

        files = RunFiles(report_uri, self._storage_options)
        run = new_run(run_key(job, [key] if key else arguments))
        departs = self._leaves(report_uri)
        properties = {**self._conf, **(conf or {})}
        standalone = starts_drivers(self._provider_hook())
        runner = driver_arguments(files.package(run.attempt)) if standalone else []
        submit_hook, environment = self._prepared(
            job,
            [*runner, "--report", report_uri, "--attempt", run.attempt],
            [job, *arguments],
            name=name or f"hive-federation {job}",
            conf=properties,
            departs=departs,
            on_application=lambda known: self._note_application(files, run, known),
        )
        result = self._settle(files, run.key, holds)
        if result is not None:
            return result
        self._begin(files, run)
        departed = False
        try:
            with self._following(files, run.attempt, submit_hook):
                program = self._archive(files, run) if standalone else self._program(properties)
                return self._run(submit_hook, program, environment, files, run.attempt, departs=departs)
        except Departure:
            departed = True
            raise
        finally:
            if not departed:
                files.forget(run.attempt)

    def runs_here(self) -> bool:
        """Return whether the jobs run on this machine: the connection's master is a local one."""
        return self._provider_hook().master.startswith("local")

    def check_killed(self) -> None:
        """Check that nobody has killed the task.

        :raises SparkJobError: :meth:`on_kill` was called.
        """
        if self._killed:
            raise SparkJobError(
                "The task was killed.",
                remedy="Run it again: it goes on from there, and copies no file twice.",
            )

    def observer(self) -> Observer:
        """Return the caller's observer of progress, or one that writes lines of the task's log."""
        from airflow_hive_federation.hooks.progress import task_observer
        from airflow_hive_federation.progress.observers import spaced

        return self._observer or spaced(task_observer(self.log))

    def wait_for_copy(self, dump: str, source: MetastorePool) -> None:
        """Wait for the copy job of an earlier, killed load of a dump, if the job still runs.

        A load calls it before it takes the lock of its target: the lock's fence would end the job.

        :param dump: URI of the dump.
        :param source: connections to the dump's source, whose cleaner leaves the files meanwhile.
        :raises SparkJobError: :meth:`on_kill` has ended the wait, and the job.
        :raises DumpIncompleteError: the dump is not finished.
        :raises StorageError: the store of the dump cannot be read.
        """
        from airflow_hive_federation.hooks.job_runs import lease_of
        from airflow_hive_federation.spark.runs import RunFiles

        files = RunFiles(f"{dump}/load/outcomes/_report.json", self._storage_options)
        if files.run() is not None:
            with lease_of(dump, source, self._storage_options):
                self._settle(files, "")

    def _prepared(
        self,
        job: str,
        own: Sequence[str],
        arguments: Sequence[str],
        *,
        conf: Mapping[str, str],
        **settings: Any,
    ) -> tuple[PipelineSubmitHook, dict[str, str]]:
        """Return the provider's hook for a job, and the environment of its spark-submit.

        :param own: the arguments of the program that runs jobs.
        :param arguments: the job's name and its arguments.
        """
        from airflow_hive_federation.storage.hadoop_access import HadoopAccess

        access = HadoopAccess.of(self._storage_options)
        submit_hook = self._submit_hook(
            access,
            light=job in _LIGHT_JOBS,
            application_args=[*own, *self._options_of_driver(conf), *arguments],
            conf=conf,
            **settings,
        )
        local = submit_hook.master.startswith("local")
        environment = spark_environment(os.environ, self._env, self._storage_options, local=local)
        environment |= java_kerberos(environment, access)
        if starts_drivers(submit_hook):
            environment = driver_environment(environment, self._env)
        return submit_hook, environment

    def check_connection(self) -> None:
        """Check that the connection is defined, before there is a job for it.

        :raises ConfigurationError: it is not.
        """
        self._provider_hook()

    def _provider_hook(self) -> PipelineSubmitHook:
        # The provider's module takes long to import, and every DAG imports this module.
        from airflow_hive_federation.hooks.pipeline_submit import PipelineSubmitHook

        return PipelineSubmitHook(conn_id=self.conn_id)

    def _submit_hook(
        self,
        access: HadoopAccess,
        *,
        light: bool,
        conf: Mapping[str, str],
        departs: bool,
        **settings: Any,
    ) -> PipelineSubmitHook:
        from airflow_hive_federation.hooks.pipeline_submit import PipelineSubmitHook
        from airflow_hive_federation.spark.package_zip import package_zip

        provider = self._provider_hook()
        master, standalone = provider.master, starts_drivers(provider)
        local = master.startswith("local")
        defaults = {
            **_CONF,
            **kerberos_properties(master, access),
            **(_LOCAL_CONF if local else {}),
            **(_LIGHT_CONF if local and light else {}),
        }
        leaving = _LEAVING_CONF if departs else {}
        forced = driver_conf(departs=departs) if standalone else leaving
        return PipelineSubmitHook(
            conn_id=self.conn_id,
            observer=self.observer(),
            conf={**defaults, **conf, **forced},
            departs=departs,
            java_class=RUNNER if standalone else None,
            py_files=None if standalone or self._program(conf) == _PROGRAM_OF_IMAGE else str(package_zip()),
            **settings,
        )

    def _program(self, conf: Mapping[str, str]) -> str:
        """Return the program for spark-submit: that of the image if nothing is uploaded to Kubernetes."""
        from airflow_hive_federation.spark.package_zip import main_file

        provider = self._provider_hook()
        of_image = provider.deploy_mode == "cluster" and provider.master.startswith("k8s://")
        return _PROGRAM_OF_IMAGE if of_image and _UPLOADS not in conf else str(main_file())

    def _archive(self, files: RunFiles, run: JobRun) -> str:
        """Write the archive that a standalone cluster fetches; return its URI for spark-submit."""
        from airflow_hive_federation.spark.package_zip import package_zip

        return archive_uri(files.write_package(run.attempt, package_zip().read_bytes()))

    def _options_of_driver(self, conf: Mapping[str, str]) -> list[str]:
        """Return the arguments with the storage options of a driver that the cluster starts."""
        from airflow_hive_federation.spark.job import encoded_options
        from airflow_hive_federation.storage.hadoop_access import options_of_driver

        provider = self._provider_hook()
        if provider.deploy_mode != "cluster":
            return []
        master = provider.master
        if master.startswith("k8s://") and OPTIONS_PROPERTY in conf:
            return []
        options = options_of_driver(self._storage_options, keytabs=not master.startswith("yarn"))
        if options is None:
            raise ConfigurationError(
                f"Connection {self.conn_id} has deploy mode cluster, where storage options cannot be handed "
                f"to the driver in secret.",
                remedy="Give the cluster's machines the right to the store and remove the storage options, "
                "or use deploy mode client."
                if master.startswith(("yarn", "spark://"))
                else f"Put them into a secret of Kubernetes, and name it in {OPTIONS_PROPERTY}.",
                conn_id=self.conn_id,
            )
        return ["--options", encoded_options(options)] if options else []

    def _run(
        self,
        submit_hook: PipelineSubmitHook,
        program: str,
        environment: Mapping[str, str],
        files: RunFiles,
        attempt: str,
        *,
        departs: bool,
    ) -> dict[str, Any]:
        if self._killed:
            raise SparkJobError(
                "The Spark job was killed before it began.",
                remedy="Run the task again: copied files are not copied again.",
            )
        failed: AirflowException | None = None
        try:
            submit_hook.submit(program, env=dict(environment))
        except AirflowException as error:
            failed = error
        except FileNotFoundError as error:
            raise ConfigurationError(
                f"spark-submit cannot be started: {error}.",
                remedy="Install pyspark beside Airflow, or put the spark-submit of your Spark on the PATH.",
            ) from error
        if departs and failed is None and not self._killed:
            raise JobDeparture(AwaitedJob(report=files.report, attempt=attempt, own=True))
        return self._result(submit_hook, failed, files, attempt)


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
