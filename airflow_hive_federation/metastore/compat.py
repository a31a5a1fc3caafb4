"""Replaces calls that Hive 2.3 or 3.1 lacks by older calls that those versions have.

The client uses a replacement only after the server's error shows that it lacks the call (:func:`is_too_old`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from airflow_hive_federation.errors import MetastoreError, NoSuchObjectError, UnsupportedMethodError
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.model.write_ids import ValidTxns

Call = Callable[[str, tuple[Any, ...]], Any]


def is_too_old(method: str, error: MetastoreError) -> bool:
    """Return whether the error means that the server lacks the call, and a replacement exists."""
    if method not in FALLBACKS:
        return False
    # Hive 3.1 requires fields that later versions fill in themselves.
    return isinstance(error, UnsupportedMethodError) or "Required field 'validTxnList' is unset" in str(error)


def _get_database_req(call: Call, request: types.GetDatabaseRequest) -> types.Database:
    return call("get_database", (request.name,))  # type: ignore[no-any-return]


def _get_databases_req(
    call: Call, request: types.GetDatabaseObjectsRequest
) -> types.GetDatabaseObjectsResponse:
    names = call("get_databases", (request.pattern or "*",))
    return types.GetDatabaseObjectsResponse(databases=[call("get_database", (name,)) for name in names])


def _drop_database_req(call: Call, request: types.DropDatabaseRequest) -> None:
    try:
        # Hive 2 fails with a NullPointerException if the database does not exist.
        call("get_database", (request.name,))
        call("drop_database", (request.name, bool(request.deleteData), bool(request.cascade)))
    except NoSuchObjectError:
        if not request.ignoreUnknownDb:
            raise


def _get_table_req(call: Call, request: types.GetTableRequest) -> types.GetTableResult:
    return types.GetTableResult(table=call("get_table", (request.dbName, request.tblName)))


def _get_table_objects_by_name_req(call: Call, request: types.GetTablesRequest) -> types.GetTablesResult:
    tables = call("get_table_objects_by_name", (request.dbName, request.tblNames or []))
    return types.GetTablesResult(tables=tables)


def _create_table_req(call: Call, request: types.CreateTableRequest) -> None:
    constraints = (
        request.primaryKeys,
        request.foreignKeys,
        request.uniqueConstraints,
        request.notNullConstraints,
        request.defaultConstraints,
        request.checkConstraints,
    )
    if any(constraints):
        # The server's method takes no environment context.
        call("create_table_with_constraints", (request.table, *(rule or [] for rule in constraints)))
    else:
        call("create_table_with_environment_context", (request.table, request.envContext))


def _alter_table_req(call: Call, request: types.AlterTableRequest) -> types.AlterTableResponse:
    if request.expectedParameterKey is not None:
        raise UnsupportedMethodError(
            "This metastore cannot change a table on condition that a parameter has a value.",
            remedy="Use Hive 4.",
            method="alter_table_req",
        )
    call(
        "alter_table_with_environment_context",
        (request.dbName, request.tableName, request.table, request.environmentContext),
    )
    return types.AlterTableResponse()


def _drop_table_req(call: Call, request: types.DropTableRequest) -> None:
    call(
        "drop_table_with_environment_context",
        (request.dbName, request.tableName, bool(request.deleteData), request.envContext),
    )


def _get_partitions_by_names_req(
    call: Call, request: types.GetPartitionsByNamesRequest
) -> types.GetPartitionsByNamesResult:
    names = (request.db_name, request.tbl_name, request.names or [])
    return types.GetPartitionsByNamesResult(partitions=call("get_partitions_by_names", names))


def _alter_partitions_req(call: Call, request: types.AlterPartitionsRequest) -> types.AlterPartitionsResponse:
    call(
        "alter_partitions_with_environment_context",
        (request.dbName, request.tableName, request.partitions, request.environmentContext),
    )
    return types.AlterPartitionsResponse()


def _get_all_table_constraints(
    call: Call, request: types.AllTableConstraintsRequest
) -> types.AllTableConstraintsResponse:
    where: dict[str, Any] = {
        "catName": request.catName,
        "db_name": request.dbName,
        "tbl_name": request.tblName,
    }
    foreign = types.ForeignKeysRequest(
        foreign_db_name=request.dbName, foreign_tbl_name=request.tblName, catName=request.catName
    )
    ask = (
        ("primaryKeys", "get_primary_keys", types.PrimaryKeysRequest(**where)),
        ("foreignKeys", "get_foreign_keys", foreign),
        ("uniqueConstraints", "get_unique_constraints", types.UniqueConstraintsRequest(**where)),
        ("notNullConstraints", "get_not_null_constraints", types.NotNullConstraintsRequest(**where)),
        ("defaultConstraints", "get_default_constraints", types.DefaultConstraintsRequest(**where)),
        ("checkConstraints", "get_check_constraints", types.CheckConstraintsRequest(**where)),
    )
    constraints = types.SQLAllTableConstraints()
    for field, method, question in ask:
        try:
            setattr(constraints, field, getattr(call(method, (question,)), field))
        except UnsupportedMethodError:
            # Hive 2 has neither this method nor this kind of constraint.
            setattr(constraints, field, [])
    return types.AllTableConstraintsResponse(allTableConstraints=constraints)


def _get_functions_req(call: Call, request: types.GetFunctionsRequest) -> types.GetFunctionsResponse:
    names = call("get_functions", (request.dbName, request.pattern or "*"))
    if request.returnNames:
        return types.GetFunctionsResponse(function_names=names)
    return types.GetFunctionsResponse(
        functions=[call("get_function", (request.dbName, name.rpartition(".")[2])) for name in names]
    )


def _get_open_txns_req(call: Call, request: types.GetOpenTxnsRequest) -> types.GetOpenTxnsResponse:
    if request.excludeTxnTypes:
        raise UnsupportedMethodError(
            "This metastore cannot leave out transactions by their kind.",
            remedy="Use Hive 4.",
            method="get_open_txns_req",
        )
    return call("get_open_txns", ())  # type: ignore[no-any-return]


def _get_valid_write_ids(
    call: Call, request: types.GetValidWriteIdsRequest
) -> types.GetValidWriteIdsResponse:
    valid = request.validTxnList
    if valid is None:
        answer = call("get_open_txns", ())
        valid = ValidTxns.of(
            high_watermark=answer.txn_high_water_mark,
            invalid_ids=answer.open_txns or (),
            aborted_bits=answer.abortedBits or b"",
        ).text()
    request = types.GetValidWriteIdsRequest(fullTableNames=request.fullTableNames, validTxnList=valid)
    return call("get_valid_write_ids", (request,))  # type: ignore[no-any-return]


FALLBACKS: dict[str, Callable[..., Any]] = {
    "alter_partitions_req": _alter_partitions_req,
    "alter_table_req": _alter_table_req,
    "create_table_req": _create_table_req,
    "drop_database_req": _drop_database_req,
    "drop_table_req": _drop_table_req,
    "get_all_table_constraints": _get_all_table_constraints,
    "get_database_req": _get_database_req,
    "get_databases_req": _get_databases_req,
    "get_functions_req": _get_functions_req,
    "get_open_txns_req": _get_open_txns_req,
    "get_partitions_by_names_req": _get_partitions_by_names_req,
    "get_table_objects_by_name_req": _get_table_objects_by_name_req,
    "get_table_req": _get_table_req,
    "get_valid_write_ids": _get_valid_write_ids,
}
