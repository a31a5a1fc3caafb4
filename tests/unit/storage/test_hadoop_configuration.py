"""Hadoop's settings come from its files and the storage options, and name the NameNodes' web servers."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.storage.hadoop_configuration import hadoop_settings, web_addresses

HA = {
    "dfs.ha.namenodes.lake": "nn1, nn2",
    "dfs.namenode.rpc-address.lake.nn1": "one:8020",
    "dfs.namenode.rpc-address.lake.nn2": "two:8020",
    "dfs.namenode.http-address.lake.nn1": "one:50070",
}


@pytest.mark.parametrize(
    ("authority", "settings", "found"),
    [
        ("nn:8020", {}, ["http://nn:9870"]),
        ("nn:8020", {"dfs.namenode.http-address": "0.0.0.0:50070"}, ["http://nn:50070"]),
        ("nn", {"dfs.namenode.http-address": "web:80"}, ["http://web:80"]),
        ("", {"fs.defaultFS": "hdfs://nn:8020/"}, ["http://nn:9870"]),
        ("lake", HA, ["http://one:50070", "http://two:9870"]),
        ("", {"fs.defaultFS": "hdfs://lake", **HA}, ["http://one:50070", "http://two:9870"]),
        (
            "nn:8020",
            {"dfs.http.policy": "HTTPS_ONLY", "dfs.namenode.https-address": "nn:9999"},
            ["https://nn:9999"],
        ),
    ],
)
def test_the_web_servers_of_name_nodes(authority: str, settings: dict[str, str], found: list[str]) -> None:
    assert [str(address) for address in web_addresses(authority, settings)] == found


@pytest.mark.parametrize(
    ("authority", "settings"),
    [("nn", {"dfs.namenode.http-address": "nn:web"}), ("", {}), ("lake", {"dfs.ha.namenodes.lake": "nn1"})],
)
def test_an_address_that_is_none(authority: str, settings: dict[str, str]) -> None:
    with pytest.raises(ConfigurationError, match=r"dfs\.namenode\.http-address"):
        web_addresses(authority, settings)


def test_settings_of_files_and_options(tmp_path: Path) -> None:
    conf = tmp_path / "etc" / "hadoop"
    conf.mkdir(parents=True)
    (conf / "core-site.xml").write_text(
        "<configuration><property><name>fs.defaultFS</name><value> hdfs://nn </value></property>"
        "<property><name>a.b</name><value>core</value></property></configuration>"
    )
    (conf / "hdfs-site.xml").write_text(
        "<configuration><property><name>a.b</name><value>hdfs</value></property></configuration>"
    )
    expected = {"fs.defaultFS": "hdfs://nn", "a.b": "hdfs"}
    assert hadoop_settings({}, {"HADOOP_CONF_DIR": str(conf)}) == expected
    assert hadoop_settings({}, {"HADOOP_HOME": str(tmp_path)}) == expected
    options = {"config_dir": str(conf), "a.b": 7, "kerberos_keytab": "/k"}
    assert hadoop_settings(options, {"HADOOP_CONF_DIR": "/nowhere"}) == {**expected, "a.b": "7"}
    assert hadoop_settings({}, {}) == {}
    (conf / "hdfs-site.xml").write_text("<configuration>")
    with pytest.raises(ConfigurationError, match=r"hdfs-site\.xml is no file"):
        hadoop_settings(options, {})
