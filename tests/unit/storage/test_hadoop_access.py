"""A JVM's access to HDFS, decided from storage options."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.storage.hadoop_access import HadoopAccess, KerberosLogin, options_of_driver

ALICE = {"kerberos_principal": "alice@R", "kerberos_keytab": "/k"}
LOGIN = KerberosLogin(principal="alice@R", keytab="/k")
SECURED = {"hadoop.security.authentication": "kerberos"}


@pytest.mark.parametrize(
    ("options", "logins"),
    [
        (None, ()),
        ({}, ()),
        ({"key": "k", "secret": "s"}, ()),
        ({"dfs.replication": 3}, ()),
        ({"s3://b": {"key": "k"}, "hdfs://n": {}}, ()),
        (ALICE, (LOGIN,)),
        (SECURED, (KerberosLogin(),)),
        ({"kerberos_cache": "/c"}, (KerberosLogin(cache="/c"),)),
        ({"hdfs://a": ALICE, "hdfs://b": {**ALICE, **SECURED}}, (LOGIN,)),
        # A store without Kerberos beside one with it.
        ({"hdfs://a": ALICE, "hdfs://b": {}, "s3://c": ALICE}, (LOGIN,)),
    ],
)
def test_logins(options: dict[str, Any] | None, logins: tuple[KerberosLogin, ...]) -> None:
    assert HadoopAccess.of(options).logins == logins


def test_settings_are_those_with_a_dot_and_no_secret() -> None:
    access = HadoopAccess.of(
        {"hdfs://a:1/x": {**ALICE, "dfs.x": 1, "config_dir": "/conf"}, "s3://b": {"y.z": 2}}
    )
    assert access.common_settings() == {"dfs.x": "1"}
    assert (access.config_dir, access.stores) == ("/conf", ("hdfs://a:1",))


def test_no_value_of_a_setting_is_shown() -> None:
    """Hadoop's settings may hold keys: options for every URI have those of other stores among them."""
    assert "s3cr3t" not in repr(HadoopAccess.of({**ALICE, "fs.s3a.secret.key": "s3cr3t"}))
    access = HadoopAccess.of({"hdfs://a": {"a.key": "s3cr3t"}, "hdfs://b": {"a.key": "s3cr3t2"}})
    with pytest.raises(ConfigurationError, match=r"a\.key") as caught:
        access.common_settings()
    assert "s3cr3t" not in f"{caught.value} {caught.value.facts}"


def test_one_jvm_has_one_value_and_one_login() -> None:
    access = HadoopAccess.of(
        {"hdfs://a": {**ALICE, "dfs.x": "1"}, "hdfs://b": {"dfs.x": "2", "kerberos_principal": "bob@R"}}
    )
    with pytest.raises(ConfigurationError, match=r"different values of dfs\.x.*HADOOP_CONF_DIR"):
        access.common_settings()
    with pytest.raises(ConfigurationError, match=r"alice@R, bob@R.*spark\.kerberos\.principal"):
        access.common_login()


def test_a_keytab_needs_its_principal() -> None:
    with pytest.raises(ConfigurationError, match=r"keytab /k and no principal.*kerberos_principal"):
        HadoopAccess.of({"kerberos_keytab": "/k"}).common_login()


@pytest.mark.parametrize(
    ("options", "by_tokens", "by_keytab"),
    [
        (None, {}, {}),
        (ALICE, {}, ALICE),
        (
            {"hdfs://a": {**ALICE, **SECURED, "config_dir": "/conf"}, "hdfs://b": {"config_dir": "/conf"}},
            {"hdfs://a": SECURED},
            {"hdfs://a": {**ALICE, **SECURED}},
        ),
        ({"kerberos_cache": "/c", **SECURED}, SECURED, None),
        (
            {"client": "libhdfs", **SECURED},
            {"client": "libhdfs", **SECURED},
            {"client": "libhdfs", **SECURED},
        ),
        ({"key": "k", "secret": "s"}, None, None),
        ({"hdfs://a": ALICE, "s3://b": {"key": "k"}}, None, None),
        ({"hdfs://a": {"key": "k"}}, None, None),
        ({"fs.s3a.secret.key": "s"}, None, None),
        ({"hdfs://a": {"hadoop.security.credstore.password": "s"}}, None, None),
    ],
)
def test_a_driver_elsewhere_gets_no_secret(
    options: dict[str, Any] | None,
    by_tokens: dict[str, Any] | None,
    by_keytab: dict[str, Any] | None,
) -> None:
    assert options_of_driver(options, keytabs=False) == by_tokens
    assert options_of_driver(options, keytabs=True) == by_keytab
