"""Hive's own settings, taken over by a streaming connection."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_hive_federation.ingest.connection import HiveStreamingConnection
from airflow_hive_federation.ingest.errors import InvalidConnection
from airflow_hive_federation.ingest.hive_conf import metastore_settings
from airflow_hive_federation.metastore import KerberosSettings, TlsSettings

SITE = """<?xml version="1.0"?>
<configuration>
  <property><name>hive.metastore.uris</name><value>thrift://a:9083, thrift://b:9083</value></property>
  <property><name>hive.txn.manager</name><value>other</value></property>
  <property><name>empty</name><value/></property>
</configuration>
"""


def test_kerberos_tls_and_timeout() -> None:
    settings = metastore_settings(
        {
            "hive.metastore.uris": "thrift://older:1",
            "metastore.thrift.uris": "thrift://h:1,thrift://i:2",
            "hive.metastore.sasl.enabled": "TRUE",
            "metastore.kerberos.principal": "hive/_HOST@EXAMPLE.COM",
            "hive.metastore.use.SSL": "true",
            "metastore.truststore.path": "/etc/ca.pem",
            "hive.metastore.client.socket.timeout": "5 min",
        }
    )
    assert settings.uris == ("thrift://h:1", "thrift://i:2")
    assert settings.authentication == KerberosSettings(server_principal="hive/_HOST@EXAMPLE.COM")
    assert settings.tls == TlsSettings(ca_file="/etc/ca.pem")
    assert settings.call_timeout_s == 300


def test_nothing_but_uris() -> None:
    settings = metastore_settings(
        {"hive.metastore.uris": "thrift://h:1", "hive.metastore.sasl.enabled": "false"}
    )
    assert (settings.authentication, settings.tls) == (None, None)


@pytest.mark.parametrize(
    ("conf", "reason"),
    [
        ({}, "names no metastore"),
        ({"metastore.sasl.enabled": "true"}, "no Kerberos principal"),
        ({"metastore.use.SSL": "true", "metastore.truststore.path": "/x.jks"}, "key store of Java's"),
        ({"metastore.client.socket.timeout": "soon"}, "'soon' is not a duration"),
        ({"metastore.thrift.uris": "ftp://h"}, "no metastore URI"),
    ],
)
def test_what_cannot_be_taken_over(conf: dict[str, str], reason: str) -> None:
    with pytest.raises(InvalidConnection, match=reason):
        HiveStreamingConnection.new_builder().with_conf(
            {"metastore.thrift.uris": "thrift://h:1", **conf} if conf else {}
        )


def test_the_site_of_the_administrator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("HIVE_CONF_DIR", str(tmp_path))
    with pytest.raises(InvalidConnection, match=r"there is no hive-site\.xml"):
        HiveStreamingConnection.new_builder().with_conf(None)
    (tmp_path / "hive-site.xml").write_text(SITE)
    description = HiveStreamingConnection.new_builder().with_conf(None)._description
    assert description.settings is not None
    assert description.settings.uris == ("thrift://a:9083", "thrift://b:9083")
    assert "hive.txn.manager=other is ignored" in caplog.text
    (tmp_path / "hive-site.xml").write_text("<configuration>")
    with pytest.raises(InvalidConnection, match="is not XML"):
        HiveStreamingConnection.new_builder().with_conf(None)
