"""Failover and failback between two real metastores, with Hive writing on each side in turn."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_hive_federation.cli.main import main
from airflow_hive_federation.cli.replicate import policy_text, read_policy_file
from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.embedded.sql import HiveSql
from airflow_hive_federation.errors import CycleRunningError, FailoverError, TargetNotOursError
from airflow_hive_federation.progress.observers import Observer, unobserved
from airflow_hive_federation.published.directory import (
    CYCLES,
    POSITION,
    REPLICATION,
    VERIFIED,
    StateDirectory,
)
from airflow_hive_federation.replication.cycle import is_published
from airflow_hive_federation.replication.failover import (
    FailoverReport,
    reverse_policy,
    roll_back_failover,
    start_failover,
    switch_roles,
)
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.replication.replica import cycle_lock, markers
from airflow_hive_federation.storage.plan_files import read_plan
from tests.support.cycling import Scheduled, rows, scheduled
from tests.support.forked_workers import Run, forking
from tests.support.incrementing import run_copy
from tests.support.kills import KILLED, exiting_at, pool
from tests.support.observing import at_steps
from tests.support.small_source import commit_files, connected, make_small_source

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

ACID = "STORED AS ORC TBLPROPERTIES ('transactional'='true')"
TABLES = ("t", "p", "compacted", "x", "v")


class Sites:
    """Two sites, of which one replicates the other; ``site`` is the present direction."""

    def __init__(self, site: Scheduled, first_sql: HiveSql, second_sql: HiveSql) -> None:
        self.site = site
        self.sql = {site.policy.source_database: first_sql, site.policy.target_database: second_sql}
        self.copied: list[str] = []

    def write(self, *statements: str) -> None:
        database = self.site.policy.source_database
        for statement in statements:
            self.sql[database].execute(statement.format(db=database))

    def cycle(self) -> list[str]:
        """A cycle; return what was copied."""
        copied: list[str] = []

        def copy(plan: str, outcomes: str) -> None:
            copied.extend(item.target for item in read_plan(plan))
            run_copy(plan, outcomes)

        self.site._copy = copy  # type: ignore[method-assign]
        self.site.cycle()
        return copied

    def fail_over(self) -> FailoverReport:
        site = self.site
        start_failover(site.source, site.target, site.policy)
        self.cycle()
        site.verify().raise_if_different()
        report = switch_roles(site.source, site.target, site.policy)
        self.site = Scheduled(site.target, site.source, report.policy, site.spark)
        return report

    def assert_equal(self) -> None:
        policy = self.site.policy
        for table in TABLES:
            columns = "*" if table in {"x", "v"} else "ROW__ID, *"
            answers = [
                rows(self.sql[database], f"SELECT {columns} FROM {database}.{table}")
                for database in (policy.source_database, policy.target_database)
            ]
            assert answers[0] == answers[1], table
        with self.site.source.client() as source, self.site.target.client() as other:
            marks = [
                dict(client.get_database(name).parameters or {})
                for client, name in ((source, policy.source_database), (other, policy.target_database))
            ]
        assert markers.TARGET_FOR not in marks[0]
        assert marks[1][markers.TARGET_FOR] == marks[1][markers.READ_ONLY] == "true"


@pytest.fixture
def sites(
    source: EmbeddedMetastore,
    target: EmbeddedMetastore,
    hive_sql_source: HiveSql,
    hive_sql_target: HiveSql,
    spark: SparkSession,
    tmp_path: Path,
) -> Iterator[Sites]:
    files = source.external_warehouse / "fo_files"
    files.mkdir(parents=True)
    (files / "a").write_text("1\n", encoding="utf-8")
    with scheduled(source, target, spark, tmp_path, "fo") as site:
        sites = Sites(site, hive_sql_source, hive_sql_target)
        sites.write(
            "CREATE DATABASE {db}",
            f"CREATE TABLE {{db}}.t (id int, s string) {ACID}",
            f"CREATE TABLE {{db}}.p (id int) PARTITIONED BY (d string) {ACID}",
            f"CREATE TABLE {{db}}.compacted (id int) {ACID}",
            f"CREATE EXTERNAL TABLE {{db}}.x (s string) STORED AS TEXTFILE LOCATION 'file:{files}'",
            "CREATE VIEW {db}.v AS SELECT id FROM {db}.t",
            "INSERT INTO {db}.t VALUES (1, 'a'), (2, 'b')",
            "INSERT INTO {db}.p PARTITION (d) VALUES (1, 'x'), (2, 'y')",
            "INSERT INTO {db}.compacted VALUES (1)",
            "INSERT INTO {db}.compacted VALUES (2)",
        )
        yield sites
    for place in (files, *target.external_warehouse.glob("fo_base*")):
        shutil.rmtree(place)
    for metastore, database in ((source, "fo"), (target, "fo_copy")):
        with connected(metastore) as client:
            client.drop_database(database, delete_data=True, cascade=True, if_exists=True)


def test_there_and_back_without_a_second_bootstrap(
    sites: Sites,
    source: EmbeddedMetastore,
    target: EmbeddedMetastore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert len(sites.cycle()) == 6
    site = sites.site
    with pytest.raises(FailoverError, match="not started"):
        switch_roles(site.source, site.target, site.policy)

    start_failover(site.source, site.target, site.policy)
    sites.cycle()
    sites.write("INSERT INTO {db}.t VALUES (3, 'late')")
    with pytest.raises(FailoverError, match="changed since the last increment"):
        switch_roles(site.source, site.target, site.policy)
    roll_back_failover(site.source, site.target, site.policy)
    with site.source.client() as client:
        assert markers.FAILOVER not in (client.get_database("fo").parameters or {})

    there = sites.fail_over()
    assert "fo_copy of the former target may be written" in there.summary
    with pytest.raises(TargetNotOursError):  # nobody goes on the old way
        site.cycle()
    assert sites.site.policy.name == "fo.reversed"
    sites.assert_equal()
    assert sites.cycle() == []

    sites.write(
        "INSERT INTO {db}.t VALUES (4, 'new site')",
        "UPDATE {db}.t SET s = 'changed' WHERE id = 1",
        "INSERT INTO {db}.p PARTITION (d) VALUES (3, 'z')",
        "INSERT INTO {db}.compacted VALUES (3)",
    )
    copied = sites.cycle()
    assert len(copied) == 5, copied  # an insert, a delete, and three inserts: nothing that was there before
    sites.assert_equal()
    sites.site.verify().raise_if_different()

    # Back again from a terminal.
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", '{"conn_type": "spark", "host": "local[*]"}')
    files = [tmp_path / "there.toml", tmp_path / "back.toml"]
    files[0].write_text(policy_text(sites.site.policy, target.uri, source.uri), encoding="utf-8")
    assert main(["replicate", "failover", str(files[0]), "--back", str(files[1]), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["converged"] is True
    monkeypatch.setenv("AIRFLOW__HIVE_FEDERATION__STATE_URI", str(tmp_path / "state"))
    assert main(["replicate", "repair", str(files[1]), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["repaired"] == []
    assert main(["replicate", "status", str(files[1]), "--json"]) == 0
    status = json.loads(capsys.readouterr().out)
    place = StateDirectory(str(tmp_path / "state"))
    (key,) = place.keys(REPLICATION)
    position, cycles = place.read(REPLICATION, key, POSITION), place.read(REPLICATION, key, CYCLES)
    verified = place.read(REPLICATION, key, VERIFIED)
    assert position is not None
    assert cycles is not None
    assert verified is not None
    assert (position.event_id, position.by.command) == (status["event_id"], "replicate status")
    assert [cycle.event_id for cycle in cycles.cycles] == [cycle["event_id"] for cycle in status["cycles"]]
    assert {table.name for table in verified.tables} >= {"t", "p", "compacted"}
    assert all(table.equal for table in verified.tables)
    back = read_policy_file(files[1])
    assert (back.source, back.target) == (source.uri, target.uri)
    assert back.policy == site.policy
    sites.site = Scheduled(site.source, site.target, back.policy, site.spark)
    sites.write("INSERT INTO {db}.t VALUES (5, 'home again')", "DELETE FROM {db}.p WHERE id = 1")
    assert len(sites.cycle()) == 2
    sites.assert_equal()
    sites.site.verify().raise_if_different()


# -- killed ------------------------------------------------------------------------------------------------


def worker(argv: list[str]) -> None:
    """The process that is killed: ``SOURCE TARGET POLICY STEP``."""
    source_uri, target_uri, policy, step = argv
    switch(source_uri, target_uri, ReplicationPolicy(**json.loads(policy)), at_steps(exiting_at(int(step))))


def switch(
    source_uri: str,
    target_uri: str,
    policy: ReplicationPolicy,
    observer: Observer = unobserved,
) -> FailoverReport:
    with pool(source_uri) as source, pool(target_uri) as target:
        return switch_roles(source, target, policy, observer=observer)


@pytest.fixture
def run() -> Iterator[Run]:
    with forking(__name__) as started:
        yield started


def test_a_switch_killed_at_each_of_its_steps_goes_on(
    source: EmbeddedMetastore,
    target: EmbeddedMetastore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    run: Run,
) -> None:
    monkeypatch.setattr(cycle_lock, "_BEAT_S", 0.1)  # the dead one's lock is taken over sooner
    make_small_source(source, "fo_killed")
    policy = ReplicationPolicy(
        name="fo_killed",
        source_database="fo_killed",
        dump_root=f"file:{tmp_path}",
        external_base=f"file:{target.external_warehouse}/fo_killed",
    )
    steps: list[str] = []
    ends = [source, target]
    with pool(source.uri) as source_pool, pool(target.uri) as target_pool:
        unchecked = Unchecked(source_pool, target_pool, policy, None)  # type: ignore[arg-type]
        unchecked.cycle()
    step = 0
    while True:
        with pool(ends[0].uri) as source_pool, pool(ends[1].uri) as target_pool, connected(ends[0]) as client:
            commit_files(client, policy.source_database, "acid")
            start_failover(source_pool, target_pool, policy)
            Unchecked(source_pool, target_pool, policy, None).cycle()  # type: ignore[arg-type]
            back = reverse_policy(source_pool, policy)
        arguments = [ends[0].uri, ends[1].uri, json.dumps(policy.to_json()), str(step)]
        ended = run(arguments)
        assert ended in {0, KILLED}
        # Two replicas until the last but one: never two sides that may be written.
        assert writable(ends, policy) == ([] if step < 4 else [ends[1]])
        meanwhile = at_steps(partial(rolled_back_meanwhile, ends, policy, steps))
        report = switch(ends[0].uri, ends[1].uri, policy, meanwhile)
        assert report.policy == back
        assert writable(ends, policy) == [ends[1]]
        if ended == 0:
            break
        # Onwards, the other way.
        ends, policy, step = ends[::-1], report.policy, step + 1
    assert step == 5
    assert set(steps) == {
        "check",
        "baseline",
        "source becomes target",
        "target becomes source",
        "end failover",
    }


def rolled_back_meanwhile(
    ends: list[EmbeddedMetastore], policy: ReplicationPolicy, steps: list[str], step: str
) -> None:
    """Try to roll the failover back in the middle of its first switch."""
    steps.append(step)
    if steps.count("source becomes target") == 1 and step == "source becomes target":
        with (
            pool(ends[0].uri) as source_pool,
            pool(ends[1].uri) as target_pool,
            pytest.raises(CycleRunningError),
        ):
            roll_back_failover(source_pool, target_pool, policy)
        assert writable(ends, policy) == []


class Unchecked(Scheduled):
    """Cycles of files that nobody can open: not verified."""

    def cycle(self) -> Any:
        with self.target.client() as client:
            published = is_published(client, self.policy)
        return self._increment() if published else self._bootstrap()


def writable(ends: list[EmbeddedMetastore], policy: ReplicationPolicy) -> list[EmbeddedMetastore]:
    sides = []
    for end, database in zip(ends, (policy.source_database, policy.target_database), strict=True):
        with connected(end) as client:
            if markers.READ_ONLY not in (client.get_database(database).parameters or {}):
                sides.append(end)
    return sides
