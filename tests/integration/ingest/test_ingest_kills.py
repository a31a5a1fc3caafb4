"""Exactly once: killed at any step, and started again from the committed position."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.embedded.sql import HiveSql
from airflow_hive_federation.ingest.position import ensure_position
from airflow_hive_federation.metastore import MetastoreClient, MetastoreSettings
from tests.support.killed_ingest import DONE, KILLED

DATABASE = "killed_ingest"
RECORDS = 120
SEEDS = int(os.environ.get("INGEST_KILL_SEEDS", "24"))
FIRST_SEED = int(os.environ.get("INGEST_KILL_FIRST_SEED", "0"))
_MOST_ATTEMPTS = 40


class Killer:
    """The process that is killed."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.killed_ingest"],
            cwd=Path(__file__).parents[3],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, run: dict[str, Any]) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(run) + "\n")
        self._process.stdin.flush()
        return self._process.stdout.readline().strip()

    def close(self) -> None:
        self._process.communicate()


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
    keys = {seed: f"_meta.seed.{seed}" for seed in range(FIRST_SEED, FIRST_SEED + SEEDS)}
    with MetastoreClient(MetastoreSettings(uris=(source.uri,))) as client:
        for key in keys.values():
            # Beforehand: what was killed holds its locks until hive.txn.timeout.
            ensure_position(client, DATABASE, kind, key)
    killer, kills = Killer(), 0
    try:
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
                outcome = killer.run(run)
                assert outcome in {DONE, KILLED}, f"seed {seed}, {run}: {outcome}"
                kills += outcome == KILLED
                if outcome == DONE:
                    break
    finally:
        killer.close()
    rows = sql.execute(
        f"SELECT seed, count(*), count(DISTINCT id), min(id), max(id) FROM {DATABASE}.{kind} GROUP BY seed"
    )
    expected = {(str(seed), str(RECORDS), str(RECORDS), "0", str(RECORDS - 1)) for seed in keys}
    assert {tuple(row) for row in rows} == expected
    assert kills >= SEEDS
