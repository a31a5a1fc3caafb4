"""Jobs on the YARN of an embedded HDFS, submitted as tasks of Airflow submit them."""

from __future__ import annotations

import json
import os
import sys
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from airflow_hive_federation.embedded.hdfs import EmbeddedHdfs
from airflow_hive_federation.hooks.departures import JobDeparture
from airflow_hive_federation.hooks.probes import JobProbe
from airflow_hive_federation.hooks.spark import SparkPipelineHook, spark_environment
from tests.support.spark_classes import driver_options

#: The connection of the jobs.
CONNECTION = "spark_yarn"
#: The variable of this connection.
VARIABLE = "AIRFLOW_CONN_SPARK_YARN"


class Yarn:
    """A cluster with YARN, the settings of jobs on it, and the states of its applications.

    :param java: options of all JVMs of the jobs.
    :param storage_options: the storage options of the jobs.
    :param metastores: connections to metastores, which have these options.
    """

    def __init__(
        self,
        hadoop: EmbeddedHdfs,
        *,
        java: str = "",
        env: Mapping[str, str] | None = None,
        storage_options: Mapping[str, Any] | None = None,
        metastores: Sequence[str] = (),
    ) -> None:
        self.hadoop = hadoop
        self._metastores = metastores
        self.storage_options = storage_options
        home = spark_environment(os.environ, {}, {}, local=True)["SPARK_HOME"]
        configuration = str(hadoop.configuration)
        self.env = {"HADOOP_CONF_DIR": configuration, "PYSPARK_PYTHON": sys.executable, **(env or {})}
        options = f"{driver_options()} {java}".strip()
        # A JVM shares the classes of a path that begins as that of spark-submit.
        (first,) = Path(home, "jars").glob("slf4j-api-*.jar")
        jars = os.pathsep.join([f"{home}/conf", str(first), f"{home}/jars/*"])
        self.conf = {
            # Containers find Spark on the disk, and not in the staging directory.
            "spark.yarn.jars": f"local:{home}/jars/*",
            "spark.executor.instances": "1",
            "spark.executor.memory": "512m",
            "spark.executor.memoryOverhead": "768m",
            "spark.driver.memory": "512m",
            "spark.driver.memoryOverhead": "768m",
            "spark.ui.enabled": "false",
            # By default, a shuffle of a few rows has 200 files and tasks.
            "spark.sql.shuffle.partitions": "2",
            # Spark learns of the end of an executor, and of an application, at these intervals.
            "spark.yarn.scheduler.heartbeat.interval-ms": "500",
            "spark.yarn.report.interval": "300ms",
            "spark.driver.extraJavaOptions": options,
            "spark.executor.extraJavaOptions": options,
            "spark.yarn.am.extraJavaOptions": options,
            "spark.driver.extraClassPath": jars,
            "spark.executor.extraClassPath": jars,
        }

    def connection(self, deploy_mode: str, **extra: str) -> str:
        address = {"yarn_resourcemanager_webapp_address": self.hadoop.resource_manager_uri}
        fields = {"deploy-mode": deploy_mode, **address, **extra}
        return json.dumps({"conn_type": "spark", "host": "yarn", "extra": fields})

    def hook(self, **conf: str) -> SparkPipelineHook:
        return SparkPipelineHook(
            CONNECTION, conf={**self.conf, **conf}, env=self.env, storage_options=self.storage_options
        )

    def run_by_leaving(self, work: Callable[[SparkPipelineHook], Any]) -> Any:
        """Do work that submits one job as a task that leaves its worker meanwhile; return its result."""
        leaving = self.hook()
        leaving.depart(True)
        try:
            work(leaving)
        except JobDeparture as left:
            job = left.job
            # YARN has reported the page to which the task links.
            assert "/proxy/application_" in leaving.application_url
        else:
            raise AssertionError("the task did not leave its worker")
        probe = JobProbe(
            report=job.report,
            attempt=job.attempt,
            spark_conn_id=CONNECTION,
            metastore_conn_ids=self._metastores,
        )
        wait_for(lambda: bool(probe()))
        returning = self.hook()
        returning.depart(True, [job])
        result = work(returning)
        returning.arrive()
        return result

    def applications(self) -> list[tuple[str, str]]:
        """Return the state and the final status of each application, with the oldest first."""
        return [(app["state"], app["finalStatus"]) for app in self._applications()]

    def users(self) -> list[str]:
        """Return the user of each application, with the oldest first."""
        return [app["user"] for app in self._applications()]

    def all_ended(self) -> bool:
        return all(state in {"FINISHED", "FAILED", "KILLED"} for state, _ in self.applications())

    def _applications(self) -> list[dict[str, Any]]:
        with urllib.request.urlopen(f"{self.hadoop.resource_manager_uri}/ws/v1/cluster/apps") as answer:
            apps = (json.load(answer)["apps"] or {}).get("app", [])
        return sorted(apps, key=lambda app: str(app["id"]))


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 240
    while not condition():
        assert time.monotonic() < deadline, "nothing happened within four minutes"
        time.sleep(0.3)
