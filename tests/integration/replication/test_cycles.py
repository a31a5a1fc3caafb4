"""The cycles of a schedule: the first bootstraps, later ones keep the target in step; Hive is the judge."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.embedded.sql import HiveSql
from airflow_hive_federation.errors import ConfigurationError, VerificationError
from airflow_hive_federation.replication.cycle_plan import plan_cycle
from airflow_hive_federation.replication.replica.cycle_history import read_cycles
from airflow_hive_federation.replication.status import read_lag, read_status
from airflow_hive_federation.storage.filesystem import local_path
from tests.support.cycling import Scheduled, rows, scheduled
from tests.support.small_source import connected

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

ACID = "STORED AS ORC TBLPROPERTIES ('transactional'='true')"
SETUP = f"""
CREATE DATABASE cyc;
CREATE TABLE cyc.t (id int, s string) {ACID};
CREATE TABLE cyc.p (id int) PARTITIONED BY (d string) {ACID};
CREATE TABLE cyc.gone (id int) {ACID};
CREATE TABLE cyc.tmp_a (id int) {ACID};
CREATE VIEW cyc.v AS SELECT id FROM cyc.t;
INSERT INTO cyc.t VALUES (1, 'a'), (2, 'b'), (3, 'c');
INSERT INTO cyc.p PARTITION (d) VALUES (1, 'x'), (2, 'y');
INSERT INTO cyc.tmp_a VALUES (1)"""
CHANGES = f"""
INSERT INTO cyc.t VALUES (4, 'd');
UPDATE cyc.t SET s = 'updated' WHERE id = 1;
DELETE FROM cyc.t WHERE id = 2;
INSERT INTO cyc.p PARTITION (d) VALUES (3, 'new');
CREATE TABLE cyc.made (id int) {ACID};
INSERT INTO cyc.made VALUES (7), (8);
DROP TABLE cyc.gone"""


@dataclass(frozen=True)
class Scene:
    """A source database, its policy, and Hive on both sides."""

    one: Scheduled
    source_sql: HiveSql
    target_sql: HiveSql
    files: Path

    def write(self, statements: str) -> None:
        for statement in statements.split(";"):
            self.source_sql.execute(statement)

    def assert_equal(self, *tables: str) -> None:
        for table in tables:
            columns = "*" if table in {"v", "x"} else "ROW__ID, *"
            found = rows(self.target_sql, f"SELECT {columns} FROM cyc_copy.{table}")
            assert found == rows(self.source_sql, f"SELECT {columns} FROM cyc.{table}"), table

    def parameters(self) -> dict[str, str]:
        with self.one.target.client() as client:
            return dict(client.get_database("cyc_copy").parameters or {})

    def tables(self) -> dict[str, Any]:
        with self.one.target.client() as client:
            found = client.get_tables("cyc_copy", client.list_tables("cyc_copy"))
        return {str(table.tableName): table for table in found}


@pytest.fixture
def scene(
    source: EmbeddedMetastore,
    target: EmbeddedMetastore,
    hive_sql_source: HiveSql,
    hive_sql_target: HiveSql,
    spark: SparkSession,
    tmp_path: Path,
) -> Iterator[Scene]:
    files = source.external_warehouse / "cyc_files"
    files.mkdir(parents=True)
    (files / "a").write_text("1\n", encoding="utf-8")
    with scheduled(source, target, spark, tmp_path, "cyc") as one:
        scene = Scene(one, hive_sql_source, hive_sql_target, files)
        scene.write(SETUP)
        hive_sql_source.execute(
            f"CREATE EXTERNAL TABLE cyc.x (s string) STORED AS TEXTFILE LOCATION 'file:{files}'"
        )
        yield scene
    # Dropped external tables leave their files.
    for place in (files, *target.external_warehouse.glob("cyc_base*")):
        shutil.rmtree(place)
    for metastore in (source, target):
        with connected(metastore) as client:
            for database in ("cyc", "cyc_copy", "cyc_of_others"):
                client.drop_database(database, delete_data=True, cascade=True, if_exists=True)


def test_a_database_is_kept_in_step(scene: Scene) -> None:
    one = scene.one
    planned = plan_cycle(one.source, one.target, one.policy)
    assert (planned.kind, len(planned.tables)) == ("bootstrap", 6)
    bootstrapped = one.cycle()
    assert (bootstrapped.tables, one.jobs) == (6, ["copy", "verify"])

    # Nothing to do: no Spark, and the target says how far it has got.
    scene.source_sql.execute("CREATE DATABASE cyc_of_others")
    idle = one.cycle()
    assert (idle.idle, one.jobs) == (True, [])
    assert idle.event_id > bootstrapped.event_id
    assert scene.parameters()["repl.last.id"] == str(idle.event_id)
    status = read_status(one.source, one.target, one.policy)
    assert (status.lag.events, status.lag.seconds, status.tables) == (0, 0.0, [])

    scene.write(CHANGES)
    (scene.files / "b").write_text("2\n", encoding="utf-8")
    status = read_status(one.source, one.target, one.policy)
    assert status.lag.events > 0
    with one.source.client() as source, one.target.client() as target:
        lag = read_lag(source, target, one.policy)
    assert lag
    assert lag.events == status.lag.events
    assert {table.name for table in status.tables} == {"t", "p", "made", "gone", "x"}
    assert all(table.size_bytes > 0 for table in status.tables if table.name != "gone")
    before = scene.parameters()
    planned = plan_cycle(one.source, one.target, one.policy)
    assert {table.name: table.action for table in planned.tables} == {
        "t": "continue",
        "p": "continue",
        "made": "create",
        "x": "continue",
        "gone": "drop",
    }
    assert planned.transactions == 5
    assert next(table for table in planned.tables if table.name == "p").partitions_added == ["d=new"]
    assert planned.size_bytes == sum(table.size_bytes for table in planned.tables)
    assert scene.parameters() == before
    loaded = one.cycle()
    assert one.jobs == ["copy", "verify"]
    scene.assert_equal("t", "p", "made", "v", "x")
    assert sorted(scene.tables()) == ["made", "p", "t", "tmp_a", "v", "x"]
    report = one.verify()
    assert not report.differences
    assert {table.name: table.target_rows for table in report.tables if table.kind == "full_acid"} == {
        "t": 3,
        "p": 3,
        "made": 2,
        "tmp_a": 1,
    }
    assert all(table.digest_equal and not table.note for table in report.tables)
    cycles = read_cycles(scene.parameters())
    assert [cycle.kind for cycle in cycles] == ["bootstrap", "idle", "increment"]
    assert (cycles[-1].event_id, cycles[-1].transactions) == (loaded.event_id, 5)
    assert cycles[-1].size_bytes == planned.size_bytes

    assert one.cycle().idle
    assert one.jobs == []


def test_a_policy_that_changes_and_a_target_that_is_changed(scene: Scene) -> None:
    one = scene.one
    one.cycle()
    made = {name: table.id for name, table in scene.tables().items()}

    one.change(exclude_tables="TMP_.*")
    one.cycle()
    assert {name: table.id for name, table in scene.tables().items()} == {
        name: made[name] for name in made if name != "tmp_a"
    }
    one.change(exclude_tables="")
    one.cycle()
    assert sorted(scene.tables()) == sorted(made)
    assert scene.tables()["t"].id == made["t"]
    scene.assert_equal("tmp_a")

    base = f"{one.policy.external_base}_elsewhere"
    one.change(external_base=base)
    one.cycle()
    assert scene.tables()["x"].sd.location == f"{base}{scene.files}"
    scene.assert_equal("x")
    assert one.cycle().idle
    assert not one.verify().differences

    one.change(source_database="default")
    with pytest.raises(ConfigurationError, match="was made of cyc"):
        one.cycle()
    one.change(source_database="cyc")

    place = Path(local_path(scene.tables()["x"].sd.location) or "")
    (place / "a").write_text("9\n", encoding="utf-8")
    (place / "more").write_text("9\n", encoding="utf-8")
    found = one.verify().differences
    assert {(one.table, one.what, Path(one.where).name) for one in found} == {
        ("x", "file", "a"),
        ("x", "file", "more"),
        ("x", "rows", ""),
    }
    (place / "a").write_text("1\n", encoding="utf-8")
    with scene.one.target.client() as client:
        client.drop_partitions("cyc_copy", "p", ["d=x"], delete_data=False)
    with pytest.raises(
        VerificationError, match=r"p d=x: partition: expected present, found missing"
    ) as caught:
        one.verify().raise_if_different()
    assert len(caught.value.differences) == 3
