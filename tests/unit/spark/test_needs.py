"""A job is refused at its start on a Spark, a Python or a package that it cannot run with."""

from __future__ import annotations

import pickle
import re
import sys
import tomllib
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_hive_federation.errors import SparkEnvironmentError
from airflow_hive_federation.spark.job import JOBS
from airflow_hive_federation.spark.needs import (
    LOWEST_PACKAGES,
    NEEDS,
    WorkerPython,
    check_needs,
    check_spark,
    check_workers,
    worker_python,
)
from airflow_hive_federation.tables.spark_internals import SUPPORTED_VERSIONS

ROOT = Path(__file__).parents[3]
FIT = WorkerPython(
    host="one", python="3.11.7", packages={"pyarrow": "23.0.1", "numpy": "2.1.0"}, has_distutils=True
)


def test_every_job_has_its_needs() -> None:
    assert NEEDS.keys() == JOBS.keys()


def test_the_lowest_packages_are_those_that_are_declared() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    declared = dict(re.match(r"([\w.-]+)>=([\d.]+)", text).groups() for text in project["dependencies"])  # type: ignore[union-attr]
    for package, lowest in LOWEST_PACKAGES.items():
        assert declared[package] == ".".join(map(str, lowest))


@pytest.mark.parametrize("job", JOBS)
@pytest.mark.parametrize("version", [f"{minor}.1" for minor in SUPPORTED_VERSIONS])
def test_every_job_runs_on_every_supported_spark(job: str, version: str) -> None:
    check_spark(job, version)


def test_jobs_that_know_no_internals_run_on_a_newer_spark() -> None:
    for job, needs in NEEDS.items():
        if needs.reads_by_jvm:
            with pytest.raises(SparkEnvironmentError, match=r"Spark 4\.9\.0 is not supported"):
                check_spark(job, "4.9.0")
        else:
            check_spark(job, "4.9.0")


@pytest.mark.parametrize("job", JOBS)
def test_an_older_spark_is_refused_before_the_job_does_anything(job: str) -> None:
    with pytest.raises(SparkEnvironmentError, match=rf"{job} does not run on Spark 3\.4\.4") as caught:
        check_needs(SimpleNamespace(version="3.4.4"), job)
    assert (caught.value.version, caught.value.job) == ("3.4.4", job)


def test_this_python_fits() -> None:
    check_workers("merge-buckets", "4.2.0", [worker_python(), FIT])


@pytest.mark.parametrize(
    ("packages", "package", "words"),
    [
        ({"pyarrow": None}, "pyarrow", "no pyarrow that can be imported"),
        ({"pyarrow": "22.0.0"}, "pyarrow", "only pyarrow 22.0.0"),
        ({"numpy": "1.26.4"}, "numpy", "only numpy 1.26.4"),
    ],
)
def test_an_executor_without_a_package(packages: dict[str, str | None], package: str, words: str) -> None:
    worker = replace(FIT, host="two", packages={**FIT.packages, **packages})
    with pytest.raises(SparkEnvironmentError, match="Python 3.11.7 of two has " + re.escape(words)) as caught:
        check_workers("merge-buckets", "4.2.0", [FIT, worker])
    error = pickle.loads(pickle.dumps(caught.value))
    assert (error.host, error.package, error.version) == ("two", package, packages[package])
    assert f"Install {package}" in error.remedy


def test_spark_3_needs_distutils() -> None:
    worker = replace(FIT, python="3.12.1", has_distutils=False)
    check_workers("merge-buckets", "4.0.1", [worker])
    with pytest.raises(SparkEnvironmentError, match=r"distutils, which the Python 3\.12\.1 of one") as caught:
        check_workers("merge-buckets", "3.5.7", [worker])
    assert "setuptools" in caught.value.remedy


@pytest.mark.parametrize(
    ("master", "python", "asked"),
    [
        ("local", sys.executable, False),
        ("local[4]", sys.executable, False),
        ("local[4]", "/another/venv/bin/python", True),
        ("local-cluster[2,1,1024]", sys.executable, True),
        ("spark://master:7077", sys.executable, True),
    ],
)
def test_executors_are_asked_unless_tasks_run_in_this_python(master: str, python: str, asked: bool) -> None:
    """Their Python may lack a package that the driver's has."""
    old = replace(FIT, host="two", packages={"pyarrow": "22.0.0", "numpy": "2.1.0"})

    def parallelize(numbers: range, tasks: int) -> Any:
        assert (len(numbers), tasks) == (2, 2)
        return SimpleNamespace(mapPartitions=lambda _: SimpleNamespace(collect=lambda: [FIT, old]))

    context = SimpleNamespace(
        version="4.2.0", master=master, pythonExec=python, defaultParallelism=1, parallelize=parallelize
    )
    check_needs(context, "copy-files")
    if asked:
        with pytest.raises(SparkEnvironmentError, match=r"of two has only pyarrow 22\.0\.0"):
            check_needs(context, "merge-buckets")
    else:
        check_needs(context, "merge-buckets")
