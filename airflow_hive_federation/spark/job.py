"""Finds a Spark job by its name, parses its arguments, runs it, and reports its result or error.

A job is a module with two functions, listed in :data:`JOBS`::

    def add_arguments(parser: argparse.ArgumentParser) -> None
    def run(spark, args: argparse.Namespace, options: Mapping | None) -> dict   # JSON values

``spark`` is a SparkContext if ``spark-submit`` has started the job, since a session costs seconds, and
copying needs none. A job that needs SQL calls ``SparkSession.builder.getOrCreate()``, which builds on that
context. :data:`airflow_hive_federation.spark.needs.NEEDS` has the versions that each job runs with.
"""

from __future__ import annotations

import argparse
import importlib
import json
import logging
import os
import sys
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Any, NoReturn, Protocol, cast

from airflow_hive_federation.errors import (
    ConfigurationError,
    HiveFederationError,
    SparkJobError,
    SparkRunTakenError,
    StorageError,
)
from airflow_hive_federation.progress.job_events import ApplicationStarted
from airflow_hive_federation.progress.lines import EventFormatter
from airflow_hive_federation.progress.observers import LOGGED
from airflow_hive_federation.spark.failures import error_report, from_spark, of_attempt, result_report
from airflow_hive_federation.spark.needs import NEEDS, check_needs
from airflow_hive_federation.spark.runs import RunClaim, RunFiles
from airflow_hive_federation.storage.options import StorageOptions
from airflow_hive_federation.storage.publishing import write_atomically
from airflow_hive_federation.waiting import PollPolicy, retry

logger = logging.getLogger(__name__)

#: Name of each job → its module.
JOBS: Mapping[str, str] = MappingProxyType(
    {
        "copy-files": "airflow_hive_federation.spark.copy_files",
        "merge-buckets": "airflow_hive_federation.spark.compact",
        "run-sql": "airflow_hive_federation.spark.run_sql",
        "verify-replica": "airflow_hive_federation.spark.verify_replica",
    }
)

#: Environment variable with the storage options as JSON; it appears in no process list and no Spark property.
OPTIONS_VARIABLE = "HIVE_FEDERATION_STORAGE_OPTIONS"


#: The pauses and the number of tries, about two minutes in all, while the store of the report is away.
_PAUSES = PollPolicy(first_s=1.0, factor=2.0, longest_s=15.0)
_TRIES = 12


class JobModule(Protocol):
    """The interface of a module in :data:`JOBS`."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the job's arguments."""
        ...

    def run(
        self, spark: object, args: argparse.Namespace, options: StorageOptions | None = None
    ) -> dict[str, Any]:
        """Run the job and return its result as JSON values."""
        ...


def run_job(
    spark: object, job: str, arguments: Sequence[str], *, options: StorageOptions | None = None
) -> dict[str, object]:
    """Run a job in a Spark session of this process.

    :param spark: a SparkSession or a SparkContext.
    :param job: a name of :data:`JOBS`.
    :param arguments: the job's command line.
    :param options: storage options.
    :raises ConfigurationError: no job has this name, or the job does not take these arguments.
    :raises SparkEnvironmentError: the job does not run on this Spark, or in the executors' Python.
    :raises HiveFederationError: the job failed.
    """
    module = _module(job)
    args = _parse(job, module, arguments)
    check_needs(spark, job)
    return module.run(spark, args, options)


def main(argv: Sequence[str]) -> int:
    """Run ``JOB ARGUMENTS…`` under spark-submit, report the result or error, and return the exit code.

    ``--report URI``, before the job's name, is the file of the report. Without it, the report is the last
    line on standard output. ``--attempt ID`` after it is the submission, whose run the job claims; a job
    without its run does and reports nothing. ``--options TEXT`` are storage options
    without secrets, by :func:`encoded_options`.
    """
    output = logging.StreamHandler(sys.stdout)
    output.setFormatter(EventFormatter("%(message)s"))
    logging.basicConfig(handlers=[output], level=logging.INFO)
    logging.getLogger("py4j").setLevel(logging.WARNING)
    own, (job, *arguments) = _split(argv)
    report, attempt = own.get("--report"), own.get("--attempt")
    options = _take_options(own.get("--options", ""))
    if report is None or attempt is None:
        return _run_and_deliver(job, arguments, report, options)
    claim = RunClaim(RunFiles(report, options), attempt)
    try:
        claim.take()
    except SparkJobError as error:
        logger.error("%s", error)
        return 1
    return _run_and_deliver(job, arguments, report, options, claim)


def _run_and_deliver(
    job: str,
    arguments: Sequence[str],
    report: str | None,
    options: StorageOptions | None,
    claim: RunClaim | None = None,
) -> int:
    code = 0
    try:
        text = result_report(_run_in_new_context(job, arguments, options, claim))
    except HiveFederationError as error:
        text, code = error_report(error), 1
    except Exception as error:
        # Report the error before it propagates: the log gets the traceback, and the submitter the report.
        _deliver(error_report(from_spark(error)), report, options, claim)
        raise
    finally:
        if claim is not None:
            claim.end()
    return max(code, _deliver(text, report, options, claim))


def _run_in_new_context(
    job: str, arguments: Sequence[str], options: StorageOptions | None, claim: RunClaim | None
) -> dict[str, object]:
    module = _module(job)
    args = _parse(job, module, arguments)
    from pyspark import SparkContext

    context = SparkContext.getOrCreate()
    if not (application := str(context.applicationId)).startswith("local-"):
        # Spark-submit's own log has the id in cluster mode only.
        LOGGED(ApplicationStarted(application=application))
    if claim is not None:
        claim.cancel_by(lambda: _cancel(context))
    try:
        check_needs(context, job)
        if NEEDS[job].reads_by_jvm:
            # The JVM does not share the login of the package's own clients.
            from airflow_hive_federation.spark.hadoop_login import log_in

            log_in(context, options)
        return module.run(context, args, options)
    finally:
        if claim is not None:
            claim.cancel_by(lambda: None)
        context.stop()


def _cancel(context: Any) -> None:
    from py4j.protocol import Py4JError

    # The context may be ending, or its JVM gone.
    with suppress(Py4JError, OSError, AttributeError):
        context.cancelAllJobs()


def _module(job: str) -> JobModule:
    if job not in JOBS:
        raise ConfigurationError(
            f"There is no Spark job {job!r}.", remedy=f"Jobs: {', '.join(sorted(JOBS))}."
        )
    return cast("JobModule", importlib.import_module(JOBS[job]))


def _parse(job: str, module: JobModule, arguments: Sequence[str]) -> argparse.Namespace:
    parser = _Parser(prog=job, allow_abbrev=False)
    module.add_arguments(parser)
    return parser.parse_args(list(arguments))


def _split(argv: Sequence[str]) -> tuple[Mapping[str, str], Sequence[str]]:
    """Return the options before the job's name, and the job with its arguments."""
    options: dict[str, str] = {}
    rest = list(argv)
    while len(rest) > 1 and rest[0] in {"--report", "--attempt", "--options"}:
        name, value, *rest = rest
        options[name] = value
    return options, rest or [""]


def encoded_options(options: StorageOptions) -> str:
    """Return storage options without secrets as an argument; YARN would remove the braces of JSON from it."""
    return urlsafe_b64encode(json.dumps(options).encode()).decode()


def _take_options(public: str) -> StorageOptions | None:
    text = os.environ.pop(OPTIONS_VARIABLE, "") or urlsafe_b64decode(public)
    return json.loads(text) if text else None


def _deliver(text: str, report: str | None, options: StorageOptions | None, claim: RunClaim | None) -> int:
    """Deliver the report of a job that still has its run; return the exit code."""
    if report is None:
        sys.stdout.write(f"{text}\n")
        return 0
    if claim is None:
        write_atomically(report, [text.encode()], options)
        return 0
    claim.end()
    code = 0
    try:
        _patiently(claim.prove)
    except SparkRunTakenError as error:
        logger.error("%s", error)
        _release(claim)
        return 1
    except SparkJobError as error:
        text, code = error_report(error), 1
    of_this_run = of_attempt(text, claim.attempt).encode()
    _patiently(lambda: write_atomically(report, [of_this_run], options))
    _release(claim)
    return code


def _patiently(call: Callable[[], object]) -> None:
    """Repeat a call while the store is away for a moment: the report is hours of work."""
    retry(call, _PAUSES, tries=_TRIES, on=StorageError)


def _release(claim: RunClaim) -> None:
    try:
        claim.release()
    except StorageError as error:
        # The submitter reads the report, or sees that the claim grows no more.
        logger.warning("The end of the run is not written down: %s", error)


class _Parser(argparse.ArgumentParser):
    """An argument parser that raises an error instead of exiting."""

    def error(self, message: str) -> NoReturn:
        raise ConfigurationError(f"Spark job {self.prog}: {message}.", remedy="Correct the job's arguments.")
