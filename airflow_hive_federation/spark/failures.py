"""Writes a job's result or error as a report, and restores both in another process."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

from airflow_hive_federation import errors
from airflow_hive_federation.errors import (
    HiveFederationError,
    SparkEnvironmentError,
    SparkJobError,
    SparkRefusedError,
    StoragePermissionError,
)
from airflow_hive_federation.model import bounded_json
from airflow_hive_federation.model.json_values import Fields, json_object
from airflow_hive_federation.spark.container_kills import ContainerKill, executor_kill

#: Greatest number of failed files that a combined error names.
_NAMED_FAILURES = 100

#: The words of Spark 3.5 and of Spark 4.
_OTHER_PYTHON = re.compile(
    r"Python in worker has different version:? (?P<worker>[^A-Za-z]+?) than that in driver:? "
    r"(?P<driver>\d+\.\d+)"
)
_NO_PACKAGE = re.compile(r"ModuleNotFoundError: No module named '(pyarrow|numpy|pandas|distutils)\b")
#: The words of Spark's built-in client, which is Hive 2's, at a metastore of Hive 4.
_NO_METHOD = re.compile(r"Invalid method name: '(get_table(?:_objects_by_name)?)'")
#: The words of Hadoop's client without a Kerberos login that a server takes.
_NO_LOGIN = re.compile(
    r"GSS initiate failed|Client cannot authenticate via|SIMPLE authentication is not enabled|"
    r"Failed to specify server's Kerberos principal|No valid credentials provided"
)
#: The words of Spark's Python whose JVM has named no cause, or has ended all jobs.
_LOST_SPARK = re.compile(r"^Spark: An error occurred while calling |SparkContext was shut down")
#: The property with the memory of an executor that is not Java's heap: that of Python, for instance.
EXECUTOR_SETTING = "spark.executor.memoryOverhead"
_REMEDY = "Look further up in the job's log; Spark's own settings are those of the connection and of `conf`."


def error_to_json(error: HiveFederationError) -> dict[str, object]:
    """Return an error's class, text and facts as JSON values; facts of other types become text."""
    facts = json.loads(json.dumps(error.facts, default=str))
    return {"type": type(error).__name__, "message": error.message, "remedy": error.remedy, "facts": facts}


def error_from_json(value: object) -> HiveFederationError:
    """Return the error that :func:`error_to_json` wrote; an unknown class becomes a SparkJobError.

    :raises ValueError: it is no error.
    """
    values = json_object(value)
    kind = getattr(errors, str(values.get("type")), None)
    if not (isinstance(kind, type) and issubclass(kind, HiveFederationError)):
        kind = SparkJobError
    facts = dict(json_object(values.get("facts") or {}))
    for reserved in ("message", "remedy", "self"):
        facts.pop(reserved, None)
    return kind(str(values.get("message", "")), remedy=str(values.get("remedy", "")), **facts)


def result_report(result: Mapping[str, object]) -> str:
    """Return the report of a job's result."""
    return json.dumps({"result": result}, sort_keys=True)


def error_report(error: HiveFederationError) -> str:
    """Return the report of a job's error."""
    return json.dumps({"error": error_to_json(error)}, sort_keys=True)


def of_attempt(report: str, attempt: str) -> str:
    """Return a report with the id of the submission that it belongs to."""
    return json.dumps({**json.loads(report), "attempt": attempt}, sort_keys=True)


def read_report(text: str | bytes) -> dict[str, object]:
    """Return the result from a report of :func:`result_report` or :func:`error_report`.

    :raises HiveFederationError: this error is reported.
    :raises SparkJobError: the report is damaged.
    """
    try:
        report = Fields(bounded_json.loads(text))
        if "error" in report:
            raise report.needed("error", error_from_json)
        return dict(report.needed("result", json_object))
    except ValueError as error:
        raise SparkJobError("The job's report is damaged.", remedy=_REMEDY) from error


def combined(failures: Sequence[HiveFederationError]) -> HiveFederationError:
    """Return one error for all failed files: the first of the gravest kind, with the number of the others."""
    # Errors that a retry cannot fix are graver.
    first = min(failures, key=lambda error: error.retryable)
    if len(failures) == 1:
        return first
    kinds = sorted({type(failure).__name__ for failure in failures})
    facts = {
        **first.facts,
        "failures": len(failures),
        "failed_paths": [str(failure.facts.get("path", "")) for failure in failures[:_NAMED_FAILURES]],
    }
    others = len(failures) - 1
    message = (
        f"{first.message} ({others} more {'file' if others == 1 else 'files'} failed: {', '.join(kinds)}.)"
    )
    return type(first)(message, remedy=first.remedy, **facts)


def from_spark(error: Exception) -> HiveFederationError:
    """Return a SparkJobError with Spark's innermost cause.

    If the Python of an executor, or Spark's client of the metastore, is the cause, it is a
    SparkEnvironmentError; if a JVM has no Kerberos login, it is a StoragePermissionError; if an executor was
    killed, it is a SparkRefusedError.
    """
    text = str(error)
    if is_missing_login(text):
        line = next(line for line in text.splitlines() if _NO_LOGIN.search(line))
        return StoragePermissionError(
            f"A JVM of Spark has no Kerberos login that the store takes: {line.strip().rstrip('.')}.",
            remedy="Set kerberos_principal and kerberos_keytab of the storage options, or principal and "
            "keytab of the Spark connection; or renew the ticket (kinit). Executors on other machines need "
            "a login of their own.",
            path="",
            user="",
        )
    if versions := _OTHER_PYTHON.search(text):
        worker = ".".join(re.findall(r"\d+", versions["worker"]))
        driver = versions["driver"]
        return SparkEnvironmentError(
            f"The driver runs in Python {driver}, and an executor in Python {worker}.",
            remedy=f"Set PYSPARK_PYTHON (or the property spark.pyspark.python) to a Python {driver} of the "
            f"executors, or PYSPARK_DRIVER_PYTHON to a Python {worker}.",
            driver=driver,
            worker=worker,
        )
    if package := _NO_PACKAGE.search(text):
        return SparkEnvironmentError(
            f"The Python of an executor has no package {package[1]}.",
            remedy="Install it in the Python of all executors, or set PYSPARK_PYTHON, or spark.archives, "
            "to a Python that has it.",
            package=package[1],
        )
    if method := _NO_METHOD.search(text):
        return SparkEnvironmentError(
            f"Spark's client of the metastore calls {method[1]}, which Hive 4 has no longer.",
            remedy="Name a gateway (docs/gateway.md), which translates the call, as `metastore` of the "
            "cluster; or name no `metastore`, and the task serves the cluster's view itself; or set "
            "spark.sql.hive.metastore.version, with its jars, to a client of Hive 4.",
            method=method[1],
        )
    if killed := executor_kill(text):
        return executor_killed(killed)
    return SparkJobError(f"Spark: {_innermost(text)}", remedy=_REMEDY)


def executor_killed(kill: ContainerKill) -> SparkRefusedError:
    """Return the error for an executor that YARN or the kernel has killed."""
    name = f"executor {kill.executor}" if kill.executor else "an executor"
    error = container_killed(f"{name} on {kill.host}" if kill.host else name, kill, EXECUTOR_SETTING)
    error.facts["executor"] = kill.executor
    return error


def container_killed(name: str, kill: ContainerKill, setting: str) -> SparkRefusedError:
    """Return the error for a container that YARN or the kernel has killed.

    :param name: the driver or the executor in words.
    :param setting: Spark's property with the memory of the container that is not Java's heap.
    """
    if kill.exceeded:
        usage = f" ({kill.usage})" if kill.usage else ""
        message = f"YARN has killed the container of {name}, which exceeded its memory{usage}."
        remedy = f"Raise {setting}."
    else:
        # YARN knows the signal, and not who has sent it.
        message = f"The container of {name} was killed by the signal SIGKILL (exit status 137)."
        remedy = (
            f"Raise {setting} if the kernel's log of that machine (dmesg) names the container's memory; "
            "otherwise find out who has killed it."
        )
    return SparkRefusedError(
        message,
        remedy=remedy,
        reason="memory" if kill.exceeded else "signal",
        application="",
        queue="",
        principal="",
    )


def has_lost_spark(error: SparkJobError) -> bool:
    """Return whether a job reports the end of Spark alone, whose cause only the cluster or a log knows."""
    return _LOST_SPARK.search(error.message) is not None


def is_missing_login(text: str) -> bool:
    """Return whether an error of Spark has a missing or refused Kerberos login as its cause."""
    return _NO_LOGIN.search(text) is not None


def _innermost(text: str) -> str:
    """Return the last line of a Python traceback, else the last cause, else the first line of the text."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    raised = [line for line in lines if re.match(r"[\w.]+(Error|Exception|Exit|Interrupt)\b", line)]
    python = [line for line in raised if not re.match(r"(java|scala|org|py4j)\.", line)]
    causes = [line for line in lines if line.startswith("Caused by:")]
    return next(iter([*python[-1:], *causes[-1:], *lines[:1]]), "no message")
