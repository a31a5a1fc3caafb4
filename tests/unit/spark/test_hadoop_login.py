"""The login of Spark's JVM: the check of its Java, the choice of the login, and the logins that stay."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from airflow_hive_federation.errors import (
    ConfigurationError,
    SparkEnvironmentError,
    StoragePermissionError,
)
from airflow_hive_federation.spark import hadoop_login
from airflow_hive_federation.spark.hadoop_login import _check_mechanism, _login_of_spark, log_in
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


class _Users:
    """Hadoop's ``UserGroupInformation``, with the login of its process and the logins that it is asked for.

    :param keytab: the process has logged in as this principal by a keytab.
    :param ticket: the process has a valid ticket of alice's.
    :param found: a login by ticket succeeds.
    :param tokens: number of delegation tokens.
    """

    def __init__(
        self, *, keytab: str = "", ticket: bool = False, found: bool = True, tokens: int = 0
    ) -> None:
        self._keytab, self._ticket, self._found, self._tokens = keytab, ticket, found, tokens
        self.logins: list[Any] = []

    def setConfiguration(self, _: Any) -> None:  # noqa: N802 - Java's names
        """Hadoop keeps it."""

    def getLoginUser(self) -> Any:  # noqa: N802
        return SimpleNamespace(
            isFromKeytab=lambda: bool(self._keytab),
            getUserName=lambda: "alice@R" if self._ticket else self._keytab,
            hasKerberosCredentials=lambda: self._ticket,
            getTokens=lambda: SimpleNamespace(size=lambda: self._tokens),
        )

    def loginUserFromKeytab(self, principal: str, keytab: str) -> None:  # noqa: N802
        self.logins.append((principal, keytab))

    def loginUserFromSubject(self, subject: None) -> None:  # noqa: N802
        self.logins.append(subject)
        self._ticket = self._found


class _Settings(dict[str, str]):
    """Hadoop's ``Configuration``."""

    def set(self, name: str, value: str) -> None:
        self[name] = value


NAME_NODE = {"dfs.namenode.kerberos.principal": "hdfs/_HOST@R"}
BY_KEYTAB = {**NAME_NODE, "kerberos_principal": "alice@R", "kerberos_keytab": "/k"}
BY_TICKET = {**NAME_NODE, "kerberos_cache": "/c"}
SPARK = {"spark.kerberos.principal": "spark@R", "spark.kerberos.keytab": "/s"}


def logged_in(
    monkeypatch: pytest.MonkeyPatch,
    users: _Users,
    options: dict[str, Any],
    *,
    properties: dict[str, str] | None = None,
    files: dict[str, str] | None = None,
) -> list[Any]:
    """Log a JVM in whose Java has Kerberos, and return the logins that it was asked for."""

    def java(name: str, gateway_client: None) -> Any:
        return users if name.endswith("UserGroupInformation") else _Java(["GSSAPI"])

    monkeypatch.setattr(hadoop_login, "JavaClass", java)
    configuration = _Settings(files or {})
    context = SimpleNamespace(
        getConf=lambda: properties or {},
        _jsc=SimpleNamespace(hadoopConfiguration=lambda: configuration),
        _gateway=SimpleNamespace(_gateway_client=None),
    )
    log_in(context, options)
    return users.logins


@pytest.mark.parametrize(
    ("users", "options", "logins"),
    [
        (_Users(), {"dfs.replication": "3"}, []),
        (_Users(), BY_KEYTAB, [("alice@R", "/k")]),
        (_Users(ticket=True), BY_KEYTAB, [("alice@R", "/k")]),
        (_Users(keytab="bob@R"), BY_KEYTAB, [("alice@R", "/k")]),
        (_Users(keytab="alice@R"), BY_KEYTAB, []),
        (_Users(), BY_TICKET, [None]),
        (_Users(ticket=True), BY_TICKET, []),
        (_Users(tokens=1, found=False), BY_TICKET, []),
    ],
)
def test_a_jvm_that_has_its_login_keeps_it(
    users: _Users, options: dict[str, Any], logins: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert logged_in(monkeypatch, users, options) == logins


def test_the_login_of_sparks_connection_goes_before_that_of_the_options(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = logged_in(monkeypatch, _Users(), BY_KEYTAB, properties=SPARK)
    assert asked == [("spark@R", "/s")]
    # Without a login of its own, a job leaves the JVM to Hadoop's files.
    files = {**NAME_NODE, "hadoop.security.authentication": "kerberos"}
    assert logged_in(monkeypatch, _Users(), {}, files=files) == []
    # The connection's is of use only where Hadoop's files, or the options, ask for Kerberos.
    assert logged_in(monkeypatch, _Users(), {}, properties=SPARK) == []
    assert logged_in(monkeypatch, _Users(), {}, properties=SPARK, files=files) == [("spark@R", "/s")]


def test_a_login_without_the_name_nodes_principal_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    users, options = _Users(), {"kerberos_principal": "alice@R", "kerberos_keytab": "/k"}
    with pytest.raises(ConfigurationError, match=r"dfs\.namenode\.kerberos\.principal is not set"):
        logged_in(monkeypatch, users, options)
    assert users.logins == []
    pattern = {"dfs.namenode.kerberos.principal.pattern": "*"}
    assert logged_in(monkeypatch, users, options, files=pattern) == [("alice@R", "/k")]


def test_a_cache_without_a_ticket_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(StoragePermissionError, match=r"the ticket in /c: the cache holds no valid ticket"):
        logged_in(monkeypatch, _Users(found=False), BY_TICKET)
