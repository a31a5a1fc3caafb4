"""An increment of one commit into one partition of many: its cost follows the change, not the table."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from airflow_hive_federation.acid.rewrite import rewrite_file
from airflow_hive_federation.embedded.database import DERBY
from airflow_hive_federation.metastore import MetastoreClient, MetastorePool
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.replication.cycle import dump_next_increment, load_dump
from airflow_hive_federation.replication.dump.bootstrap import dump_bootstrap
from airflow_hive_federation.replication.dump.drain import begin_drain
from airflow_hive_federation.replication.load.load import load_into_target
from airflow_hive_federation.replication.load.replay import Replay
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.storage.copying import CopySettings, copy_file
from airflow_hive_federation.storage.fence import fence_of
from airflow_hive_federation.storage.plan_files import read_plan, write_records
from benchmarks.bootstrap import Setting
from benchmarks.contenders import Clock, Timing, client_settings, database_kind, metastores
from benchmarks.results import Result, seconds
from benchmarks.source_database import Scale, make_database

_DATABASE, _TABLE, _TARGET = "one_partition", "t000", "one_partition_copy"
_AIM_S = 3.0


def run(setting: Setting) -> Iterator[Result]:
    """Measure the part ``increment-one-partition``."""
    full = 5_000 if database_kind() == DERBY else 50_000
    partitions = full if setting.scale == "full" else 50
    policy = ReplicationPolicy(
        name=_DATABASE,
        source_database=_DATABASE,
        target_database=_TARGET,
        dump_root=f"file:{setting.directory}/dumps",
        allowed_source_roots=["file:/"],
    )
    with metastores(setting.directory, "source", "target") as (source, target):
        pools = (MetastorePool(client_settings(source), 4), MetastorePool(client_settings(target), 4))
        with pools[0] as source_pool, pools[1] as target_pool:
            with source_pool.client() as client:
                setting.say(f"Making {partitions:,} partitions")
                size = Scale(tables=1, partitions=partitions, file_bytes=65)
                make_database(client, source.warehouse, _DATABASE, size)
                start = begin_drain(client, _DATABASE)
            dump = dump_bootstrap(source_pool, policy, start)
            load_into_target(source_pool, target_pool, policy, dump.dump, run_copy=_copy)
            setting.say("The bootstrap is loaded")
            table = source.warehouse / f"{_DATABASE}.db" / _TABLE
            days = sorted(path.name for path in table.iterdir())
            ours, calls = [], []
            for number in range(setting.runs):
                with source_pool.client() as client:
                    _commit(client, table / days[number * len(days) // setting.runs])
                ours.append(_cycle(source_pool, target_pool, policy))
                setting.say(f"run {number + 1}: {ours[-1]}")
                with target_pool.client() as client:
                    calls.append(_bare_calls(client, number))
    yield seconds(
        "increment-one-partition",
        f"an increment of one commit into one of {partitions:,} partitions of an ACID table",
        ours_s=median(timing.total_s for timing in ours),
        peer="the bare calls that replay a commit",
        peer_s=median(timing.total_s for timing in calls),
        at_most_s=_AIM_S,
    )


def _cycle(source: MetastorePool, target: MetastorePool, policy: ReplicationPolicy) -> Timing:
    clock = Clock()
    dumped = dump_next_increment(source, target, policy)
    clock.lap("dump")
    load_dump(source, target, policy, dumped.dump, run_copy=_copy)
    clock.lap("load")
    return clock.timing()


def _commit(client: MetastoreClient, partition: Path) -> None:
    """Commit a row to a partition as Hive does, with a notification of the files that were written."""
    (txn_id,) = client.open_txns(1)
    write_id = client.allocate_table_write_ids(_DATABASE, _TABLE, [txn_id])[txn_id]
    delta = partition / f"delta_{write_id:07}_{write_id:07}_0000"
    # (Its rows have the first write id: nobody counts them.)
    shutil.copytree(partition / "delta_0000001_0000001_0000", delta)
    files = [f"file:{path}" for path in sorted(delta.iterdir())]
    notification = types.WriteNotificationLogRequest(
        txnId=txn_id,
        writeId=write_id,
        db=_DATABASE,
        table=_TABLE,
        fileInfo=types.InsertEventRequestData(
            replace=False,
            filesAdded=files,
            filesAddedChecksum=["" for _ in files],
            subDirectoryList=[delta.name for _ in files],
        ),
        partitionVals=[partition.name.partition("=")[2]],
    )
    client.call("add_write_notification_log", notification)
    client.commit_txn(txn_id)


def _copy(plan: str, outcomes: str) -> None:
    """The copy job in this process."""
    settings = CopySettings(rewrite=rewrite_file, fence=fence_of(plan))
    write_records(f"{outcomes}/run.jsonl", [copy_file(item, settings) for item in read_plan(plan)])


def _bare_calls(client: MetastoreClient, number: int) -> Timing:
    database = f"bare{number}"
    client.create_database(types.Database(name=database))
    client.create_table(
        types.Table(
            dbName=database,
            tableName="t",
            sd=types.StorageDescriptor(
                cols=[types.FieldSchema(name="a", type="int")],
                inputFormat="org.apache.hadoop.hive.ql.io.orc.OrcInputFormat",
                outputFormat="org.apache.hadoop.hive.ql.io.orc.OrcOutputFormat",
                serdeInfo=types.SerDeInfo(serializationLib="org.apache.hadoop.hive.ql.io.orc.OrcSerde"),
            ),
            parameters={"transactional": "true", "transactional_properties": "default"},
            tableType="MANAGED_TABLE",
        )
    )
    replay = Replay(
        client, ReplicationPolicy(name=database, source_database=database, dump_root="file:/nowhere")
    )
    clock = Clock()
    writes = {"t": [(10**9 + number, 1)]}
    replay.open(writes)
    replay.allocate(writes)
    replay.end(10**9 + number)
    return clock.timing_of("calls")
