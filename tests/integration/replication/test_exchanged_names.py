"""Names of a source that pass to others after a dump's moment, before their files are listed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.embedded.sql import HiveSql
from airflow_hive_federation.errors import FileVanishedError
from airflow_hive_federation.replication.dump.documents import Documents
from tests.support.incrementing import Cycles, cycles

ACID = "STORED AS ORC TBLPROPERTIES ('transactional'='true')"
PLAIN = "STORED AS ORC TBLPROPERTIES ('transactional'='false', 'EXTERNAL'='FALSE')"


@pytest.fixture
def site(
    source: EmbeddedMetastore,
    target: EmbeddedMetastore,
    hive_sql_source: HiveSql,
    hive_sql_target: HiveSql,
    tmp_path: Path,
) -> Iterator[Cycles]:
    hive_sql_source.execute("CREATE DATABASE exchanged")
    sql = (hive_sql_source, hive_sql_target)
    with cycles(source, target, sql, tmp_path, source_database="exchanged") as made:
        yield made
    for metastore in (hive_sql_source, hive_sql_target):
        metastore.execute("DROP DATABASE IF EXISTS exchanged CASCADE")
    hive_sql_target.execute("DROP DATABASE IF EXISTS exchanged_copy CASCADE")


@contextmanager
def before_the_tables_are_read(action: Callable[[], None]) -> Iterator[None]:
    """Have an action happen after the moment of a dump, before it reads its first table."""
    lock, read_table, waiting = threading.Lock(), Documents.read_table, [action]

    def read(self: Documents, *args: Any) -> Any:
        with lock:
            while waiting:
                waiting.pop()()
        return read_table(self, *args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Documents, "read_table", read)
        yield
    assert not waiting


def rows(site: Cycles, table: str) -> list[Any]:
    return sorted(site.target_sql.execute(f"SELECT id FROM exchanged_copy.{table}"))


def test_a_table_whose_name_passes_to_another_one_stays_until_the_next_cycle(site: Cycles) -> None:
    tables = ("again", "front", "back", "plain", "other")
    site.write(
        *(f"CREATE TABLE exchanged.{table} (id int) {ACID}" for table in tables if table != "plain"),
        f"CREATE TABLE exchanged.plain (id int) {PLAIN}",
        *(f"INSERT INTO exchanged.{table} VALUES ({number})" for number, table in enumerate(tables, 1)),
        f"CREATE TABLE exchanged.parted (id int) PARTITIONED BY (p int) {ACID}",
        "INSERT INTO exchanged.parted PARTITION (p) VALUES (7, 1), (8, 2), (9, 3)",
        "INSERT INTO exchanged.parted PARTITION (p) VALUES (71, 1)",
    )
    site.bootstrap()
    site.write(
        *(f"INSERT INTO exchanged.{table} VALUES ({number}0)" for number, table in enumerate(tables, 1)),
        "INSERT INTO exchanged.parted PARTITION (p) VALUES (70, 1), (80, 2)",
    )

    def exchange() -> None:
        site.write(
            "DROP TABLE exchanged.again",
            f"CREATE TABLE exchanged.again (id int) {ACID}",
            "INSERT INTO exchanged.again VALUES (100)",
            "ALTER TABLE exchanged.front RENAME TO exchanged.behind",
            "ALTER TABLE exchanged.back RENAME TO exchanged.front",
            "DROP TABLE exchanged.plain",
            f"CREATE TABLE exchanged.plain (id int) {ACID}",
            "INSERT INTO exchanged.plain VALUES (400)",
            "INSERT INTO exchanged.other VALUES (500)",
            "ALTER TABLE exchanged.parted DROP PARTITION (p = 1)",
            "ALTER TABLE exchanged.parted PARTITION (p = 2) RENAME TO PARTITION (p = 1)",
        )

    with before_the_tables_are_read(exchange):
        dump = site.dump()
    assert dump.dropped == ["back"]
    site.load(dump.dump)
    assert [rows(site, table) for table in ("again", "front", "plain", "other")] == [
        [("1",)],
        [("2",)],
        [("4",)],
        [("5",), ("50",)],
    ]
    # A partition is as it was found, with the rows of the moment.
    parted = sorted(site.target_sql.execute("SELECT p, id FROM exchanged_copy.parted"))
    assert parted == [("1", "8"), ("1", "80"), ("3", "9")]
    site.cycle()
    assert site.tables()[1] == sorted(["again", "front", "behind", "plain", "other", "parted"])
    site.assert_equal(*(f"SELECT * FROM {{db}}.{table}" for table in site.tables()[1]))


def test_a_bootstrap_leaves_out_a_table_whose_name_passes_to_another_one(site: Cycles) -> None:
    site.write(
        *(f"CREATE TABLE exchanged.{table} (id int) {ACID}" for table in ("again", "other")),
        f"CREATE TABLE exchanged.plain (id int) {PLAIN}",
        *(f"INSERT INTO exchanged.{table} VALUES (1)" for table in ("again", "plain", "other")),
    )

    def exchange() -> None:
        site.write(
            *(f"DROP TABLE exchanged.{table}" for table in ("again", "plain")),
            *(f"CREATE TABLE exchanged.{table} (id int) {ACID}" for table in ("again", "plain")),
            *(f"INSERT INTO exchanged.{table} VALUES (100)" for table in ("again", "plain", "other")),
        )

    with before_the_tables_are_read(exchange):
        site.bootstrap()
    assert site.tables()[1] == ["other"]
    assert rows(site, "other") == [("1",)]
    site.cycle()
    site.assert_equal(*(f"SELECT * FROM {{db}}.{table}" for table in ("again", "plain", "other")))


def test_a_table_that_gets_another_directory_is_dumped_again(site: Cycles, source: EmbeddedMetastore) -> None:
    site.write(
        f"CREATE TABLE exchanged.placed (id int) {ACID}",
        "INSERT INTO exchanged.placed VALUES (1)",
    )
    site.bootstrap()
    site.write("INSERT INTO exchanged.placed VALUES (2)")
    other = source.warehouse / "exchanged.db" / "other"
    other.mkdir()

    def exchange() -> None:
        site.write(f"ALTER TABLE exchanged.placed SET LOCATION 'file:{other}'")

    with before_the_tables_are_read(exchange), pytest.raises(FileVanishedError, match="another directory"):
        site.dump()
    site.write("INSERT INTO exchanged.placed VALUES (3)")
    site.cycle()
    assert rows(site, "placed") == [("3",)]
