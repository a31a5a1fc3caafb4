"""Reads both sides of a replica, small ones in this process, as a task does, or by Spark, too."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_hive_federation.spark.job import run_job
from airflow_hive_federation.spark.verify_replica import verify_small_plan
from airflow_hive_federation.storage.digests import FileDigest
from airflow_hive_federation.storage.filesystem import local_path
from airflow_hive_federation.storage.plan_files import read_record_parts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Carries out the plan of a verification: the session, and the URIs of the plan and of its results.
Reading = Callable[["SparkSession", str, str], None]


def read_as_a_task(spark: SparkSession, plan: str, results: str) -> None:
    """Carry out the plan of a verification, without Spark if it is small."""
    if not verify_small_plan(plan, results):
        _read_by_spark(spark, plan, results)


def read_both_ways(spark: SparkSession, plan: str, results: str) -> None:
    """Carry out the plan of a verification by Spark, and a small one in this process, too: results are equal.

    :param results: URI of the directory for the results; those of this process get a directory beside it.
    """
    _read_by_spark(spark, plan, results)
    here = f"{results}-here"
    if local_path(here) is not None and verify_small_plan(plan, here):
        assert _rows(here) == _rows(results)
        assert _digests(here) == _digests(results)


def _read_by_spark(spark: SparkSession, plan: str, results: str) -> None:
    run_job(spark, "verify-replica", ["--plan", plan, "--results", results])


def _rows(results: str) -> dict[tuple[str, str], object]:
    path = Path(local_path(results) or "") / "rows.jsonl"
    lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    return {(line["table"], line["side"]): line for line in lines}


def _digests(results: str) -> dict[str, str]:
    return {record.uri: record.digest for record in read_record_parts(f"{results}/digests", FileDigest)}
