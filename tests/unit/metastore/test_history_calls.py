"""Files are kept beside the cleaners of metastores that have different calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from airflow_hive_federation.metastore import MetastoreClient, MetastoreSettings
from airflow_hive_federation.metastore.idl import types
from tests.support.metastore_peers import Peer, Thrift

REGISTERS, FINDS_COMPACTION = "add_write_ids_to_min_history", "get_latest_committed_compaction_info"
#: Tables of the database, with their partitions.
PARTITIONS = {"acid": ["day=1", "day=2"], "single": [], "plain": ["day=1"]}


class Metastore:
    """A metastore that notes requests of locks and of facts about compactions."""

    def __init__(self) -> None:
        self.locked: list[str] = []
        self.probed: list[str] = []

    def __call__(self, method: str, args: Any) -> Any:
        answer = getattr(self, method, None)
        return answer(args) if answer else None

    def open_txns(self, _: Any) -> Any:
        return types.OpenTxnsResponse(txn_ids=[9])

    def lock(self, args: Any) -> Any:
        assert args.rqst.txnid == 7
        for part in args.rqst.component:
            assert part.type == types.LockType.SHARED_READ
            self.locked.append("/".join(filter(None, (part.dbname, part.tablename, part.partitionname))))
        return types.LockResponse(lockid=1, state=types.LockState.WAITING)

    def get_latest_committed_compaction_info(self, args: Any) -> Any:
        self.probed.append(f"{args.rqst.dbname}.{args.rqst.tablename}")
        return types.GetLatestCommittedCompactionInfoResponse(compactions=[])

    def get_table_objects_by_name_req(self, args: Any) -> Any:
        return types.GetTablesResult(tables=[table(name) for name in args.req.tblNames])

    def get_partition_names(self, args: Any) -> Any:
        return PARTITIONS[args.tbl_name]


def table(name: str) -> types.Table:
    return types.Table(
        dbName="db",
        tableName=name,
        parameters={} if name == "plain" else {"transactional": "TRUE"},
        partitionKeys=[types.FieldSchema(name="day", type="int")] if PARTITIONS[name] else [],
    )


@pytest.fixture
def metastore() -> Metastore:
    return Metastore()


@pytest.fixture
def client_of(
    peers: Callable[..., Peer], metastore: Metastore
) -> Iterator[Callable[..., tuple[MetastoreClient, Thrift]]]:
    with ExitStack() as stack:

        def make(*lacking: str) -> tuple[MetastoreClient, Thrift]:
            served = Thrift(metastore, set(lacking))
            settings = MetastoreSettings(uris=(peers(served).uri,), connect_timeout_s=5, call_timeout_s=5)
            return stack.enter_context(MetastoreClient(settings)), served

        yield make


def test_a_cleaner_that_goes_by_write_ids_gets_them(client_of: Any, metastore: Metastore) -> None:
    client, served = client_of()
    assert client.keep_history(7, ["db.acid"]) is None
    assert served.calls == [REGISTERS, "open_txns", "commit_txn"]
    assert metastore.locked == []


def test_a_cleaner_that_waits_for_transactions_gets_a_newer_one(client_of: Any, metastore: Metastore) -> None:
    client, served = client_of(REGISTERS)
    assert client.keep_history(7, ["db.acid", "other.t"]) is None
    assert served.calls == [FINDS_COMPACTION, FINDS_COMPACTION, "open_txns", "commit_txn"]
    assert sorted(metastore.probed) == ["db.acid", "other.t"]
    assert metastore.locked == []


def test_a_cleaner_that_waits_for_locks_gets_them(client_of: Any, metastore: Metastore) -> None:
    client, served = client_of(REGISTERS, FINDS_COMPACTION)
    locked = client.keep_history(7, ["db.acid", "db.single", "db.plain"])
    assert locked == {"db.acid", "db.acid/day=1", "db.acid/day=2", "db.single"}
    assert metastore.locked == ["db/acid", "db/acid/day=1", "db/acid/day=2", "db/single"]
    assert served.calls.count("open_txns") == 1
    # Later, only a new table gets locks, and no newer transaction is needed.
    fewer = locked - {"db.single"}
    assert client.keep_history(7, ["db.acid", "db.single"], locked=fewer) == locked
    assert metastore.locked[4:] == ["db/single"]
    assert served.calls.count("open_txns") == 1
    assert client.keep_history(7, [], locked=locked) == locked
