"""Several metastores as one: calls go to owners, parts are put together, and what spans owners is refused."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest

from airflow_hive_federation.gateway.dispatch import Gateway, Metastore
from airflow_hive_federation.gateway.federation.metastores import Metastores, OnMissing, Remote
from airflow_hive_federation.gateway.federation.owners import RemoteNames
from airflow_hive_federation.gateway.federation.routes import ROUTES, Route
from airflow_hive_federation.gateway.federation.target import Federation
from airflow_hive_federation.gateway.handler import Call, Caller, Deadline
from airflow_hive_federation.gateway.messages import read_head
from airflow_hive_federation.gateway.methods import ACCESS
from airflow_hive_federation.gateway.names import _names
from airflow_hive_federation.gateway.upstream import Upstream
from airflow_hive_federation.metastore import MetastoreSettings
from airflow_hive_federation.metastore.connection import message_types
from airflow_hive_federation.metastore.idl import types
from tests.support.federated import Federated, Store, lock, table_request
from tests.support.gateways import Peers, call_bytes, outcome
from tests.support.metastore_peers import Thrift

BY_NAME = {
    *(Route.NAMED, Route.DEFINES_DATABASE, Route.IN_TRANSACTION, Route.LOCK, Route.LOCKS),
    *(Route.WRITE_IDS, Route.MIN_HISTORY, Route.TABLES, Route.LISTING),
}
Ask = Callable[..., dict[str, Any]]


def test_calls_go_to_the_owner_under_its_own_names(peer: Peers, stack: ExitStack) -> None:
    both = Federated(peer, stack)
    assert both.ask("get_table_req", req=table_request("sales"))["success"].table.dbName == "sales"
    assert [method for method, _ in both.far.asked] == []
    table = both.ask("get_table_req", req=table_request("FAR_Sales"))["success"].table
    assert table.dbName == "far_sales"
    assert both.far.asked[0][1].req.dbName == "sales"
    assert both.ask("get_all_tables", db_name="@hive#far_sales") == {"success": ["t"]}
    assert both.far.asked[1][1].db_name == "@hive#sales"
    # What the far metastore does not show is the near one's business, which has no such database.
    both.ask("get_all_tables", db_name="far_secret")
    assert both.near.asked[-1][1].db_name == "far_secret"


def test_lists_are_put_together(peer: Peers, stack: ExitStack) -> None:
    both = Federated(peer, stack)
    assert both.ask("get_all_databases")["success"] == ["default", "far_default", "far_sales", "sales"]
    assert both.ask("get_databases", pattern="*sales|x")["success"] == ["far_sales", "sales"]
    meta = both.ask("get_table_meta", db_patterns="far_*", tbl_patterns="*")["success"]
    assert [table.dbName for table in meta] == ["far_default", "far_sales"]


def test_a_part_that_hangs_fails_the_list_and_is_named(peer: Peers, stack: ExitStack) -> None:
    both = Federated(peer, stack, part_timeout_s=0.2)
    both.far.hang.clear()
    text = both.ask("get_all_databases")["o1"].message
    assert "the part of metastore far is missing" in text
    assert both.ask("get_table_req", req=table_request("sales"))["success"].table.tableName == "t"


def test_a_part_that_hangs_is_left_out_where_that_is_wanted(
    peer: Peers, stack: ExitStack, caplog: pytest.LogCaptureFixture
) -> None:
    both = Federated(peer, stack, part_timeout_s=0.2, on_missing=OnMissing.PARTIAL)
    both.far.hang.clear()
    for _ in range(9):
        assert both.ask("get_all_databases")["success"] == ["default", "sales"]
    assert both.federation.missing_parts == {"far": 9}
    assert "lacks the part of metastore far" in caplog.text


def test_a_metastore_that_takes_calls_and_never_answers_disturbs_no_other(
    stack: ExitStack, peer: Peers
) -> None:
    silent = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
    near = Store("sales")
    primary = Metastore(Upstream("main", MetastoreSettings(uris=(peer(Thrift(near)).uri,))))
    uri = f"thrift://127.0.0.1:{silent.getsockname()[1]}"
    hung = Metastore(Upstream("hung", MetastoreSettings(uris=(uri,))))
    names = RemoteNames(databases={"lost": "lost"})
    federation = Federation(Metastores(primary, {"hung": Remote(target=hung, names=names, timeout_s=0.3)}))
    stack.callback(federation.close)
    gateway = Gateway(federation)

    def ask(database: str) -> dict[str, Any]:
        message = call_bytes("get_table_req", req=table_request(database))
        answer = gateway.answer(Call("get_table_req", message, Caller(), Deadline(30)))
        return outcome(read_head(answer), answer)

    waiting = [threading.Thread(target=ask, args=("lost",)) for _ in range(3)]
    for thread in waiting:
        thread.start()
    assert ask("sales")["success"].table.tableName == "t"
    for thread in waiting:
        thread.join()
    # Three in a row: it gets no call for a while.
    assert "did not answer 3 times in a row" in ask("lost")["o1"].message
    assert ask("sales")["success"].table.tableName == "t"


def test_a_caller_who_waits_shorter_opens_no_circuit(peer: Peers, stack: ExitStack) -> None:
    both = Federated(peer, stack)
    both.far.hang.clear()
    for _ in range(4):
        message = call_bytes("get_table_req", req=table_request("far_sales"))
        both.gateway.answer(Call("get_table_req", message, Caller(), Deadline(0.1)))
    both.far.hang.set()
    assert both.ask("get_table_req", req=table_request("far_sales"))["success"].table.tableName == "t"


def test_the_near_part_is_never_left_out(peer: Peers, stack: ExitStack) -> None:
    both = Federated(peer, stack, on_missing=OnMissing.PARTIAL)
    both.near.hang.clear()
    message = call_bytes("get_all_databases")
    answer = both.gateway.answer(Call("get_all_databases", message, Caller(), Deadline(0.5)))
    assert "main" in outcome(read_head(answer), answer)["o1"].message


def test_what_may_only_be_read_is_not_written(peer: Peers, stack: ExitStack) -> None:
    both = Federated(peer, stack)
    table = types.Table(dbName="far_sales", tableName="new")
    assert "metastore far can only be read" in both.ask("create_table", tbl=table)["o3"].message
    assert "far" in both.ask("drop_database", name="far_sales")["o3"].message
    assert both.far.asked == both.near.asked == []


def test_writes_go_to_the_owner_where_they_may(peer: Peers, stack: ExitStack) -> None:
    both = Federated(peer, stack, writable=True)
    assert both.ask("create_table", tbl=types.Table(dbName="far_sales", tableName="new")) == {}
    assert both.far.asked[0][1].tbl.dbName == "sales"
    view = types.Table(
        dbName="far_sales", tableName="v", viewExpandedText="select 1", tableType="VIRTUAL_VIEW"
    )
    assert "views" in both.ask("create_table", tbl=view)["o3"].message
    assert "local name of database" in both.ask("drop_database", name="far_sales")["o3"].message
    assert len(both.far.asked) == 1
    assert both.near.asked == []


def test_single_tables_have_names_in_local_databases(peer: Peers, stack: ExitStack) -> None:
    both = Federated(peer, stack, names=RemoteNames(tables={"sales.rates": "sales.t"}), writable=True)
    rows = both.ask("get_table_req", req=table_request("sales", "rates"))["success"].table
    assert (rows.dbName, rows.tableName) == ("sales", "rates")
    assert both.far.asked[-1][1].req.tblName == "t"
    assert both.ask("get_all_tables", db_name="sales")["success"] == ["rates", "t"]
    assert "local name" in both.ask("drop_table", dbname="sales", name="rates")["o3"].message


def test_every_list_of_a_database_has_the_single_tables(peer: Peers, stack: ExitStack) -> None:
    names = RemoteNames(tables={"sales.rates": "sales.t", "sales.prices": "default.u"})
    both = Federated(peer, stack, names=names)
    kinds = both.ask("get_tables_by_type", db_name="sales", pattern="*", tableType="x")["success"]
    # The far metastore has no table default.u of that type.
    assert kinds == ["rates", "t"]
    assert both.far.asked[-1][1].tbl_types == ["x"]
    filtered = both.ask("get_table_names_by_filter", dbname="sales", filter="f", max_tables=-1)["success"]
    assert filtered == ["prices", "rates", "t", "u"]
    asked = {args.dbname: args.filter for method, args in both.far.asked if method.endswith("filter")}
    assert asked == {"sales": "f", "default": "f"}
    few = both.ask("get_table_names_by_filter", dbname="sales", filter="f", max_tables=1)["success"]
    assert few == ["prices"]
    request = types.GetTablesExtRequest(catalog="hive", database="sales", tableNamePattern="*", limit=3)
    extended = both.ask("get_tables_ext", req=request)["success"]
    assert [(table.tblName, table.accessType) for table in extended] == [
        ("prices", 8),
        ("rates", 8),
        ("t", 8),
    ]
    request.tableNamePattern, request.limit = "r*", None
    assert [table.tblName for table in both.ask("get_tables_ext", req=request)["success"]] == ["rates"]


def test_a_list_of_a_database_names_the_part_that_is_missing(peer: Peers, stack: ExitStack) -> None:
    names = RemoteNames(tables={"sales.rates": "sales.t", "sales.prices": "default.u"})
    both = Federated(peer, stack, names=names, part_timeout_s=0.2)
    both.far.hang.clear()
    for method, arguments in {
        "get_all_tables": {"db_name": "sales"},
        "get_table_names_by_filter": {"dbname": "sales", "filter": "f", "max_tables": -1},
    }.items():
        assert "the part of metastore far is missing" in both.ask(method, **arguments)["o1"].message
    # A database with none of its tables does not call it.
    assert both.ask("get_all_tables", db_name="default")["success"] == ["t"]


def test_a_transaction_over_two_owners_is_refused(peer: Peers, stack: ExitStack) -> None:
    both = Federated(peer, stack, writable=True)
    answers = {
        "two owners": both.ask("lock", rqst=lock("sales", "far_sales")),
        "a foreign one": both.ask("lock", rqst=lock("far_sales")),
        "write ids": both.ask(
            "allocate_table_write_ids",
            rqst=types.AllocateTableWriteIdsRequest(dbName="far_sales", tableName="t", txnIds=[5]),
        ),
        "a snapshot": both.ask(
            "get_valid_write_ids",
            rqst=types.GetValidWriteIdsRequest(
                fullTableNames=["sales.t", "far_sales.t"], validTxnList="9:9::"
            ),
        ),
        "a rename": both.ask(
            "alter_table",
            dbname="sales",
            tbl_name="t",
            new_tbl=types.Table(dbName="far_sales", tableName="t"),
        ),
    }
    for case, answer in answers.items():
        text = str(answer)
        assert "far_sales" in text, case
        assert "metastore" in text, case
        assert "success" not in answer, case
    assert both.far.asked == both.near.asked == []
    both.ask("lock", rqst=lock("sales"))
    assert [method for method, _ in both.near.asked] == ["lock"]


def test_write_ids_are_the_owners(peer: Peers, stack: ExitStack) -> None:
    both = Federated(peer, stack)
    request = types.GetValidWriteIdsRequest(fullTableNames=["sales.t", "far_sales.t"])
    answer = both.ask("get_valid_write_ids", rqst=request)["success"].tblValidWriteIds
    assert [write_ids.fullTableName for write_ids in answer] == ["sales.t", "far_sales.t"]
    assert both.far.asked[0][1].rqst.fullTableNames == ["sales.t"]
    # By the near metastore's transactions, a reader would judge the far one's compactions.
    request.validTxnList = "9:9223372036854775807::"
    assert "transactions_of" in both.ask("get_valid_write_ids", rqst=request)["o2"].message
    assert len(both.far.asked) == 1


def test_a_gateway_may_serve_the_transactions_of_another_metastore(peer: Peers, stack: ExitStack) -> None:
    both = Federated(peer, stack, transactions_of="far", writable=True)
    both.ask("lock", rqst=lock("far_sales"))
    assert both.far.asked[-1][1].rqst.component[0].dbname == "sales"
    request = types.GetValidWriteIdsRequest(fullTableNames=["far_sales.t"], validTxnList="9:9::")
    (write_ids,) = both.ask("get_valid_write_ids", rqst=request)["success"].tblValidWriteIds
    assert (write_ids.fullTableName, both.far.asked[-1][1].rqst.validTxnList) == ("far_sales.t", "9:9::")
    both.ask("open_txns", rqst=types.OpenTxnRequest(num_txns=1, user="u", hostname="h"))
    assert both.far.asked[-1][0] == "open_txns"
    both.ask("add_write_ids_to_min_history", txnId=3, writeIds={"far_sales.t": 1})
    assert both.far.asked[-1][1].writeIds == {"sales.t": 1}
    assert both.near.asked == []


def test_views_name_what_clients_know(peer: Peers, stack: ExitStack) -> None:
    both = Federated(peer, stack)
    view = both.ask("get_table_req", req=table_request("far_sales", "v"))["success"].table
    assert view.viewExpandedText == "select a.`id` from far_sales.`t` a"
    near = both.ask("get_table_req", req=table_request("sales", "v"))["success"].table
    assert near.viewExpandedText == "select a.`id` from sales.`t` a"


def test_a_view_of_what_has_no_local_name_is_refused(peer: Peers, stack: ExitStack) -> None:
    both = Federated(peer, stack, names=RemoteNames(databases={"far_sales": "sales"}))
    both.far.reads = "hidden"
    text = both.ask("get_table_req", req=table_request("far_sales", "v"))["o1"].message
    assert "it reads hidden.t, whose database has no local name" in text


def test_events_are_the_owners_and_never_of_two_names(peer: Peers, stack: ExitStack) -> None:
    both = Federated(peer, stack, names=RemoteNames(databases={"sales": "sales", "other": "sales"}))
    request = types.NotificationEventRequest(lastEvent=3, dbName="sales")
    both.ask("get_next_notification", rqst=request)
    assert both.far.asked[-1][1].rqst.lastEvent == 3
    request.dbName = "other"
    answer = both.ask("get_next_notification", rqst=request)
    assert "messages of events" in answer["message"]
    assert len(both.far.asked) == 1


def test_every_method_has_a_route() -> None:
    assert ROUTES.keys() == ACCESS.keys()
    named = {method for method in ROUTES if _names(message_types(method)[0])}
    by_name = {method for method, route in ROUTES.items() if route in BY_NAME}
    assert named - by_name == set()
    assert by_name - named == set()
