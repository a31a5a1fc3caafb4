"""A policy refuses what cannot work, and understands Hive's own settings."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.replication.metadata.locations import external_location
from airflow_hive_federation.replication.policy import ReplicationPolicy


def test_names_are_lower_case_and_the_target_is_named_like_the_source() -> None:
    policy = ReplicationPolicy(name="p", source_database="Sales", dump_root="file:/dumps/")
    assert (policy.source_database, policy.target_database) == ("sales", "sales")
    assert policy.directory == "file:/dumps/p"
    assert policy.functions_directory == "file:/dumps/functions/p"
    other = replace(policy, name="q", functions_root="s3://jars/")
    assert other.functions_directory == "s3://jars/q"


def test_settings_under_hives_names() -> None:
    policy = ReplicationPolicy.from_options(
        name="p",
        source_database="d",
        options={
            "hive.repl.rootdir": "file:/dumps",
            "hive.repl.bootstrap.dump.open.txn.timeout": "90s",
            "hive.repl.replica.external.table.base.dir": "file:/base",
            "hive.repl.externaltable.snapshotdiff.copy": "true",
        },
    )
    assert policy.external_snapshots is True
    assert (policy.dump_root, policy.open_txn_timeout_s, policy.external_base) == (
        "file:/dumps",
        90,
        "file:/base",
    )


def test_an_unknown_setting_is_refused_by_name() -> None:
    with pytest.raises(ConfigurationError, match=r"hive\.repl\.bogus"):
        ReplicationPolicy.from_options(
            name="p", source_database="d", dump_root="file:/d", options={"hive.repl.bogus": "1"}
        )


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("max_unexplained_tables", -1),
        ("max_unexplained_tables", "many"),
        ("max_unexplained_percent", 101),
        ("max_unexplained_percent", 0.5),
    ],
)
def test_bounds_that_are_none(field: str, value: Any) -> None:
    with pytest.raises(ConfigurationError, match=f"{field} is "):
        ReplicationPolicy(name="p", source_database="d", dump_root="file:/d", **{field: value})


@pytest.mark.parametrize("name", ["", "a/b", "../x", "-x", "a b"])
def test_a_name_that_cannot_be_a_directory_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match="cannot name"):
        ReplicationPolicy(name=name, source_database="d", dump_root="file:/d")


def test_storage_options_stay_out_of_what_is_shown_and_stored() -> None:
    policy = ReplicationPolicy(
        name="p", source_database="d", dump_root="s3://b/d", storage_options={"secret": "hush"}
    )
    assert "hush" not in repr(policy)
    assert "hush" not in str(policy.to_json())


def test_the_policy_of_the_way_back() -> None:
    there = ReplicationPolicy(
        name="shop",
        source_database="shop",
        target_database="copy",
        dump_root="s3://d/dumps",
        external_base="s3://d/base",
    )
    back = there.reversed("hdfs://one/")
    assert (back.name, back.source_database, back.target_database) == ("shop.reversed", "copy", "shop")
    assert (back.external_base, back.external_prefix) == ("hdfs://one/", "s3://d/base")
    assert back.reversed() == there
    assert there.reversed("hdfs://one/").reversed().reversed("hdfs://one/") == back


def test_a_prefix_finds_its_way_back() -> None:
    there = ReplicationPolicy(
        name="shop",
        source_database="shop",
        dump_root="s3://d/dumps",
        external_base="s3://d/base",
        external_prefix="hdfs://one/lake",
    )
    back = there.reversed("hdfs://one/")
    assert (back.external_base, back.external_prefix) == ("hdfs://one/lake", "s3://d/base")
    assert back.reversed("s3://d/") == there
    for location, target in (("hdfs://one/lake/x", "s3://d/base/x"), ("hdfs://one/lake", "s3://d/base")):
        assert _external(there, location) == target
        assert _external(back, target) == location


def test_several_stores_have_no_way_back() -> None:
    there = ReplicationPolicy(
        name="shop", source_database="shop", dump_root="s3://d/dumps", external_authority=True
    )
    with pytest.raises(ConfigurationError, match=r"external_authority.*no reverse"):
        there.reversed("hdfs://one/")


def _external(policy: ReplicationPolicy, location: str) -> str:
    base, prefix = policy.external_base, policy.external_prefix
    return external_location(location, base, table="t", prefix=prefix, authority=policy.external_authority)


@pytest.mark.parametrize("field", ["source_database", "dump_root"])
def test_what_a_policy_cannot_do_without_is_named(field: str) -> None:
    fields = {"name": "p", "source_database": "d", "dump_root": "file:/dumps", field: ""}
    with pytest.raises(ConfigurationError, match=f"Policy 'p' has no {field}"):
        ReplicationPolicy(**fields)  # type: ignore[arg-type]
