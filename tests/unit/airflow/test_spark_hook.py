"""The Spark hook refuses bad settings before it starts Spark."""

from __future__ import annotations

import pytest

from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.hooks import spark


@pytest.mark.parametrize(
    ("pyspark", "client"), [("4.2.0", "4.2.0"), ("4.1.1", None), (None, "4.1.2"), (None, None)]
)
def test_one_version_of_pyspark(pyspark: str | None, client: str | None) -> None:
    spark.refuse_mixed_pyspark(pyspark, client)


def test_two_versions_of_pyspark_in_one_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    installed = {"pyspark": "4.2.0", "pyspark-client": "4.1.2"}
    monkeypatch.setattr(spark, "_installed_version", installed.get)
    with pytest.raises(
        ConfigurationError, match=r"pyspark 4\.2\.0 and pyspark-client 4\.1\.2 .*pyspark==4\.1\.2"
    ):
        spark.spark_environment({}, {}, {}, local=True)


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
