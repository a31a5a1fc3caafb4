"""Calls of a federating gateway: what is refused, what is renamed, and what a list is made of."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from typing import Any

import pytest

from airflow_hive_federation.errors import ConfigurationError, MetastoreTimeoutError
from airflow_hive_federation.gateway.dispatch import Metastore
from airflow_hive_federation.gateway.federation.fan_out import Question, ask_all
from airflow_hive_federation.gateway.federation.members import Member
from airflow_hive_federation.gateway.federation.metastores import Metastores, Remote
from airflow_hive_federation.gateway.federation.owners import Naming, OwnedName, Owners, RemoteNames
from airflow_hive_federation.gateway.federation.transactions import LockIds
from airflow_hive_federation.gateway.federation.views import defines_view
from airflow_hive_federation.gateway.handler import Call, Caller, Cancellation, Deadline
from airflow_hive_federation.gateway.messages import Emit
from airflow_hive_federation.gateway.thrift_front import ThriftFront
from airflow_hive_federation.gateway.thrift_settings import ThriftSettings
from airflow_hive_federation.gateway.upstream import Upstream
from airflow_hive_federation.ingest.position import take_over
from airflow_hive_federation.metastore import MetastoreClient, MetastoreSettings
from airflow_hive_federation.metastore.connection import message_types
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.metastore.protocol import ApplicationFault
from tests.support.federated import Federated, Store, lock, table_request
from tests.support.gateways import Peers, call_bytes, until

NOWHERE = MetastoreSettings(uris=("thrift://127.0.0.1:1",))


def asked(store: Store) -> list[str]:
    return [method for method, _ in store.asked]


class Rich(Store):
    """A metastore with functions, databases as structs, several tables, grants of locks, and faults."""

    fails_with: Any = None

    def __call__(self, method: str, args: Any) -> Any:
        if self.fails_with is not None:
            self.asked.append((method, args))
            raise self.fails_with
        answers: dict[str, Any] = {
            "show_compact": lambda: types.ShowCompactResponse(
                compacts=[
                    types.ShowCompactResponseElement(
                        dbname=args.rqst.dbName,
                        tablename=args.rqst.tbName,
                        type=types.CompactionType.MAJOR,
                        state="initiated",
                    )
                ]
            ),
            "show_locks": lambda: types.ShowLocksResponse(locks=[shown(args.rqst)]),
            "get_all_functions": lambda: types.GetAllFunctionsResponse(
                functions=[types.Function(dbName=name, functionName="f") for name in self.databases]
            ),
            "get_databases_req": lambda: types.GetDatabaseObjectsResponse(
                databases=[types.Database(name=name) for name in self.databases]
            ),
            "get_table_objects_by_name": lambda: [
                types.Table(dbName=args.dbname, tableName=name) for name in args.tbl_names
            ],
            "get_table_objects_by_name_req": lambda: types.GetTablesResult(
                tables=[types.Table(dbName=args.req.dbName, tableName=name) for name in args.req.tblNames]
            ),
            "lock": lambda: types.LockResponse(lockid=7, state=types.LockState.ACQUIRED),
            "check_lock": lambda: types.LockResponse(lockid=args.rqst.lockid, state=types.LockState.ACQUIRED),
        }
        if method not in answers:
            return super().__call__(method, args)
        self.asked.append((method, args))
        return answers[method]()


def shown(request: types.ShowLocksRequest) -> types.ShowLocksResponseElement:
    return types.ShowLocksResponseElement(
        lockid=7,
        dbname=request.dbname or "sales",
        tablename=request.tablename or "t",
        state=types.LockState.WAITING,
        type=types.LockType.SHARED_WRITE,
        txnid=42,
        lastheartbeat=0,
        user="u",
        hostname="h",
        blockedByExtId=6,
        lockIdInternal=1,
    )


class Both(Federated):
    """A federation of two such metastores."""

    near: Rich
    far: Rich
    store = Rich


@pytest.fixture
def both(peer: Peers, stack: ExitStack) -> Both:
    return Both(peer, stack)


# -- the gateway's file --------------------------------------------------------------------------------------


def metastore(name: str) -> Metastore:
    return Metastore(Upstream(name, NOWHERE))


def test_two_metastores_of_one_name_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="Two metastores are called main"):
        Metastores(metastore("main"), {"main": Remote(target=metastore("main"))})


def test_transactions_of_an_unknown_metastore_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="transactions_of is 'fra', which is not a metastore"):
        Metastores(metastore("main"), {"far": Remote(target=metastore("far"))}, transactions_of="fra")


def test_names_whose_locks_look_alike_are_refused() -> None:
    numbers: dict[int, str] = {}
    for number in range(2000):
        mark = LockIds([name := f"m{number}"], "main").mark(name, 1)
        if mark in numbers:
            with pytest.raises(ConfigurationError, match=f"{numbers[mark]}, {name} cannot be distinguished"):
                LockIds([numbers[mark], name], "main")
            return
        numbers[mark] = name
    pytest.fail("no two names have one number")


# -- names ---------------------------------------------------------------------------------------------------


def test_a_longer_prefix_and_an_explicit_name_win() -> None:
    owners = Owners(
        "main",
        {
            "far": RemoteNames(prefix="far_"),
            "eu": RemoteNames(prefix="far_eu_"),
            "old": RemoteNames(databases={"far_hr": "hr"}),
        },
    )
    assert owners.place("far_eu_sales", None) == OwnedName("eu", "sales")
    assert owners.place("far_hr", "t") == OwnedName("old", "hr", "t")
    assert owners.local_names("far", ["sales", "hr", "eu_sales"]) == {"sales": ["far_sales"]}
    assert (owners.prefix_of("eu"), owners.prefix_of("old")) == ("far_eu_", None)
    assert (owners.mapped_databases("old"), owners.mapped_databases("far")) == ({"far_hr": "hr"}, {})


def test_a_database_has_one_local_name_once() -> None:
    owners = Owners("main", {"far": RemoteNames(prefix="far_", databases={"far_sales": "sales"})})
    assert owners.local_names("far", ["sales"]) == {"sales": ["far_sales"]}


def test_single_tables_are_their_owners() -> None:
    tables = {"far": RemoteNames(tables={"ours.a": "x.a"}), "old": RemoteNames(tables={"ours.b": "y.b"})}
    owners = Owners("main", tables)
    assert owners.single_tables("far") == {("ours", "a"): OwnedName("far", "x", "a")}
    assert owners.single_tables().keys() == {("ours", "a"), ("ours", "b")}
    assert str(OwnedName("far", "x", "a")) == "x.a of metastore far"
    assert str(OwnedName("far", "x")) == "x of metastore far"


def test_names_of_several_local_databases_are_nobodys() -> None:
    tables = {"ours.a": "x.a", "other.b": "x.b", "third.c": "y.c"}
    naming = Naming(Owners("main", {"far": RemoteNames(tables=tables)}), "far", ())
    # The database x has tables in two local databases, and y in one.
    assert naming.local("x", None) == ("far::x", None)
    assert naming.local("y", None) == ("third", None)
    assert naming.local("", None) == ("", None)


# -- catalogs ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "names",
    [RemoteNames(tables={"ours.rates": "finance.fx_rates"}), RemoteNames(databases={"ours": "finance"})],
    ids=["a table", "a database"],
)
@pytest.mark.parametrize(
    ("method", "arguments"),
    [
        ("get_table_req", {"req": types.GetTableRequest(catName="spark", dbName="ours", tblName="rates")}),
        ("get_table_objects_by_name", {"dbname": "@spark#ours", "tbl_names": ["rates", "t"]}),
        (
            "get_table_objects_by_name_req",
            {"req": types.GetTablesRequest(catName="spark", dbName="ours", tblNames=["rates", "t"])},
        ),
        (
            "get_table_objects_by_name_req",
            {"req": types.GetTablesRequest(catName="spark", dbName="ours", tablesPattern="r*")},
        ),
        ("get_all_tables", {"db_name": "@spark#ours"}),
        ("drop_table", {"dbname": "@spark#ours", "name": "rates"}),
        ("get_database_req", {"request": types.GetDatabaseRequest(catalogName="spark", name="ours")}),
    ],
    ids=["a table", "tables", "tables by a request", "tables by a pattern", "a list", "a drop", "a database"],
)
def test_a_call_about_another_catalog_is_the_primarys_as_it_is(
    peer: Peers, stack: ExitStack, names: RemoteNames, method: str, arguments: dict[str, Any]
) -> None:
    both = Both(peer, stack, names=names)
    both.near.fails_with = ApplicationFault(message="seen", type=6)
    assert both.ask(method, **arguments)["message"] == "seen"
    assert [(name, args.set_fields()) for name, args in both.near.asked] == [(method, arguments)]
    assert both.far.asked == []


class Lake(Rich):
    """A metastore whose objects are in the catalog ``lake``."""

    def table(self, request: Any) -> types.Table:
        return types.Table(catName="lake", dbName=request.dbName, tableName=request.tblName)


class Catalogs(Both):
    """A gateway whose primary metastore has the catalog ``spark``, and the other one ``lake``."""

    store = Lake

    def __init__(self, peer: Peers, stack: ExitStack) -> None:
        super().__init__(peer, stack, catalogs=("spark", "lake"))


def test_each_metastore_is_asked_for_its_own_catalog(peer: Peers, stack: ExitStack) -> None:
    both = Catalogs(peer, stack)
    request = types.GetTableRequest(catName="Spark", dbName="far_sales", tblName="t")
    table = both.ask("get_table_req", req=request)["success"].table
    assert (table.catName, table.dbName) == ("spark", "far_sales")
    assert (both.far.asked[-1][1].req.catName, both.far.asked[-1][1].req.dbName) == ("lake", "sales")
    both.ask("get_all_tables", db_name="@spark#far_sales")
    assert both.far.asked[-1][1].db_name == "@lake#sales"
    assert both.near.asked == []
    listing = types.GetDatabaseObjectsRequest(catalogName="spark")
    assert len(both.ask("get_databases_req", request=listing)["success"].databases) == 4
    assert both.far.asked[-1][1].request.catalogName == "lake"
    assert both.near.asked[-1][1].request.catalogName == "spark"
    # A call without a catalog, and a fault, have nothing to rename.
    assert both.ask("get_table_req", req=table_request("far_sales"))["success"].table.catName == "spark"
    both.far.fails_with = ApplicationFault(message="broken there", type=6)
    assert both.ask("get_all_tables", db_name="@spark#far_sales")["message"] == "broken there"


def test_the_catalog_hive_may_be_another_one(peer: Peers, stack: ExitStack) -> None:
    both = Catalogs(peer, stack)
    both.ask("get_databases", pattern="@hive#*")
    both.ask("get_table_req", req=types.GetTableRequest(catName="hive", dbName="far_sales", tblName="t"))
    assert both.far.asked == []
    assert both.near.asked[-1][1].req == types.GetTableRequest(
        catName="hive", dbName="far_sales", tblName="t"
    )
    both.ask("get_databases", pattern="@spark#*")
    assert asked(both.far) == ["get_all_databases"]


# -- transactions, locks, write ids --------------------------------------------------------------------------


def reading(*databases: str, txn: int | None = None) -> types.LockRequest:
    request = lock(*databases, txn=txn)
    for component in request.component:
        component.type, component.operationType = types.LockType.SHARED_READ, types.DataOperationType.SELECT
    return request


def test_a_lock_of_a_remote_is_its_owners_to_the_end(both: Both) -> None:
    granted = both.ask("lock", rqst=reading("far_sales"))["success"].lockid
    assert both.far.asked[-1][1].rqst.component[0].dbname == "sales"
    assert granted > 1 << 48
    again = both.ask("check_lock", rqst=types.CheckLockRequest(lockid=granted))["success"].lockid
    assert again == granted
    both.ask("heartbeat", ids=types.HeartbeatRequest(lockid=granted))
    both.ask("unlock", rqst=types.UnlockRequest(lockid=granted))
    assert asked(both.far) == ["lock", "check_lock", "heartbeat", "unlock"]
    assert [next(iter(args.set_fields().values())).lockid for _, args in both.far.asked[1:]] == [7, 7, 7]
    assert asked(both.near) == []
    # The primary's own ids stay as they are, and a heartbeat without a lock is of a transaction.
    assert both.ask("lock", rqst=lock("sales", txn=None))["success"].lockid == 7
    both.ask("unlock", rqst=types.UnlockRequest(lockid=7))
    both.ask("heartbeat", ids=types.HeartbeatRequest(txnid=5))
    assert asked(both.near) == ["lock", "unlock", "heartbeat"]


def test_shown_locks_have_the_ids_that_their_holders_got(both: Both) -> None:
    granted = both.ask("lock", rqst=reading("far_sales"))["success"].lockid
    request = types.ShowLocksRequest(dbname="far_sales", tablename="t")
    (lock_of_far,) = both.ask("show_locks", rqst=request)["success"].locks
    assert (lock_of_far.lockid, lock_of_far.dbname, lock_of_far.tablename) == (granted, "far_sales", "t")
    assert (lock_of_far.lockIdInternal, lock_of_far.state) == (1, types.LockState.WAITING)
    # A transaction 42 of the metastore main, whose transactions clients get, is another one.
    assert lock_of_far.txnid is None
    both.ask("unlock", rqst=types.UnlockRequest(lockid=lock_of_far.blockedByExtId))
    both.ask("unlock", rqst=types.UnlockRequest(lockid=lock_of_far.lockid))
    assert asked(both.far) == ["lock", "show_locks", "unlock", "unlock"]
    assert [args.rqst.lockid for _, args in both.far.asked[2:]] == [6, 7]
    assert both.near.asked == []
    (lock_of_main,) = both.ask("show_locks", rqst=types.ShowLocksRequest(dbname="sales"))["success"].locks
    assert (lock_of_main.lockid, lock_of_main.txnid, lock_of_main.blockedByExtId) == (7, 42, 6)


def test_a_stream_at_a_remote_takes_over_no_transaction_of_the_primary(peer: Peers, stack: ExitStack) -> None:
    both = Both(peer, stack)
    front = ThriftFront(both.gateway, ThriftSettings(port=0)).start()
    stack.callback(front.stop, 0)
    with MetastoreClient(MetastoreSettings(uris=(front.uri,))) as client:
        assert take_over(client, "far_sales", "t", "_meta.position") == []
        assert asked(both.near) == []
        assert take_over(client, "sales", "t", "_meta.position") == [42]
    assert (asked(both.far), asked(both.near)) == (["show_locks"], ["show_locks", "abort_txns"])


def test_locks_beside_the_metastore_of_the_transactions_are_marked(peer: Peers, stack: ExitStack) -> None:
    both = Both(peer, stack, transactions_of="far")
    for request in (types.ShowLocksRequest(dbname="sales"), types.ShowLocksRequest()):
        (lock_of_main,) = both.ask("show_locks", rqst=request)["success"].locks
        assert lock_of_main.txnid is None
        both.ask("unlock", rqst=types.UnlockRequest(lockid=lock_of_main.lockid))
        assert both.near.asked[-1][1].rqst.lockid == 7
    assert both.far.asked == []
    (lock_of_far,) = both.ask("show_locks", rqst=types.ShowLocksRequest(dbname="far_sales"))["success"].locks
    assert (lock_of_far.lockid, lock_of_far.dbname, lock_of_far.txnid) == (7, "far_sales", 42)


def test_locks_of_a_transaction_are_those_of_its_metastore(peer: Peers, stack: ExitStack) -> None:
    both = Both(peer, stack, transactions_of="far")
    (lock_of_far,) = both.ask("show_locks", rqst=types.ShowLocksRequest(txnid=42))["success"].locks
    assert (lock_of_far.lockid, lock_of_far.dbname, lock_of_far.txnid) == (7, "far_sales", 42)
    text = str(both.ask("show_locks", rqst=types.ShowLocksRequest(dbname="sales", txnid=42)))
    assert "sales belongs to main" in text
    assert both.near.asked == []


def test_compactions_are_not_aborted_by_ids_of_several_metastores(both: Both) -> None:
    answer = both.ask("abort_Compactions", rqst=types.AbortCompactionRequest(compactionIds=[7]))
    assert "do not show which of the metastores main, far has given them" in str(answer)
    assert both.far.asked == both.near.asked == []


def test_a_lock_for_writing_at_a_remote_needs_its_permission(peer: Peers, stack: ExitStack) -> None:
    def writing() -> types.LockRequest:
        request = lock("far_sales", txn=None)
        request.component[0].type = types.LockType.EXCLUSIVE
        request.component[0].operationType = types.DataOperationType.NO_TXN
        return request

    reads = Both(peer, stack)
    assert "metastore far can only be read" in str(reads.ask("lock", rqst=writing()))
    assert reads.far.asked == []
    writes = Both(peer, stack, writable=True)
    assert "success" in writes.ask("lock", rqst=writing())


def test_a_transaction_that_only_reads_remotes_locks_nothing_there(both: Both) -> None:
    assert "success" in both.ask("lock", rqst=reading("far_sales", txn=5))
    ((method, args),) = both.near.asked
    (component,) = args.rqst.component
    assert (method, component.dbname, component.isTransactional) == (
        "lock",
        "hive.federation.elsewhere",
        False,
    )
    assert both.far.asked == []


def test_one_write_id_is_of_one_metastore(both: Both) -> None:
    request = types.GetValidWriteIdsRequest(fullTableNames=["sales.t", "far_sales.t"], writeId=3)
    assert "write id 3 is of one metastore" in str(both.ask("get_valid_write_ids", rqst=request))
    assert both.far.asked == both.near.asked == []
    request.fullTableNames = ["far_sales.t"]
    assert "success" in both.ask("get_valid_write_ids", rqst=request)


def test_a_fault_about_write_ids_is_the_owners(both: Both) -> None:
    both.far.fails_with = types.NoSuchTxnException(message="gone")
    request = types.GetValidWriteIdsRequest(fullTableNames=["far_sales.t"])
    answer = both.ask("get_valid_write_ids", rqst=request)
    assert type(answer["o1"]).__name__ == "NoSuchTxnException"
    request.fullTableNames = ["sales.t", "far_sales.t"]
    text = str(both.ask("get_valid_write_ids", rqst=request))
    assert "at metastore far: NoSuchTxnException: gone" in text


def test_readers_write_ids_are_noted_at_the_transactions_metastore_only(both: Both) -> None:
    text = str(both.ask("add_write_ids_to_min_history", txnId=3, writeIds={"sales.t": 1, "far_sales.t": 2}))
    assert "far_sales.t belongs to far" in text
    assert both.far.asked == both.near.asked == []
    both.ask("add_write_ids_to_min_history", txnId=3, writeIds={"sales.t": 1})
    assert both.near.asked[-1][1].writeIds == {"sales.t": 1}


def commit(database: str) -> types.CommitTxnRequest:
    info = types.WriteEventInfo(writeId=1, database=database, table="t", files="f")
    return types.CommitTxnRequest(txnid=5, writeEventInfos=[info])


def test_a_commit_that_names_tables_by_local_names_is_refused(peer: Peers, stack: ExitStack) -> None:
    both = Both(peer, stack, transactions_of="far", writable=True)
    assert "name tables by local names" in str(both.ask("commit_txn", rqst=commit("far_sales")))
    assert both.far.asked == []
    both.ask("commit_txn", rqst=types.CommitTxnRequest(txnid=5))
    assert asked(both.far) == ["commit_txn"]


def test_a_reader_may_commit_at_a_remote_that_it_may_not_write(peer: Peers, stack: ExitStack) -> None:
    both = Both(peer, stack, transactions_of="far")
    both.ask("commit_txn", rqst=types.CommitTxnRequest(txnid=5))
    assert asked(both.far) == ["commit_txn"]
    request = types.AllocateTableWriteIdsRequest(dbName="far_sales", tableName="t", txnIds=[5])
    assert "can only be read" in str(both.ask("allocate_table_write_ids", rqst=request))
    request.dbName = "sales"
    assert "sales.t belongs to main" in str(both.ask("allocate_table_write_ids", rqst=request))


@pytest.mark.parametrize(
    "fields",
    [
        {"keyValue": types.CommitTxnKeyValue(tableId=3, key="_metaposition", value="9")},
        {"replLastIdInfo": types.ReplLastIdInfo(database="sales", lastReplId=99)},
        {"writeEventInfos": [types.WriteEventInfo(writeId=1, database="sales", table="t", files="f")]},
    ],
    ids=["a parameter of a table", "a database's last event", "events"],
)
def test_a_commit_that_changes_more_than_its_transaction_writes(
    peer: Peers, stack: ExitStack, fields: dict[str, Any]
) -> None:
    names = RemoteNames(databases={"sales": "sales"})
    reads = Both(peer, stack, transactions_of="far", names=names)
    text = str(reads.ask("commit_txn", rqst=types.CommitTxnRequest(txnid=5, **fields)))
    assert "metastore far can only be read" in text
    assert reads.far.asked == reads.near.asked == []
    writes = Both(peer, stack, transactions_of="far", names=names, writable=True)
    writes.ask("commit_txn", rqst=types.CommitTxnRequest(txnid=5, **fields))
    assert (asked(writes.far), asked(writes.near)) == (["commit_txn"], [])


def test_only_readers_calls_about_transactions_reach_a_remote_that_may_not_be_written(
    peer: Peers, stack: ExitStack
) -> None:
    both = Both(peer, stack, transactions_of="far")
    statistics = types.UpdateTransactionalStatsRequest(
        tableId=3, insertCount=1, updatedCount=0, deletedCount=0
    )
    text = str(both.ask("update_transaction_statistics", req=statistics))
    assert "metastore far can only be read" in text
    assert both.far.asked == []
    both.ask("open_txns", rqst=types.OpenTxnRequest(num_txns=1, user="u", hostname="h"))
    both.ask("heartbeat_txn_range", txns=types.HeartbeatTxnRangeRequest(min=5, max=5))
    both.ask("abort_txn", rqst=types.AbortTxnRequest(txnid=5))
    both.ask("abort_txns", rqst=types.AbortTxnsRequest(txn_ids=[5]))
    both.ask("get_open_txns")
    assert asked(both.far) == ["open_txns", "heartbeat_txn_range", "abort_txn", "abort_txns", "get_open_txns"]
    writes = Both(peer, stack, transactions_of="far", writable=True)
    writes.ask("update_transaction_statistics", req=statistics)
    assert asked(writes.far) == ["update_transaction_statistics"]


@pytest.mark.parametrize(
    "method",
    [
        *("check_lock", "commit_txn", "get_databases_req", "get_valid_write_ids", "heartbeat", "lock"),
        *("show_locks", "unlock"),
    ],
)
def test_a_call_without_its_request_is_refused(peer: Peers, stack: ExitStack, method: str) -> None:
    both = Both(peer, stack, transactions_of="far")
    answer = both.ask(method)
    assert answer["message"] == f"{method}: the call or its answer is malformed: it has no request"
    assert both.far.asked == both.near.asked == []


def test_a_lock_without_a_database_is_refused(both: Both) -> None:
    answer = both.ask("lock", rqst=types.LockRequest(component=[types.LockComponent()]))
    assert "malformed: a component of the lock has no database" in answer["message"]
    assert both.far.asked == both.near.asked == []


def test_compactions_of_a_single_table_are_its_owners(peer: Peers, stack: ExitStack) -> None:
    both = Both(peer, stack, names=RemoteNames(tables={"ours.rates": "finance.fx_rates"}))
    request = types.ShowCompactRequest(dbName="ours", tbName="rates")
    (compaction,) = both.ask("show_compact", rqst=request)["success"].compacts
    assert (compaction.dbname, compaction.tablename) == ("ours", "rates")
    (received,) = [args.rqst for _, args in both.far.asked]
    assert (received.dbName, received.tbName) == ("finance", "fx_rates")
    assert both.near.asked == []


# -- definitions ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("as_request", [False, True], ids=["a list", "a result"])
def test_tables_of_several_owners_come_from_each(peer: Peers, stack: ExitStack, as_request: bool) -> None:
    both = Both(peer, stack, names=RemoteNames(tables={"sales.rates": "finance.fx"}))

    def ask() -> dict[str, Any]:
        if as_request:
            request = types.GetTablesRequest(dbName="sales", tblNames=["t", "rates"])
            return both.ask("get_table_objects_by_name_req", req=request)
        return both.ask("get_table_objects_by_name", dbname="sales", tbl_names=["t", "rates"])

    success = ask()["success"]
    tables = success.tables if as_request else success
    assert sorted((table.dbName, table.tableName) for table in tables) == [("sales", "rates"), ("sales", "t")]
    args = both.far.asked[-1][1]
    names = (args.req.dbName, args.req.tblNames) if as_request else (args.dbname, args.tbl_names)
    assert names == ("finance", ["fx"])
    both.far.fails_with = types.MetaException(message="broken there")
    assert "at metastore far: MetaException: broken there" in str(ask())


def test_tables_of_one_owner_are_one_call(both: Both) -> None:
    answer = both.ask("get_table_objects_by_name", dbname="far_sales", tbl_names=["t", "u"])["success"]
    assert [(table.dbName, table.tableName) for table in answer] == [("far_sales", "t"), ("far_sales", "u")]
    assert len(both.far.asked) == 1
    assert both.near.asked == []


def test_names_of_an_owner_that_have_none_here_are_marked(peer: Peers, stack: ExitStack) -> None:
    both = Both(peer, stack, names=RemoteNames(tables={"sales.rates": "finance.fx"}))
    table = both.ask("get_table_req", req=table_request("sales", "rates"))["success"].table
    assert (table.dbName, table.tableName) == ("sales", "rates")
    assert both.far.asked[-1][1].req.dbName == "finance"


def test_what_a_read_call_names_is_no_write(peer: Peers, stack: ExitStack) -> None:
    both = Both(peer, stack)
    table = types.Table(dbName="far_sales", tableName="v", tableType="VIRTUAL_VIEW", viewExpandedText="x")
    both.ask("translate_table_dryrun", request=types.CreateTableRequest(table=table))
    assert asked(both.far) == ["translate_table_dryrun"]


@pytest.mark.parametrize(
    "fields",
    [
        {"tableType": "VIRTUAL_VIEW"},
        {"tableType": "MATERIALIZED_VIEW"},
        {"viewOriginalText": "select 1"},
        {"viewExpandedText": "select 1"},
    ],
    ids=str,
)
def test_a_view_is_known_by_its_type_or_its_text(fields: dict[str, str]) -> None:
    view = types.Table(dbName="d", tableName="v", **fields)
    assert defines_view(message_types("create_table")[0](tbl=view))
    assert not defines_view(message_types("create_table")[0](tbl=types.Table(dbName="d", tableName="t")))


def test_a_view_of_another_catalog_is_refused(both: Both) -> None:
    both.far.reads = "other.sales"
    text = str(both.ask("get_table_req", req=table_request("far_sales", "v")))
    assert "of the catalog other, which the gateway does not know" in text


def test_a_view_keeps_its_tables_where_two_names_are_exchanged(peer: Peers, stack: ExitStack) -> None:
    names = RemoteNames(databases={"default": "sales", "sales": "default"})
    both = Both(peer, stack, names=names)
    both.far.reads = "default.`t` b join sales"
    view = both.ask("get_table_req", req=table_request("default", "v"))["success"].table
    assert view.viewExpandedText == "select a.`id` from sales.`t` b join `default`.`t` a"


# -- lists ---------------------------------------------------------------------------------------------------


def test_functions_and_databases_of_all_come_under_local_names(both: Both) -> None:
    functions = both.ask("get_all_functions")["success"].functions
    assert [function.dbName for function in functions] == ["default", "far_default", "far_sales", "sales"]
    request = types.GetDatabaseObjectsRequest(pattern="*sales")
    databases = both.ask("get_databases_req", request=request)["success"].databases
    # The primary metastore is trusted to have matched the pattern itself.
    assert [database.name for database in databases] == ["default", "far_sales", "sales"]
    assert both.far.asked[-1][1].request.pattern is None
    assert both.near.asked[-1][1].request.pattern == "*sales"


def test_another_catalog_is_the_primarys_alone(both: Both) -> None:
    request = types.GetDatabaseObjectsRequest(catalogName="other")
    assert len(both.ask("get_databases_req", request=request)["success"].databases) == 2
    both.ask("get_databases", pattern="@other#*")
    assert both.far.asked == []
    both.ask("get_databases", pattern="@hive#*")
    assert asked(both.far) == ["get_all_databases"]


def test_a_database_that_a_remote_hides_is_not_listed(peer: Peers, stack: ExitStack) -> None:
    """Calls about it go to the remote, even where the remote has no such database."""
    both = Both(peer, stack, names=RemoteNames(databases={"sales": "absent"}))
    functions = both.ask("get_all_functions")["success"].functions
    assert [function.dbName for function in functions] == ["default"]
    assert both.ask("get_all_databases")["success"] == ["default"]


def test_a_remote_of_single_tables_has_no_part_of_lists_of_databases(peer: Peers, stack: ExitStack) -> None:
    both = Both(peer, stack, names=RemoteNames(tables={"sales.rates": "sales.t"}))
    both.ask("get_all_databases")
    both.ask("get_all_functions")
    assert both.far.asked == []


@pytest.mark.parametrize(
    ("names", "databases", "tables", "listed", "question"),
    [
        (RemoteNames(prefix="far_"), "far_s*", "*", ["far_sales.t", "far_secret.t"], ("*", "*")),
        (RemoteNames(prefix="far_"), "*", "none", ["default.t", "sales.t"], ("*", "none")),
        (RemoteNames(databases={"x": "sales", "y": "default"}), "x", "t", ["x.t"], ("sales", "t")),
        (RemoteNames(databases={"x": "sales"}), "z", "*", [], None),
        (
            RemoteNames(tables={"sales.rates": "secret.t"}),
            "s*",
            "r*",
            ["sales.rates", "sales.t"],
            ("secret", "*"),
        ),
        (RemoteNames(tables={"sales.rates": "secret.t"}), "s*", "x*", ["sales.t"], None),
        (RemoteNames(tables={"sales.rates": "secret.t"}), "default", "*", ["default.t"], None),
        (RemoteNames(tables={"sales.rates": "secret.u"}), "sales", "*", ["sales.t"], ("secret", "*")),
    ],
)
def test_tables_of_all_databases_match_by_local_names(
    peer: Peers,
    stack: ExitStack,
    names: RemoteNames,
    databases: str,
    tables: str,
    listed: list[str],
    question: tuple[str, str] | None,
) -> None:
    both = Both(peer, stack, names=names)
    metas = both.ask("get_table_meta", db_patterns=databases, tbl_patterns=tables)["success"]
    assert [f"{meta.dbName}.{meta.tableName}" for meta in metas] == listed
    questions = [(args.db_patterns, args.tbl_patterns) for _, args in both.far.asked]
    assert questions == ([] if question is None else [question])


# -- several at once -----------------------------------------------------------------------------------------


class Blocked:
    """A target whose calls wait until they are cancelled, as a lookup of a name may, past every deadline."""

    wants_names = False

    def __init__(self) -> None:
        self.cancelled = threading.Event()

    def relay(self, call: Call, _emit: Emit) -> None:
        assert call.cancellation is not None
        call.cancellation.on_cancel(self.cancelled.set)
        assert self.cancelled.wait(60)
        raise MetastoreTimeoutError("too late", method=call.method)


def pending(method: str, seconds: float, cancellation: Cancellation | None = None) -> Call:
    return Call(method, call_bytes(method), Caller(), Deadline(seconds), cancellation)


def test_a_part_that_outlasts_its_deadline_is_cancelled_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airflow_hive_federation.gateway.federation.fan_out.GRACE_S", 0.05)
    blocked = Blocked()
    member = Member("far", blocked, timeout_s=0.05)  # type: ignore[arg-type]
    questions = {"far": (member, Question("get_all_databases", {}))}
    answers, reasons = ask_all(pending("get_all_databases", 30), questions, 0.05)
    assert (answers, reasons) == ({}, {"far": "no answer within its deadline"})
    until(blocked.cancelled.is_set)


def test_a_client_that_leaves_cancels_every_part() -> None:
    parts, cancellation = [Blocked(), Blocked()], Cancellation()
    questions = {
        str(number): (Member(str(number), part, timeout_s=60), Question("get_all_databases", {}))  # type: ignore[arg-type]
        for number, part in enumerate(parts)
    }
    cancellation.cancel()
    answers, reasons = ask_all(pending("get_all_databases", 30, cancellation), questions, 60)
    assert (answers, len(reasons)) == ({}, 2)
    assert all(part.cancelled.is_set() for part in parts)


def test_a_call_whose_time_is_over_is_not_sent() -> None:
    member = Member("far", metastore("far"), timeout_s=5)
    with pytest.raises(MetastoreTimeoutError, match="get_all_databases at far"):
        member.ask(pending("get_all_databases", -1))


def test_the_shorter_of_two_limits_counts(peer: Peers, stack: ExitStack) -> None:
    both = Both(peer, stack, timeout_s=0.1)
    both.far.hang.clear()
    text = str(both.ask("get_all_databases"))
    assert "the part of metastore far is missing" in text


def test_a_fault_in_a_part_is_named(both: Both) -> None:
    both.far.fails_with = types.MetaException(message="broken there")
    assert "far: MetaException: broken there" in both.ask("get_all_databases")["o1"].message
