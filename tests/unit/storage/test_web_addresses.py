"""Stores whose web pages are known for certain have a link, and no others."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_hive_federation.storage.options import StorageOptions
from airflow_hive_federation.storage.web_addresses import web_address

S3, HDFS = "s3a://bucket/dumps/shop 1", "hdfs://nn.example.com:8020/dumps/shop#1"
AWS = "https://console.aws.amazon.com/s3/buckets/bucket?prefix=dumps%2Fshop%201%2F"


@pytest.fixture(autouse=True)
def no_hadoop(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HADOOP_CONF_DIR", "HADOOP_HOME", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_REGION"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("uri", "options", "address"),
    [
        (S3, {}, AWS),
        (S3, {"client_kwargs": {"region_name": "eu-central-1"}}, AWS),
        (S3, {"client_kwargs": {"region_name": "cn-north-1"}}, ""),
        (S3, {"client_kwargs": {"endpoint_url": "https://minio.example.com"}}, ""),
        (S3, {"endpoint_url": "https://minio.example.com"}, ""),
        (S3, {"s3://other": {"endpoint_url": "https://minio.example.com"}, "s3://bucket": {}}, AWS),
        ("gs://bucket/dumps/a b", {}, "https://console.cloud.google.com/storage/browser/bucket/dumps/a%20b"),
        ("abfs://box@account.dfs.core.windows.net/dumps", {}, ""),
        ("/var/dumps", {}, ""),
        (HDFS, {}, ""),
        (
            HDFS,
            {"dfs.namenode.http-address": "web.example.com:9870"},
            "http://web.example.com:9870/explorer.html#/dumps/shop%231",
        ),
        (
            HDFS,
            {"dfs.namenode.http-address": "0.0.0.0:9870"},
            "http://nn.example.com:9870/explorer.html#/dumps/shop%231",
        ),
        (
            HDFS,
            {
                "dfs.http.policy": "HTTPS_ONLY",
                "dfs.namenode.http-address": "nn.example.com:9870",
                "dfs.namenode.https-address": "nn.example.com:9871",
            },
            "https://nn.example.com:9871/explorer.html#/dumps/shop%231",
        ),
        (
            "hdfs://service/dumps",
            {"dfs.ha.namenodes.service": "a,b", "dfs.namenode.http-address": "nn.example.com:9870"},
            "",
        ),
        ("hdfs:/dumps", {"dfs.namenode.http-address": "nn.example.com:9870"}, ""),
    ],
)
def test_a_directory_has_the_page_of_its_store(uri: str, options: StorageOptions, address: str) -> None:
    assert web_address(uri, options) == address


def test_another_endpoint_of_the_environment_has_no_console(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "https://minio.example.com")
    assert web_address(S3) == ""


def test_hadoops_files_have_the_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = "<configuration>{}</configuration>"
    entry = "<property><name>{}</name><value>{}</value></property>"
    (tmp_path / "core-site.xml").write_text(
        site.format(entry.format("fs.defaultFS", "hdfs://nn:8020")), encoding="utf-8"
    )
    (tmp_path / "hdfs-site.xml").write_text(
        site.format(entry.format("dfs.namenode.http-address", "nn:9870")), encoding="utf-8"
    )
    assert web_address("hdfs:/dumps", {"config_dir": str(tmp_path)}) == "http://nn:9870/explorer.html#/dumps"
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    assert web_address("hdfs:/dumps") == "http://nn:9870/explorer.html#/dumps"
    (tmp_path / "hdfs-site.xml").write_text("<", encoding="utf-8")
    assert web_address("hdfs:/dumps") == ""
