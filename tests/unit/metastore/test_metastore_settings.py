"""Settings: what is accepted, what is refused, what is not shown."""

from __future__ import annotations

import pickle

import pytest

from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.metastore import MetastoreSettings, TlsSettings


@pytest.mark.parametrize(
    ("uri", "told"),
    [
        ("thrift://h", "thrift://h:9083"),
        ("thrift://h:1", "thrift://h:1"),
        ("thrift+tls://h", "thrift+tls://h:9083"),
        ("thrift://[::1]:9", "thrift://[::1]:9"),
        ("http://h:9001", "http://h:9001/metastore"),
        ("https://h/hms", "https://h:443/hms"),
    ],
)
def test_uris(uri: str, told: str) -> None:
    assert str(MetastoreSettings(uris=(uri,)).endpoints()[0]) == told


@pytest.mark.parametrize(
    "uri", ["", "h:9083", "hive2://h:1", "thrift://", "thrift://h:x", "thrift://h:99999"]
)
def test_what_is_no_uri_is_refused(uri: str) -> None:
    with pytest.raises(ConfigurationError, match="no metastore URI"):
        MetastoreSettings(uris=(uri,))


def test_a_password_in_a_uri_is_refused_and_not_repeated() -> None:
    with pytest.raises(ConfigurationError) as caught:
        MetastoreSettings(uris=("thrift://me:s3cret@h:9083",))
    assert "s3cret" not in str(caught.value)


def test_secrets_are_not_shown() -> None:
    settings = MetastoreSettings(
        uris=("https://h",),
        http_headers={"Authorization": "Bearer s3cret"},
        tls=TlsSettings(key_password="s3cret"),
    )
    assert "s3cret" not in repr(settings)


def test_settings_can_be_sent_to_another_process() -> None:
    settings = MetastoreSettings(uris=("thrift://h",), http_headers={"a": "b"}, tls=TlsSettings(ca_file="x"))
    assert pickle.loads(pickle.dumps(settings)) == settings


def test_nothing_to_connect_to_and_no_time_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="No metastore URI"):
        MetastoreSettings(uris=())
    with pytest.raises(ConfigurationError, match="call_timeout_s is 0"):
        MetastoreSettings(uris=("thrift://h",), call_timeout_s=0)
