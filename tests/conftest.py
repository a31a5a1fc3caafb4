"""Fixtures of all tests: two real metastores, real Hive's SQL engine on each, and a local Spark.

All of them are session-scoped and started at their first use. Tests share them: make databases of your own
names.
"""

from __future__ import annotations

import atexit
import logging
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from airflow_hive_federation.embedded.database import DERBY, SERVERS
from airflow_hive_federation.embedded.database_server import DatabaseServer
from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.embedded.sql import HiveSql
from tests.support.examples import DEFAULT
from tests.support.hive_beside_cleaner import HiveBesideCleaner
from tests.support.scheduling import pytest_sessionstart, pytest_xdist_make_scheduler
from tests.support.skips import pytest_configure, pytest_sessionfinish, pytest_terminal_summary
from tests.support.spark_classes import driver_options

__all__ = [
    "pytest_configure",
    "pytest_sessionfinish",
    "pytest_sessionstart",
    "pytest_terminal_summary",
    "pytest_xdist_make_scheduler",
]

# Airflow, imported by the tests of its surface, would otherwise write into the user's home. Workers inherit
# the variable.
if "AIRFLOW_HOME" not in os.environ:
    os.environ["AIRFLOW_HOME"] = tempfile.mkdtemp(prefix="airflow-home-")
    atexit.register(shutil.rmtree, os.environ["AIRFLOW_HOME"], ignore_errors=True)

# gcsfs reads it when it is imported: otherwise it asks each endpoint by gRPC for the kind of a bucket.
os.environ["GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT"] = "false"

# Hundreds of processes import the same modules: the first one compiles them, as is Python's default.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Tests replicate from directories of this machine; the policy's own list is tested without this.
os.environ["HIVE_FEDERATION_SOURCE_ROOTS"] = "file:/,s3://,gs://,abfs://,hdfs://,memory://"

os.environ.setdefault("SPARK_SUBMIT_OPTS", driver_options())

# The time of an example depends on the machine; a failing one is printed in a form that repeats it.
settings.register_profile(
    "suite",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
    max_examples=DEFAULT,
)
settings.load_profile("suite")

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def shared_metastores() -> list[EmbeddedMetastore]:
    """The metastores of ``source`` and ``target`` that have been started."""
    return []


@pytest.fixture(scope="session")
def shared_database() -> Iterator[str | DatabaseServer]:
    """The database of ``source`` and ``target``: Derby, or a server of the variable's kind."""
    kind = os.environ.get("HIVE_FEDERATION_TESTS_DATABASE", DERBY)
    if kind == DERBY:
        yield DERBY
        return
    with SERVERS[kind].start() as server:
        yield server


@pytest.fixture(scope="session")
def source(
    shared_metastores: list[EmbeddedMetastore], shared_database: str | DatabaseServer
) -> Iterator[EmbeddedMetastore]:
    """The metastore that is replicated from."""
    with EmbeddedMetastore.start("source", database=shared_database) as metastore:
        shared_metastores.append(metastore)
        yield metastore


@pytest.fixture(scope="session")
def target(
    shared_metastores: list[EmbeddedMetastore], shared_database: str | DatabaseServer
) -> Iterator[EmbeddedMetastore]:
    """The metastore that is replicated to."""
    with EmbeddedMetastore.start("target", database=shared_database) as metastore:
        shared_metastores.append(metastore)
        yield metastore


@pytest.fixture(scope="session")
def shared_engines() -> list[HiveSql]:
    """The SQL engines of ``source`` and ``target`` that have been asked for."""
    return []


@pytest.fixture(scope="session")
def hive_sql_source(source: EmbeddedMetastore, shared_engines: list[HiveSql]) -> Iterator[HiveSql]:
    """Hive's SQL engine on the source; settings last until the end of a file of tests."""
    with HiveBesideCleaner(source) as sql:
        shared_engines.append(sql)
        yield sql


@pytest.fixture(scope="session")
def hive_sql_target(target: EmbeddedMetastore, shared_engines: list[HiveSql]) -> Iterator[HiveSql]:
    """Hive's SQL engine on the target; settings last until the end of a file of tests."""
    with HiveBesideCleaner(target) as sql:
        shared_engines.append(sql)
        yield sql


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A local Spark with two threads, no UI, on loopback."""
    with local_spark() as session:
        yield session


@contextmanager
def local_spark() -> Iterator[SparkSession]:
    """Make the session of :func:`spark`."""
    from pyspark.sql import SparkSession

    from airflow_hive_federation.runtime.java import spark_java_home

    before = os.environ.get("JAVA_HOME")
    os.environ["JAVA_HOME"] = str(spark_java_home())
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    # The workers need the packages of this interpreter.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = (
        SparkSession.builder.master("local[2]")
        .appName("tests")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "4")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    # At the session's end it would log into a stream that pytest has closed.
    logging.getLogger("py4j").setLevel(logging.WARNING)
    yield session
    session.stop()
    if before is None:
        os.environ.pop("JAVA_HOME", None)
    else:
        os.environ["JAVA_HOME"] = before


@pytest.fixture
def unbound_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run without the administrator's list of roots that policies may copy from."""
    monkeypatch.delenv("HIVE_FEDERATION_SOURCE_ROOTS")
