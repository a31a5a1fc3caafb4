from __future__ import annotations

from typing import Any

import pytest

from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.hooks.policy_fields import policy_fields, rendered_policy
from airflow_hive_federation.replication.policy import ReplicationPolicy

LEAST = {"name": "p", "source_database": "Shop", "dump_root": "/dumps"}


def test_a_policy_as_text_is_the_policy() -> None:
    policy = ReplicationPolicy(
        **LEAST,
        target_database="copy",
        open_txn_timeout_s=90,
        bandwidth_bytes_per_s=7,
        into_existing=True,
        table_names={"a": "b"},
    )
    as_text = {name: str(value) for name, value in policy_fields(policy).items()}
    assert rendered_policy(as_text, {}) == policy


@pytest.mark.parametrize("nothing", [None, "", "None", " "])
def test_what_is_left_empty_has_its_default(nothing: Any) -> None:
    optional = ("target_database", "external_base", "functions_root", "open_txn_timeout_s")
    values = LEAST | dict.fromkeys((*optional, "bandwidth_bytes_per_s", "into_existing"), nothing)
    assert rendered_policy(values, {}) == ReplicationPolicy(**LEAST)


@pytest.mark.parametrize(("text", "value"), [("False", False), ("true", True), (False, False), ("0", False)])
def test_truth(text: Any, value: bool) -> None:
    assert rendered_policy(LEAST | {"into_existing": text}, {}).into_existing is value


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"into_existing": "maybe"}, "into_existing of the replication policy is 'maybe'"),
        ({"bandwidth_bytes_per_s": "10 MB"}, "is '10 MB'"),
        ({"bandwidth_bytes_per_s": "0"}, "is '0'"),
        ({"table_names": "a=b"}, "table_names of the replication policy is 'a=b'"),
        ({"open_txn_timeout_s": "soon"}, "'soon' is not a duration"),
        ({"name": "{{ x }}"}, "cannot name a replication policy"),
        ({"source_database": ""}, "has no source_database"),
        ({"dump_root": "None"}, "has no dump_root"),
    ],
)
def test_impossible_values(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        rendered_policy(LEAST | values, {})


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (LEAST | {"sourcedatabase": "x"}, "no fields named .'sourcedatabase'"),
        ({"name": "p"}, "needs the fields .'dump_root', 'source_database'"),
        (LEAST | {"storage_options": {"key": "sesame"}}, "would be shown"),
        (ReplicationPolicy(**LEAST, storage_options={"key": "sesame"}), "would be shown"),
    ],
)
def test_refused_while_the_dag_is_parsed(policy: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message) as caught:
        policy_fields(policy)
    assert "sesame" not in str(caught.value)


def test_storage_options_come_from_the_connection() -> None:
    assert rendered_policy(LEAST, {"key": "k"}).storage_options == {"key": "k"}


@pytest.mark.parametrize(
    ("value", "roots"),
    [
        ("", ()),
        ("None", ()),
        ("[]", ()),
        (["file:/a", "s3://b"], ("file:/a", "s3://b")),
        ("['file:/a', 's3://b']", ("file:/a", "s3://b")),
        ("file:/a,file:/b c", ("file:/a", "file:/b c")),
        ("file:/a", ("file:/a",)),
    ],
    ids=str,
)
def test_roots_of_sources_are_a_list_or_a_text(value: Any, roots: tuple[str, ...]) -> None:
    assert rendered_policy({**LEAST, "allowed_source_roots": value}, {}).allowed_source_roots == roots


def test_roots_of_sources_that_are_no_list_are_named() -> None:
    with pytest.raises(ConfigurationError, match="allowed_source_roots"):
        rendered_policy({**LEAST, "allowed_source_roots": "[file:/a"}, {})
