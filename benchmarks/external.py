"""A cycle over external tables of which nothing has changed: beside a bare listing of the same files."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from airflow_hive_federation.metastore import MetastoreClient, MetastorePool
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.model.files import CopyOutcome
from airflow_hive_federation.replication.cycle import dump_next_increment, load_idle
from airflow_hive_federation.replication.dump.bootstrap import dump_bootstrap
from airflow_hive_federation.replication.dump.drain import begin_drain
from airflow_hive_federation.replication.load.load import load_into_target
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.storage.filesystem import local_path
from airflow_hive_federation.storage.plan_files import read_plan, write_records
from benchmarks.bootstrap import Setting
from benchmarks.contenders import client_settings, metastores
from benchmarks.results import Result, beside_limit

_DATABASE = "outside"
_DIRECTORIES = 100
_TEXT = "org.apache.hadoop"
#: A listing that only names and measures files, by a program in C; ours also compares.
_AIM = 5.0


def run(setting: Setting) -> Iterator[Result]:
    """Measure the part ``external``."""
    files = 100_000 if setting.scale == "full" else 1000
    root = setting.directory / "files"
    with metastores(setting.directory, "source", "target") as (source, target):
        setting.say(f"Making {files:,} files")
        _make_files(root, files)
        policy = ReplicationPolicy(
            name=_DATABASE,
            source_database=_DATABASE,
            dump_root=f"file:{setting.directory}/dumps",
            external_base=f"file:{setting.directory}/replica",
            allowed_source_roots=["file:/"],
        )
        pools = (MetastorePool(client_settings(source), 2), MetastorePool(client_settings(target), 2))
        with pools[0] as pool, pools[1] as other:
            with pool.client() as client:
                _make_table(client, root)
                start = begin_drain(client, _DATABASE)
            dump = dump_bootstrap(pool, policy, start)
            load_into_target(pool, other, policy, dump.dump, run_copy=_link)
            ours, peers = [], []
            for number in range(setting.runs):
                peers.append(_listing_s(root))
                ours.append(_idle_cycle_s(pool, other, policy))
                setting.say(f"run {number + 1}: ours {ours[-1]:.2f} s, the listing {peers[-1]:.2f} s")
    yield beside_limit(
        "external",
        f"a cycle over {files:,} unchanged files of an external table in {_DIRECTORIES} directories",
        ours_s=median(ours),
        peer="find -printf of names, sizes and times",
        peer_s=median(peers),
        at_most=_AIM,
    )


def _make_files(root: Path, count: int) -> None:
    for number in range(_DIRECTORIES):
        directory = root / f"d{number:03}"
        directory.mkdir(parents=True)
        for file in range(count // _DIRECTORIES):
            (directory / f"part-{file:05}").write_bytes(b"1\n")


def _make_table(client: MetastoreClient, root: Path) -> None:
    client.create_database(types.Database(name=_DATABASE))
    storage = types.StorageDescriptor(
        cols=[types.FieldSchema(name="a", type="int")],
        location=f"file:{root}",
        inputFormat=f"{_TEXT}.mapred.TextInputFormat",
        outputFormat=f"{_TEXT}.hive.ql.io.HiveIgnoreKeyTextOutputFormat",
        numBuckets=-1,
        serdeInfo=types.SerDeInfo(
            serializationLib=f"{_TEXT}.hive.serde2.lazy.LazySimpleSerDe", parameters={}
        ),
        bucketCols=[],
        sortCols=[],
        parameters={},
    )
    client.create_table(
        types.Table(
            dbName=_DATABASE,
            tableName="files",
            sd=storage,
            partitionKeys=[],
            parameters={"EXTERNAL": "TRUE"},
            tableType="EXTERNAL_TABLE",
        )
    )


def _link(plan: str, outcomes: str) -> None:
    """A copy job of links: what is measured begins after it."""
    done = []
    for item in read_plan(plan):
        there = Path(local_path(item.target) or "")
        there.parent.mkdir(parents=True, exist_ok=True)
        os.link(local_path(item.source) or "", there)
        done.append(CopyOutcome(target=item.target, size_bytes=item.size_bytes, digest="0", copied=True))
    write_records(f"{outcomes}/run.jsonl", done)


def _listing_s(root: Path) -> float:
    began = time.perf_counter()
    command = ["find", str(root), "-type", "f", "-printf", "%p %s %T@\n"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


def _idle_cycle_s(source: MetastorePool, target: MetastorePool, policy: ReplicationPolicy) -> float:
    began = time.perf_counter()
    dumped = dump_next_increment(source, target, policy)
    if not dumped.idle:
        raise AssertionError(f"Something has changed: {dumped}")
    load_idle(target, policy, dumped.event_id)
    return time.perf_counter() - began
