"""A driver process whose JVM runs several jobs, one after the other, as that of spark-submit runs one."""

from __future__ import annotations

import json
import multiprocessing
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from airflow_hive_federation.spark.failures import read_report
from airflow_hive_federation.spark.job import OPTIONS_VARIABLE, main
from airflow_hive_federation.storage.filesystem import reading


@dataclass(frozen=True)
class SparkDriver:
    """The process, which makes a SparkContext for each job and keeps its JVM."""

    _process: ProcessPoolExecutor

    def submit(
        self, job: str, arguments: Sequence[str], *, report_uri: str, options: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Run a job, and return its result or raise its error, as the Spark hook does."""
        argv = ["--report", report_uri, job, *arguments]
        self._process.submit(_run, argv, json.dumps(options)).result()
        with reading(report_uri, options) as report:
            return read_report(report.read())


@contextmanager
def spark_driver(*submit_arguments: str) -> Iterator[SparkDriver]:
    """A driver on a local master with the environment that the Spark hook gives to spark-submit."""
    # The process imports this module, and needs no Airflow.
    from airflow_hive_federation.hooks.spark import java_kerberos, spark_environment
    from airflow_hive_federation.storage.hadoop_access import HadoopAccess

    environment = spark_environment(os.environ, {}, {}, local=True)
    environment |= java_kerberos(environment, HadoopAccess())
    arguments = ["--master", "local[2]", "--conf", "spark.ui.enabled=false", *submit_arguments]
    environment["PYSPARK_SUBMIT_ARGS"] = shlex.join([*arguments, "pyspark-shell"])
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context, initializer=_prepare, initargs=(environment,)) as process:
        yield SparkDriver(process)


def _prepare(environment: Mapping[str, str]) -> None:
    os.environ.update(environment)


def _run(argv: Sequence[str], options: str) -> None:
    os.environ[OPTIONS_VARIABLE] = options
    main(argv)
