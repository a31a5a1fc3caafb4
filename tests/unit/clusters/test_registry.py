"""The registry of clusters, and what it refuses."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

from airflow_hive_federation.clusters.registry import (
    ClusterRegistry,
    _of_parameters,
    read_registry,
    registry_of_file,
)
from airflow_hive_federation.errors import ClusterRegistryError, UnknownClusterError
from airflow_hive_federation.hooks.clusters import find_registry
from airflow_hive_federation.metastore import MetastoreClient

ONE: dict[str, Any] = {"fileSystem": "hdfs://one/data", "jobTracker": "spark_one"}
TWO: dict[str, Any] = {
    "fileSystem": "s3a://two/data/",
    "jobTracker": "spark_two",
    "metastore": "thrift://two:9083",
}


def document(clusters: Any, default: Any = "C1", **more: Any) -> dict[str, Any]:
    return {"hive.cluster.properties": clusters, "hive.default.cluster.name": default, **more}


def test_a_registry_is_read_and_written() -> None:
    registry = read_registry(json.dumps(document({"C1": ONE, "C2": TWO})), origin="x")
    assert [cluster.name for cluster in registry] == ["C1", "C2"]
    # Hadoop knows s3a, and s3 only where it is configured.
    assert registry.cluster("c2").root == "s3a://two/data"
    assert registry.cluster_at("s3://two/data/x") == registry.cluster("C2")
    assert registry.cluster("C2").metastore == "thrift://two:9083"
    assert registry.default_cluster().spark_conn_id == "spark_one"
    assert registry.use_default
    assert read_registry(registry.to_json(), origin="x") == registry
    assert pickle.loads(pickle.dumps(registry)) == registry


def test_locations_belong_to_the_cluster_whose_root_they_lie_below() -> None:
    registry = read_registry(document({"C1": ONE, "C2": TWO}), origin="x")
    clusters_found = [
        registry.cluster_at(uri) for uri in ("hdfs://one/data/t", "s3://two/data/t", "hdfs://one/database")
    ]
    assert [cluster and cluster.name for cluster in clusters_found] == ["C1", "C2", None]


def test_a_name_that_is_not_configured_is_refused() -> None:
    with pytest.raises(UnknownClusterError, match=r"no cluster 'C9'.*Use C1 or C2, or add"):
        read_registry(document({"C1": ONE, "C2": TWO}), origin="x").cluster("C9")


def test_no_cluster_is_a_registry_too() -> None:
    assert not read_registry({}, origin="x")
    with pytest.raises(UnknownClusterError, match="No cluster is configured"):
        ClusterRegistry().default_cluster()


WRONG = {
    "no-json": ("{", "malformed"),
    "a-list": ("[]", "malformed"),
    "nested-deeply": ("[" * 5000, "malformed"),
    "unknown-key": (document({"C1": ONE}, other=1), "malformed"),
    "clusters-a-list": (document([]), "malformed"),
    "cluster-a-text": (document({"C1": "hdfs://one"}), "malformed"),
    "cluster-a-list": (document({"C1": []}), "malformed"),
    "digit-first": (document({"1C": ONE}, "1C"), "malformed"),
    "no-file-system": (document({"C1": {"jobTracker": "s"}}), "malformed"),
    "no-job-tracker": (document({"C1": {"fileSystem": "/a"}}), "malformed"),
    "misspelt-key": (document({"C1": {**ONE, "metastor": "x"}}), "malformed"),
    "metastore-no-uri": (document({"C1": {**ONE, "metastore": "host"}}), "malformed"),
    "hidden-root": (document({"C1": {**ONE, "fileSystem": "hdfs://one/_data"}}), "malformed"),
    "dots-in-root": (document({"C1": {**ONE, "fileSystem": "hdfs://one/a/../b"}}), "malformed"),
    "bad-name": (document({"C-1": ONE}, "C-1"), "malformed"),
    "same-name": (document({"C1": ONE, "c1": TWO}), "malformed"),
    "twice": (json.dumps(document({"C1": ONE, "C2": TWO})).replace("C2", "C1"), "malformed"),
    "no-default": (document({"C1": ONE}, None), "unknown_default"),
    "unknown-default": (document({"C1": ONE}, "C3"), "unknown_default"),
    "default-a-number": (document({"C1": ONE}, 1), "unknown_default"),
    "default-without-clusters": (document({}, "C1"), "unknown_default"),
    "same-root-by-alias": (
        document({"C1": {**ONE, "fileSystem": "s3://two/data"}, "C2": TWO}),
        "nested_roots",
    ),
    "same-root": (document({"C1": ONE, "C2": {**TWO, "fileSystem": "hdfs://one/data/"}}), "nested_roots"),
    "nested-root": (
        document({"C1": ONE, "C2": {**TWO, "fileSystem": "hdfs://one/data/2"}}),
        "nested_roots",
    ),
    "use-default": (document({"C1": ONE}, **{"hive.use.default.cluster": "maybe"}), "malformed"),
}


@pytest.mark.parametrize("name", sorted(WRONG))
def test_what_is_no_registry_is_refused(name: str) -> None:
    text, reason = WRONG[name]
    with pytest.raises(ClusterRegistryError, match="the-origin") as caught:
        read_registry(text, origin="the-origin")
    assert caught.value.reason == reason


def test_a_registry_is_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "clusters.json"
    path.write_text(json.dumps(document({"C1": ONE})))
    assert registry_of_file(str(path)).default == "C1"
    path.write_text("{")
    with pytest.raises(ClusterRegistryError, match=r"clusters\.json"):
        registry_of_file(str(path))
    path.unlink()
    with pytest.raises(ClusterRegistryError, match=r"clusters\.json, does not exist") as caught:
        registry_of_file(str(path))
    assert caught.value.reason == "missing"


def test_a_registry_is_read_from_parameters_of_a_metastore() -> None:
    values = {
        "hive.cluster.properties": json.dumps({"C1": ONE}),
        "hive.default.cluster.name": "C1",
        "hive.use.default.cluster": "false",
    }
    registry = _of_parameters(values.get, "thrift://h")
    assert registry.default == "C1"
    assert not registry.use_default
    assert not _of_parameters({}.get, "thrift://h")


@pytest.mark.parametrize("origin", ["./clusters.json", "clusters.json"])
def test_a_name_that_ends_like_a_file_is_no_variable_of_airflows(
    origin: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    client = MagicMock(spec=MetastoreClient)
    with pytest.raises(ClusterRegistryError, match=r"clusters\.json, does not exist"):
        find_registry(origin, client)
    (tmp_path / "clusters.json").write_text(json.dumps(document({"C1": ONE})))
    assert find_registry(origin, client).cluster("C1").name == "C1"
