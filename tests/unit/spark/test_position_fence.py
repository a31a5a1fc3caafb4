"""A micro-batch waits for a process that alters its table, and for no process that moves its position."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from airflow_hive_federation.ingest.errors import TransactionError
from airflow_hive_federation.metastore import MetastoreClient
from airflow_hive_federation.spark.streaming_sink import _hold
from airflow_hive_federation.transactions.positions import fence
from tests.support.memory_metastore import MemoryMetastore

KEY = "_meta.a"


def test_the_fence_is_waited_for_while_the_table_is_altered() -> None:
    metastore = MemoryMetastore()
    metastore.waiting = {f"t:{KEY}"}
    metastore.before["check_lock"] = lambda _args: metastore.waiting.clear()
    with metastore.served() as settings, MetastoreClient(settings) as client:
        (txn_id,) = client.open_txns()
        own: Any = SimpleNamespace(id=txn_id)
        _hold(client, own, "d", "t", KEY)
    assert metastore.calls.count("check_lock") == 1


def test_another_process_that_moves_the_position_is_not_waited_for() -> None:
    metastore = MemoryMetastore()
    metastore.waiting = {f"t:{KEY}"}
    with metastore.served() as settings, MetastoreClient(settings) as client:
        txn_id, other_id = client.open_txns(2)
        client.lock([fence("d", "t", KEY)], txn_id=other_id)
        own: Any = SimpleNamespace(id=txn_id)
        with pytest.raises(TransactionError, match=r"d\.t: another process is moving _meta\.a"):
            _hold(client, own, "d", "t", KEY)
    assert "check_lock" not in metastore.calls
