"""Exactly once: killed at any step, and started again from the committed position."""

from __future__ import annotations

import json
import os
import random
import signal

import pytest

from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.embedded.sql import HiveSql
from airflow_hive_federation.ingest.position import ensure_position
from airflow_hive_federation.metastore import MetastoreClient, MetastoreSettings
from tests.support.forked_workers import forking

DATABASE = "killed_ingest"
RECORDS = 120
SEEDS = int(os.environ.get("INGEST_KILL_SEEDS", "8"))
FIRST_SEED = int(os.environ.get("INGEST_KILL_FIRST_SEED", random.SystemRandom().randrange(1_000_000)))
_MOST_ATTEMPTS = 40


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["unpartitioned", "dynamic"])
def test_nothing_is_lost_or_doubled(source: EmbeddedMetastore, hive_sql_source: HiveSql, kind: str) -> None:
    sql = hive_sql_source
    sql.execute(f"CREATE DATABASE IF NOT EXISTS {DATABASE}")
    columns = "seed int, id int" + (
        ", third int)" if kind == "unpartitioned" else ") PARTITIONED BY (third int)"
    )
    sql.execute(
        f"CREATE TABLE {DATABASE}.{kind} ({columns} CLUSTERED BY (id) INTO 2 BUCKETS STORED AS ORC "
        "TBLPROPERTIES ('transactional'='true', 'NO_AUTO_COMPACTION'='true')"
    )
    print(f"seeds {FIRST_SEED} to {FIRST_SEED + SEEDS - 1}")
    keys = {seed: f"_meta.seed.{seed}" for seed in range(FIRST_SEED, FIRST_SEED + SEEDS)}
    with MetastoreClient(MetastoreSettings(uris=(source.uri,))) as client:
        for key in keys.values():
            # Beforehand: what was killed holds its locks until hive.txn.timeout.
            ensure_position(client, DATABASE, kind, key)
    kills = 0
    with forking("tests.support.killed_ingest") as process:
        for seed, key in keys.items():
            chance = random.Random(seed)
            for attempt in range(_MOST_ATTEMPTS):
                run = {
                    "seed": seed,
                    "attempt": attempt,
                    "kill_at": chance.randint(1, 45) if attempt + 1 < _MOST_ATTEMPTS else 0,
                    "records": RECORDS,
                    "key": key,
                    "database": DATABASE,
                    "table": kind,
                    "uri": source.uri,
                }
                code = process([json.dumps(run)])
                assert code in {0, -signal.SIGKILL}, f"seed {seed}, {run}: {code}"
                if code == 0:
                    break
                kills += 1
    rows = sql.execute(
        f"SELECT seed, count(*), count(DISTINCT id), min(id), max(id) FROM {DATABASE}.{kind} GROUP BY seed"
    )
    expected = {(str(seed), str(RECORDS), str(RECORDS), "0", str(RECORDS - 1)) for seed in keys}
    assert {tuple(row) for row in rows} == expected
    assert kills >= SEEDS
