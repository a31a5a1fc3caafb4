"""Starts the servers of the demo: the local disk, Derby and a local Spark, or HDFS, PostgreSQL and YARN."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.runtime.cache import write_atomically

if TYPE_CHECKING:
    from airflow_hive_federation.embedded.hdfs import EmbeddedHdfs
    from airflow_hive_federation.embedded.postgresql import EmbeddedPostgresql

LOCAL = "local"
HADOOP = "hadoop"
KINDS = (LOCAL, HADOOP)

#: Containers find Spark on the disk, and need little memory for the demo.
_DEFAULTS = """\
spark.yarn.jars local:{home}/jars/*
spark.executor.instances 1
spark.executor.memory 1g
spark.driver.memory 1g
"""


@dataclass(frozen=True, kw_only=True)
class Site:
    """The store of the demo's tables and dumps, the database of its metastores, and its Spark.

    :param base: URI of the directory that holds a directory per metastore, and the dumps.
    :param database: a PostgreSQL server; ``None`` for Derby, inside of each metastore.
    :param hadoop: an HDFS with YARN; ``None`` for a local Spark.
    """

    base: str
    database: EmbeddedPostgresql | None = None
    hadoop: EmbeddedHdfs | None = None

    def described(self) -> list[str]:
        """Return lines with the addresses of the site's servers; none for the local disk."""
        lines = []
        if self.database is not None:
            lines = [f"store    {self.base}", f"database 127.0.0.1:{self.database.port} (PostgreSQL)"]
        if self.hadoop is not None:
            lines.append(f"YARN     {self.hadoop.resource_manager_uri}")
        return lines

    def spark_connection(self) -> dict[str, object]:
        """Return the fields of the connection of Spark's jobs."""
        if self.hadoop is None:
            return {"conn_type": "spark", "host": "local[*]"}
        extra = {
            "deploy-mode": "cluster",
            "yarn_resourcemanager_webapp_address": self.hadoop.resource_manager_uri,
        }
        return {"conn_type": "spark", "host": "yarn", "extra": extra}

    def spark_environment(self) -> dict[str, str]:
        """Return the variables by which spark-submit finds YARN, and YARN's containers Spark and Python."""
        if self.hadoop is None:
            return {}
        from airflow_hive_federation.runtime.installed_spark import pyspark_home

        configuration = self.hadoop.configuration
        defaults = _DEFAULTS.format(home=pyspark_home())
        write_atomically(configuration / "spark-defaults.conf", defaults.encode())
        return {
            "HADOOP_CONF_DIR": str(configuration),
            "SPARK_CONF_DIR": str(configuration),
            "PYSPARK_PYTHON": sys.executable,
        }

    def settings(self, name: str) -> dict[str, str]:
        """Return Hive's settings for a metastore and its SQL engine."""
        from airflow_hive_federation.embedded.configuration import settings_on_hdfs

        return settings_on_hdfs(f"{self.base}/{name}") if self.base.startswith("hdfs:") else {}

    def warehouse(self, name: str) -> str:
        """Return the URI of a metastore's directory of managed tables."""
        return f"{self.base}/{name}/warehouse"

    def external(self, name: str) -> str:
        """Return the URI of a metastore's directory of external tables."""
        return f"{self.base}/{name}/external"

    @property
    def dumps(self) -> str:
        """Return the URI of the directory of dumps."""
        return f"{self.base}/dumps"


def start_site(kind: str, stack: ExitStack, directory: Path) -> Site:
    """Start the servers of a site; they stop when ``stack`` is closed.

    :param kind: one of :data:`KINDS`.
    :param directory: the demo's directory, for the files of a local site and of HDFS.
    :raises ConfigurationError: the client of HDFS is not installed, or PostgreSQL cannot run here.
    :raises MetastoreStartError: a server does not start.
    """
    if kind == LOCAL:
        return Site(base=f"file:{directory}")
    check_client()
    from airflow_hive_federation.embedded.hdfs import EmbeddedHdfs
    from airflow_hive_federation.embedded.postgresql import EmbeddedPostgresql

    # If root runs the demo, the server runs as the user nobody, who has no right to the demo's directory. So
    # the server makes a directory of its own, and removes it.
    database = stack.enter_context(EmbeddedPostgresql.start())
    hadoop = stack.enter_context(EmbeddedHdfs.start(directory=directory / "hdfs", yarn=True))
    return Site(base=f"{hadoop.uri}/demo", database=database, hadoop=hadoop)


def check_client() -> None:
    """Check that the client of HDFS is installed.

    :raises ConfigurationError: it is not.
    """
    if find_spec("hdfs_native") is None:
        raise ConfigurationError(
            "The client of HDFS is not installed, which the site hadoop needs.",
            remedy="pip install 'airflow-hive-federation[demo,hdfs]'",
        )
