"""The Spark hook refuses bad settings before it starts Spark, and names a job that it killed."""

from __future__ import annotations

import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from airflow_hive_federation.errors import SparkEnvironmentError, SparkJobError
from airflow_hive_federation.hooks import spark
from airflow_hive_federation.runtime import installed_spark
from airflow_hive_federation.runtime.installed_spark import InstalledSpark
from airflow_hive_federation.storage.hadoop_access import HadoopAccess


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


def test_java_finds_what_kerberos_library_finds() -> None:
    environ = {
        "KRB5_CONFIG": "/etc/realm a.conf:/other",
        "KRB5CCNAME": "FILE:/t",
        "SPARK_SUBMIT_OPTS": "-Dx=y",
    }
    assert spark.java_kerberos(environ, HadoopAccess.of({"config_dir": "/conf"})) == {
        "KRB5CCNAME": "/t",
        "HADOOP_CONF_DIR": "/conf",
        "SPARK_SUBMIT_OPTS": '-Dx=y "-Djava.security.krb5.conf=/etc/realm a.conf"',
    }
    own = {
        "SPARK_SUBMIT_OPTS": "-Djava.security.krb5.conf=/mine",
        "HADOOP_CONF_DIR": "/h",
        "KRB5_CONFIG": "/r",
    }
    assert spark.java_kerberos(own, HadoopAccess.of({"config_dir": "/conf"})) == {}
    cached = HadoopAccess.of({"kerberos_cache": "/mine"})
    assert spark.java_kerberos({"KRB5CCNAME": "KCM:"}, cached) == {"KRB5CCNAME": "/mine"}


@pytest.mark.parametrize("master", ["yarn", "k8s://https://api", "local[*]", "spark://far:7077"])
def test_login_of_clusters_that_obtain_tokens(master: str) -> None:
    login = {"kerberos_principal": "alice@R", "kerberos_keytab": "/k"}
    access = HadoopAccess.of({"hdfs://a:1/x": login, "hdfs://b": login})
    expected = {
        "spark.kerberos.principal": "alice@R",
        "spark.kerberos.keytab": "/k",
        "spark.kerberos.access.hadoopFileSystems": "hdfs://a:1,hdfs://b",
    }
    obtains = master.startswith(("yarn", "k8s"))
    assert spark.kerberos_properties(master, access) == (expected if obtains else {})
    for other in ({}, {"kerberos_keytab": "/k"}, {"hdfs://a": login, "hdfs://b": {"kerberos_cache": "/c"}}):
        assert spark.kerberos_properties(master, HadoopAccess.of(other)) == {}


#: A spark-submit whose driver has reported the lost connection, and that ends only when it is killed.
_SUBMIT = """#!{python}
import time
from pathlib import Path
from airflow_hive_federation.errors import SparkJobError
from airflow_hive_federation.spark.failures import error_report
Path({report!r}).write_text(error_report(SparkJobError("[Errno 111] Connection refused")))
time.sleep(600)
"""


def test_killed_job_reports_its_lost_connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Python driver outlives its killed JVM for a moment, and its report blames the lost connection."""
    report = tmp_path / "_report.json"
    submit = tmp_path / "spark-submit"
    submit.write_text(_SUBMIT.format(python=sys.executable, report=str(report)))
    submit.chmod(0o755)
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_FAR", json.dumps({"conn_type": "spark", "host": "spark://far"}))
    hook = spark.SparkPipelineHook("spark_far", env={"PATH": str(tmp_path)})
    with ThreadPoolExecutor(1) as pool:
        job = pool.submit(hook.submit, "copy-files", [], report_uri=report.as_uri())
        try:
            while not (report.is_file() and report.stat().st_size) and not job.done():
                time.sleep(0.01)
        finally:
            hook.on_kill()
        with pytest.raises(SparkJobError, match=r"^The Spark job was killed\."):
            job.result()
