"""A function's resources of one file name get places of their own on the target."""

from __future__ import annotations

from pathlib import Path

from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.replication.replica.functions import function_items, target_function
from airflow_hive_federation.replication.replica.layout import TargetLayout
from airflow_hive_federation.storage.copying import copy_file


def test_resources_of_one_file_name_do_not_overwrite_each_other(tmp_path: Path) -> None:
    policy = ReplicationPolicy(name="p", source_database="d", dump_root=f"file:{tmp_path}/dumps")
    layout = TargetLayout(policy=policy, managed=f"file:{tmp_path}/w")
    contents = {"a/udf.jar": b"one", "b/udf.jar": b"two", "b/words.txt": b"three"}
    for name, content in contents.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    # One resource is named twice.
    uris = [f"file:{tmp_path}/{name}" for name in (*contents, "a/udf.jar")]
    resources = [types.ResourceUri(resourceType=types.ResourceType.JAR, uri=uri) for uri in uris]
    source = types.Function(functionName="f", dbName="d", className="X", resourceUris=resources)
    items = list(function_items(source, layout))
    for item in items:
        copy_file(item)
    places = [str(resource.uri) for resource in target_function(source, layout).resourceUris or ()]
    read = [Path(place.removeprefix("file:")).read_bytes() for place in places]
    assert read == [b"one", b"two", b"three", b"one"]
    assert sorted(item.target for item in items) == sorted(set(places))
    root = f"file:{tmp_path}/dumps/functions/p/d/f"
    assert places[2] == f"{root}/words.txt"
    assert [resource.uri for resource in source.resourceUris or ()] == uris


def test_resources_with_different_names_lie_in_the_function_s_directory(tmp_path: Path) -> None:
    policy = ReplicationPolicy(name="p", source_database="d", dump_root=f"file:{tmp_path}/dumps")
    layout = TargetLayout(policy=policy, managed=f"file:{tmp_path}/w")
    root = f"{policy.functions_directory}/d/f"
    assert layout.resources("f", ["s3://j/a.jar", "s3://j/b.jar"]) == [f"{root}/a.jar", f"{root}/b.jar"]
