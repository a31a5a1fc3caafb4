"""The comparison of a target database with its source: the owner."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.replication.replica.differences import database_differences

USER = types.PrincipalType.USER


@pytest.mark.parametrize(
    ("of_source", "differing"),
    [
        # A database of Hive 3.1 may have no owner; then the target's has one of its own.
        ({}, []),
        ({"ownerType": USER}, []),
        ({"ownerName": "bob", "ownerType": USER}, []),
        ({"ownerName": "eve", "ownerType": USER}, ["ownerName"]),
    ],
)
def test_the_owner_is_compared_if_the_source_has_one(of_source: Any, differing: list[str]) -> None:
    source = types.Database(name="shop", **of_source)
    target = types.Database(name="copy", ownerName="bob", ownerType=USER)
    policy = ReplicationPolicy(name="p", source_database="shop", target_database="copy", dump_root="/dumps")
    layout: Any = SimpleNamespace(policy=policy)
    homes: Any = SimpleNamespace(
        directory=SimpleNamespace(database=lambda: source, functions=lambda: iter(())), adopted=frozenset()
    )
    client: Any = SimpleNamespace(get_database=lambda _: target, get_functions=lambda _: ())
    assert [difference.what for difference in database_differences(client, layout, homes)] == differing
