"""Scenarios of TestReplicationScenariosAcidTables: open and aborted transactions, and compactions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from airflow_hive_federation.compaction.plan import CompactionKind
from airflow_hive_federation.compaction.requests import compact_table
from airflow_hive_federation.compaction.runners import in_threads
from airflow_hive_federation.metastore import MetastoreClient
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.storage.filesystem import local_path
from tests.integration.hives_suite.acid import ACID, INSERT_ONLY, acid_tables, incremental
from tests.integration.hives_suite.scenario import Scenario, Scene, Side, Step


def compact(kind: CompactionKind) -> Any:
    def run(scene: Scene) -> None:
        side = scene.source
        for name in ("t", "p"):
            table = f"{side.database}.{scene.name}_{name}"
            (report,) = compact_table(side.pool.settings, table, kind, in_threads(1))
            assert report.state == "compacted", report

    return run


def no_visibility(prefix: str) -> Any:
    """The source has a directory with a transaction's number, the replica the same without it."""

    def check(scene: Scene) -> None:
        for name in ("t", "p"):
            here, there = (directories(scene, side, name) for side in (scene.source, scene.target))
            compacted = {name for name in here if name.startswith(prefix) and "_v" in name}
            assert compacted, here
            assert {name.partition("_v")[0] for name in compacted} <= there
            assert not any("_v" in name for name in there)

    return check


def directories(scene: Scene, side: Side, name: str) -> set[str]:
    root = Path(local_path(scene.table(name, side).sd.location) or "")
    return {path.name for path in root.rglob("*") if path.is_dir()}


def compacted(name: str, kind: CompactionKind, prefix: str, method: str) -> Scenario:
    rows = {"SELECT id FROM {t}t": "1 2", "SELECT id FROM {t}p": "1 2"}
    return Scenario(
        name=name,
        hive=acid_tables(method),
        steps=[
            Step(
                [
                    f"""CREATE TABLE {{t}}t (id int) CLUSTERED BY (id) INTO 3 BUCKETS {ACID};
                    INSERT INTO {{t}}t VALUES (1);
                    INSERT INTO {{t}}t VALUES (2);
                    CREATE TABLE {{t}}p (id int) PARTITIONED BY (part int) {ACID};
                    INSERT INTO {{t}}p PARTITION (part=2) VALUES (1);
                    INSERT INTO {{t}}p PARTITION (part=2) VALUES (2)""",
                    compact(kind),
                ],
                rows,
                checks=[no_visibility(prefix)],
            )
        ],
    )


MAJOR = compacted("major", CompactionKind.MAJOR, "base_", "testAcidTablesBootstrapWithMajorCompaction")
MINOR = compacted("minor", CompactionKind.MINOR, "delta_", "testAcidTablesBootstrapWithMinorCompaction")


def open_transactions(scene: Scene) -> None:
    """Five transactions that have locks and write ids of both tables, and five of another database."""
    side = scene.source
    side.sql.execute(f"CREATE DATABASE {side.database}_extra")
    side.sql.execute(f"CREATE TABLE {side.database}_extra.t1 (id int) {ACID}")
    tables = [(side.database, f"{scene.name}_t1"), (side.database, f"{scene.name}_t2")]
    with side.pool.client() as client:
        for owner, these in (("ours", tables), ("others", [(f"{side.database}_extra", "t1")])):
            transactions = client.open_txns(5)
            for database, table in these:
                client.allocate_table_write_ids(database, table, transactions)
                for txn_id in transactions:
                    client.lock([component(database, table)], txn_id=txn_id)
            (scene.files / owner).write_text(" ".join(map(str, transactions)), encoding="utf-8")


def component(database: str, table: str) -> Any:
    return types.LockComponent(
        type=types.LockType.SHARED_WRITE,
        level=types.LockLevel.TABLE,
        dbname=database,
        tablename=table,
        operationType=types.DataOperationType.UPDATE,
        isTransactional=True,
    )


def ours_are_aborted(scene: Scene) -> None:
    ours, others = (
        {int(id_text) for id_text in (scene.files / name).read_text(encoding="utf-8").split()}
        for name in ("ours", "others")
    )
    with scene.source.pool.client() as client:
        still_open = open_now(client)
        assert not still_open & ours
        assert others <= still_open
        client.abort_txns(sorted(others))
    for name, write_ids in (("t1", 6), ("t2", 7)):
        assert high_watermark(scene, scene.source, name) == write_ids
        assert high_watermark(scene, scene.target, name) == write_ids


def open_now(client: MetastoreClient) -> set[int]:
    transactions: Any = client.call("get_open_txns_info")
    return {open_txn.id for open_txn in transactions.open_txns if open_txn.state == types.TxnState.OPEN}


def high_watermark(scene: Scene, side: Side, name: str) -> int:
    full_name = f"{side.database}.{scene.name}_{name}"
    with side.pool.client() as client:
        return int(client.get_valid_write_ids([full_name])[full_name].writeIdHighWaterMark or 0)


OPEN = Scenario(
    name="open",
    hive=acid_tables(
        "testAcidTablesBootstrapWithOpenTxnsTimeout",
        "testAcidTablesBootstrapWithOpenTxnsDiffDb",
        "testAcidTablesBootstrapWithOpenTxnsWaitingForLock",
        "testAcidTablesBootstrapWithOpenTxnsPrimaryAndSecondaryDb",
    ),
    properties="",
    steps=[
        Step(
            [
                f"""CREATE TABLE {{t}}t1 (id int) {ACID};
                INSERT INTO {{t}}t1 VALUES (1);
                CREATE TABLE {{t}}t2 (rank int) PARTITIONED BY (name string) {INSERT_ONLY};
                INSERT INTO {{t}}t2 PARTITION (name='Bob') VALUES (11);
                INSERT INTO {{t}}t2 PARTITION (name='Carl') VALUES (10)""",
                open_transactions,
            ],
            {"SELECT id FROM {t}t1": "1", "SELECT rank FROM {t}t2": "10 11"},
            checks=[ours_are_aborted],
        ),
        Step(
            """INSERT INTO {t}t1 VALUES (2);
            INSERT INTO {t}t2 PARTITION (name='Bob') VALUES (12)""",
            {"SELECT id FROM {t}t1": "1 2", "SELECT rank FROM {t}t2": "10 11 12"},
        ),
    ],
)


def several_tables_at_once(scene: Scene) -> None:
    """A transaction that writes to two tables commits, another aborts: Hive's ``START TRANSACTION``."""
    side = scene.source
    names = [f"{scene.name}_{name}" for name in ("one", "two")]
    with side.pool.client() as client:
        for commits in (True, False):
            (txn,) = client.open_txns(1)
            for name in names:
                client.lock([component(side.database, name)], txn_id=txn)
                write_id = client.allocate_table_write_ids(side.database, name, [txn])[txn]
                table: Any = client.get_table(side.database, name)
                copy_delta(Path(local_path(table.sd.location) or ""), write_id)
            if commits:
                client.commit_txn(txn)
            else:
                client.abort_txns([txn])


def copy_delta(directory: Path, write_id: int) -> None:
    written = next(directory.glob("delta_0000001_0000001_*"))
    made = directory / f"delta_{write_id:07d}_{write_id:07d}_0000"
    made.mkdir()
    for path in written.iterdir():
        (made / path.name).write_bytes(path.read_bytes())


AT_ONCE = Scenario(
    name="at_once",
    hive=(
        *incremental("several statements in a transaction"),
        *acid_tables("testAbortTxnEvent", "testMultiDBTxn"),
    ),
    steps=[
        Step(
            f"""CREATE TABLE {{t}}one (id int) {INSERT_ONLY};
            CREATE TABLE {{t}}two (id int) {INSERT_ONLY};
            INSERT INTO {{t}}one VALUES (1);
            INSERT INTO {{t}}two VALUES (2)"""
        ),
        Step(
            several_tables_at_once,
            {"SELECT id FROM {t}one": "1 1", "SELECT id FROM {t}two": "2 2"},
        ),
        Step(
            "INSERT INTO {t}one VALUES (3)",
            {"SELECT id FROM {t}one": "1 1 3", "SELECT id FROM {t}two": "2 2"},
        ),
    ],
)

SCENARIOS = (MAJOR, MINOR, OPEN, AT_ONCE)
