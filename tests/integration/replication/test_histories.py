"""A history of a fixed seed; ``make torture`` runs others."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.embedded.sql import HiveSql
from tests.support.history_runs import Servers, run_history

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.slow
def test_the_replica_of_a_history_is_equal_after_every_cycle(
    source: EmbeddedMetastore,
    target: EmbeddedMetastore,
    hive_sql_source: HiveSql,
    hive_sql_target: HiveSql,
    spark: SparkSession,
    tmp_path: Path,
) -> None:
    servers = Servers(source, target, hive_sql_source, hive_sql_target, spark)
    done = run_history(servers, 1, 45, tmp_path)
    assert done.cycles > 4
    assert len(done.refused) < 6, done.refused
