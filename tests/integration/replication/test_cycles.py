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
INSERT_ONLY = "TBLPROPERTIES ('transactional'='true', 'transactional_properties'='insert_only')"
SETUP = f"""
CREATE DATABASE cyc;
CREATE TABLE cyc.t (id int, s string) {ACID};
CREATE TABLE cyc.p (id int) PARTITIONED BY (d string) {ACID};
CREATE TABLE cyc.gone (id int) {ACID};
CREATE TABLE cyc.tmp_a (id int) {ACID};
CREATE TABLE cyc.o (id int) {INSERT_ONLY};
CREATE VIEW cyc.v AS SELECT id FROM cyc.t;
INSERT INTO cyc.t VALUES (1, 'a'), (2, 'b'), (3, 'c');
INSERT INTO cyc.p PARTITION (d) VALUES (1, 'x'), (2, 'y');
INSERT INTO cyc.tmp_a VALUES (1);
INSERT INTO cyc.o VALUES (1)"""
CHANGES = f"""
INSERT INTO cyc.t VALUES (4, 'd');
UPDATE cyc.t SET s = 'updated' WHERE id = 1;
DELETE FROM cyc.t WHERE id = 2;
INSERT INTO cyc.p PARTITION (d) VALUES (3, 'new');
CREATE TABLE cyc.made (id int) {ACID};
INSERT INTO cyc.made VALUES (7), (8);
INSERT OVERWRITE TABLE cyc.o SELECT id FROM cyc.o WHERE false;
DROP TABLE cyc.gone"""


@dataclass(frozen=True)
class Scene:
    """A source database, its policy, and Hive on both sides."""

    site: Scheduled
    source_sql: HiveSql
    target_sql: HiveSql
    files: Path

    def write(self, statements: str) -> None:
        for statement in statements.split(";"):
            self.source_sql.execute(statement)

    def assert_equal(self, *tables: str) -> None:
        for table in tables:
            columns = "*" if table in {"v", "x"} else "ROW__ID, *"
            replicated = rows(self.target_sql, f"SELECT {columns} FROM cyc_copy.{table}")
            assert replicated == rows(self.source_sql, f"SELECT {columns} FROM cyc.{table}"), table

    def parameters(self) -> dict[str, str]:
        with self.site.target.client() as client:
            return dict(client.get_database("cyc_copy").parameters or {})

    def tables(self) -> dict[str, Any]:
        with self.site.target.client() as client:
            tables = client.get_tables("cyc_copy", client.list_tables("cyc_copy"))
        return {str(table.tableName): table for table in tables}


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
    with scheduled(source, target, spark, tmp_path, "cyc") as site:
        scene = Scene(site, hive_sql_source, hive_sql_target, files)
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


def test_a_database_is_kept_in_step(scene: Scene, source: EmbeddedMetastore) -> None:
    site = scene.site
    planned = plan_cycle(site.source, site.target, site.policy)
    assert (planned.kind, len(planned.tables)) == ("bootstrap", 7)
    bootstrapped = site.cycle()
    assert (bootstrapped.tables, site.jobs) == (7, ["copy", "verify"])

    # Nothing to do: no Spark, and the target has its position.
    scene.source_sql.execute("CREATE DATABASE cyc_of_others")
    idle = site.cycle()
    assert (idle.idle, site.jobs) == (True, [])
    assert idle.event_id > bootstrapped.event_id
    assert scene.parameters()["repl.last.id"] == str(idle.event_id)
    status = read_status(site.source, site.target, site.policy)
    assert (status.lag.events, status.lag.seconds, status.tables) == (0, 0.0, [])

    scene.write(CHANGES)
    # A base may be an empty directory. Readers of Hive 3 heed it, those of Hive 4 do not see it: the replica
    # gets a base that both heed.
    (base,) = source.warehouse.glob("cyc.db/o/base_*")
    for file in base.iterdir():
        assert file.name.startswith(".") or file.stat().st_size == 0
        file.unlink()
    (scene.files / "b").write_text("2\n", encoding="utf-8")
    status = read_status(site.source, site.target, site.policy)
    assert status.lag.events > 0
    with site.source.client() as of_source, site.target.client() as of_target:
        lag = read_lag(of_source, of_target, site.policy)
    assert lag
    assert lag.events == status.lag.events
    assert {table.name for table in status.tables} == {"t", "p", "o", "made", "gone", "x"}
    assert all(table.size_bytes > 0 for table in status.tables if table.name != "gone")
    before = scene.parameters()
    planned = plan_cycle(site.source, site.target, site.policy)
    assert {table.name: table.action for table in planned.tables} == {
        "t": "continue",
        "p": "continue",
        "o": "continue",
        "made": "create",
        "x": "continue",
        "gone": "drop",
    }
    assert planned.transactions == 6
    assert next(table for table in planned.tables if table.name == "p").partitions_added == ["d=new"]
    assert planned.size_bytes == sum(table.size_bytes for table in planned.tables)
    assert scene.parameters() == before
    loaded = site.cycle()
    assert site.jobs == ["copy", "verify"]
    scene.assert_equal("t", "p", "made", "v", "x")
    assert rows(scene.target_sql, "SELECT * FROM cyc_copy.o") == []
    assert sorted(scene.tables()) == ["made", "o", "p", "t", "tmp_a", "v", "x"]
    report = site.verify()
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
    assert (cycles[-1].event_id, cycles[-1].transactions) == (loaded.event_id, 6)
    assert cycles[-1].size_bytes == planned.size_bytes

    assert site.cycle().idle
    assert site.jobs == []


def test_a_policy_that_changes_and_a_target_that_is_changed(scene: Scene) -> None:
    site = scene.site
    site.cycle()
    made = {name: table.id for name, table in scene.tables().items()}

    site.change(exclude_tables="TMP_.*")
    site.cycle()
    assert {name: table.id for name, table in scene.tables().items()} == {
        name: made[name] for name in made if name != "tmp_a"
    }
    site.change(exclude_tables="")
    site.cycle()
    assert sorted(scene.tables()) == sorted(made)
    assert scene.tables()["t"].id == made["t"]
    scene.assert_equal("tmp_a")

    base = f"{site.policy.external_base}_elsewhere"
    site.change(external_base=base)
    site.cycle()
    assert scene.tables()["x"].sd.location == f"{base}{scene.files}"
    scene.assert_equal("x")
    assert site.cycle().idle
    assert not site.verify().differences

    site.change(source_database="default")
    with pytest.raises(ConfigurationError, match="was made of cyc"):
        site.cycle()
    site.change(source_database="cyc")

    place = Path(local_path(scene.tables()["x"].sd.location) or "")
    (place / "a").write_text("9\n", encoding="utf-8")
    (place / "more").write_text("9\n", encoding="utf-8")
    differences = site.verify().differences
    assert {
        (difference.table, difference.what, Path(difference.where).name) for difference in differences
    } == {
        ("x", "file", "a"),
        ("x", "file", "more"),
        ("x", "rows", ""),
    }
    (place / "a").write_text("1\n", encoding="utf-8")
    with scene.site.target.client() as client:
        client.drop_partitions("cyc_copy", "p", ["d=x"], delete_data=False)
    with pytest.raises(
        VerificationError, match=r"p d=x: partition: expected present, found missing"
    ) as caught:
        site.verify().raise_if_different()
    assert len(caught.value.differences) == 3
