"""Classes of methods, and names of databases and tables in calls: found, replaced, or refused."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from airflow_hive_federation.gateway.answers import LISTINGS
from airflow_hive_federation.gateway.methods import ACCESS, INDEXES, OF_NO_DATABASE, Access
from airflow_hive_federation.gateway.names import Reference, references, renamed
from airflow_hive_federation.gateway.rules import Exposure, Rule, Rules
from airflow_hive_federation.metastore.connection import message_types
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.metastore.idl.service import METHODS
from airflow_hive_federation.metastore.message_bounds import MalformedMessage
from airflow_hive_federation.metastore.protocol import encode
from airflow_hive_federation.metastore.wire import from_bytes
from tests.support.gateways import Gateways, Peers, Raws
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
