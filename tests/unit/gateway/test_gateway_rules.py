"""Rules, allow-lists and aliases, and the classes of all methods."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from airflow_hive_federation.errors import GatewayError
from airflow_hive_federation.gateway.answers import LISTINGS
from airflow_hive_federation.gateway.handler import Caller
from airflow_hive_federation.gateway.methods import ACCESS, INDEXES, OF_NO_DATABASE, Access
from airflow_hive_federation.gateway.names import Reference, references, renamed
from airflow_hive_federation.gateway.rules import Exposure, Patterns, Rule, Rules
from airflow_hive_federation.metastore.connection import message_types
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.metastore.idl.service import METHODS
from airflow_hive_federation.metastore.message_bounds import MalformedMessage
from airflow_hive_federation.metastore.protocol import encode
from airflow_hive_federation.metastore.wire import from_bytes
from tests.support.gateways import Clients, Gateways, Peers, Raws
from tests.support.metastore_peers import Thrift

WIRE = Path(__file__).parents[1] / "metastore" / "hive_4_2_1_wire.txt"


def test_every_method_has_a_class() -> None:
    newest = set(re.findall(r"^method (\w+)_(?:args|result)\b", WIRE.read_text(), re.MULTILINE))
    assert set(ACCESS) == set(METHODS)
    assert newest <= set(ACCESS)
    assert not INDEXES & set(ACCESS)
    assert set(ACCESS) >= OF_NO_DATABASE


#: Calls that are the whole interface's only way to some change, and must never count as reading.
CHANGES = (
    *("add_", "alter_", "append_", "create_", "delete_", "drop_", "exchange_"),
    *("grant_", "mark_", "put_", "revoke_", "set_", "update_"),
)


def test_what_changes_something_is_no_reading() -> None:
    reading = {method for method, access in ACCESS.items() if access is Access.READ}
    assert not {method for method in reading if method.startswith((*CHANGES, "set_", "update_"))} - {
        "set_ugi"
    }


def test_every_method_either_names_a_database_or_is_known_not_to() -> None:
    """A new method whose database nobody finds would be refused to callers with some databases only."""
    without = sorted(
        method
        for method in METHODS
        if not any(named(method, *sample) for sample in _samples(method)) and method not in OF_NO_DATABASE
    )
    assert "\n".join(without) == (Path(__file__).parent / "methods_of_all_databases.txt").read_text().strip()


def _samples(method: str) -> list[tuple[Any, ...]]:
    return [(_filled(message_types(method)[0], 0),)]


def _filled(kind: Any, depth: int) -> Any:
    if depth > 5:
        return kind()
    return kind(
        **{
            field[1]: _value(field[0], field[2] if len(field) == 4 else None, depth)
            for field in kind.thrift_spec.values()
        }
    )


def _value(ttype: int, inner: Any, depth: int) -> Any:
    if ttype == 12:
        return _filled(inner, depth + 1)
    if ttype in {14, 15}:
        return [_value(*(inner if isinstance(inner, tuple) else (inner, None)), depth + 1)]
    if ttype == 13:
        key = _value(*(inner[0] if isinstance(inner[0], tuple) else (inner[0], None)), depth + 1)
        value = _value(*(inner[1] if isinstance(inner[1], tuple) else (inner[1], None)), depth + 1)
        return {tuple(key) if isinstance(key, list) else key: value}
    return {2: True, 4: 1.0, 11: "d.t", 18: b""}.get(ttype, 1)


def named(method: str, arguments: Any) -> list[tuple[str, str | None]]:
    read = references(encode(arguments), 0, message_types(method)[0])
    return [(reference.database, reference.table) for reference in read]


NAMED = {
    "get_table": ({"dbname": "D", "tbl_name": "T"}, [("d", "t")]),
    "get_all_tables": ({"db_name": "@hive#D"}, [("d", None)]),
    "get_databases": ({"pattern": "d"}, []),
    "get_database": ({"name": "@hive#D"}, [("d", None)]),
    "get_database_req": ({"request": types.GetDatabaseRequest(name="D", catalogName="c")}, [("d", None)]),
    "append_partition_req": (
        {"appendPartitionsReq": types.AppendPartitionsRequest(dbName="d", name="t", catalogName="c")},
        [("d", "t")],
    ),
    "drop_table": ({"dbname": "d", "name": "t"}, [("d", "t")]),
    "get_table_objects_by_name": ({"dbname": "d", "tbl_names": ["a", "B"]}, [("d", "a"), ("d", "b")]),
    "create_table": ({"tbl": types.Table(dbName="d", tableName="t")}, [("d", "t")]),
    "alter_table": (
        {"dbname": "a", "tbl_name": "t", "new_tbl": types.Table(dbName="b", tableName="u")},
        [("b", "u"), ("a", "t")],
    ),
    "add_partitions": ({"new_parts": [types.Partition(dbName="d", tableName="t")]}, [("d", "t")]),
    "exchange_partition": (
        {"source_db": "a", "source_table_name": "t", "dest_db": "b", "dest_table_name": "u"},
        [("a", "t"), ("b", "u")],
    ),
    "get_valid_write_ids": (
        {"rqst": types.GetValidWriteIdsRequest(fullTableNames=["a.t", "b.u"])},
        [("a", "t"), ("b", "u")],
    ),
    "add_write_ids_to_min_history": (
        {"txnId": 1, "writeIds": {"A.t": 1, "b.u": 2}},
        [("a", "t"), ("b", "u")],
    ),
    "lock": (
        {"rqst": types.LockRequest(component=[types.LockComponent(dbname="d", tablename="t")], user="d")},
        [("d", "t")],
    ),
    "create_database": ({"database": types.Database(name="d")}, [("d", None)]),
    "alter_table_req": (
        {
            "req": types.AlterTableRequest(
                dbName="a", tableName="t", table=types.Table(dbName="b", tableName="u")
            )
        },
        [("b", "u"), ("a", "t")],
    ),
}


@pytest.mark.parametrize("method", NAMED)
def test_names_are_found_where_they_are(method: str) -> None:
    arguments, expected = NAMED[method]
    assert named(method, message_types(method)[0](**arguments)) == expected


@pytest.mark.parametrize("method", NAMED)
def test_names_are_replaced_and_nothing_else(method: str) -> None:
    kind = message_types(method)[0]
    arguments: Any = NAMED[method][0]
    data = encode(kind(**arguments))
    read = references(data, 0, kind)
    assert renamed(data, read, lambda name: name) is data
    changed = renamed(data, read, lambda name: f"far_{name}")
    again = [
        (reference.database.removeprefix("far_"), reference.table)
        for reference in references(changed, 0, kind)
    ]
    assert again == NAMED[method][1]
    back = renamed(changed, references(changed, 0, kind), lambda name: name.removeprefix("far_"))
    assert [reference.database for reference in references(back, 0, kind)] == [
        reference.database for reference in read
    ]
    assert type(from_bytes(kind, changed)) is kind


@pytest.mark.parametrize(
    "name", [" payroll", "payroll\t", "\0PayRoll\r\n", "@hive#payroll ", "@hive# payroll"],
    ids=["before", "behind", "control", "catalog", "catalog_before"],
)  # fmt: skip
def test_blanks_around_a_name_get_round_no_rule(name: str, peer: Peers, gateway: Gateways, raw: Raws) -> None:
    # The metastore trims names, as Java does.
    served = Thrift(lambda *_: None)
    rules = Rules((Rule(databases=("*", "!payroll")),))
    connection = raw(gateway(peer(served).uri, rules=rules))
    answer = connection.ask("get_table", dbname=name, tbl_name="t")
    assert "payroll" in answer["o1"].message
    assert connection.ask(
        "get_valid_write_ids", rqst=types.GetValidWriteIdsRequest(fullTableNames=["payroll .t"])
    )
    assert served.calls == []
    hidden = Rules(exposure=Exposure(tables=("*", "!sales.secret")))
    other = raw(gateway(peer(served).uri, rules=hidden))
    assert "secret" in other.ask("get_table", dbname="sales", tbl_name="secret ")["o1"].message
    assert served.calls == []


def test_no_map_holds_structs_that_name_databases() -> None:
    """Names are looked for in fields, in lists and in the keys of some maps, and not in values of maps."""

    def structs(kind: Any, above: set[Any]) -> None:
        if kind in above:
            return
        above.add(kind)
        for field in kind.thrift_spec.values():
            for struct in structs_of(field[0], field[2] if len(field) == 4 else None):
                assert field[0] != 13 or not references_in(struct), (kind, field)
                structs(struct, above)

    def references_in(struct: Any) -> list[Reference]:
        return references(encode(_filled(struct, 0)), 0, struct)

    known: set[Any] = set()
    for method in METHODS:
        for kind in message_types(method)[:2]:
            structs(kind, known)
    assert len(known) > 300


def structs_of(ttype: int, inner: Any) -> list[Any]:
    """Return the structs in a type, those within lists and maps included."""
    if ttype == 12:
        return [inner]
    parts = inner if ttype == 13 else [inner] if ttype in {14, 15} else []
    return [
        struct
        for part in parts
        for struct in structs_of(*(part if isinstance(part, tuple) else (part, None)))
    ]


def field(number: int, ttype: int, value: bytes) -> bytes:
    return bytes([ttype]) + number.to_bytes(2, "big") + value


def text(value: bytes, size: int | None = None) -> bytes:
    return (len(value) if size is None else size).to_bytes(4, "big", signed=True) + value


MALFORMED = {
    "a list of numbers for structs": ("add_partitions", field(1, 15, bytes([8]) + text(b"\0\0\0\1", 1))),
    # Hive's metastore would read the eight bytes of the number as the text ``hush``.
    "a list of numbers for names": (
        "get_table_objects_by_name",
        field(1, 11, text(b"d")) + field(2, 15, b"\x0a" + text(text(b"hush"), 1)),
    ),
    # It would read 8 bytes of the first text as a number, and the rest as more names.
    "texts for numbers": (
        "add_write_ids_to_min_history",
        field(2, 13, b"\x0b\x0b" + text(text(b"a.t") + text(bytes(4) + text(b"b.u") + bytes(8)), 1)),
    ),
    "numbers for keys": ("add_write_ids_to_min_history", field(2, 13, b"\x08\x0a" + text(bytes(12), 1))),
    "no UTF-8": ("get_table", field(1, 11, text(b"d\xff"))),
    "a negative length": ("get_table", field(1, 11, text(b"", -1))),
    "a list of a negative length": ("get_table_objects_by_name", field(2, 15, b"\x0b" + text(b"", -1))),
    "a text that ends too soon": ("get_table", field(1, 11, text(b"d", 9))),
    "a list that ends too soon": ("get_table_objects_by_name", field(2, 15, b"\x0b" + text(text(b"t"), 2))),
    "no end": ("get_table", field(1, 11, text(b"d"))),
    "a type and no field": ("get_table", b"\x0b"),
    "a length that ends too soon": ("get_table", field(1, 11, b"\0\0")),
}


@pytest.mark.parametrize("case", MALFORMED)
def test_names_that_cannot_be_read_are_refused(case: str) -> None:
    method, data = MALFORMED[case]
    end = b"" if "soon" in case or case in {"no end", "a type and no field"} else b"\0"
    with pytest.raises(MalformedMessage):
        references(data + end, 0, message_types(method)[0])


def test_fields_of_other_types_hold_no_names() -> None:
    """As for the metastore, which skips a field whose type is not that of the interface definition."""
    data = field(1, 8, b"\0\0\0\1") + field(9, 11, text(b"x")) + field(1, 11, text(b"d")) + b"\0"
    assert [reference.database for reference in references(data, 0, message_types("get_table")[0])] == ["d"]
    numbers = field(1, 15, b"\x08" + text(b"\0\0\0\1", 1))
    view = message_types("create_table")[0](tbl=types.Table(dbName="d", tableName="t"))
    assert [
        reference.database for reference in references(encode(view), 0, message_types("create_table")[0])
    ] == ["d"]
    assert references(numbers + b"\0", 0, message_types("get_table")[0]) == []


def ref(database: str, table: str | None = None) -> Reference:
    from airflow_hive_federation.gateway.names import Text

    return Reference(database, table, Text(database, 0, 0))


def test_rules_decide_by_class_and_database() -> None:
    rules = Rules(
        (
            Rule(users=("ann",), access=(Access.READ, Access.WRITE), databases=("sales*", "!sales_secret")),
            Rule(groups=("ops",), authentication=("mtls",), access=tuple(Access)),
            Rule(access=(Access.READ,), databases=("public",)),
        )
    )
    ann, bob = Caller(user="ann"), Caller(user="bob")
    ops = Caller(user="o", groups=("ops",), authentication="mtls")
    rules.check("create_table", ann, [ref("sales_eu", "t")])
    rules.check("get_table", ann, [ref("public", "t")])
    rules.check("get_table", bob, [ref("public", "t")])
    rules.check("open_txns", ann, [])
    rules.check("set_ugi", bob, [])
    assert rules.unlimited("grant_role", ops)
    assert not rules.unlimited("get_table", ann)
    for method, caller, names in (
        ("create_table", ann, [ref("sales_secret", "t")]),
        ("create_table", ann, [ref("public", "t")]),
        ("create_table", bob, [ref("public", "t")]),
        ("create_table", bob, [ref("sales_eu", "t")]),
        ("grant_role", Caller(user="o", groups=("others",), authentication="mtls"), []),
        ("alter_table", ann, [ref("sales_eu", "t"), ref("public", "t")]),
        ("grant_role", ann, []),
        ("get_open_txns_info", ann, []),
        ("shutdown", ops, []),
        ("grant_role", Caller(user="o", groups=("ops",), authentication="asserted"), []),
    ):
        with pytest.raises(GatewayError) as caught:
            rules.check(method, caller, names)
        assert caught.value.status == "denied", method


def test_what_is_not_exposed_is_for_nobody() -> None:
    rules = Rules(exposure=Exposure(("a", "b"), ("a.*", "b.x")))
    anybody = Caller(user="x")
    rules.check("get_table", anybody, [ref("b", "x")])
    for hidden in (ref("b", "y"), ref("c", "x"), ref("c")):
        with pytest.raises(GatewayError, match="may not read"):
            rules.check("get_table", anybody, [hidden])


def test_what_names_no_database_is_for_those_who_see_all_of_them() -> None:
    anybody, method = Caller(user="x"), "get_all_materialized_view_objects_for_rewriting"
    Rules().check(method, anybody, [])
    for rules in (
        Rules(exposure=Exposure(databases=("a",))),
        Rules(exposure=Exposure(tables=("a.*",))),
        Rules((Rule(databases=("a",)),)),
    ):
        assert not rules.unlimited(method, anybody)
        with pytest.raises(GatewayError, match="the call names none"):
            rules.check(method, anybody, [])
        # An empty name is that of no database.
        with pytest.raises(GatewayError, match="the call names none"):
            rules.check(method, anybody, [ref("")])


def test_patterns() -> None:
    assert Patterns(["*"]).match("Any")
    assert not Patterns([]).match("any")
    assert Patterns(["a*", "!ab*", "abc"]).match("ABC")
    assert not Patterns(["a*", "!ab*", "abc"]).match("abd")


def metastore(method: str, args: Any) -> Any:
    return {
        "get_all_databases": lambda: ["public", "sales", "secret"],
        "get_all_tables": lambda: ["open_a", "b"],
        "get_materialized_views_for_rewriting": lambda: ["open_a", "b"],
        "get_tables_ext": lambda: [types.ExtendedTableInfo(tblName=name) for name in ("b", "open_a")],
        "get_table_meta": lambda: [
            types.TableMeta(dbName=name, tableName="t", tableType="x") for name in ("public", "secret")
        ],
        "get_next_notification": lambda: types.NotificationEventResponse(
            events=[
                types.NotificationEvent(eventId=number, dbName=name, eventType="X", message="")
                for number, name in enumerate(("public", "secret", None))
            ]
        ),
        "get_table_req": lambda: types.GetTableResult(
            table=types.Table(dbName=args.req.dbName, tableName="t")
        ),
        "create_table": lambda: None,
    }[method]()


def test_lists_show_what_the_caller_may_see(peer: Peers, gateway: Gateways, raw: Raws) -> None:
    rules = Rules((Rule(databases=("public", "sales")),), Exposure(tables=("*.open_*", "*.t")))
    connection = raw(gateway(peer(Thrift(metastore)).uri, rules=rules))
    assert connection.ask("get_all_databases") == {"success": ["public", "sales"]}
    assert connection.ask("get_all_tables", db_name="sales") == {"success": ["open_a"]}
    assert connection.ask("get_materialized_views_for_rewriting", db_name="sales") == {"success": ["open_a"]}
    request = types.GetTablesExtRequest(catalog="hive", database="sales", tableNamePattern="*")
    extended = connection.ask("get_tables_ext", req=request)["success"]
    assert [item.tblName for item in extended] == ["open_a"]
    meta = connection.ask("get_table_meta", db_patterns="*", tbl_patterns="*")["success"]
    assert [item.dbName for item in meta] == ["public"]
    answer = connection.ask("get_next_notification", rqst=types.NotificationEventRequest(lastEvent=0))
    assert [event.eventId for event in answer["success"].events] == [0]
    assert "may not read secret" in connection.ask("get_all_tables", db_name="secret")["o1"].message


def locks(dbname: str, tablename: str | None) -> types.ShowLocksResponseElement:
    return types.ShowLocksResponseElement(
        lockid=1, dbname=dbname, tablename=tablename, state=1, type=1, lastheartbeat=1, user="u", hostname="h"
    )


def key(parent: str, child: str) -> types.SQLForeignKey:
    return types.SQLForeignKey(
        pktable_db="sales", pktable_name=parent, fktable_db="sales", fktable_name=child
    )


def compaction(dbname: str, tablename: str) -> types.ShowCompactResponseElement:
    return types.ShowCompactResponseElement(
        dbname=dbname, tablename=tablename, type=types.CompactionType.MAJOR, state="working"
    )


#: Calls that name a database, or none at all, and whose answers name tables: what the metastore answers, and
#: what is left of it.
TABLES_IN_ANSWERS: dict[str, tuple[Any, Any, Any]] = {
    "show_locks": (
        types.ShowLocksRequest(dbname="sales"),
        types.ShowLocksResponse(
            locks=[locks("sales", "open_a"), locks("Sales", "b"), locks("sales", None), locks("secret", "t")]
        ),
        types.ShowLocksResponse(locks=[locks("sales", "open_a"), locks("sales", None)]),
    ),
    "show_compact": (
        types.ShowCompactRequest(dbName="sales", tbName="b"),
        types.ShowCompactResponse(
            compacts=[compaction("sales", "open_a"), compaction("sales", "b"), compaction("secret", "t")]
        ),
        types.ShowCompactResponse(compacts=[compaction("sales", "open_a")]),
    ),
    "get_all_write_event_info": (
        types.GetAllWriteEventInfoRequest(txnId=1),
        [
            types.WriteEventInfo(writeId=1, database=database, table=table, files="f")
            for database, table in (("sales", "open_a"), ("sales", "b"), ("secret", "t"))
        ],
        [types.WriteEventInfo(writeId=1, database="sales", table="open_a", files="f")],
    ),
    "get_foreign_keys": (
        types.ForeignKeysRequest(parent_db_name="sales", parent_tbl_name="open_a"),
        types.ForeignKeysResponse(foreignKeys=[key("open_a", "open_b"), key("open_a", "b")]),
        types.ForeignKeysResponse(foreignKeys=[key("open_a", "open_b")]),
    ),
    "get_all_table_constraints": (
        types.AllTableConstraintsRequest(dbName="sales", tblName="open_a", catName="hive"),
        types.AllTableConstraintsResponse(
            allTableConstraints=types.SQLAllTableConstraints(
                primaryKeys=[types.SQLPrimaryKey(table_db="sales", table_name="open_a", column_name="c")],
                foreignKeys=[key("b", "open_a"), key("open_b", "open_a")],
            )
        ),
        types.AllTableConstraintsResponse(
            allTableConstraints=types.SQLAllTableConstraints(
                primaryKeys=[types.SQLPrimaryKey(table_db="sales", table_name="open_a", column_name="c")],
                foreignKeys=[key("open_b", "open_a")],
            )
        ),
    ),
}


@pytest.mark.parametrize("method", TABLES_IN_ANSWERS)
def test_answers_name_no_hidden_tables(peer: Peers, gateway: Gateways, raw: Raws, method: str) -> None:
    asked, given, shown = TABLES_IN_ANSWERS[method]
    served = Thrift(lambda *_: given)
    (field,) = (specification[1] for specification in message_types(method)[0].thrift_spec.values())
    hiding = Exposure(("sales", "public"), ("*.open_*",))
    limited = Rules((Rule(databases=("sales",)),), Exposure(tables=("*.open_*",)))
    for rules in (Rules(exposure=hiding), limited):
        assert raw(gateway(peer(served).uri, rules=rules)).ask(method, **{field: asked}) == {"success": shown}
    # Who may see everything gets the answer as it is.
    assert raw(gateway(peer(served).uri)).ask(method, **{field: asked}) == {"success": given}


def test_no_answer_of_a_list_of_tables_is_overlooked() -> None:
    """Each answer that names tables is filtered, or its call has to name them, and is checked by them."""
    for method, access in ACCESS.items():
        result = message_types(method)[1].thrift_spec.get(0)
        if access is not Access.READ or method in LISTINGS or result is None:
            continue
        sample = _value(result[0], result[2] if len(result) == 4 else None, 0)
        answer = message_types(method)[1](success=sample)
        tables = {table for _, table in _references_of(answer, message_types(method)[1]) if table}
        asks = {table for sample in _samples(method) for _, table in named(method, *sample) if table}
        # The one that names none is for callers who may see everything.
        assert not tables or asks or method == "get_all_materialized_view_objects_for_rewriting", method


def _references_of(value: Any, kind: Any) -> list[tuple[str, str | None]]:
    return [(reference.database, reference.table) for reference in references(encode(value), 0, kind)]


def test_aliases_are_the_clients_names(peer: Peers, gateway: Gateways, raw: Raws, client: Clients) -> None:
    noted: list[dict[str, int]] = []

    def serve(method: str, args: Any) -> Any:
        if method == "add_write_ids_to_min_history":
            return noted.append(args.writeIds)
        return metastore(method, args)

    run = gateway(peer(Thrift(serve)).uri, aliases={"far": "sales"})
    connection = raw(run)
    assert connection.ask("get_all_databases") == {"success": ["public", "far", "secret"]}
    request = types.GetTableRequest(dbName="far", tblName="t")
    assert connection.ask("get_table_req", req=request)["success"].table.dbName == "far"
    connection.ask("add_write_ids_to_min_history", txnId=1, writeIds={"far.t": 7, "secret.t": 8})
    assert noted == [{"sales.t": 7, "secret.t": 8}]
    hidden = types.GetTableRequest(dbName="sales", tblName="t")
    assert "Call it far" in connection.ask("get_table_req", req=hidden)["o1"].message
    assert client(run.front.uri).get_table("far", "t").dbName == "far"


def test_a_caller_who_sees_some_tables_learns_what_the_cleaner_waits_for(
    peer: Peers, gateway: Gateways, client: Clients
) -> None:
    rules = Rules(exposure=Exposure(tables=("sales.t",)))
    lacking = {"get_latest_committed_compaction_info"}
    answer = types.GetLatestCommittedCompactionInfoResponse(compactions=[])
    for served, waits in (
        (Thrift(lambda *_: answer), False),
        (Thrift(lambda *_: None, lacking), True),
    ):
        running = gateway(peer(served).uri, rules=rules)
        assert client(running.front.uri).waits_for_locks("sales.t") is waits
