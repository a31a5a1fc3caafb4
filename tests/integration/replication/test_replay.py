"""Replayed transactions on a real metastore."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.metastore import MetastoreClient
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.replication.load.replay import Replay
from airflow_hive_federation.replication.policy import ReplicationPolicy
from tests.support.groovy_scripts import run_groovy
from tests.support.small_source import connected, make_table

DATABASE = "replayed"
POLICY = ReplicationPolicy(name=DATABASE, source_database=DATABASE, dump_root="file:/nowhere")
#: The source's transactions and write ids.
WRITES = {"t": [(1_000_101, 1), (1_000_102, 2), (1_000_105, 3)], "u": [(1_000_102, 1)]}


def opened(client: MetastoreClient) -> list[int]:
    """Transactions of the policy that are open."""
    return sorted(Replay(client, POLICY)._ours())


def test_what_the_metastore_took_too_long_to_open_is_opened_anew(
    target: EmbeddedMetastore, tmp_path: Path
) -> None:
    with connected(target) as client:
        client.create_database(types.Database(name=DATABASE))
        for table in WRITES:
            make_table(client, DATABASE, table)
        Replay(client, POLICY).open(WRITES)
        first, second, third = opened(client)
        removed = [str(first), str(third)]
        where = (str(target.directory), target.jdbc_url)
        assert run_groovy("forget_transactions.groovy", *where, *removed, scratch=tmp_path) == "2"

        # The next runs, of which the first is killed before it has ended all.
        cut_off = Replay(client, POLICY)
        cut_off.open(WRITES)
        fresh = opened(client)
        assert len(fresh) == 3
        assert set(fresh) & {first, second, third} == {second}
        cut_off.allocate(WRITES)
        cut_off.end(1_000_101)
        for _ in range(2):
            last = Replay(client, POLICY)
            last.open({})
            for txn in (1_000_101, 1_000_102, 1_000_105):
                last.end(txn)
        assert opened(client) == []
        assert last.sweep(()) == []
        for table, pairs in WRITES.items():
            (valid_ids,) = client.get_valid_write_ids([f"{DATABASE}.{table}"]).values()
            assert (valid_ids.writeIdHighWaterMark, valid_ids.invalidWriteIds) == (len(pairs), [])
        client.drop_database(DATABASE, delete_data=True, cascade=True)


@pytest.mark.parametrize("group", ["", "of_two"])
def test_what_an_abort_leaves_for_hives_repl_load(target: EmbeddedMetastore, group: str) -> None:
    """The metastore marks the database of the transaction's name, which is one of others for a group."""
    policy = replace(POLICY, group=group)
    with connected(target) as client:
        client.create_database(types.Database(name=DATABASE))
        Replay(client, policy).open({"t": [(1_000_201, 1)]})
        dangling = Replay(client, policy).sweep(())
        assert len(dangling) == 1
        marked = [
            name
            for name in ("default", DATABASE)
            if "repl.incompatible" in (client.get_database(name).parameters or {})
        ]
        client.drop_database(DATABASE, delete_data=True)
    assert marked == ([] if group else [DATABASE])
