"""A transactional remote while its owner changes and compacts it: each answer is one moment of the owner.

Every statement of Hive changes the row ``number = 0`` as well, to the statement's own number. So whoever
reads it knows which statement was the last, and what all rows must be by then.

``HIVE_FEDERATION_SOAK_TXNS`` sets their number, ``HIVE_FEDERATION_SOAK_SEED`` the seed.
"""

from __future__ import annotations

import os
import random
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from airflow_hive_federation.compaction.plan import CompactionKind
from airflow_hive_federation.compaction.requests import compact_table
from airflow_hive_federation.compaction.runners import in_threads
from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.embedded.sql import HiveSql
from airflow_hive_federation.metastore import MetastoreSettings
from airflow_hive_federation.remotes.read import reading_remote_tables
from airflow_hive_federation.remotes.session import Remotes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FAR, NEAR = "remote_soak_far", "remote_soak_near"
STATEMENTS = int(os.environ.get("HIVE_FEDERATION_SOAK_TXNS", "8"))
SEED = int(os.environ.get("HIVE_FEDERATION_SOAK_SEED", "0")) or random.SystemRandom().randrange(1, 10**6)
MARK = 0
Rows = dict[int, int]


@dataclass
class History:
    """The rows of the table after each statement, and the statements."""

    states: list[Rows] = field(default_factory=lambda: [{MARK: 0, **dict.fromkeys(range(1, 40), 0)}])
    counts: Counter[str] = field(default_factory=Counter)

    def change(self, chance: random.Random) -> str:
        """Decide on the next statement and note what it leaves; return it."""
        now = dict(self.states[-1])
        number = len(self.states)
        chosen = chance.sample(sorted(now.keys() - {MARK}), 5)
        kind = chance.choice(["update", "merge"])
        if kind == "update":
            now.update(dict.fromkeys([MARK, *chosen], number))
            sql = f"UPDATE {FAR}.t SET value = {number} WHERE number IN ({MARK}, {_listed(chosen)})"
        else:
            gone, *changed = chosen
            del now[gone]
            new = 1000 + number
            now.update(dict.fromkeys([MARK, *changed, new], number))
            wanted = ", ".join(f"struct({column}, {column == gone})" for column in (MARK, *chosen, new))
            sql = (
                f"MERGE INTO {FAR}.t USING (SELECT inline(array({wanted})) AS (number, gone)) s "
                "ON t.number = s.number WHEN MATCHED AND s.gone THEN DELETE "
                f"WHEN MATCHED THEN UPDATE SET value = {number} "
                f"WHEN NOT MATCHED THEN INSERT VALUES (s.number, {number})"
            )
        self.states.append(now)
        self.counts[kind] += 1
        return sql


def _listed(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers))


@pytest.mark.slow
@pytest.mark.timeout(1200 + 10 * STATEMENTS)
def test_each_answer_is_one_moment_of_the_owner(
    source: EmbeddedMetastore, target: EmbeddedMetastore, hive_sql_source: HiveSql, spark: SparkSession
) -> None:
    print(f"HIVE_FEDERATION_SOAK_SEED={SEED} HIVE_FEDERATION_SOAK_TXNS={STATEMENTS}")
    history, ended = History(), threading.Event()
    first = ", ".join(f"({number}, {value})" for number, value in history.states[0].items())
    for statement in (
        f"CREATE DATABASE {FAR}",
        f"""CREATE TABLE {FAR}.t (number INT, value INT) CLUSTERED BY (number) INTO 2 BUCKETS STORED AS ORC
            TBLPROPERTIES ('transactional'='true', 'no_auto_compaction'='true')""",
        f"INSERT INTO {FAR}.t VALUES {first}",
    ):
        hive_sql_source.execute(statement)
    with Remotes(MetastoreSettings(uris=(target.uri,))) as remotes, ThreadPoolExecutor(3) as threads:
        remotes.run(
            f"CREATE REMOTE DATABASE {NEAR} CONNECTED TO {FAR} 'hive.metastore.uris' = '{source.uri}'"
        )

        def write() -> None:
            chance, counts = random.Random(SEED), history.counts
            # On a busy machine, the reader or the compaction may have come late.
            while len(history.states) <= STATEMENTS or not (counts["read"] > 1 and counts["compacted"]):
                if ended.is_set():
                    return
                hive_sql_source.execute(history.change(chance))

        def read() -> None:
            with reading_remote_tables(spark, remotes, [f"{NEAR}.t"]) as tables:
                rows = rows_of(tables[f"{NEAR}.t"])
                assert rows == history.states[rows[MARK]]
                # The same moment, however much later it is read.
                assert rows_of(tables[f"{NEAR}.t"]) == rows
            history.counts["read"] += 1

        working: list[Future[None]] = [
            threads.submit(write),
            threads.submit(repeat, ended, read),
            threads.submit(repeat, ended, compaction(MetastoreSettings(uris=(source.uri,)), history)),
        ]
        try:
            wait(working, return_when=FIRST_COMPLETED)
        finally:
            ended.set()
        for future in working:
            future.result()
        read()
        remotes.run(f"DROP REMOTE DATABASE {NEAR}")
    print(dict(history.counts))
    assert history.counts["read"] > 2
    assert history.counts["compacted"], history.counts
    hive_sql_source.execute(f"DROP DATABASE {FAR} CASCADE")


def rows_of(frame: DataFrame) -> Rows:
    collected = frame.collect()
    rows = {row.number: row.value for row in collected}
    assert len(rows) == len(collected)
    return rows


def repeat(ended: threading.Event, step: Callable[[], None]) -> None:
    while not ended.is_set():
        step()


def compaction(settings: MetastoreSettings, history: History) -> Callable[[], None]:
    kinds = [CompactionKind.MINOR, CompactionKind.MAJOR]

    def compact() -> None:
        kind = kinds[history.counts["compacted"] % len(kinds)]
        for report in compact_table(settings, f"{FAR}.t", kind, in_threads(1)):
            assert report.state in {"compacted", "cleaning", "refused"}, report
            history.counts[report.state] += 1
        threading.Event().wait(0.3)

    return compact
