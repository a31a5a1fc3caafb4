"""Starts drivers on the workers of a standalone cluster of Spark, in deploy mode ``cluster``.

For such a cluster, spark-submit refuses Python programs in that mode. It accepts a main class and an archive
that the driver's worker fetches. The class is Spark's own PythonRunner; the archive is this package, whose
``__main__`` is :mod:`airflow_hive_federation.spark.driver_main`.

spark-submit sends its whole environment to the driver (``org.apache.spark.deploy.ClientEndpoint``). There,
paths of this machine would hide those of the worker, and a master with a recovery directory writes them down.
So spark-submit gets few variables.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING
from urllib.parse import quote

if TYPE_CHECKING:
    from airflow_hive_federation.hooks.pipeline_submit import PipelineSubmitHook

#: The main class of a driver: it runs Python beside its JVM, as spark-submit does in client mode.
RUNNER = "org.apache.spark.deploy.PythonRunner"

#: Variables of this process that spark-submit gets, and a driver with it.
_SENT = frozenset(
    {
        "HADOOP_USER_NAME",
        "LANG",
        "LC_ALL",
        "LC_CTYPE",
        "PATH",
        "PYSPARK_PYTHON",
        "SPARK_CONF_DIR",
        "SPARK_HOME",
    }
)
#: Schemes by which Hadoop's clients know a store, where others are usual in Python.
_HADOOP_SCHEMES = MappingProxyType({"s3": "s3a", "s3n": "s3a"})


def starts_drivers(provider: PipelineSubmitHook) -> bool:
    """Return whether a connection has the drivers of its jobs started by a standalone cluster."""
    return provider.deploy_mode == "cluster" and provider.master.startswith("spark://")


def driver_conf(*, departs: bool) -> dict[str, str]:
    """Return the properties without which the hook does not know the end of a job.

    :param departs: spark-submit ends when the master has the driver.
    """
    return {
        # The master's REST API takes no request to wait; every master has the other way.
        "spark.master.rest.enabled": "false",
        "spark.standalone.submit.waitAppCompletion": "false" if departs else "true",
        # A worker would start a failed driver again; only the task knows whether to try again.
        "spark.driver.supervise": "false",
    }


def driver_environment(environment: Mapping[str, str], extra: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a spark-submit that sends it to a driver.

    :param environment: the environment of a spark-submit that does not.
    :param extra: variables of the caller, all of which the driver gets.
    """
    made = {name: value for name, value in environment.items() if name in _SENT or name in extra}
    if "JAVA_HOME" not in extra and (java_home := environment.get("JAVA_HOME")):
        # By JAVA_HOME, the worker would start a Java of this machine (SPARK-46912).
        made["PATH"] = os.pathsep.join(filter(None, [str(Path(java_home) / "bin"), made.get("PATH")]))
    return made


def driver_arguments(package: str) -> list[str]:
    """Return the arguments before those of the job's program: the archive, and no further Python files.

    :param package: URI of the archive, which a driver finds in its working directory.
    """
    return [quote(package.rpartition("/")[2]), ""]


def archive_uri(package: str) -> str:
    """Return the URI by which a worker fetches an archive: with Hadoop's scheme, and escaped."""
    # Every DAG file imports this module.
    from airflow_hive_federation.storage.filesystem import parse_location

    location = parse_location(package)
    given = package.partition(":")[0].lower()
    # A scheme of Hadoop's may have another meaning than the one that Python's drivers share: abfss has TLS.
    scheme = given if location.authority and given.startswith(location.scheme) else location.scheme
    scheme = _HADOOP_SCHEMES.get(scheme, scheme)
    store = f"//{location.authority}" if location.authority else ""
    return f"{scheme}:{store}{quote(location.path)}"
