"""Adds a default master to the spark-submit hook of the provider, and reads our jobs' events from its log."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.sdk import Connection

from airflow_hive_federation.errors import ConfigurationError, SparkJobError
from airflow_hive_federation.hooks.compat import AirflowNotFoundException, configured
from airflow_hive_federation.hooks.published import SECTION
from airflow_hive_federation.hooks.spark_output import is_routine
from airflow_hive_federation.progress.job_events import ApplicationStarted
from airflow_hive_federation.progress.lines import event_in
from airflow_hive_federation.progress.observers import Observer, unobserved

if TYPE_CHECKING:
    from airflow.sdk.types import Logger

    from airflow_hive_federation.hooks.submit_failures import Submission

#: The option of Airflow's configuration with the web page of an application.
SPARK_APPLICATION_URL = "spark_application_url"
#: YARN's report of an application, in the log of spark-submit.
_TRACKING = re.compile(r"tracking URL: (https?://\S+)")
#: A standalone master's answer with the id of a driver, in the log of spark-submit.
_DRIVER = re.compile(r"Driver successfully submitted as (\S+)")
#: The master if the default connection is not defined.
DEFAULT_MASTER = "local[*]"

#: The number of log lines in an error that has no cause of its own.
_TAIL_LINES = 20
#: The provider's message that names the whole command.
_COMMAND = "Spark-Submit cmd"
#: The marks before the text of an error: of log4j, and of a JVM that ends with an exception.
_ERRORS = (" ERROR ", 'Exception in thread "main" ')
#: Words in the lines that name a cause; YARN's diagnostics have no mark.
_CAUSES = (*_ERRORS, "Exception: ", "Caused by: ", "iagnostics", "Container killed", "memory limit")
#: The number of these lines that are kept: the first line of a trace may lie before the tail.
_CAUSE_LINES = 100


class PipelineSubmitHook(SparkSubmitHook):
    """Runs spark-submit once.

    :param observer: receives the events of the job's progress.
    :param departs: spark-submit ends when the cluster has the application.
    :param on_application: receives the cluster's id of the driver or application, once spark-submit shows it.
    :param settings: the settings of the provider's hook.
    """

    def __init__(
        self,
        *,
        observer: Observer = unobserved,
        on_application: Callable[[str], None] = lambda _: None,
        departs: bool = False,
        **settings: Any,
    ) -> None:
        self._submits = False
        try:
            super().__init__(**settings)
        except (NameError, RuntimeError) as error:
            # The provider's check itself fails where the other provider is missing.
            if "kube" not in str(error):
                raise
            raise ConfigurationError(
                f"Connection {settings.get('conn_id')} is of Kubernetes, for which the apache-spark provider "
                f"needs the provider cncf.kubernetes: {error}.",
                remedy="pip install apache-airflow-providers-cncf-kubernetes",
                conn_id=settings.get("conn_id"),
            ) from error
        if departs:
            # The provider takes a missing exit code for a failure, on Kubernetes.
            self._spark_exit_code = 0
        # Earlier versions of the provider would ask a standalone master for the driver's state until its end,
        # by an API that the master may not offer. Spark-submit waits itself.
        self._should_track_driver_status = False
        self._on_application = on_application
        self._announced = ""
        #: The application that the driver has announced, and YARN's page of it.
        self._started = self._tracking_url = ""
        self._observer = observer
        #: The last lines of the log.
        self.tail: deque[str] = deque(maxlen=_TAIL_LINES)
        self._causes: deque[str] = deque(maxlen=_CAUSE_LINES)

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
                    remedy="Define it with type spark: in Airflow's database, in a secrets backend, or as "
                    f"AIRFLOW_CONN_{conn_id.upper()} in the environment.",
                    conn_id=conn_id,
                ) from None
            return Connection(conn_id=conn_id, conn_type="spark", host=DEFAULT_MASTER)

    def submit(self, application: str = "", **kwargs: object) -> str | None:
        """Run spark-submit to its end, and close the pipe of its log, which the provider leaves open."""
        self._submits = True
        try:
            return super().submit(application, **kwargs)
        finally:
            self._submits = False
            if self._submit_sp is not None and self._submit_sp.stdout is not None:
                self._submit_sp.stdout.close()

    @property
    def last_error(self) -> str:
        """The text of the last error in the log; empty if there is none."""
        errors = [
            line.partition(mark)[2].strip() for line in self._causes for mark in _ERRORS if mark in line
        ]
        return errors[-1] if errors else ""

    @property
    def refusal(self) -> SparkJobError | None:
        """The error of the cluster that has refused or ended the job; ``None`` for any other cause."""
        from airflow_hive_federation.hooks.submit_failures import refusal

        return refusal(self._causes, self._submission(self.application))

    def refusal_of(self, application: str) -> SparkJobError | None:
        """Return the error of the cluster that has ended an application, by YARN's own diagnostics."""
        from airflow_hive_federation.hooks.submit_failures import refusal

        # Earlier versions of the provider have no such call.
        ask = getattr(self, "_query_yarn_application_status", None)
        try:
            if ask and application.startswith("application_"):
                _, _, diagnostics = ask(application)
                return refusal([diagnostics], self._submission(application))
        except (ValueError, RuntimeError) as error:
            self.log.warning("YARN's diagnostics of %s cannot be read: %s", application, error)
        return None

    def _submission(self, application: str) -> Submission:
        from airflow_hive_federation.hooks.submit_failures import Submission

        login = self._connection["principal"] or self._conf.get("spark.kerberos.principal")
        queue = self._connection["queue"]
        return Submission(application=application, queue=str(queue or ""), principal=str(login or ""))

    @property
    def master(self) -> str:
        """Spark's master URL."""
        return str(self._connection["master"])

    @property
    def deploy_mode(self) -> str | None:
        """The deploy mode ``client`` or ``cluster``; ``None`` for Spark's default, client."""
        mode = self._connection["deploy_mode"]
        return str(mode) if mode else None

    @property
    def application(self) -> str:
        """The cluster's id of the driver or application; empty until it is known, and in client mode."""
        driver = self._driver_id or self._yarn_application_id or self._kubernetes_driver_pod
        return str(driver or "")

    @property
    def application_url(self) -> str:
        """The web page of the application; empty if it is not known, and for local masters.

        It is made of ``[hive_federation] spark_application_url``, or YARN's tracking URL.
        """
        # The id of a standalone cluster's driver is not that of its application.
        application = self._yarn_application_id or self._started
        if application and (template := configured(SECTION, SPARK_APPLICATION_URL, "")):
            return template.replace("{application}", quote(str(application), safe=""))
        return self._tracking_url

    def on_kill(self) -> None:
        """Kill spark-submit, and the driver or application on the cluster if the provider can."""
        # Then the provider asks the master to kill the driver.
        self._should_track_driver_status = bool(self._driver_id)
        try:
            super().on_kill()
        except OSError as error:
            # For instance, this machine has no program ``yarn``, or ``curl``.
            self.log.warning(
                "The kill of application %s did not reach the cluster: %s", self.application, error
            )
            if self._submit_sp is not None and self._submit_sp.poll() is None:
                self._submit_sp.kill()
        finally:
            self._should_track_driver_status = False

    def has(self, application: str) -> bool | None:
        """Return whether an application waits or runs on the cluster; ``None`` if nobody knows."""
        # Earlier versions of the provider have no such call.
        ask = getattr(self, "query_yarn_application_status", None)
        try:
            if ask and application.startswith("application_"):
                return ask(application) not in {"SUCCEEDED", "FAILED"}
        except (ValueError, RuntimeError) as error:
            self.log.warning("The state of application %s cannot be read: %s", application, error)
        return None

    @property
    def log(self) -> Any:
        """The logger of the hook, to which the provider passes each line of spark-submit's output."""
        return _SubmitLog(super().log, self._read) if self._submits else super().log

    def _read(self, line: str) -> bool:
        """Read a line of the output; return whether it belongs into the log."""
        if event := event_in(line):
            if isinstance(event, ApplicationStarted):
                self._started = event.application
            self._observer(event)
            return False
        if found := _TRACKING.search(line):
            self._tracking_url = found[1]
        if found := _DRIVER.search(line):
            self._driver_id = found[1]
        self.tail.append(line)
        if any(mark in line for mark in _CAUSES):
            self._causes.append(line)
        # The provider has read the line before.
        if self.application != self._announced:
            self._announced = self.application
            self._on_application(self._announced)
        return True


class _SubmitLog:
    """A logger that passes on the lines for which a function returns true.

    :param log: the logger that writes the lines.
    :param read: receives each line of spark-submit's output.
    """

    def __init__(self, log: Logger, read: Callable[[str], bool]) -> None:
        self._log = log
        self._read = read

    def info(self, text: str, *values: object) -> None:
        # Lines of the output have no values; messages of the hooks have.
        if values:
            level = self._log.debug if text.startswith(_COMMAND) else self._log.info
            level(text, *values)
        elif self._read(text):
            (self._log.debug if is_routine(text) else self._log.info)(text)

    def __getattr__(self, name: str) -> object:
        return getattr(self._log, name)
