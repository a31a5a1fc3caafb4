"""URIs of directories on HDFS and of their places in snapshots."""

from __future__ import annotations

import pytest

from airflow_hive_federation.storage.snapshot_paths import SnapshotPath, live_uri


@pytest.mark.parametrize(
    ("uri", "root", "inside"),
    [
        ("hdfs://nn:8020/lake/t", "hdfs://nn:8020/lake", "hdfs://nn:8020/lake/.snapshot/s-1/t"),
        ("hdfs://nn/lake/t/p=a%3A", "hdfs://nn/lake/t/", "hdfs://nn/lake/t/.snapshot/s-1/p=a%3A"),
        ("hdfs://nn/lake/", "hdfs://nn/lake", "hdfs://nn/lake/.snapshot/s-1"),
    ],
)
def test_there_and_back(uri: str, root: str, inside: str) -> None:
    path = SnapshotPath.of(uri, root, "s-1")
    assert path.uri == inside
    assert path.live_uri == uri.rstrip("/") == live_uri(inside)
    read = SnapshotPath.parse(inside)
    assert read is not None
    assert (read.name, read.path, read.root) == ("s-1", path.path, root.rstrip("/"))


@pytest.mark.parametrize(
    "uri",
    ["hdfs://nn/lake", "hdfs://nn/a/.snapshot", "hdfs://nn/a/.snapshots/b", "file:/a/.snapshot/s/b", "/a"],
)
def test_what_lies_in_no_snapshot(uri: str) -> None:
    assert SnapshotPath.parse(uri) is None
    assert live_uri(uri) == uri
