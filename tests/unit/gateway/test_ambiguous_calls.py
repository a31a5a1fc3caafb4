"""Calls that Thrift's code for Java would read otherwise than by the types in the calls themselves."""

from __future__ import annotations

import pytest

from airflow_hive_federation.gateway.messages import CALL, head_bytes
from airflow_hive_federation.gateway.methods import Access
from airflow_hive_federation.gateway.rules import Exposure, Rule, Rules
from airflow_hive_federation.metastore.connection import message_types
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.metastore.message_bounds import MalformedMessage, check_unambiguous
from airflow_hive_federation.metastore.protocol import encode
from airflow_hive_federation.metastore.struct import Struct
from tests.support.gateways import Gateways, Peers, Raws, call_bytes, outcome
from tests.support.metastore_peers import Thrift
from tests.support.older_expressions import OF_HIVE_4, OF_OLDER_HIVE
from tests.support.thrift_bytes import (
    I32,
    I64,
    LIST,
    MAP,
    SET,
    STOP,
    STRING,
    STRUCT,
    field,
    listing,
    text,
)

PUBLIC = field(STRING, 1, text(b"public")) + field(STRING, 2, text(b"t"))


def expressions(expression: bytes) -> bytes:
    return listing(STRUCT, 1, field(STRING, 1, text(expression)) + STOP)


def dropping(*parts: bytes) -> bytes:
    """Return the arguments of ``drop_partitions_req`` with these fields in the union."""
    return field(STRUCT, 1, PUBLIC + field(STRUCT, 3, b"".join(parts) + STOP) + STOP) + STOP


def values_of_another_type() -> bytes:
    """Return eight numbers, which Java reads as eight empty texts, another database and a field more."""
    hidden = text(b"") * 8 + field(STRING, 1, text(b"secret"))
    hidden += field(STRING, 77, text(b"x" * (64 - len(hidden) - 7)))
    assert len(hidden) == 64
    return PUBLIC + field(LIST, 3, listing(I64, 8, hidden)) + STOP


#: Apache's own code reads the database ``secret`` from the first two and the last expression of Hive 3 from
#: the second and third one (``ThriftHiveMetastore``'s arguments, by Hive 3.1.3 and Hive 4.2.0).
AMBIGUOUS = {
    "values of another type": ("get_partition", values_of_another_type(), "values of type 10"),
    "another database in a union": (
        "drop_partitions_req",
        dropping(
            field(LIST, 2, expressions(OF_OLDER_HIVE[0])),
            field(STRUCT, 9, field(STRING, 1, text(b"secret")) + STOP),
            field(LIST, 2, expressions(OF_HIVE_4)),
        ),
        "exactly one field",
    ),
    "a field of a union twice": (
        "drop_partitions_req",
        dropping(field(LIST, 2, expressions(OF_OLDER_HIVE[0])), field(LIST, 2, expressions(OF_HIVE_4))),
        "exactly one field",
    ),
    "a union without a field": ("drop_partitions_req", dropping(), "exactly one field"),
    "a set of numbers": (
        "update_creation_metadata",
        field(STRUCT, 4, field(SET, 4, listing(I64, 1, b"\0" * 8)) + STOP) + STOP,
        "values of type 10",
    ),
    "a map of numbers": (
        "create_database",
        field(STRUCT, 1, field(MAP, 4, b"\x08\x0b" + b"\0\0\0\1" + b"\0" * 8) + STOP) + STOP,
        "values of type 8",
    ),
    "a list in an unknown field": (
        "get_table",
        PUBLIC + field(LIST, 99, listing(I32, 1, b"\0" * 4)) + STOP,
        "does not know",
    ),
    "a list in an unknown struct": (
        "get_table",
        PUBLIC + field(STRUCT, 99, field(LIST, 1, listing(STRING, 1, text(b""))) + STOP) + STOP,
        "does not know",
    ),
    "a list for a text": (
        "get_table",
        field(STRING, 1, text(b"public")) + field(LIST, 2, listing(STRING, 1, text(b"t"))) + STOP,
        "does not know",
    ),
    "a database twice": ("get_tables", field(STRING, 1, text(b"secret")) + PUBLIC + STOP, "field 1 twice"),
    "a database twice, with another field in between": (
        "get_tables",
        PUBLIC + field(STRING, 1, text(b"secret")) + STOP,
        "field 1 twice",
    ),
    "a field twice in a struct in a list": (
        "add_partitions",
        field(LIST, 1, listing(STRUCT, 1, field(STRING, 2, text(b"public")) * 2 + STOP)) + STOP,
        "field 2 twice",
    ),
    "an unknown field twice": ("get_table", PUBLIC + field(I32, 99, b"\0" * 4) * 2 + STOP, "field 99 twice"),
    "a second call": ("get_table", PUBLIC + STOP + b"\x80", "follows"),
}


@pytest.mark.parametrize("case", AMBIGUOUS)
def test_an_ambiguous_call_is_refused(case: str) -> None:
    method, arguments, fault = AMBIGUOUS[case]
    with pytest.raises(MalformedMessage, match=fault):
        check_unambiguous(arguments, 0, message_types(method)[0].thrift_spec)


@pytest.mark.parametrize("case", ["values of another type", "a field of a union twice", "a database twice"])
@pytest.mark.parametrize("databases", ["*", "public"])
def test_no_metastore_gets_an_ambiguous_call(
    peer: Peers, gateway: Gateways, raw: Raws, case: str, databases: str
) -> None:
    served = Thrift(lambda _method, _args: None)
    rules = Rules([Rule(access=tuple(Access), databases=(databases,))])
    client = raw(gateway(peer(served).uri, rules=rules))
    method, arguments, fault = AMBIGUOUS[case]
    client.sock.sendall(head_bytes(method, CALL, 5) + arguments)
    assert fault in outcome(*client.message())["message"]
    assert served.calls == []
    client.ask("get_table", dbname="public", tbl_name="t")
    assert served.calls == ["get_table"]


UNAMBIGUOUS: dict[str, tuple[str, Struct]] = {
    "partitions by name": (
        "drop_partitions_req",
        types.DropPartitionsRequest(
            dbName="d", tblName="t", parts=types.RequestPartsSpec(names=["p=a", "p=b"])
        ),
    ),
    "partitions by expression": (
        "drop_partitions_req",
        types.DropPartitionsRequest(
            parts=types.RequestPartsSpec(exprs=[types.DropPartitionsExpr(expr=OF_HIVE_4)])
        ),
    ),
    "a union of one truth": (
        "fire_listener_event",
        types.FireEventRequest(data=types.FireEventRequestData(refreshEvent=True)),
    ),
}


@pytest.mark.parametrize("case", UNAMBIGUOUS)
def test_a_union_with_one_field_passes(case: str) -> None:
    method, request = UNAMBIGUOUS[case]
    (name,) = (argument[1] for argument in message_types(method)[0].thrift_spec.values())
    arguments = message_types(method)[0](**{name: request})
    check_unambiguous(encode(arguments), 0, arguments.thrift_spec)


def test_statistics_and_unknown_fields_without_containers_pass() -> None:
    data = types.ColumnStatisticsData(longStats=types.LongColumnStatsData(numNulls=1, numDVs=2))
    statistics = types.ColumnStatistics(
        statsObj=[types.ColumnStatisticsObj(colName="c", colType="int", statsData=data)] * 2
    )
    message = call_bytes("update_table_column_statistics", stats_obj=statistics)
    begin = len(head_bytes("update_table_column_statistics", CALL, 1))
    spec = message_types("update_table_column_statistics")[0].thrift_spec
    check_unambiguous(message, begin, spec)
    # A newer Hive may send more; an empty list has no elements that could be read in two ways.
    unknown = field(STRUCT, 99, field(I64, 1, b"\0" * 8) + STOP) + field(LIST, 98, listing(I32, 0))
    check_unambiguous(message[:-1] + unknown + STOP, begin, spec)


def test_a_call_that_ends_too_soon_is_refused() -> None:
    arguments = PUBLIC + field(LIST, 3, listing(STRING, 1, text(b"a"))) + STOP
    spec = message_types("get_partition")[0].thrift_spec
    check_unambiguous(arguments, 0, spec)
    for end in range(len(arguments)):
        with pytest.raises(MalformedMessage, match="ends too soon"):
            check_unambiguous(arguments[:end], 0, spec)


@pytest.mark.parametrize("name", ["public.secret.t", "public.secret.", "public..secret", ".public.secret"])
def test_a_qualified_name_of_more_than_two_parts_is_refused(
    name: str, peer: Peers, gateway: Gateways, raw: Raws
) -> None:
    # Hive reads the first two parts of these; a rule that read the last two would decide about another table.
    served = Thrift(lambda *_: None)
    connection = raw(
        gateway(peer(served).uri, rules=Rules((Rule(access=tuple(Access), databases=("*", "!a")),)))
    )
    by_field = connection.ask(
        "get_valid_write_ids", rqst=types.GetValidWriteIdsRequest(fullTableNames=[name])
    )
    by_key = connection.ask("add_write_ids_to_min_history", txnId=1, writeIds={name: 1})
    made = types.CreationMetadata(catName="hive", dbName="public", tblName="v", tablesUsed=[name])
    view = types.Table(dbName="public", tableName="v", creationMetadata=made)
    of_views = [
        connection.ask("create_table", tbl=view),
        connection.ask(
            "update_creation_metadata",
            catName="hive",
            dbname="public",
            tbl_name="v",
            creation_metadata=made,
        ),
        connection.ask("get_materialization_invalidation_info", creation_metadata=made, validTxnList=""),
    ]
    for answer in (by_field, by_key, *of_views):
        assert "more parts than a database and a table" in str(answer)
    assert served.calls == []


@pytest.mark.parametrize("table", ["secret.x", "secret.", "SECRET .x.y"])
def test_a_dot_hides_no_table(table: str, peer: Peers, gateway: Gateways, raw: Raws) -> None:
    """Of these methods' tables, Hive reads the part before the first dot, and answers with its columns."""
    served = Thrift(lambda *_: [])
    rules = Rules(exposure=Exposure(tables=("*", "!sales.secret")))
    connection = raw(gateway(peer(served).uri, rules=rules))
    for method, kind in (("get_fields", types.GetFieldsRequest), ("get_schema", types.GetSchemaRequest)):
        for answer in (
            connection.ask(method, db_name="sales", table_name=table),
            connection.ask(f"{method}_with_environment_context", db_name="sales", table_name=table),
            connection.ask(f"{method}_req", req=kind(dbName="sales", tblName=table)),
        ):
            assert "may not read sales.secret" in str(answer)
    assert served.calls == []
    connection.ask("get_fields", db_name="sales", table_name="open.secret")
    assert served.calls == ["get_fields"]
