"""Several metastores as one: calls go to owners, parts are put together, and what spans owners is refused."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest

from airflow_hive_federation.cli.gateway import view_text
from airflow_hive_federation.gateway.dispatch import Gateway, Metastore
from airflow_hive_federation.gateway.federation import Federation, Member
from airflow_hive_federation.gateway.handler import Caller, Deadline
from airflow_hive_federation.gateway.messages import read_head
from airflow_hive_federation.gateway.methods import Access
from airflow_hive_federation.gateway.rules import Patterns
from airflow_hive_federation.gateway.upstream import Upstream
from airflow_hive_federation.metastore import MetastoreSettings
from airflow_hive_federation.metastore.idl import types
from tests.unit.gateway.gateways import Peers, call_bytes, outcome
from tests.unit.metastore.metastore_peers import Thrift

Ask = Callable[..., dict[str, Any]]


class Store:
    """A metastore with some databases, which remembers what it was asked."""

    def __init__(self, *databases: str) -> None:
        self.databases = databases
        self.asked: list[tuple[str, Any]] = []
        self.hang = threading.Event()
        self.hang.set()

    def __call__(self, method: str, args: Any) -> Any:
        self.asked.append((method, args))
        self.hang.wait(30)
        if method in {"get_all_databases", "get_databases"}:
            return list(self.databases)
        if method == "get_table_meta":
            return [types.TableMeta(dbName=one, tableName="t", tableType="x") for one in self.databases]
        if method == "get_table_req":
            return types.GetTableResult(table=self.table(args.req))
        if method == "get_valid_write_ids":
            ids = types.TableValidWriteIds(fullTableName=args.rqst.fullTableNames[0], writeIdHighWaterMark=7)
            return types.GetValidWriteIdsResponse(tblValidWriteIds=[ids])
        if method == "get_all_tables":
            return ["t"]
        return None

    @staticmethod
    def table(request: Any) -> types.Table:
        if request.tblName != "v":
            return types.Table(dbName=request.dbName, tableName=request.tblName)
        text = f"select a.`id` from {request.dbName}.`t` a"
        return types.Table(
            dbName=request.dbName,
            tableName="v",
            tableType="VIRTUAL_VIEW",
            viewOriginalText=text,
            viewExpandedText=text,
        )


class Federated:
    """A gateway before a near metastore and a far one, whose databases begin with ``far_``."""

    def __init__(self, peer: Peers, stack: ExitStack, **options: Any) -> None:
        self.near, self.far = Store("default", "sales"), Store("default", "sales", "secret")
        made = [
            Metastore(Upstream(name, MetastoreSettings(uris=(peer(Thrift(store)).uri,))))
            for name, store in (("main", self.near), ("far", self.far))
        ]
        access = options.pop("access", frozenset({Access.READ}))
        member = Member("far", "far_", made[1], Patterns(["*", "!secret"]), access)
        self.federation = Federation(made[0], [member], rewrite_view=view_text, **options)
        stack.callback(self.federation.close)
        stack.callback(self.near.hang.set)
        stack.callback(self.far.hang.set)
        self._gateway = Gateway(self.federation)

    def ask(self, method: str, **arguments: Any) -> dict[str, Any]:
        message = call_bytes(method, **arguments)
        answer = self._gateway.answer(method, message, Caller(user="me"), Deadline(30))
        return outcome(read_head(answer), answer)


def table_request(database: str, table: str = "t") -> types.GetTableRequest:
    return types.GetTableRequest(dbName=database, tblName=table)


def test_calls_go_to_the_owner_under_its_own_names(peer: Peers, stack: ExitStack) -> None:
    both = Federated(peer, stack)
    assert both.ask("get_table_req", req=table_request("sales"))["success"].table.dbName == "sales"
    assert [method for method, _ in both.far.asked] == []
    found = both.ask("get_table_req", req=table_request("FAR_Sales"))["success"].table
    assert found.dbName == "far_sales"
    assert both.far.asked[0][1].req.dbName == "sales"
    assert both.ask("get_all_tables", db_name="@hive#far_sales") == {"success": ["t"]}
    assert both.far.asked[1][1].db_name == "@hive#sales"
    # What the far metastore does not show is the near one's business, which has no such database.
    both.ask("get_all_tables", db_name="far_secret")
    assert both.near.asked[-1][1].db_name == "far_secret"


def test_lists_are_put_together(peer: Peers, stack: ExitStack) -> None:
    both = Federated(peer, stack)
    assert both.ask("get_all_databases")["success"] == ["default", "sales", "far_default", "far_sales"]
    assert both.ask("get_databases", pattern="*sales|x")["success"] == ["sales", "far_sales"]
    meta = both.ask("get_table_meta", db_patterns="far_*", tbl_patterns="*")["success"]
    assert [one.dbName for one in meta] == ["far_default", "far_sales"]


def test_a_part_that_hangs_is_left_out_and_named(
    peer: Peers, stack: ExitStack, caplog: pytest.LogCaptureFixture
) -> None:
    both = Federated(peer, stack, part_timeout_s=0.2)
    both.far.hang.clear()
    for _ in range(9):
        # More often than a metastore has threads: those of the others are their own.
        assert both.ask("get_all_databases")["success"] == ["default", "sales"]
    assert both.federation.missing == {"far": 9}
    assert "the part of metastore far is missing" in caplog.text
    assert both.ask("get_table_req", req=table_request("sales"))["success"].table.tableName == "t"


def test_the_near_part_is_never_left_out(peer: Peers, stack: ExitStack) -> None:
    both = Federated(peer, stack, part_timeout_s=0.3)
    both.near.hang.clear()
    assert "main" in both.ask("get_all_databases")["o1"].message


def test_what_may_only_be_read_is_not_written(peer: Peers, stack: ExitStack) -> None:
    both = Federated(peer, stack)
    table = types.Table(dbName="far_sales", tableName="new")
    assert "Add write to the access of [[federated]] far" in both.ask("create_table", tbl=table)["o3"].message
    assert "far" in both.ask("drop_database", name="far_sales")["o3"].message
    assert both.far.asked == both.near.asked == []


def test_writes_go_to_the_owner_where_they_may(peer: Peers, stack: ExitStack) -> None:
    both = Federated(peer, stack, access=frozenset({Access.READ, Access.WRITE}))
    assert both.ask("create_table", tbl=types.Table(dbName="far_sales", tableName="new")) == {}
    assert both.far.asked[0][1].tbl.dbName == "sales"
    assert both.near.asked == []


def lock(*databases: str, txn: int | None = 5) -> types.LockRequest:
    parts = [types.LockComponent(dbname=one, tablename="t") for one in databases]
    return types.LockRequest(component=parts, txnid=txn, user="u", hostname="h")


def test_a_transaction_over_two_owners_is_refused(peer: Peers, stack: ExitStack) -> None:
    both = Federated(peer, stack, access=frozenset(Access))
    answers = {
        "two owners": both.ask("lock", rqst=lock("sales", "far_sales")),
        "a foreign one": both.ask("lock", rqst=lock("far_sales")),
        "write ids": both.ask(
            "allocate_table_write_ids",
            rqst=types.AllocateTableWriteIdsRequest(dbName="far_sales", tableName="t", txnIds=[5]),
        ),
        "a snapshot": both.ask(
            "get_valid_write_ids",
            rqst=types.GetValidWriteIdsRequest(fullTableNames=["sales.t", "far_sales.t"]),
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


def test_snapshots_are_the_owners(peer: Peers, stack: ExitStack) -> None:
    both = Federated(peer, stack)
    request = types.GetValidWriteIdsRequest(
        fullTableNames=["far_sales.t"], validTxnList="9:9223372036854775807::"
    )
    answer = both.ask("get_valid_write_ids", rqst=request)["success"].tblValidWriteIds[0]
    assert (answer.fullTableName, answer.writeIdHighWaterMark) == ("far_sales.t", 7)
    asked = both.far.asked[0][1].rqst
    # The near metastore's transactions say nothing about the far one's.
    assert (asked.fullTableNames, asked.validTxnList) == (["sales.t"], None)


def test_views_name_what_clients_know(peer: Peers, stack: ExitStack) -> None:
    both = Federated(peer, stack)
    view = both.ask("get_table_req", req=table_request("far_sales", "v"))["success"].table
    assert view.viewExpandedText == "select a.`id` from far_sales.`t` a"
    near = both.ask("get_table_req", req=table_request("sales", "v"))["success"].table
    assert near.viewExpandedText == "select a.`id` from sales.`t` a"


def test_a_view_that_cannot_be_rewritten_is_refused() -> None:
    assert view_text("select d.c from d.t", lambda name: f"far_{name}") != ""
    with pytest.raises(ValueError, match=r".+"):
        view_text("select from from d.t where (", lambda name: f"far_{name}")
