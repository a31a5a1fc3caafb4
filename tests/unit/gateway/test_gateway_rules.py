"""Rules, allow-lists and aliases, and the classes of all methods."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest

from airflow_hive_federation.errors import GatewayError
from airflow_hive_federation.gateway.handler import Caller
from airflow_hive_federation.gateway.methods import Access
from airflow_hive_federation.gateway.names import Reference
from airflow_hive_federation.gateway.rules import Exposure, Patterns, Rule, Rules
from airflow_hive_federation.metastore.connection import message_types
from airflow_hive_federation.metastore.idl import types
from tests.support.gateways import Clients, Gateways, Peers, Raws
from tests.support.metastore_peers import Thrift


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


def test_callers_are_remembered_by_few_bytes() -> None:
    """Clients choose their groups themselves."""
    rules = Rules((Rule(groups=("ops*",), databases=("a",)), Rule(databases=("b",))))

    def ask(number: int, group: str) -> bool:
        caller = Caller(user="u", groups=(f"{number}" * 100_000, group))
        return rules.shown("get_table", caller, "a")

    tracemalloc.start()
    try:
        assert not any(ask(number, "dev") for number in range(100))
        before, _ = tracemalloc.get_traced_memory()
        assert all(ask(number, "ops") for number in range(100))
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # 100 callers have 15 MB of groups.
    assert after - before < 1_000_000
    # The first callers make room for others, and are judged the same afterwards.
    for number in range(5000):
        rules.shown("get_table", Caller(user=str(number)), "a")
    assert len(rules._found) == 4096
    assert ask(0, "ops")
    assert not ask(0, "dev")


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


def test_aliases_are_the_clients_names(peer: Peers, gateway: Gateways, raw: Raws, client: Clients) -> None:
    noted: list[dict[str, int]] = []
    patterns: list[str] = []

    def serve(method: str, args: Any) -> Any:
        if method == "add_write_ids_to_min_history":
            return noted.append(args.writeIds)
        if method == "get_databases":
            patterns.append(args.pattern)
            return ["sales"]
        return metastore(method, args)

    run = gateway(peer(Thrift(serve)).uri, aliases={"far": "sales"})
    connection = raw(run)
    assert connection.ask("get_all_databases") == {"success": ["public", "far", "secret"]}
    assert connection.ask("get_databases", pattern="f*") == {"success": ["far"]}
    assert patterns == ["f*|sales"]
    request = types.GetTableRequest(dbName="far", tblName="t")
    assert connection.ask("get_table_req", req=request)["success"].table.dbName == "far"
    connection.ask("add_write_ids_to_min_history", txnId=1, writeIds={"far.t": 7, "secret.t": 8})
    assert noted == [{"sales.t": 7, "secret.t": 8}]
    hidden = types.GetTableRequest(dbName="sales", tblName="t")
    assert "Use the name far" in connection.ask("get_table_req", req=hidden)["o1"].message
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
