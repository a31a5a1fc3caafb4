"""The check of Spark's Java for a mechanism of SASL, and the choice of the login."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_hive_federation.errors import SparkEnvironmentError
from airflow_hive_federation.spark.hadoop_login import _check_mechanism, _login_of_spark
from airflow_hive_federation.storage.hadoop_access import KerberosLogin


class _Java:
    """The two classes of Java, with the mechanisms of one runtime: that of the tests has others."""

    def __init__(self, *mechanisms: list[str]) -> None:
        self._mechanisms = list(mechanisms)

    def __call__(self, _name: str) -> _Java:
        return self

    def getSaslClientFactories(self) -> _Java:  # noqa: N802 - Java's name
        return self

    def hasMoreElements(self) -> bool:  # noqa: N802
        return bool(self._mechanisms)

    def nextElement(self) -> _Java:  # noqa: N802
        return _Java(self._mechanisms.pop(0))

    def getMechanismNames(self, _: None) -> list[str]:  # noqa: N802
        return self._mechanisms[0]

    def getProperty(self, _: str) -> str:  # noqa: N802
        return "/opt/java"


def test_a_java_without_kerberos_for_sasl_is_named() -> None:
    _check_mechanism(_Java(["PLAIN", "DIGEST-MD5"], ["GSSAPI"]))
    with pytest.raises(SparkEnvironmentError, match=r"/opt/java.*jdk\.security\.jgss is missing.*JAVA_HOME"):
        _check_mechanism(_Java(["PLAIN", "DIGEST-MD5"]))


@pytest.mark.parametrize("missing", ["", "principal", "keytab"])
def test_sparks_login_is_whole_or_not_there(missing: str) -> None:
    properties: dict[str, Any] = {"spark.kerberos.principal": "a@R", "spark.kerberos.keytab": "/k"}
    properties.pop(f"spark.kerberos.{missing}", None)

    class Context:
        def getConf(self) -> dict[str, Any]:  # noqa: N802
            return properties

    expected = None if missing else KerberosLogin(principal="a@R", keytab="/k")
    assert _login_of_spark(Context()) == expected
