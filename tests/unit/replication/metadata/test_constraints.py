from __future__ import annotations

from typing import Any

from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.replication.metadata.constraints import claims, target_constraints
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
    target = target_constraints(source, POLICY)
    assert claims(source) == claims(target)
    assert {key.table_db for key in target.primaryKeys} == {"copy"}
    assert [(key.pktable_db, key.fktable_db) for key in target.foreignKeys] == [("copy", "copy")]


def test_foreign_keys_to_tables_outside_the_policy_are_left_out() -> None:
    keys = [foreign("tmp_a"), foreign("elsewhere", database="other"), foreign("parent")]
    made = target_constraints(constraints(foreignKeys=keys), POLICY)
    assert [key.fk_name for key in made.foreignKeys] == ["fk_parent"]
    assert target_constraints(constraints(foreignKeys=keys[:2]), POLICY).foreignKeys is None
