"""Guards of replication that need no server: each refuses what it is there for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_hive_federation.errors import FailoverError, TargetChangedError
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.replication import take_over
from airflow_hive_federation.replication.failover import reverse_policy
from airflow_hive_federation.replication.load.replay import Replay
from airflow_hive_federation.replication.policy import ReplicationPolicy

POLICY = ReplicationPolicy(
    name="p", source_database="d", dump_root="file:/dumps", external_base="file:/replica"
)


def test_a_target_that_gives_out_other_write_ids_is_somebody_elses() -> None:
    """(The metastore does so for nobody but a load; a later version, or another product, may.)"""
    client: Any = SimpleNamespace(
        get_open_txns=lambda: SimpleNamespace(txn_high_water_mark=10),
        open_txns=lambda *_args, **_how: [11],
        heartbeat_txn_range=lambda *_range: SimpleNamespace(nosuch=()),
        allocate_table_write_ids=lambda *_args, **_how: {11: 6},
    )
    replay = Replay(client, POLICY)
    replay.open({"t": [(7, 5)]})
    with pytest.raises(TargetChangedError, match=r"Table d\.t .* gave write ids \[6\] .* source has \[5\]"):
        replay.allocate({"t": [(7, 5)]})


def test_external_tables_of_several_stores_have_no_way_back() -> None:
    def table(name: str, location: str) -> types.Table:
        storage = types.StorageDescriptor(location=location)
        return types.Table(dbName="d", tableName=name, tableType="EXTERNAL_TABLE", sd=storage)

    found = [table("a", "s3a://one/a"), table("b", "s3a://two/b")]

    @contextmanager
    def connected() -> Iterator[Any]:
        yield SimpleNamespace(
            list_tables=lambda _database: ["a", "b"],
            get_tables=lambda _database, _names: found,
        )

    pool: Any = SimpleNamespace(client=connected)
    with pytest.raises(FailoverError, match="lie in several stores: s3://one/, s3://two/"):
        reverse_policy(pool, POLICY)
    del found[1]
    assert reverse_policy(pool, POLICY).external_base == "s3://one/"


def test_a_take_over_copies_nothing() -> None:
    with pytest.raises(FailoverError, match=r"that file:/plan lists were copied, and are gone"):
        take_over._nothing_to_copy("file:/plan", "")
