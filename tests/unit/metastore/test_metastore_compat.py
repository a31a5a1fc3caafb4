"""Calls to a server that lacks what Hive 4 has."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_hive_federation.errors import NoSuchObjectError, UnsupportedMethodError
from airflow_hive_federation.metastore.compat import FALLBACKS
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.metastore.idl.service import METHODS


class Server:
    """Remembers the calls; ``answers`` by method, an exception is raised."""

    def __init__(self, **answers: Any) -> None:
        self.answers = answers
        self.calls: list[tuple[str, tuple[Any, ...]]] = []

    def __call__(self, method: str, args: tuple[Any, ...]) -> Any:
        assert method in METHODS
        assert len(args) <= len(METHODS[method][0])
        self.calls.append((method, args))
        answer = self.answers.get(method)
        if isinstance(answer, Exception):
            raise answer
        return answer


def test_every_fallback_stands_for_a_method() -> None:
    assert set(FALLBACKS) <= set(METHODS)


def test_constraints_a_version_does_not_know_are_none() -> None:
    lacking = UnsupportedMethodError("Invalid method name")
    server = Server(
        get_primary_keys=types.PrimaryKeysResponse(primaryKeys=[types.SQLPrimaryKey(pk_name="pk")]),
        get_foreign_keys=types.ForeignKeysResponse(foreignKeys=[]),
        get_unique_constraints=lacking,
        get_not_null_constraints=lacking,
        get_default_constraints=lacking,
        get_check_constraints=lacking,
    )
    request = types.AllTableConstraintsRequest(dbName="d", tblName="t", catName="hive")
    constraints = FALLBACKS["get_all_table_constraints"](server, request).allTableConstraints
    assert [key.pk_name for key in constraints.primaryKeys] == ["pk"]
    assert constraints.checkConstraints == []


def test_a_table_with_constraints_is_created_with_them() -> None:
    server, table = Server(), types.Table(tableName="t")
    FALLBACKS["create_table_req"](server, types.CreateTableRequest(table=table))
    keys = [types.SQLPrimaryKey(pk_name="pk")]
    FALLBACKS["create_table_req"](server, types.CreateTableRequest(table=table, primaryKeys=keys))
    assert server.calls == [
        ("create_table_with_environment_context", (table, None)),
        ("create_table_with_constraints", (table, keys, [], [], [], [], [])),
    ]


def test_a_conditional_change_is_refused_rather_than_made_blindly() -> None:
    request = types.AlterTableRequest(
        dbName="d", tableName="t", table=types.Table(), expectedParameterKey="k"
    )
    with pytest.raises(UnsupportedMethodError, match="on condition"):
        FALLBACKS["alter_table_req"](Server(), request)


def test_leaving_out_kinds_of_transactions_is_refused() -> None:
    request = types.GetOpenTxnsRequest(excludeTxnTypes=[types.TxnType.READ_ONLY])
    with pytest.raises(UnsupportedMethodError, match="by their kind"):
        FALLBACKS["get_open_txns_req"](Server(), request)


def test_dropping_a_database_that_is_not_there() -> None:
    server = Server(get_database=NoSuchObjectError("no d"))
    drop = FALLBACKS["drop_database_req"]
    drop(server, types.DropDatabaseRequest(name="d", ignoreUnknownDb=True))
    with pytest.raises(NoSuchObjectError):
        drop(server, types.DropDatabaseRequest(name="d", ignoreUnknownDb=False))
    assert [method for method, _ in server.calls] == ["get_database"] * 2


def test_functions_are_read_one_by_one() -> None:
    server = Server(get_functions=["d.f", "g"], get_function=types.Function(functionName="x"))
    request = types.GetFunctionsRequest(dbName="d", pattern="*")
    assert len(FALLBACKS["get_functions_req"](server, request).functions) == 2
    assert [args for method, args in server.calls if method == "get_function"] == [("d", "f"), ("d", "g")]
