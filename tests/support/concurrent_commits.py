"""Writers that commit to one table at the same time."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor

from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.errors import TransactionAbortedError
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.transactions.locks import TableWrite, WriteKind
from airflow_hive_federation.transactions.transaction import Transaction
from tests.support.small_source import connected, make_table


def judge_concurrent_commits(
    metastore: EmbeddedMetastore, *, writers: int, writes: int, sharing: int
) -> None:
    """Let writers update ``busy.t`` side by side: each write is there once, or is aborted by name.

    :param sharing: of so many writers, one shares its lock. Of updates that share a lock, the first to commit
        wins; the other writers exclude each other.
    """
    with connected(metastore) as client:
        client.create_database(types.Database(name="busy", parameters={}))
        make_table(client, "busy", "t")
    update = TableWrite(database="busy", table="t", kind=WriteKind.UPDATE)

    def write(writer: int) -> list[tuple[int, str]]:
        outcomes = []
        with connected(metastore) as client:
            for _ in range(writes):
                transaction = Transaction(client, shared_writes=writer % sharing == 0)
                write_id = 0
                try:
                    with transaction:
                        transaction.lock([update])
                        write_id = transaction.write_id("busy", "t")
                    outcomes.append((write_id, "committed"))
                except TransactionAbortedError:
                    outcomes.append((write_id, "aborted"))
        return outcomes

    with ThreadPoolExecutor(writers) as threads:
        outcomes = [outcome for each in threads.map(write, range(writers)) for outcome in each]
    counted = Counter(outcome for _, outcome in outcomes)
    assert counted.total() == writers * writes
    assert counted["committed"] >= writes
    with connected(metastore) as client:
        wire = client.get_valid_write_ids(["busy.t"])["busy.t"]
        assert not [lock for lock in client.show_locks() if lock.dbname == "busy"]
    invalid = set(wire.invalidWriteIds or [])
    written = [write_id for write_id, _ in outcomes if write_id]
    assert sorted(written) == sorted({*written})
    assert wire.writeIdHighWaterMark == max(written)
    for write_id, outcome in outcomes:
        assert (outcome == "aborted") == (write_id in invalid) or not write_id
