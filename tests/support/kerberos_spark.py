"""Spark in a process of its own, whose JVM logs in to Kerberos as that of a job does."""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_hive_federation.errors import HiveFederationError
from airflow_hive_federation.metastore import MetastoreClient, MetastoreSettings
from airflow_hive_federation.remotes.read import read_remote_table
from airflow_hive_federation.remotes.session import Remotes
from airflow_hive_federation.spark.hadoop_login import log_in
from airflow_hive_federation.spark.job import run_job
from airflow_hive_federation.tables.read.reader import read_table
from airflow_hive_federation.tables.write.statements import delete
from tests.support.cycling import Scheduled
from tests.support.gss_java import java_options, java_with_module
from tests.support.spark_classes import QUICK

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Longest time of one call, on a machine that is busy with ten other jobs.
_SECONDS = 600


@dataclass(frozen=True)
class KerberosSpark:
    """The process; each call raises the error that its work raised there."""

    connection: Connection

    def job(self, name: str, arguments: Sequence[str], options: Mapping[str, Any]) -> None:
        """Run a job, at whose start the JVM logs in."""
        self._call(_job, name, arguments, options)

    def delete(self, settings: MetastoreSettings, table: str, where: str, options: Mapping[str, Any]) -> int:
        """Delete rows of an ACID table; return their number."""
        deleted: int = self._call(_delete, settings, table, where, options)
        return deleted

    def remote_rows(
        self, settings: MetastoreSettings, table: str, options: Mapping[str, Any]
    ) -> list[tuple[Any, ...]]:
        """Return the rows of a remote table of a metastore, by the ticket of the process at the remote."""
        rows: list[tuple[Any, ...]] = self._call(_remote_rows, settings, table, options)
        return rows

    def log_in(self, options: Mapping[str, Any]) -> None:
        """Log the JVM in, as a job does before its work."""
        self._call(_log_in, options)

    def _call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        self.connection.send((function, arguments))
        assert self.connection.poll(_SECONDS), "Spark does not answer"
        done, answer = self.connection.recv()
        if done:
            return answer
        raise answer


@dataclass(kw_only=True)
class KerberosCycles(Scheduled):
    """Cycles whose jobs run in a Spark with Kerberos."""

    process: KerberosSpark

    def _copy(self, plan: str, outcomes: str) -> None:
        self._job("copy-files", "--plan", plan, "--outcomes", outcomes)

    def _read(self, plan: str, results: str) -> None:
        self._job("verify-replica", "--plan", plan, "--results", results)

    def _job(self, name: str, *arguments: str) -> None:
        self.process.job(name, arguments, self.policy.storage_options)


@contextmanager
def kerberos_spark(configuration: Path, cache: Path) -> Iterator[KerberosSpark]:
    """Start the process; its Java has the module that Kerberos needs.

    :param configuration: the realm's ``krb5.conf``.
    :param cache: the process' ticket cache, which need not exist.
    """
    here, there = multiprocessing.Pipe()
    java = java_with_module()
    with (
        pytest.MonkeyPatch.context() as patch,
        java_options(f"-Djava.security.krb5.conf={configuration}"),
    ):
        patch.setenv("JAVA_HOME", str(java.home))
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        patch.setenv("KRB5_CONFIG", str(configuration))
        patch.setenv("KRB5CCNAME", f"FILE:{cache}")
        # The archive of Spark's classes is of another Java.
        patch.setenv("SPARK_SUBMIT_OPTS", QUICK)
        process = multiprocessing.get_context("spawn").Process(target=_serve, args=(there,), daemon=True)
        process.start()
    there.close()
    try:
        with here:
            yield KerberosSpark(here)
    finally:
        process.join(_SECONDS)
        process.close()


def _serve(connection: Connection) -> None:
    from pyspark.sql import SparkSession

    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    while True:
        try:
            function, arguments = connection.recv()
        except EOFError:
            break
        try:
            answer = True, function(session, *arguments)
        except HiveFederationError as error:
            answer = False, error
        connection.send(answer)
    session.stop()


def _job(spark: SparkSession, name: str, arguments: Sequence[str], options: Mapping[str, Any]) -> None:
    log_in(spark.sparkContext, options)
    run_job(spark, name, arguments, options=options)


def _log_in(spark: SparkSession, options: Mapping[str, Any]) -> None:
    log_in(spark.sparkContext, options)


def _remote_rows(
    spark: SparkSession, settings: MetastoreSettings, table: str, options: Mapping[str, Any]
) -> list[tuple[Any, ...]]:
    log_in(spark.sparkContext, options)
    with Remotes(settings) as remotes:
        rows = read_remote_table(spark, remotes, table, storage_options=options).collect()
    return sorted(map(tuple, rows))


def _delete(
    spark: SparkSession, settings: MetastoreSettings, table: str, where: str, options: Mapping[str, Any]
) -> int:
    log_in(spark.sparkContext, options)
    with MetastoreClient(settings) as client:
        rows = read_table(spark, client, table, where=where, row_ids=True, storage_options=options)
        chosen = rows.where(where).drop("a", "b")
        return delete(spark, client, table, chosen, storage_options=options).deleted
