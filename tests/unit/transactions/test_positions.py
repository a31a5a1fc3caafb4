"""Changes of a table wait for the commits that move its positions, and not for ever."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from airflow_hive_federation.clusters.altering import alter_table
from airflow_hive_federation.errors import LockTimeoutError, MetastoreServerError
from airflow_hive_federation.metastore import MetastoreClient
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.transactions.positions import alter_beside_streams, still
from airflow_hive_federation.waiting import PollPolicy
from tests.support.memory_metastore import MemoryMetastore

KEY = "_meta.a"


@pytest.fixture
def metastore() -> MemoryMetastore:
    """A metastore with the table ``d.t``, which keeps a position."""
    made = MemoryMetastore()
    made.put_table(types.Table(dbName="d", tableName="t", parameters={KEY: "1", "transactional": "true"}))
    return made


@pytest.fixture
def client(metastore: MemoryMetastore) -> Iterator[MetastoreClient]:
    with metastore.served() as settings, MetastoreClient(settings) as connected:
        yield connected


def marked(table: types.Table) -> types.Table:
    table.parameters = {**(table.parameters or {}), "mark": "set"}
    return table


def test_cluster_metadata_sets_no_position_back(metastore: MemoryMetastore, client: MetastoreClient) -> None:
    """The metastore compares the time of the last change there, which a commit leaves as it is."""
    fenced: list[bool] = []

    def commit(args: Any) -> None:
        if any(component.tablename == f"t:{KEY}" for component in args.rqst.component):
            metastore.tables["d", "t"].parameters[KEY] = "2"

    metastore.before["lock"] = commit
    metastore.before["alter_table_req"] = lambda _args: fenced.append(bool(metastore.locks_of(f"t:{KEY}")))
    alter_table(client, "d.t", marked)
    assert metastore.tables["d", "t"].parameters == {KEY: "2", "transactional": "true", "mark": "set"}
    assert fenced == [True]
    assert metastore.locks == {}


def test_a_position_that_is_made_meanwhile_stands_still_too(
    metastore: MemoryMetastore, client: MetastoreClient
) -> None:
    def make(_args: object) -> None:
        metastore.tables["d", "t"].parameters["_meta.b"] = "1"

    fenced: list[bool] = []
    metastore.before["lock"] = make
    metastore.before["alter_table_req"] = lambda _args: fenced.append(bool(metastore.locks_of("t:_meta.b")))
    alter_table(client, "d.t", marked)
    assert fenced == [True]


def test_transactions_that_move_a_position_are_not_waited_for_without_end(
    metastore: MemoryMetastore, client: MetastoreClient
) -> None:
    metastore.waiting = {f"t:{KEY}"}
    policy = PollPolicy(first_s=0.01, timeout_s=0.05)
    with (
        pytest.raises(LockTimeoutError, match=r"d\.t cannot be altered: .* about to move _meta\.a"),
        still(client, "d", "t", [KEY], policy=policy),
    ):
        pytest.fail("the positions do not stand still")
    assert metastore.locks == {}


def test_a_table_that_is_altered_all_the_time(metastore: MemoryMetastore, client: MetastoreClient) -> None:
    def stale(_args: object) -> None:
        raise types.MetaException(message="The table has been modified.")

    metastore.before["alter_table_req"] = stale
    with pytest.raises(MetastoreServerError, match=r"d\.t is altered all the time: .*has been modified"):
        alter_beside_streams(client, "d", "t", marked)
    assert metastore.calls.count("alter_table_req") == 5


def test_a_table_that_is_right_already_is_left(metastore: MemoryMetastore, client: MetastoreClient) -> None:
    alter_beside_streams(client, "d", "t", lambda _table: None)
    assert metastore.writes == []
