"""Commits that set a parameter of a table, which they name by its id in the metastore only."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import pytest

from airflow_hive_federation.gateway.dispatch import Gateway
from airflow_hive_federation.gateway.federation.owners import RemoteNames
from airflow_hive_federation.gateway.methods import Access
from airflow_hive_federation.gateway.rules import Exposure, Rule, Rules
from airflow_hive_federation.metastore.idl import types
from tests.support.federated import Federated, Store
from tests.support.gateways import Gateways, Peers, RawClient, Raws
from tests.support.metastore_peers import Thrift

IDS = {("sandbox", "t"): 1, ("sandbox", "u"): 2, ("sales", "orders"): 3}
#: The tables that each transaction has locked.
LOCKED = {10: [("sandbox", "T"), ("sandbox", "fence")], 11: [("sales", "orders")], 12: []}
WRITES = (Access.READ, Access.WRITE)
LIMITED = Rules((Rule(access=WRITES, databases=("sandbox",)), Rule(databases=("sales",))))


def answer(method: str, args: Any) -> Any:
    if method == "show_locks":
        # As of an older metastore: the locks of all transactions.
        return types.ShowLocksResponse(
            locks=[
                types.ShowLocksResponseElement(txnid=txn_id, dbname=database, tablename=table, lockid=1)
                for txn_id, tables in LOCKED.items()
                for database, table in tables
            ]
        )
    if method == "get_table_req":
        name = args.req.dbName, args.req.tblName
        if name not in IDS:
            raise types.NoSuchObjectException(message="no such table")
        return types.GetTableResult(table=types.Table(dbName=name[0], tableName=name[1], id=IDS[name]))
    return None


def commit(connection: RawClient, txn_id: int, table_id: int | None) -> dict[str, Any]:
    pair = None if table_id is None else types.CommitTxnKeyValue(tableId=table_id, key="_meta.p", value="1")
    return connection.ask("commit_txn", rqst=types.CommitTxnRequest(txnid=txn_id, keyValue=pair))


@pytest.mark.parametrize(
    ("txn_id", "table_id", "permitted"),
    [
        (10, 1, True),
        (10, 3, False),  # a table that the transaction has not locked
        (11, 3, False),  # the transaction of somebody else, whose table the caller may only read
        (10, 2, False),
        (12, 1, False),  # a transaction without locks
    ],
)
def test_a_commit_sets_parameters_of_writable_tables_only(
    peer: Peers, gateway: Gateways, raw: Raws, txn_id: int, table_id: int, permitted: bool
) -> None:
    served = Thrift(answer)
    connection = raw(gateway(peer(served).uri, rules=LIMITED))
    outcome = commit(connection, txn_id, table_id)
    assert ("commit_txn" in served.calls) is permitted
    assert ("may write no table of that id" in str(outcome)) is not permitted


def test_hidden_tables_keep_their_parameters(peer: Peers, gateway: Gateways, raw: Raws) -> None:
    served = Thrift(answer)
    connection = raw(gateway(peer(served).uri, rules=Rules(exposure=Exposure(tables=("*", "!sales.*")))))
    assert "may write no table" in str(commit(connection, 11, 3))
    assert commit(connection, 10, 1) == {}
    assert served.calls.count("commit_txn") == 1


def test_other_commits_need_no_lookup(peer: Peers, gateway: Gateways, raw: Raws) -> None:
    served = Thrift(answer)
    uri = peer(served).uri
    assert commit(raw(gateway(uri, rules=LIMITED)), 11, None) == {}
    assert commit(raw(gateway(uri)), 10, 3) == {}
    assert commit(raw(gateway(uri, aliases={"mine": "sales"})), 10, 3) == {}
    assert served.calls == ["commit_txn"] * 3


def test_rules_name_the_databases_as_clients_do(peer: Peers, gateway: Gateways, raw: Raws) -> None:
    served = Thrift(answer)
    rules = Rules((Rule(access=WRITES, databases=("mine",)),))
    connection = raw(gateway(peer(served).uri, rules=rules, aliases={"mine": "sales"}))
    assert commit(connection, 11, 3) == {}
    assert "may write no table" in str(commit(connection, 10, 1))


class Locked(Store):
    """A metastore of a federation, with locks and ids of tables."""

    def __call__(self, method: str, args: Any) -> Any:
        self.asked.append((method, args))
        return answer(method, args)


class Both(Federated):
    store = Locked


@pytest.mark.parametrize("owner", ["main", "far"])
def test_an_id_counts_at_the_metastore_of_the_transaction(peer: Peers, stack: ExitStack, owner: str) -> None:
    """The metastores number their tables alike."""
    both = Both(
        peer, stack, transactions_of=owner, names=RemoteNames(prefix="far_", shown=("*",)), writable=True
    )
    both.gateway = Gateway(both.federation, LIMITED)
    pair = types.CommitTxnKeyValue(tableId=1, key="_meta.p", value="1")
    outcome = both.ask("commit_txn", rqst=types.CommitTxnRequest(txnid=10, keyValue=pair))
    # The far metastore has other names for the tables of its transactions.
    assert ("may write no table" in str(outcome)) is (owner == "far")
    assert [method for method, _ in both.far.asked] == []
    assert ("commit_txn" in [method for method, _ in both.near.asked]) is (owner == "main")
