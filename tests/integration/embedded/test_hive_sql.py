"""Hive's own SQL engine on an embedded metastore: that it can be the judge of everything else."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from airflow_hive_federation.embedded.class_archives import make_archives
from airflow_hive_federation.embedded.jars import sql_jars
from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.embedded.sql import HiveSql, HiveSqlError
from airflow_hive_federation.errors import EmbeddedError
from airflow_hive_federation.metastore import MetastoreClient, MetastoreSettings
from airflow_hive_federation.model.files import hidden_name
from airflow_hive_federation.runtime.java import find_java

ACID = "STORED AS ORC TBLPROPERTIES ('transactional'='true')"
DATABASE = "judge"


@pytest.fixture(scope="module")
def sql(hive_sql_source: HiveSql) -> Iterator[HiveSql]:
    hive_sql_source.execute(f"CREATE DATABASE {DATABASE}")
    yield hive_sql_source
    hive_sql_source.execute(f"ALTER DATABASE {DATABASE} SET DBPROPERTIES ('repl.source.for'='')")
    hive_sql_source.execute(f"DROP DATABASE {DATABASE} CASCADE")


def test_servers_take_their_classes_from_the_archives_and_a_killed_engine_comes_back(
    request: pytest.FixtureRequest,
) -> None:
    """A JVM that cannot use an archive only starts more slowly, and nothing else would show it."""
    archives = make_archives()
    assert make_archives() == archives
    metastore: EmbeddedMetastore = request.getfixturevalue("hive_metastore")
    with HiveSql(metastore) as engine:
        assert engine.execute("SELECT 1") == [("1",)]
        assert engine.pid is not None
        for archive, pid in zip(archives, (metastore.pid, engine.pid), strict=True):
            assert str(archive) in Path(f"/proc/{pid}/maps").read_text("utf-8")
        os.kill(engine.pid, signal.SIGKILL)
        with pytest.raises(EmbeddedError, match="ended during"):
            engine.execute("SELECT 2")
        assert engine.execute("SELECT 3") == [("3",)]
    assert engine.pid is None


@pytest.mark.parametrize(
    ("database", "directory", "rows"), [("seen", "x", 1), ("dotted", ".a/x", 0), ("underscored", "_a/x", 0)]
)
def test_hive_hides_acid_tables_by_any_name_of_their_path(
    sql: HiveSql, tmp_path: Path, database: str, directory: str, rows: int
) -> None:
    """Warehouses are refused by their whole path for this reason."""
    sql.execute(f"CREATE DATABASE {database} MANAGEDLOCATION 'file:{tmp_path}/{directory}'")
    sql.execute(f"CREATE TABLE {database}.t (a INT) {ACID}")
    sql.execute(f"INSERT INTO {database}.t VALUES (1)")
    assert len(sql.execute(f"SELECT * FROM {database}.t")) == rows
    assert (hidden_name(f"{tmp_path}/{directory}") is None) is bool(rows)
    sql.execute(f"DROP DATABASE {database} CASCADE")


def test_every_kind_of_write_is_read_back_in_both_reader_modes(sql: HiveSql) -> None:
    sql.execute(
        f"CREATE TABLE {DATABASE}.t (a INT, b STRING) PARTITIONED BY (d STRING)"
        f" CLUSTERED BY (a) INTO 2 BUCKETS {ACID}"
    )
    sql.execute(f"INSERT INTO {DATABASE}.t VALUES (1, 'one', 'p'), (2, 'two', 'p'), (3, 'three', 'q')")
    sql.execute(f"UPDATE {DATABASE}.t SET b = 'TWO' WHERE a = 2")
    sql.execute(f"DELETE FROM {DATABASE}.t WHERE a = 1")
    sql.execute(
        f"MERGE INTO {DATABASE}.t t USING (SELECT 3 a, 'drei' b UNION ALL SELECT 9, 'neun') s ON t.a = s.a"
        " WHEN MATCHED THEN UPDATE SET b = s.b WHEN NOT MATCHED THEN INSERT VALUES (s.a, s.b, 'q')"
    )
    query = f"SELECT *, ROW__ID FROM {DATABASE}.t ORDER BY a"
    rows = sql.execute(query)
    assert [row[:3] for row in rows] == [("2", "TWO", "p"), ("3", "drei", "q"), ("9", "neun", "q")]
    assert [json.loads(str(row[3]))["writeid"] for row in rows] == [2, 4, 4]
    sql.set("hive.vectorized.execution.enabled", "false")
    try:
        assert sql.execute(query) == rows
    finally:
        sql.set("hive.vectorized.execution.enabled", "true")
    sql.execute(f"INSERT OVERWRITE TABLE {DATABASE}.t PARTITION (d='p') SELECT 7, 'seven'")
    assert sql.execute(f"SELECT * FROM {DATABASE}.t WHERE d = 'p'") == [("7", "seven", "p")]
    assert sql.execute(f"SHOW PARTITIONS {DATABASE}.t") == [("d=p",), ("d=q",)]
    sql.execute(f"TRUNCATE TABLE {DATABASE}.t")
    assert sql.execute(f"SELECT COUNT(*) FROM {DATABASE}.t") == [("0",)]


def test_values_survive_the_way_to_python(sql: HiveSql) -> None:
    row = sql.execute(
        r"SELECT 'tab	newline\nquote\" \\ é', '', '\\N', CAST(NULL AS STRING), CAST(1.10 AS DECIMAL(5,2)),"
        " CAST('ab' AS BINARY), TIMESTAMP '2020-01-02 03:04:05.6', DATE '2020-01-02', TRUE,"
        " MAP('k', ARRAY(1, NULL)), CAST(0.1 AS DOUBLE)"
    )
    assert row == [
        (
            'tab\tnewline\nquote" \\ é',
            "",
            "\\N",
            None,
            "1.10",
            "6162",
            "2020-01-02 03:04:05.6",
            "2020-01-02",
            "true",
            '{"k":[1,null]}',
            "0.1",
        )
    ]


def test_scripts_and_archives_are_in_the_working_directory_of_a_task(
    sql: HiveSql, source: EmbeddedMetastore, tmp_path: Path
) -> None:
    """The launcher has its own class for this, without Tez's copy of Hive's jar per task."""
    (tmp_path / "twice.sh").write_text("sed 's/.*/&&/'\n", encoding="utf-8")
    (tmp_path / "words.txt").write_text("inside\n", encoding="utf-8")
    archive = shutil.make_archive(str(tmp_path / "words"), "zip", tmp_path, "words.txt")
    # An engine that was killed leaves its links.
    links = [source.directory / name for name in ("twice.sh", "words.zip")]
    for link in links:
        link.symlink_to(tmp_path / "gone")
    sql.execute(f"ADD FILE {tmp_path}/twice.sh")
    sql.execute(f"ADD ARCHIVE {archive}")
    doubled = "SELECT TRANSFORM (a) USING 'sh twice.sh' AS (b STRING) FROM (SELECT 'x' AS a) t"
    # A script that ends before it has read its rows breaks Hive's pipe, and Hive fails.
    unpacked = doubled.replace("sh twice.sh", "cat - words.zip/words.txt")
    for _ in range(2):
        assert sql.execute(doubled) == [("xx",)]
        assert sql.execute(unpacked) == [("x",), ("inside",)]
    assert not any(link.is_symlink() for link in links)
    sql.execute(f"DELETE FILE {tmp_path}/twice.sh")
    sql.execute(f"DELETE ARCHIVE {archive}")


def test_hives_own_jar_is_not_copied(sql: HiveSql, source: EmbeddedMetastore) -> None:
    """Hive would copy 87 MB into ``/user``, which only root may create, and compute their digest before."""
    sql.execute(f"CREATE TABLE {DATABASE}.published (a INT)")
    sql.execute(f"INSERT INTO {DATABASE}.published VALUES (1)")
    (published,) = (source.directory / "scratch" / "jars").iterdir()
    assert published.is_symlink()
    assert any(published.samefile(jar) for jar in sql_jars(find_java()))


def test_statistics_reach_the_metastore(sql: HiveSql, source: EmbeddedMetastore) -> None:
    sql.execute(f"CREATE TABLE {DATABASE}.counted (a INT, b STRING) {ACID}")
    sql.execute(f"INSERT INTO {DATABASE}.counted VALUES (5, 'x'), (7, NULL)")
    sql.execute(f"ANALYZE TABLE {DATABASE}.counted COMPUTE STATISTICS FOR COLUMNS")
    described = dict(row[:2] for row in sql.execute(f"DESCRIBE FORMATTED {DATABASE}.counted a"))
    facts = {str(name).strip(): str(value).strip() for name, value in described.items()}
    assert (facts["min"], facts["max"], facts["num_nulls"]) == ("5", "7", "0")
    with MetastoreClient(MetastoreSettings(uris=(source.uri,))) as client:
        assert client.get_table(DATABASE, "counted").parameters["numRows"] == "2"


def test_a_failed_statement_has_hives_message_and_the_next_one_works(sql: HiveSql) -> None:
    with pytest.raises(HiveSqlError, match="Table not found 'nowhere'") as raised:
        sql.execute(f"SELECT * FROM {DATABASE}.nowhere")
    assert raised.value.sql == f"SELECT * FROM {DATABASE}.nowhere"
    assert sql.execute("SELECT 1") == [("1",)]


def test_a_compaction_waits_for_a_worker_from_outside(sql: HiveSql) -> None:
    sql.execute(f"CREATE TABLE {DATABASE}.compacted (a INT) {ACID}")
    for value in (1, 2):
        sql.execute(f"INSERT INTO {DATABASE}.compacted VALUES ({value})")
    sql.execute(f"ALTER TABLE {DATABASE}.compacted COMPACT 'major'")
    queue = [row[2:6] for row in sql.execute("SHOW COMPACTIONS") if row[1] == DATABASE]
    assert ("compacted", " --- ", "MAJOR", "initiated") in queue


def test_nothing_is_missing_beside_a_cleaner(sql: HiveSql, source: EmbeddedMetastore) -> None:
    """A directory that vanishes while a table is listed leaves its others to be read."""
    table = f"{DATABASE}.cleaned"
    sql.execute(f"CREATE TABLE {table} (a INT) {ACID}")
    for value in ("1", "2"):
        sql.execute(f"INSERT INTO {table} VALUES ({value})")
    (delta,) = source.directory.glob(f"warehouse/{DATABASE}.db/cleaned/delta_0000001_*")
    over = threading.Event()

    def come_and_go() -> None:
        for write_id in itertools.count(1000):  # never given twice, as Hive does not
            if over.is_set():
                return
            aborted = delta.with_name(f"delta_{write_id:07d}_{write_id:07d}_0000")
            shutil.copytree(delta, aborted)
            shutil.rmtree(aborted)

    with ThreadPoolExecutor(1) as pool:
        cleaner = pool.submit(come_and_go)
        try:
            for _ in range(50):
                assert sorted(sql.execute(f"SELECT a FROM {table}")) == [("1",), ("2",)]
        finally:
            over.set()
        cleaner.result()


def test_replication_statements_answer(sql: HiveSql) -> None:
    sql.execute(f"ALTER DATABASE {DATABASE} SET DBPROPERTIES ('repl.source.for'='x')")
    ((path, last_event),) = sql.execute(f"REPL DUMP {DATABASE}")
    assert str(path).startswith("file:")
    assert int(str(last_event)) > 0
    assert sql.execute(f"REPL STATUS {DATABASE}") == [("NULL",)]
