"""The Spark hook refuses bad settings before it starts Spark."""

from __future__ import annotations

import pytest

from airflow_hive_federation.errors import SparkEnvironmentError
from airflow_hive_federation.hooks import spark
from airflow_hive_federation.runtime import installed_spark
from airflow_hive_federation.runtime.installed_spark import InstalledSpark


def test_two_versions_of_pyspark_in_one_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    mixed = InstalledSpark(pyspark="4.2.0", client="4.1.2", provider="6.1.0")
    monkeypatch.setattr(installed_spark, "installed_spark", lambda: mixed)
    with pytest.raises(SparkEnvironmentError, match=r"pyspark 4\.2\.0 and pyspark-client 4\.1\.2 "):
        spark.spark_environment({}, {}, {}, local=True)
    # A Spark of the cluster's own has no pyspark-client beside it.
    made = spark.spark_environment({"SPARK_HOME": "/opt/spark"}, {}, {}, local=True)
    assert made["SPARK_HOME"] == "/opt/spark"


def test_spark_gets_no_secrets_of_airflow() -> None:
    environ = {
        "AIRFLOW_CONN_SOURCE": "{}",
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": "x",
        "AIRFLOW_VAR_KEY": "x",
        "JAVA_HOME": "/j",
        "AIRFLOW_CTX_TASK_ID": "t",
    }
    made = spark.spark_environment(environ, {"AIRFLOW_VAR_ASKED_FOR": "y"}, {"key": "k"}, local=False)
    assert {name for name in made if name.startswith("AIRFLOW")} == {
        "AIRFLOW_CTX_TASK_ID",
        "AIRFLOW_VAR_ASKED_FOR",
    }
