"""A source that is lost for good: the target is let go with whole transactions only, and may be written."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from pyarrow import orc

from airflow_hive_federation.acid.rewrite import rewrite_file
from airflow_hive_federation.cli.main import main
from airflow_hive_federation.cli.replicate import policy_text
from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.embedded.sql import HiveSql, HiveSqlError
from airflow_hive_federation.errors import FailoverError, TargetNotOursError
from airflow_hive_federation.ingest import HiveStreamingConnection, StrictDelimitedInputWriter
from airflow_hive_federation.metastore import MetastoreSettings
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.replication.format.directory import DumpDirectory
from airflow_hive_federation.replication.format.unfinished import MADE_ROOM
from airflow_hive_federation.replication.load.load import load_into_target
from airflow_hive_federation.replication.take_over import take_over
from airflow_hive_federation.storage.copying import CopySettings, copy_file
from airflow_hive_federation.storage.filesystem import local_path
from airflow_hive_federation.storage.plan_files import read_plan, write_records
from tests.support.incrementing import Cycles, cycles, run_copy
from tests.support.kills import pool
from tests.support.observing import at_steps

pytestmark = pytest.mark.slow

ACID = "STORED AS ORC TBLPROPERTIES ('transactional'='true')"
#: How far the last load had got.
#: In the last two, this was the last load but one: it had copied all, and the last one had not.
SCENES = ("none", "copying", "replaying", "early", "twice")
WRITES = (
    "INSERT INTO lost_none.t VALUES (66)",
    "DELETE FROM lost_none.t",
    "TRUNCATE TABLE lost_none.t",
    "ALTER TABLE lost_none.t ADD COLUMNS (n int)",
    "CREATE TABLE lost_none.extra (id int)",
    "DROP TABLE lost_none.t",
)
NOWHERE = "thrift://127.0.0.1:1"


class KilledHereError(Exception):
    """The process was killed here."""


@pytest.fixture
def scenes(
    source: EmbeddedMetastore,
    target: EmbeddedMetastore,
    hive_sql_source: HiveSql,
    hive_sql_target: HiveSql,
    tmp_path: Path,
) -> Iterator[dict[str, Cycles]]:
    hive_sql_source.execute("CREATE DATABASE lost")
    sql = (hive_sql_source, hive_sql_target)
    with ExitStack() as stack:
        scenes = {
            scene: stack.enter_context(
                cycles(
                    source,
                    target,
                    sql,
                    tmp_path,
                    name=scene,
                    source_database="lost",
                    target_database=f"lost_{scene}",
                )
            )
            for scene in SCENES
        }
        yield scenes
        with scenes["none"].target.client() as client:
            for site in scenes.values():
                client.drop_database(site.policy.target_database, delete_data=True, cascade=True)


class Batch:
    """A streaming batch of four transactions into table s of the source; each commits one row, its number."""

    def __init__(self, source: EmbeddedMetastore) -> None:
        builder = HiveStreamingConnection.new_builder().with_database("lost").with_table("s")
        builder = builder.with_record_writer(StrictDelimitedInputWriter(field_delimiter=","))
        builder = builder.with_conf(MetastoreSettings(uris=(source.uri,)))
        self.connection = builder.with_transaction_batch_size(4).connect()

    def commit(self, number: int) -> None:
        self.connection.begin_transaction()
        self.connection.write(f"{number}")
        self.connection.commit_transaction()


def interrupt(site: Cycles, scene: str) -> DumpDirectory:
    """Load an increment up to the scene's step, and return its dump."""

    def copy_some(plan: str, outcomes: str) -> None:
        items, settings = list(read_plan(plan)), CopySettings(rewrite=rewrite_file)
        write_records(f"{outcomes}/run.jsonl", [copy_file(item, settings) for item in items[:-1]])
        raise KilledHereError

    ends = iter(range(3))

    def replay_some(step: str) -> None:
        if (scene == "early" and step == "open transactions") or (
            step.startswith("end ") and next(ends) == 2
        ):
            raise KilledHereError

    dump = site.dump().dump
    with pytest.raises(KilledHereError):
        load_into_target(
            site.source,
            site.target,
            site.policy,
            dump,
            run_copy=copy_some if scene == "copying" else run_copy,
            observer=at_steps(replay_some),
        )
    return DumpDirectory(dump)


def interrupt_again(scenes: dict[str, Cycles]) -> None:
    """Interrupt the next load of the last two scenes before it has copied all."""
    scenes["none"].write(
        "INSERT INTO lost.t VALUES (5)",
        "INSERT INTO lost.made VALUES (8)",
        # The target loses the former table before it has the files of this one.
        "DROP TABLE lost.u",
        f"CREATE TABLE lost.u (id int) {ACID}",
        "INSERT INTO lost.u VALUES (2)",
    )
    for scene in ("early", "twice"):
        # Killed before it wrote its copy plan, it would show by this that it may have dropped a table.
        assert interrupt(scenes[scene], "copying").exists(MADE_ROOM)
    # It may have copied a part of a delta in which a compaction had merged those of both loads.
    deltas = directory(scenes["early"], "t")
    (first,) = deltas.glob("delta_0000002_0000002*")
    shutil.copytree(first, deltas / "delta_0000002_0000005")


def directory(site: Cycles, table: str) -> Path:
    """Return the directory of a table of the target."""
    with site.target.client() as client:
        location = client.get_table(site.policy.target_database, table).sd.location
    return Path(local_path(location) or "")


def streamed_write_ids(site: Cycles) -> list[int]:
    """Return the write ids of the rows in the file of the streaming batch."""
    (batch,) = directory(site, "s").glob("delta_0000001_0000004/bucket_00000")
    column = orc.read_table(str(batch), columns=["currentTransaction"])["currentTransaction"]
    return [int(number) for number in column.to_pylist()]


def assert_let_go(cycle: Cycles) -> None:
    with cycle.target.client() as client:
        described = client.get_database(cycle.policy.target_database)
        assert "readonly" not in (described.parameters or {})
        left = client.call("get_open_txns_info").open_txns or ()  # type: ignore[attr-defined]
    assert not [
        transaction
        for transaction in left
        if transaction.state == types.TxnState.OPEN
        and transaction.hostname.endswith(f"replication {cycle.policy.target_database}")
    ]
    with pytest.raises(TargetNotOursError):
        cycle.cycle()


@pytest.fixture
def guarded(hive_sql_target: HiveSql) -> Iterator[HiveSql]:
    """Hive on the target as it is to be configured: it refuses to write to databases that are read-only."""
    hook = "org.apache.hadoop.hive.ql.hooks.EnforceReadOnlyDatabaseHook"
    hive_sql_target.set("hive.exec.pre.hooks", hook)
    yield hive_sql_target
    hive_sql_target.set("hive.exec.pre.hooks", "")


def test_a_lost_source(
    scenes: dict[str, Cycles],
    source: EmbeddedMetastore,
    target: EmbeddedMetastore,
    guarded: HiveSql,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    site = scenes["none"]
    site.write(
        f"CREATE TABLE lost.s (id int) {ACID}",
        f"CREATE TABLE lost.t (id int) {ACID}",
        f"CREATE TABLE lost.u (id int) {ACID}",
        "INSERT INTO lost.u VALUES (1)",
        "INSERT INTO lost.t VALUES (1)",
    )
    for scene in SCENES[1:]:
        scenes[scene].bootstrap()
    batches = []

    def stream() -> None:
        batches.append(Batch(source))
        for number in (1, 2):
            batches[0].commit(number)

    # This cut lies within the batch; those of the other scenes have all of its write ids.
    site.bootstrap(before_dump=stream)
    for scene in SCENES[1:]:
        scenes[scene].cycle()
    batches[0].commit(3)
    site.write(
        f"CREATE TABLE lost.made (id int) {ACID}",
        "INSERT INTO lost.made VALUES (7)",
        *(f"INSERT INTO lost.t VALUES ({number})" for number in (2, 3, 4)),
    )
    for scene in SCENES[1:]:
        interrupt(scenes[scene], "replaying" if scene == "twice" else scene)
    batches[0].commit(4)
    interrupt_again(scenes)
    batches[0].connection.close()
    for statement in WRITES:
        with pytest.raises(HiveSqlError, match=r"(?i)read.?only"):
            guarded.execute(statement)
    assert guarded.execute("SELECT id FROM lost_none.t") == [("1",)]
    with pytest.raises(FailoverError, match="answers, and has database lost"):
        take_over(site.source, site.target, site.policy)
    with pytest.raises(FailoverError, match="answers, but has no database mislaid"):
        take_over(site.source, site.target, replace(site.policy, source_database="mislaid"))

    rows, streamed, removed, missing = {}, {}, {}, {}
    for scene, cycle in scenes.items():
        if scene == "copying":
            file = tmp_path / "policy.toml"
            file.write_text(policy_text(cycle.policy, NOWHERE, target.uri), encoding="utf-8")
            assert main(["replicate", "failover", str(file), "--source-lost", "--json"]) == 0
            result = json.loads(capsys.readouterr().out)
            removed[scene], missing[scene] = result["removed"], tuple(result["missing"])
        else:
            with pool(NOWHERE) as nowhere:
                report = take_over(nowhere, cycle.target, cycle.policy)
            removed[scene], missing[scene] = report.removed, report.missing
        database = cycle.policy.target_database
        for table, read in (("s", streamed), ("t", rows)):
            guarded.execute(f"INSERT INTO {database}.{table} VALUES (9)")
            read[scene] = sorted(guarded.execute(f"SELECT id FROM {database}.{table}"))
        assert_let_go(cycle)
    copied = ("replaying", "early", "twice")
    assert {scene: "".join(row for (row,) in found) for scene, found in rows.items()} == {
        **dict.fromkeys(("none", "copying"), "19"),
        **dict.fromkeys(copied, "12349"),
    }
    assert {scene: "".join(row for (row,) in found) for scene, found in streamed.items()} == {
        **dict.fromkeys(("none", "copying"), "129"),
        **dict.fromkeys(copied, "1239"),
    }
    assert {scene for scene, files in removed.items() if not files} == {"none", "replaying"}
    assert {scene for scene, names in missing.items() if names} == {"early", "twice"}
    assert missing["early"] == missing["twice"] == ("u",)
    # The name of a table that was not made is free, its directory empty.
    guarded.execute(f"CREATE TABLE lost_copying.made (id int) {ACID}")
    assert guarded.execute("SELECT * FROM lost_copying.made") == []
    made = [guarded.execute(f"SELECT * FROM lost_{scene}.made") for scene in copied]
    assert made == [[("7",)]] * len(copied)
    assert not list(directory(scenes["copying"], "s").parent.rglob("_hive_federation"))
    # No row of a later transaction is left for the day on which the metastore forgets that it was aborted.
    left = {scene: streamed_write_ids(scenes[scene]) for scene in ("copying", "early", "twice")}
    assert left == {"copying": [1, 2], "early": [1, 2, 3], "twice": [1, 2, 3]}
