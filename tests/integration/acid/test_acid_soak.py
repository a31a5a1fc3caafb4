"""Writers, a compactor and a reader of one table at once: no half of a transaction is seen, no row is lost.

Every transaction writes, changes or deletes *pairs*: two rows of one number whose amounts cancel out. So each
reader can judge what it sees by itself. At the end Hive's rows are compared with a ledger.

``HIVE_FEDERATION_SOAK_TXNS`` sets their number, ``HIVE_FEDERATION_SOAK_SEED`` the seed.
"""

from __future__ import annotations

import itertools
import os
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import orc
from pyspark.sql import SparkSession
from pyspark.sql import functions as fn

from airflow_hive_federation.compaction.plan import CompactionKind
from airflow_hive_federation.compaction.requests import compact_table
from airflow_hive_federation.compaction.runners import in_threads
from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.embedded.sql import HiveSql, HiveSqlError, Row
from airflow_hive_federation.errors import TransactionAbortedError
from airflow_hive_federation.metastore import MetastoreClient, MetastoreSettings
from airflow_hive_federation.tables.read.reader import read_table
from airflow_hive_federation.tables.write.statements import append, merge
from airflow_hive_federation.transactions.locks import TableWrite, WriteKind
from airflow_hive_federation.transactions.transaction import Transaction
from airflow_hive_federation.waiting import PollPolicy
from tests.support.hive_readers import by_both_readers

#: Of our writer; meanwhile a writer of files and Hive make some each.
TXNS = int(os.environ.get("HIVE_FEDERATION_SOAK_TXNS", "8"))
SEED = int(os.environ.get("HIVE_FEDERATION_SOAK_SEED", "0")) or random.SystemRandom().randrange(1, 10**6)
DATABASE, TABLE = "soak", "pairs"
NAME = f"{DATABASE}.{TABLE}"
PAIRS = f"select pair, amount from {NAME}"
BUCKET = 0x20000000
#: What the writer of files does.
KINDS = ("insert", "delete", "abort")
#: Others than our writer leave the table alone for so many seconds; a waiting writer checks more often.
PAUSE_S = 0.5
SOON = PollPolicy(first_s=0.1, longest_s=PAUSE_S / 2, timeout_s=300)
ROW = pa.struct([("pair", pa.int64()), ("amount", pa.int64())])


class Ledger:
    """A ledger of commits: per write id, the new amounts of pairs; ``None`` where one was deleted."""

    def __init__(self) -> None:
        self._changes: dict[int, dict[int, int | None]] = {}
        self._lock = threading.Lock()
        self.counts: Counter[str] = Counter()

    def committed(self, kind: str, write_id: int, changes: dict[int, int | None]) -> None:
        with self._lock:
            assert write_id not in self._changes
            self._changes[write_id] = changes
            self.counts[kind] += 1

    def count(self, kind: str) -> None:
        with self._lock:
            self.counts[kind] += 1

    def amounts(self) -> dict[int, int]:
        """Apply the changes in the order of write ids: a writer gets its id under the table's write lock."""
        now: dict[int, int | None] = {}
        for _, changes in sorted(self._changes.items()):
            now.update(changes)
        return {pair: amount for pair, amount in now.items() if amount is not None}


@pytest.mark.slow
@pytest.mark.timeout(1200 + 30 * TXNS)
def test_no_anomaly(spark: SparkSession, source: EmbeddedMetastore, quick_hive: HiveSql) -> None:
    print(f"HIVE_FEDERATION_SOAK_SEED={SEED} HIVE_FEDERATION_SOAK_TXNS={TXNS}")
    ledger, ended = Ledger(), threading.Event()
    hive, settings = quick_hive, MetastoreSettings(uris=(source.uri,))
    hive.execute(f"create database {DATABASE}")
    hive.execute(
        f"create table {NAME} (pair bigint, amount bigint) stored as orc "
        "tblproperties ('transactional'='true', 'no_auto_compaction'='true')"
    )
    location = source.warehouse / f"{DATABASE}.db" / TABLE
    with ThreadPoolExecutor(6) as threads:
        ours = threads.submit(write_by_spark, spark, settings, ledger, random.Random(SEED + 1))
        others = [
            threads.submit(write_files, settings, location, ledger, random.Random(SEED), ended),
            threads.submit(write_by_hive, hive, ledger, random.Random(SEED + 2), ended),
            threads.submit(repeat, ended, lambda: read(spark, settings, ledger)),
            threads.submit(repeat, ended, compaction(settings, ledger)),
        ]
        try:
            # Our writer has done its part, or something failed: only our writer ends by itself.
            wait([ours, *others], return_when=FIRST_COMPLETED)
        finally:
            ended.set()
        for writer in (ours, *others):
            writer.result()
    print(dict(ledger.counts))
    assert paired(numbers(by_both_readers(hive, PAIRS))) == ledger.amounts()
    for kind in ("files: insert", "files: delete", "files: abort", "spark: insert", "spark: change", "read"):
        assert ledger.counts[kind], ledger.counts
    assert ledger.counts["hive: insert"], ledger.counts
    assert ledger.counts["hive: update"] + ledger.counts["hive: delete"], ledger.counts
    assert ledger.counts["compaction: compacted"], ledger.counts


def paired(rows: Iterable[tuple[int, int]]) -> dict[int, int]:
    """Both rows of every pair are there, once, and of one version."""
    amounts: dict[int, list[int]] = {}
    for pair, amount in rows:
        amounts.setdefault(pair, []).append(amount)
    wrong = {pair: counts for pair, counts in amounts.items() if len(counts) != 2 or sum(counts)}
    assert not wrong
    return {pair: max(counts) for pair, counts in amounts.items()}


def repeat(ended: threading.Event, step: Callable[[], object]) -> None:
    while not ended.wait(PAUSE_S):
        step()


def compaction(settings: MetastoreSettings, ledger: Ledger) -> Callable[[], None]:
    kinds = [CompactionKind.MINOR, CompactionKind.MINOR, CompactionKind.MAJOR]
    done = Counter[str]()

    def compact() -> None:
        for report in compact_table(settings, NAME, kinds[done["compacted"] % len(kinds)], in_threads(1)):
            assert report.state in {"compacted", "cleaning", "refused"}, report
            done[report.state] += 1
            ledger.count(f"compaction: {report.state}")

    return compact


def read(spark: SparkSession, settings: MetastoreSettings, ledger: Ledger) -> None:
    # The open transaction keeps the cleaner away.
    with MetastoreClient(settings) as client, Transaction(client):
        paired((row.pair, row.amount) for row in read_table(spark, client, NAME).collect())
    ledger.count("read")


# A writer of files: what another engine does, by the metastore's interface alone ----------------------------


def write_files(
    settings: MetastoreSettings,
    location: Path,
    ledger: Ledger,
    chance: random.Random,
    ended: threading.Event,
) -> None:
    """Insert pairs, delete own ones, abort now and then. Only this writer changes odd pairs."""
    mine: list[tuple[int, int, int]] = []  # pair, write id, first row id
    with MetastoreClient(settings) as client:
        for number in itertools.count():
            # Each kind once before chance decides: beside other writers there may be few of them.
            missing = [kind for kind in KINDS if not ledger.counts[f"files: {kind}"]]
            if ended.wait(PAUSE_S) and not missing:
                return
            kind = missing[0] if missing else chance.choices(KINDS, [6, 3 if mine else 0, 1])[0]
            gone = mine.pop(chance.randrange(len(mine))) if kind == "delete" else None
            try:
                with committing(client, WriteKind.DELETE if gone else WriteKind.INSERT) as write_id:
                    if gone is not None:
                        delete_rows(location, write_id, gone)
                        changes: dict[int, int | None] = {gone[0]: None}
                    else:
                        pairs = [4 * number + 1 + side for side in range(chance.randrange(1, 4))]
                        changes = {pair: chance.randrange(1, 1000) for pair in pairs}
                        insert_rows(location, write_id, changes)
                    if kind == "abort":
                        raise ZeroDivisionError
            except ZeroDivisionError:
                ledger.count("files: abort")
                continue
            except TransactionAbortedError:
                # Somebody committed between the beginning and the lock.
                ledger.count("files: conflict")
                mine += [gone] if gone else []
                continue
            ledger.committed(f"files: {kind}", write_id, changes)
            if gone is None:
                mine += [(pair, write_id, 2 * place) for place, pair in enumerate(changes) if pair % 2]


@contextmanager
def committing(client: MetastoreClient, kind: WriteKind) -> Iterator[int]:
    while True:
        with Transaction(client, lock_policy=SOON) as transaction:
            write = TableWrite(database=DATABASE, table=TABLE, kind=kind)
            if transaction.lock([write]) and kind is WriteKind.DELETE:
                # Others have committed meanwhile, which would count as a conflict.
                transaction.abort()
                continue
            yield transaction.write_id(DATABASE, TABLE)
        return


def insert_rows(location: Path, write_id: int, amounts: dict[int, int | None]) -> None:
    rows = [
        {"pair": pair, "amount": sign * (amount or 0)} for pair, amount in amounts.items() for sign in (1, -1)
    ]
    directory = location / f"delta_{write_id:07}_{write_id:07}_0000"
    write_bucket(directory, 0, [(write_id, number) for number in range(len(rows))], write_id, rows)


def delete_rows(location: Path, write_id: int, gone: tuple[int, int, int]) -> None:
    _, inserted, first = gone
    directory = location / f"delete_delta_{write_id:07}_{write_id:07}_0000"
    write_bucket(directory, 2, [(inserted, first), (inserted, first + 1)], write_id, None)


def write_bucket(
    directory: Path,
    operation: int,
    identities: list[tuple[int, int]],
    write_id: int,
    rows: list[dict[str, int]] | None,
) -> None:
    count = len(identities)
    table = pa.table(
        {
            "operation": pa.array([operation] * count, pa.int32()),
            "originalTransaction": pa.array([identity for identity, _ in identities], pa.int64()),
            "bucket": pa.array([BUCKET] * count, pa.int32()),
            "rowId": pa.array([number for _, number in identities], pa.int64()),
            "currentTransaction": pa.array([write_id] * count, pa.int64()),
            "row": pa.nulls(count, ROW) if rows is None else pa.array(rows, ROW),
        }
    )
    directory.mkdir()
    (directory / "_orc_acid_version").write_bytes(b"2")
    orc.write_table(table, directory / "bucket_00000_0", compression="zlib")


# Hive -------------------------------------------------------------------------------------------------------


def write_by_hive(hive: HiveSql, ledger: Ledger, chance: random.Random, ended: threading.Event) -> None:
    """Insert, update and delete pairs of negative odd numbers, which nobody else changes, and read them."""
    mine: dict[int, int] = {}
    for number in itertools.count(1):
        # The others having ended, nobody conflicts with its change any more.
        if ended.wait(PAUSE_S) and ledger.counts["hive: update"] + ledger.counts["hive: delete"]:
            return
        kind = chance.choices(["insert", "update", "delete"], [4, 4 if mine else 0, 1 if mine else 0])[0]
        pair, amount = (
            (1 - 2 * number if kind == "insert" else chance.choice([*mine])),
            chance.randrange(1, 1000),
        )
        statement = {
            "insert": f"insert into {NAME} values ({pair}, {amount}), ({pair}, {-amount})",
            "update": f"update {NAME} set amount = if(amount > 0, {amount}, {-amount}) where pair = {pair}",
            "delete": f"delete from {NAME} where pair = {pair}",
        }[kind]
        try:
            hive.execute(statement)
        except HiveSqlError as error:
            # Somebody committed between Hive's beginning and its lock.
            if "write conflict" not in str(error):
                raise
            ledger.count("hive: conflict")
            continue
        if kind == "delete":
            del mine[pair]
        else:
            mine[pair] = amount
        # Hive does not return the write id: the order of its own changes is enough.
        ledger.committed(f"hive: {kind}", -(10**9) + number, {pair: mine.get(pair)})
        seen = paired(numbers(hive.execute(PAIRS)))
        assert {pair: amount for pair, amount in seen.items() if pair < 0} == mine


def numbers(rows: Iterable[Row]) -> Iterator[tuple[int, int]]:
    return ((int(pair or 0), int(amount or 0)) for pair, amount in rows)


# Our writer -------------------------------------------------------------------------------------------------


def write_by_spark(
    spark: SparkSession, settings: MetastoreSettings, ledger: Ledger, chance: random.Random
) -> None:
    """Insert pairs, and change or delete even ones, whoever wrote them."""
    numbers = iter(range(10**9, 2 * 10**9, 2))
    with MetastoreClient(settings) as client:
        for number in range(TXNS):
            if number % 3 == 0:
                changes = {next(numbers): chance.randrange(1, 1000) for _ in range(3)}
                rows = [(pair, sign * amount) for pair, amount in changes.items() for sign in (1, -1)]
                frame = spark.createDataFrame(rows, "pair bigint, amount bigint")
                done = append(spark, client, NAME, frame)
                ledger.committed("spark: insert", done.write_id, dict(changes))
                continue
            while True:
                try:
                    change(spark, client, ledger, chance)
                    break
                except TransactionAbortedError:
                    # Each time another writer committed between the beginning and the lock.
                    ledger.count("spark: conflict")


def change(spark: SparkSession, client: MetastoreClient, ledger: Ledger, chance: random.Random) -> None:
    # An open transaction keeps the cleaner from what is read. The merge has one of its own, which begins when
    # it can have its lock: others write all the time, and whoever began before they committed has a conflict.
    with Transaction(client):
        now = read_table(spark, client, NAME, row_ids=True).where("pair % 2 = 0")
        pairs = sorted({row.pair for row in now.select("pair").collect()})
        # Of three inserted pairs, two are left for the second change: there may be no more if no other writer
        # has added even ones yet.
        *changed, gone = chance.sample(pairs, min(3, len(pairs)))
        amount = chance.randrange(1, 1000)
        updates = now.where(fn.col("pair").isin(changed))
        done = merge(
            spark,
            client,
            NAME,
            updates=updates.withColumn("amount", fn.signum("amount").cast("bigint") * amount),
            deletes=now.where(fn.col("pair") == gone),
        )
    assert (done.updated, done.deleted) == (2 * len(changed), 2)
    ledger.committed("spark: change", done.write_id, {**dict.fromkeys(changed, amount), gone: None})
