"""Compaction beside aborted transactions: their rows stay invisible, whenever Hive's cleaner comes."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import orc

from airflow_hive_federation.compaction.requests import queue_entry
from airflow_hive_federation.compaction.runners import in_threads
from airflow_hive_federation.compaction.worker import CompactionReport, CompactionWorker
from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.embedded.sql import HiveSql
from airflow_hive_federation.metastore import MetastoreClient, MetastoreSettings
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.transactions.locks import TableWrite, WriteKind
from airflow_hive_federation.transactions.transaction import Transaction
from airflow_hive_federation.waiting import PollPolicy, wait_until
from tests.support.history_files import insert_rows
from tests.support.small_source import make_table

DATABASE = "with_aborts"
POOL = "aborts"
SOON = PollPolicy(first_s=0.1, longest_s=0.5, timeout_s=120)
ROWS = pa.schema([("a", pa.int32()), ("b", pa.string())])


@pytest.fixture(scope="module")
def settings(source: EmbeddedMetastore) -> MetastoreSettings:
    return MetastoreSettings(uris=(source.uri,))


@pytest.fixture(scope="module")
def client(settings: MetastoreSettings, hive_sql_source: HiveSql) -> Iterator[MetastoreClient]:
    with MetastoreClient(settings) as client:
        hive_sql_source.execute(f"create database {DATABASE}")
        yield client
        client.drop_database(DATABASE, delete_data=True, cascade=True)


def written(client: MetastoreClient, table: str, place: Path, *numbers: int, aborted: bool = False) -> None:
    with Transaction(client) as transaction:
        transaction.lock([TableWrite(database=DATABASE, table=table, kind=WriteKind.INSERT)])
        write_id = transaction.write_id(DATABASE, table)
        insert_rows(place, write_id, [{"a": number, "b": "x"} for number in numbers], ROWS, acid=True)
        if aborted:
            transaction.abort()


def alone(client: MetastoreClient, place: Path) -> None:
    """A delta of its own."""
    make_table(client, DATABASE, "alone")
    written(client, "alone", place, -1, aborted=True)
    written(client, "alone", place, 1)


def in_a_batch(client: MetastoreClient, place: Path) -> None:
    """A streaming batch, whose second transaction has aborted, and a delta that only sends the cleaner."""
    make_table(client, DATABASE, "in_a_batch")
    written(client, "in_a_batch", place, 1)
    written(client, "in_a_batch", place, -1, aborted=True)
    both = [place / f"delta_{number:07}_{number:07}_0000" for number in (1, 2)]
    batch = place / "delta_0000001_0000002"
    both[0].rename(batch)
    rows = [orc.read_table(directory / "bucket_00000_0") for directory in (batch, both[1])]
    orc.write_table(pa.concat_tables(rows), batch / "bucket_00000")
    (batch / "bucket_00000_0").unlink()
    shutil.rmtree(both[1])
    written(client, "in_a_batch", place, -2, aborted=True)


def before_its_partition(client: MetastoreClient, place: Path) -> None:
    """A write into dynamic partitions, which has aborted before it made them."""
    make_table(client, DATABASE, "before_its_partition", partitioned=True)
    written(client, "before_its_partition", place / "p=x", -1, aborted=True)


def wait_until_forgotten(client: MetastoreClient) -> None:
    """Wait until the metastore has forgotten the aborted transactions that have nothing left to clean.

    It does so every ten seconds, with all but the highest at once, whose id it needs to go on.
    """
    last, highest = client.open_txns(2)
    client.abort_txns([last, highest])

    def is_forgotten() -> bool:
        transactions: Any = client.call("get_open_txns_info")
        return last not in {open_txn.id for open_txn in transactions.open_txns}

    assert wait_until(is_forgotten, SOON)


def compacted(client: MetastoreClient, settings: MetastoreSettings, table: str) -> CompactionReport:
    """Compact a table as a whole, with partitions too: as the metastore's initiator requests it."""
    request = types.CompactionRequest(
        dbname=DATABASE, tablename=table, type=types.CompactionType.MINOR, poolName=POOL
    )
    answer: Any = client.call("compact2", request)
    assert answer.accepted, answer
    (report,) = CompactionWorker(settings, in_threads(1), pool_name=POOL).serve_next()
    return report


@pytest.mark.slow
@pytest.mark.parametrize("write", [alone, in_a_batch, before_its_partition])
def test_aborted_rows_stay_invisible_beside_a_reader_who_has_seen_an_older_transaction(
    write: Callable[[MetastoreClient, Path], None],
    client: MetastoreClient,
    settings: MetastoreSettings,
    source: EmbeddedMetastore,
    hive_sql_source: HiveSql,
) -> None:
    table = write.__name__
    place = source.warehouse / f"{DATABASE}.db" / table
    (older,) = client.open_txns()
    write(client, place)
    report = compacted(client, settings, table)
    assert report.state == "cleaning", report
    # The cleaner waits for the older one, then takes all that is newer for open: the reader has seen it so.
    (reader,) = client.open_txns()
    client.commit_txn(older)
    assert wait_until(lambda: queue_entry(client, report.id).state == "succeeded", SOON)
    client.commit_txn(reader)
    if table == "before_its_partition":
        hive_sql_source.execute(f"alter table {DATABASE}.{table} add partition (p='x')")
    wait_until_forgotten(client)
    if write is alone:
        valid_ids = client.get_valid_write_ids([f"{DATABASE}.{table}"])[f"{DATABASE}.{table}"]
        assert not valid_ids.invalidWriteIds  # the metastore does forget what is cleaned up
    rows = hive_sql_source.execute(f"select a from {DATABASE}.{table}")
    assert rows == ([] if table == "before_its_partition" else [("1",)])
