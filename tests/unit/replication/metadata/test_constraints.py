from __future__ import annotations

import logging
from typing import Any

import pytest

from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.replication.metadata.constraints import (
    claims,
    found_constraints,
    is_constrained,
    report_left_out,
    target_constraints,
)
from airflow_hive_federation.replication.policy import ReplicationPolicy

POLICY = ReplicationPolicy(
    name="p", source_database="shop", target_database="copy", dump_root="file:/d", exclude_tables="tmp_.*"
)


def primary(*columns: str, rely: bool = False) -> list[types.SQLPrimaryKey]:
    return [
        types.SQLPrimaryKey(
            table_db="shop",
            table_name="t",
            column_name=column,
            key_seq=number,
            pk_name="pk",
            enable_cstr=False,
            validate_cstr=False,
            rely_cstr=rely,
            catName="hive",
        )
        for number, column in enumerate(columns, 1)
    ]


def foreign(table: str, database: str = "shop") -> types.SQLForeignKey:
    return types.SQLForeignKey(
        pktable_db=database,
        pktable_name=table,
        pkcolumn_name="id",
        fktable_db="shop",
        fktable_name="t",
        fkcolumn_name="c",
        key_seq=1,
        fk_name=f"fk_{table}",
        pk_name="pk",
    )


def constraints(**kinds: Any) -> types.SQLAllTableConstraints:
    return types.SQLAllTableConstraints(**kinds)


def test_a_constraint_is_its_name_and_its_content() -> None:
    before = claims(constraints(primaryKeys=primary("a")))
    assert before == claims(constraints(primaryKeys=primary("a")))
    for other in (primary("b"), primary("a", "b"), primary("a", rely=True)):
        claimed = claims(constraints(primaryKeys=other))
        assert claimed.keys() == before.keys()
        assert claimed != before
    assert claims(constraints(primaryKeys=primary("a", "b"))) == claims(
        constraints(primaryKeys=primary("a", "b")[::-1])
    )


def test_constraints_of_both_sides_have_equal_claims() -> None:
    source = constraints(primaryKeys=primary("a"), foreignKeys=[foreign("parent")])
    target = target_constraints(source, POLICY, {"parent"})
    assert claims(source) == claims(target)
    assert {key.table_db for key in target.primaryKeys} == {"copy"}
    assert [(key.pktable_db, key.fktable_db) for key in target.foreignKeys] == [("copy", "copy")]


def test_foreign_keys_to_tables_that_are_not_replicated_are_left_out_and_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The policy names ``delta``, which is of a kind that no replication copies."""
    keys = [foreign("delta"), foreign("elsewhere", database="other"), foreign("Parent")]
    source, tables = constraints(foreignKeys=keys), {"parent", "elsewhere"}
    made = target_constraints(source, POLICY, tables)
    assert [key.fk_name for key in made.foreignKeys] == ["fk_Parent"]
    assert target_constraints(constraints(foreignKeys=keys[:2]), POLICY, tables).foreignKeys is None
    with caplog.at_level(logging.INFO):
        report_left_out("child", source, POLICY, tables)
        report_left_out("child", constraints(foreignKeys=keys[2:]), POLICY, tables)
    (message,) = caplog.messages
    assert "Table copy.child" in message
    assert "fk_delta (to shop.delta), fk_elsewhere (to other.elsewhere)" in message


class Found:
    """A target whose table has a foreign key to one that the dump does not have."""

    def get_table_constraints(self, database: str, table: str) -> types.SQLAllTableConstraints:
        keys = [foreign("kept", database="copy"), foreign("parent", database="copy")]
        return constraints(foreignKeys=keys)


def test_foreign_keys_to_tables_that_no_dump_has_are_no_surplus() -> None:
    client: Any = Found()
    found = found_constraints(client, POLICY, "child", {"parent"})
    assert [key.fk_name for key in found.foreignKeys] == ["fk_parent"]
    wanted = target_constraints(constraints(foreignKeys=[foreign("parent")]), POLICY, {"parent"})
    assert is_constrained(client, POLICY, "child", wanted, {"parent"})
    assert not is_constrained(client, POLICY, "child", wanted, {"parent", "kept"})
