"""Checks, at the start of a job, that the job can run on this Spark, and in the executors' Python.

Jobs run on the Spark of the cluster, and their tasks in the Python of its machines: their versions are known
only when the job starts. An executor that joins later is not checked; its tasks fail, and
:func:`airflow_hive_federation.spark.failures.from_spark` gives their error the same class.
"""

from __future__ import annotations

import importlib
import platform
import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from airflow_hive_federation.errors import SparkEnvironmentError
from airflow_hive_federation.spark.failures import from_spark

#: The oldest Spark of all jobs.
OLDEST_SPARK = (3, 5)

#: The lowest versions of packages in the executors' Python, as in ``pyproject.toml``.
LOWEST_PACKAGES: Mapping[str, tuple[int, ...]] = MappingProxyType({"pyarrow": (23,), "numpy": (2, 1)})

#: The last Python whose standard library has a module that Spark 3.5 imports.
_LAST_WITH_DISTUTILS = (3, 11)


@dataclass(frozen=True, kw_only=True)
class JobNeeds:
    """The conditions under which a job runs.

    :param reads_by_jvm: the JVM reads the rows of tables for the job. It needs a login of its own, and it
        is reached by internals of Spark, which are known of some versions only.
    :param arrow: its tasks need pyarrow and numpy.
    """

    reads_by_jvm: bool = False
    arrow: bool = False


NEEDS: Mapping[str, JobNeeds] = MappingProxyType(
    {
        # It has no packages but Python's own, and rewrites files with aborted rows by pyarrow.
        "copy-files": JobNeeds(),
        "merge-buckets": JobNeeds(arrow=True),
        "run-sql": JobNeeds(reads_by_jvm=True, arrow=True),
        "verify-replica": JobNeeds(reads_by_jvm=True, arrow=True),
    }
)


@dataclass(frozen=True, kw_only=True)
class WorkerPython:
    """The Python of one process of a job, as the process itself describes it.

    :param host: name of its machine.
    :param python: version of Python, such as ``3.11.7``.
    :param packages: versions of the packages that jobs need; ``None`` for those that cannot be imported.
    :param has_distutils: whether the module ``distutils`` can be imported.
    """

    host: str
    python: str
    packages: Mapping[str, str | None]
    has_distutils: bool


def check_needs(spark: Any, job: str) -> None:
    """Check that a job can run in a Spark application.

    :param spark: a SparkSession or a SparkContext.
    :param job: a name of :data:`NEEDS`.
    :raises SparkEnvironmentError: the version of Spark, of the executors' Python, or of a package there is
        none that the job can run with.
    """
    needs = NEEDS[job]
    context = getattr(spark, "sparkContext", spark)
    check_spark(job, context.version)
    if needs.arrow:
        check_workers(job, context.version, [worker_python()])
        if not _runs_in_this_python(context):
            check_workers(job, context.version, _executors(context))


def check_spark(job: str, version: str) -> None:
    """Check that a job runs on a version of Spark.

    :raises SparkEnvironmentError: it does not; ``version`` names it.
    """
    if _numbers(version)[:2] < OLDEST_SPARK:
        raise SparkEnvironmentError(
            f"The job {job} does not run on Spark {version}.",
            remedy=f"Run Spark {'.'.join(map(str, OLDEST_SPARK))} or later.",
            job=job,
            version=version,
        )
    if NEEDS[job].reads_by_jvm:
        from airflow_hive_federation.tables.spark_internals import check_version

        check_version(version)


def check_workers(job: str, spark_version: str, workers: Iterable[WorkerPython]) -> None:
    """Check that a job's tasks can run in these Pythons.

    :raises SparkEnvironmentError: they cannot; ``host`` and ``package`` name the first reason.
    """
    for worker in workers:
        for package, lowest in LOWEST_PACKAGES.items():
            version = worker.packages[package]
            if version is None or _numbers(version)[: len(lowest)] < lowest:
                wanted = f"{package} {'.'.join(map(str, lowest))} or later"
                there = f"only {package} {version}" if version else f"no {package} that can be imported"
                raise SparkEnvironmentError(
                    f"The job {job} needs {wanted}, and the Python {worker.python} of {worker.host} has "
                    f"{there}.",
                    remedy=f"Install {wanted} in the Python of all executors, or set PYSPARK_PYTHON, or "
                    "spark.archives, to a Python that has it.",
                    job=job,
                    host=worker.host,
                    package=package,
                    version=version,
                )
        if spark_version.startswith("3.") and not worker.has_distutils:
            raise SparkEnvironmentError(
                f"Spark {spark_version} needs the module distutils, which the Python {worker.python} of "
                f"{worker.host} does not have.",
                remedy="Install setuptools, which brings it, in the Python of the driver and of all "
                f"executors, or use Python {'.'.join(map(str, _LAST_WITH_DISTUTILS))} there.",
                job=job,
                host=worker.host,
                package="setuptools",
                version=None,
            )


def worker_python() -> WorkerPython:
    """Describe the Python of this process."""
    return WorkerPython(
        host=platform.node(),
        python=platform.python_version(),
        packages={package: _version(package) for package in LOWEST_PACKAGES},
        has_distutils=sys.version_info[:2] <= _LAST_WITH_DISTUTILS or _version("distutils") is not None,
    )


def _executors(context: Any) -> list[WorkerPython]:
    """Ask as many tasks as the executors run at once; Spark itself compares the versions of Python first."""
    from py4j.protocol import Py4JError

    tasks = max(2, context.defaultParallelism)
    try:
        workers: list[WorkerPython] = (
            context.parallelize(range(tasks), tasks).mapPartitions(_describe).collect()
        )
    except Py4JError as error:
        raise from_spark(error) from error
    return workers


def _describe(_numbers: Iterator[int]) -> Iterator[WorkerPython]:
    yield worker_python()


def _runs_in_this_python(context: Any) -> bool:
    """Return whether tasks run on this machine, in the Python of this process."""
    executable = Path(shutil.which(context.pythonExec) or context.pythonExec).absolute()
    # Links are not followed: those of virtual environments all lead to one Python, with other packages.
    is_this: bool = executable == Path(sys.executable).absolute()
    return is_this and re.match(r"local(\[|$)", context.master) is not None


def _version(package: str) -> str | None:
    try:
        module = importlib.import_module(package)
    except ImportError:
        return None
    return str(getattr(module, "__version__", ""))


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version.partition("+")[0])[:3]))
