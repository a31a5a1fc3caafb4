"""Spark's internals are used in one module, for versions of Spark that it knows."""

from __future__ import annotations

import pickle
import re
from pathlib import Path

import pyspark
import pytest
from pyspark.sql.connect.session import SparkSession as ConnectSession

import airflow_hive_federation
from airflow_hive_federation.errors import ConfigurationError, SparkEnvironmentError
from airflow_hive_federation.tables.spark_internals import SUPPORTED_VERSIONS, check_session, check_version

PACKAGE = Path(airflow_hive_federation.__file__).parent
_INTERNAL = re.compile(
    r"\b(_jvm|_jsparkSession|_jdf|_jc|_jsc|_sc|_gateway|_gateway_client|JavaClass|java_gateway)\b"
)


@pytest.mark.parametrize(
    "version", [pyspark.__version__, "3.5.7", "4.0.1", "4.1.2", "4.2", "4.2.1-SNAPSHOT", "3.5.0-vendor-3"]
)
def test_known_versions_pass(version: str) -> None:
    check_version(version)


@pytest.mark.parametrize("version", ["3.4.4", "3.50.0", "4.3.0", "4.20.0", "5.1.0", "14.2.0", ""])
def test_other_versions_are_refused_by_name(version: str) -> None:
    with pytest.raises(SparkEnvironmentError, match=re.escape(f"Spark {version} is not supported")) as caught:
        check_version(version)
    error = pickle.loads(pickle.dumps(caught.value))
    assert (error.version, error.supported) == (version, SUPPORTED_VERSIONS)
    assert "3.5, 4.0, 4.1 and 4.2" in error.message
    assert "Run Spark 4.2" in error.remedy


def test_a_session_of_spark_connect_is_refused() -> None:
    session = ConnectSession.__new__(ConnectSession)  # It has no server, and needs none here.
    with pytest.raises(ConfigurationError, match="no JVM of its own"):
        check_session(session)


def test_no_other_module_reaches_into_the_jvm() -> None:
    users = {
        str(path.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*.py")
        if "idl" not in path.parts and _INTERNAL.search(path.read_text(encoding="utf-8"))
    }
    # The login is Hadoop's public class, the same in all versions.
    assert users == {"tables/spark_internals.py", "spark/hadoop_login.py"}
