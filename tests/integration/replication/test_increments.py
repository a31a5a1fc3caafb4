"""Increments between two real metastores, written and read by real Hive."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.embedded.sql import HiveSql
from airflow_hive_federation.metastore import MetastoreClient
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.replication.format.directory import DumpDirectory
from airflow_hive_federation.replication.format.kinds import TableWork
from airflow_hive_federation.replication.status import read_lags
from airflow_hive_federation.storage.filesystem import local_path
from tests.support.incrementing import Cycles, cycles
from tests.support.observing import at_steps

NewCycles = Callable[[str], Cycles]
ACID = "STORED AS ORC TBLPROPERTIES ('transactional'='true')"


class KilledHereError(Exception):
    """The process was killed here."""


@pytest.fixture
def new_cycles(
    source: EmbeddedMetastore,
    target: EmbeddedMetastore,
    hive_sql_source: HiveSql,
    hive_sql_target: HiveSql,
    tmp_path: Path,
) -> Iterator[NewCycles]:
    with ExitStack() as stack:

        def make(database: str) -> Cycles:
            hive_sql_source.execute(f"CREATE DATABASE {database}")
            sql = (hive_sql_source, hive_sql_target)
            return stack.enter_context(cycles(source, target, sql, tmp_path, source_database=database))

        yield make


def test_every_statement_that_writes_rows(new_cycles: NewCycles) -> None:
    site = new_cycles("inc_dml")
    site.write(
        f"CREATE TABLE inc_dml.t (id int, s string) {ACID}",
        f"CREATE TABLE inc_dml.p (id int, s string) PARTITIONED BY (d string) {ACID}",
        "INSERT INTO inc_dml.t VALUES (1, 'a'), (2, 'b')",
        "INSERT INTO inc_dml.p PARTITION (d) VALUES (1, 'a', 'x'), (2, 'b', 'y')",
    )
    site.bootstrap()
    queries = ("SELECT ROW__ID, * FROM {db}.t", "SELECT ROW__ID, * FROM {db}.p")
    site.assert_equal(*queries)
    for statement in (
        "INSERT INTO inc_dml.t VALUES (3, 'c')",
        "UPDATE inc_dml.t SET s = 'updated' WHERE id = 1",
        "DELETE FROM inc_dml.t WHERE id = 2",
        "INSERT INTO inc_dml.p PARTITION (d) VALUES (3, 'c', 'new'), (4, 'd', 'x')",
        (
            "MERGE INTO inc_dml.p USING inc_dml.t ON p.id = t.id WHEN MATCHED THEN UPDATE SET s = 'merged' "
            "WHEN NOT MATCHED THEN INSERT VALUES (t.id, t.s, 'merged')"
        ),
        "INSERT OVERWRITE TABLE inc_dml.t SELECT id, s FROM inc_dml.t WHERE id = 3",
        "TRUNCATE TABLE inc_dml.t",
        "INSERT INTO inc_dml.t VALUES (9, 'z')",
        "ALTER TABLE inc_dml.p DROP PARTITION (d = 'x')",
    ):
        site.write(statement)
        done = site.cycle()
        assert done.tables > 0
        site.assert_equal(*queries)
        assert site.cycle().tables == 0, statement


def test_definitions_follow_and_external_files_too(new_cycles: NewCycles, source: EmbeddedMetastore) -> None:
    site = new_cycles("inc_ddl")
    files = source.external_warehouse / "inc_ddl_files"
    files.mkdir(parents=True)
    (files / "a").write_text("1\n", encoding="utf-8")
    (files / "b").write_text("2\n", encoding="utf-8")
    site.write(
        f"CREATE TABLE inc_ddl.t (id int, s string) {ACID}",
        f"CREATE TABLE inc_ddl.p (id int) PARTITIONED BY (d string) {ACID}",
        f"CREATE EXTERNAL TABLE inc_ddl.x (s string) STORED AS TEXTFILE LOCATION 'file:{files}'",
        "CREATE VIEW inc_ddl.v AS SELECT id FROM inc_ddl.t",
        "INSERT INTO inc_ddl.t VALUES (1, 'a'), (2, 'b')",
        "INSERT INTO inc_ddl.p PARTITION (d) VALUES (1, 'x'), (2, 'y')",
    )
    site.bootstrap()

    (files / "a").write_text("3\n", encoding="utf-8")
    (files / "b").unlink()
    (files / "c").write_text("4\n", encoding="utf-8")
    site.cycle()
    site.assert_equal("SELECT * FROM {db}.x")

    site.write(
        "ALTER TABLE inc_ddl.t ADD COLUMNS (n int)",
        "INSERT INTO inc_ddl.t VALUES (10, 'new', 5)",
        "ALTER VIEW inc_ddl.v AS SELECT id, s FROM inc_ddl.t",
        "ALTER TABLE inc_ddl.p PARTITION (d = 'y') RENAME TO PARTITION (d = 'yy')",
        "CREATE FUNCTION inc_ddl.shout AS 'org.apache.hadoop.hive.ql.udf.generic.GenericUDFUpper'",
        "ALTER DATABASE inc_ddl SET DBPROPERTIES ('owner.team' = 'data')",
    )
    site.cycle()
    site.assert_equal(
        "SELECT ROW__ID, * FROM {db}.t",
        "SELECT * FROM {db}.v",
        "SELECT ROW__ID, * FROM {db}.p",
    )
    with site.target.client() as client:
        # (Hive's session there knows only the functions that were there when it began.)
        (function,) = client.get_functions("inc_ddl_copy")
        assert (function.functionName, function.className) == (
            "shout",
            "org.apache.hadoop.hive.ql.udf.generic.GenericUDFUpper",
        )
        parameters = client.get_database("inc_ddl_copy").parameters or {}
    assert parameters["owner.team"] == "data"
    assert parameters["repl.target.for"] == "true"

    site.write(
        "ALTER TABLE inc_ddl.t RENAME TO inc_ddl.t2",
        "INSERT INTO inc_ddl.t2 VALUES (11, 'r', 6)",
        f"CREATE TABLE inc_ddl.t (id int) {ACID}",
        "INSERT INTO inc_ddl.t VALUES (100)",
        "DROP VIEW inc_ddl.v",
        "DROP FUNCTION inc_ddl.shout",
    )
    site.cycle()
    site.assert_equal("SELECT ROW__ID, * FROM {db}.t", "SELECT ROW__ID, * FROM {db}.t2")
    assert site.tables() == (["p", "t", "t2", "x"], ["p", "t", "t2", "x"])
    with site.target.client() as client:
        assert client.get_functions("inc_ddl_copy") == []


def test_tables_and_partitions_that_get_other_directories(
    new_cycles: NewCycles, source: EmbeddedMetastore
) -> None:
    """The target has one directory for both places, from which the rows of the former one go."""
    site = new_cycles("inc_loc")
    site.write(
        f"CREATE TABLE inc_loc.t (id int) {ACID}",
        f"CREATE TABLE inc_loc.p (id int) PARTITIONED BY (d string) {ACID}",
        "INSERT INTO inc_loc.t VALUES (1)",
        "INSERT INTO inc_loc.p PARTITION (d) VALUES (1, 'x'), (2, 'y'), (3, 'z')",
    )
    site.bootstrap()
    home = source.warehouse / "inc_loc.db"
    other = home / "elsewhere"
    for name in ("t", "x"):
        (other / name).mkdir(parents=True)
    # A directory that was moved with its files has the same rows.
    shutil.move(home / "p" / "d=y", other / "y")
    site.write(
        f"ALTER TABLE inc_loc.t SET LOCATION 'file:{other}/t'",
        *(f"ALTER TABLE inc_loc.p PARTITION (d = '{d}') SET LOCATION 'file:{other}/{d}'" for d in "xy"),
        # (Of dynamic partitions, Hive writes into the default directories.)
        "INSERT INTO inc_loc.p PARTITION (d = 'x') VALUES (5)",
    )
    entries = {entry.name: entry for entry in DumpDirectory(site.cycle().dump).manifest().tables}
    assert (entries["t"].work, entries["p"].work) == (TableWork.REPLACE, TableWork.CONTINUE)
    assert entries["p"].changes.renewed == ("d=x",)
    query = "SELECT ROW__ID, * FROM {db}.p"
    site.assert_equal(query, "SELECT ROW__ID, * FROM {db}.t")

    # The former directory has its rows still.
    site.write(f"ALTER TABLE inc_loc.p PARTITION (d = 'x') SET LOCATION 'file:{home}/p/d=x'")
    site.cycle()
    of_source, of_target = site.rows(query)
    assert of_target == of_source
    assert [row[1:] for row in of_target] == [("1", "x"), ("2", "y"), ("3", "z")]

    # A rename moves the partitions below the table's directory, and copies all.
    site.write("ALTER TABLE inc_loc.p RENAME TO inc_loc.q")
    site.cycle()
    site.assert_equal("SELECT ROW__ID, * FROM {db}.q")


def test_directories_that_are_taken_back_after_a_killed_load(
    new_cycles: NewCycles, source: EmbeddedMetastore
) -> None:
    site = new_cycles("inc_back")
    site.write(
        f"CREATE TABLE inc_back.t (id int) {ACID}",
        f"CREATE TABLE inc_back.p (id int) PARTITIONED BY (d string) {ACID}",
        "INSERT INTO inc_back.t VALUES (1)",
        "INSERT INTO inc_back.p PARTITION (d) VALUES (1, 'x'), (2, 'y'), (3, 'z')",
    )
    site.bootstrap()
    home = source.warehouse / "inc_back.db"
    for place in ("other/t", "other/x", "p/inside"):
        (home / place).mkdir(parents=True)
    shutil.move(home / "p" / "d=y", home / "p" / "inside" / "y")
    site.write(
        f"ALTER TABLE inc_back.t SET LOCATION 'file:{home}/other/t'",
        f"ALTER TABLE inc_back.p PARTITION (d = 'x') SET LOCATION 'file:{home}/other/x'",
        f"ALTER TABLE inc_back.p PARTITION (d = 'y') SET LOCATION 'file:{home}/p/inside/y'",
        "INSERT INTO inc_back.t VALUES (10)",
        "INSERT INTO inc_back.p PARTITION (d = 'x') VALUES (10)",
    )

    def stop(step: str) -> None:
        if step.startswith("end "):
            raise KilledHereError

    with pytest.raises(KilledHereError):
        site.load(site.dump().dump, at_steps(stop))
    site.write(
        f"ALTER TABLE inc_back.t SET LOCATION 'file:{home}/t'",
        f"ALTER TABLE inc_back.p PARTITION (d = 'x') SET LOCATION 'file:{home}/p/d=x'",
    )
    site.cycle()
    queries = "SELECT ROW__ID, * FROM {db}.t", "SELECT ROW__ID, * FROM {db}.p"
    site.assert_equal(*queries)
    assert site.rows("SELECT id FROM {db}.t")[1] == [("1",)]

    # Another partition gets the name, and with it the directory from which the files were moved.
    site.write(
        "ALTER TABLE inc_back.p DROP PARTITION (d = 'y')",
        "INSERT INTO inc_back.p PARTITION (d = 'y') VALUES (7)",
    )
    site.cycle()
    site.assert_equal(*queries)


def test_names_and_directories_that_pass_to_others_after_a_load_was_cut_off(
    new_cycles: NewCycles, source: EmbeddedMetastore, target: EmbeddedMetastore
) -> None:
    """The files that the load has copied for tables and partitions to come are of none of the later ones."""
    site = new_cycles("inc_again")
    insert_only = "TBLPROPERTIES ('transactional'='true', 'transactional_properties'='insert_only')"
    external = "STORED AS ORC TBLPROPERTIES ('transactional'='false')"
    home, of_target = source.warehouse / "inc_again.db", target.warehouse / "inc_again_copy.db"
    site.write(
        f"CREATE TABLE inc_again.p (id int) PARTITIONED BY (d string) {ACID}",
        f"CREATE TABLE inc_again.delta (id int, PRIMARY KEY (id) DISABLE NOVALIDATE RELY) {external}",
        f"CREATE TABLE inc_again.freed (id int, CONSTRAINT of_delta FOREIGN KEY (id) REFERENCES "
        f"inc_again.delta (id) DISABLE NOVALIDATE RELY) PARTITIONED BY (d string) {ACID}",
        f"CREATE TABLE inc_again.plain (id int) {external}",
        "ALTER TABLE inc_again.plain SET TBLPROPERTIES ('EXTERNAL'='FALSE')",
        "INSERT INTO inc_again.p PARTITION (d = 'x') VALUES (1)",
        "INSERT INTO inc_again.freed PARTITION (d) VALUES (7, 'x'), (8, 'y'), (9, 'z')",
        "INSERT INTO inc_again.plain VALUES (1)",
    )
    # A foreign key to a table that is left out is left out, too.
    (source.external_warehouse / "inc_again.db" / "delta" / "_delta_log").mkdir(parents=True)
    site.bootstrap()
    assert (of_target / "plain").exists()
    site.write(
        "ALTER TABLE inc_again.p ADD CONSTRAINT also FOREIGN KEY (id) REFERENCES inc_again.delta (id) "
        "DISABLE NOVALIDATE RELY",
        "INSERT INTO inc_again.p PARTITION (d = 'y') VALUES (2)",
        f"CREATE TABLE inc_again.t (id int) {ACID}",
        f"CREATE TABLE inc_again.later (id int) {ACID}",
        f"CREATE TABLE inc_again.small (id int) STORED AS TEXTFILE {insert_only}",
        *(f"INSERT INTO inc_again.{table} VALUES ({row})" for table in ("t", "later") for row in (1, 2, 3)),
        "INSERT INTO inc_again.small VALUES (1)",
    )

    def stop(step: str) -> None:
        if step == "functions":
            raise KilledHereError

    with pytest.raises(KilledHereError):
        site.load(site.dump().dump, at_steps(stop))
    assert {path.name for path in of_target.iterdir()} >= {"t", "later", "small"}
    assert site.tables()[1] == ["freed", "p", "plain"]
    # A copy that ends before the first file of a base leaves its directory.
    (of_target / "t" / "base_0000002").mkdir()
    site.write(
        "ALTER TABLE inc_again.p DROP PARTITION (d = 'y')",
        "INSERT INTO inc_again.p PARTITION (d = 'y') VALUES (22)",
        "DROP TABLE inc_again.t",
        "DROP TABLE inc_again.later",
        "DROP TABLE inc_again.small",
        f"CREATE TABLE inc_again.t (id int) {ACID}",
        f"CREATE TABLE inc_again.small (id int) STORED AS TEXTFILE {insert_only}",
        "INSERT INTO inc_again.t VALUES (5)",
        "DELETE FROM inc_again.t WHERE id = 77",
        "INSERT INTO inc_again.t VALUES (6)",
        "INSERT INTO inc_again.small VALUES (5)",
        # A partition gets the directory of one that is gone.
        "ALTER TABLE inc_again.freed DROP PARTITION (d = 'x')",
        f"ALTER TABLE inc_again.freed PARTITION (d = 'y') SET LOCATION 'file:{home}/freed/d=x'",
        "INSERT INTO inc_again.freed PARTITION (d = 'y') VALUES (80)",
        # A managed table becomes external.
        "ALTER TABLE inc_again.plain SET TBLPROPERTIES ('EXTERNAL'='TRUE')",
    )
    manifest = DumpDirectory(site.cycle().dump).manifest()
    changes = {entry.name: entry.changes for entry in manifest.tables}
    assert (changes["freed"].gone, changes["freed"].renewed) == (("d=x",), ("d=y",))
    queries = [f"SELECT ROW__ID, * FROM {{db}}.{table}" for table in ("p", "t", "freed")]
    site.assert_equal(*queries, "SELECT * FROM {db}.small", "SELECT * FROM {db}.plain")
    assert site.rows("SELECT id FROM {db}.t")[1] == [("5",), ("6",)]
    assert site.rows("SELECT id FROM {db}.freed")[1] == [("80",), ("9",)]
    assert not (of_target / "plain").exists()
    with site.target.client() as client:
        assert not any(
            client.get_table_constraints("inc_again_copy", name).foreignKeys for name in ("p", "freed")
        )

    site.write(
        "DROP TABLE inc_again.plain",
        f"CREATE TABLE inc_again.plain (id int) {ACID}",
        f"CREATE TABLE inc_again.later (id int) {ACID}",
        "INSERT INTO inc_again.plain VALUES (100)",
        "INSERT INTO inc_again.later VALUES (5)",
        "DELETE FROM inc_again.later WHERE id = 77",
        "INSERT INTO inc_again.later VALUES (6)",
    )
    site.cycle()
    site.assert_equal("SELECT ROW__ID, * FROM {db}.plain", "SELECT ROW__ID, * FROM {db}.later")


def test_one_transaction_in_several_tables_and_one_that_aborts(new_cycles: NewCycles) -> None:
    site = new_cycles("inc_txn")
    for table in ("a", "b"):
        site.write(f"CREATE TABLE inc_txn.{table} (id int) {ACID}", f"INSERT INTO inc_txn.{table} VALUES (1)")
    site.bootstrap()
    with site.source.client() as client:
        aborted, several, alone = (begin_write(client, names) for names in (["a", "b"], ["b", "a"], ["a"]))
        client.commit_txn(alone)
        first = site.cycle()
        assert first.transactions == 1
        assert state(site, "a") == (4, [2, 3])
        # A metastore's high watermark leaves out the last write ids while they are open.
        assert state(site, "b") == (2, [2])
        with site.target.client() as target:
            made_once = target.get_table("inc_txn_copy", "b").id

        client.abort_txns([aborted])
        client.commit_txn(several)
        with site.target.client() as target:
            lags = read_lags(client, target, site.policy)
        assert lags
        assert {name: lag.events for name, lag in lags.tables.items()} == {"a": 2, "b": 2}
        assert site.cycle().transactions == 2
        assert state(site, "a") == (4, [])
        assert state(site, "b") == (3, [])
        table: Any = client.get_table("inc_txn", "a")
        source = {path.name for path in Path(local_path(table.sd.location) or "").iterdir()}
    with site.target.client() as client:
        assert client.get_table("inc_txn_copy", "b").id == made_once
        table = client.get_table("inc_txn_copy", "a")
        target = {path.name for path in Path(local_path(table.sd.location) or "").iterdir()}
    assert source - target == {"delta_0000002_0000002_0000"}
    site.assert_equal("SELECT * FROM {db}.a", "SELECT * FROM {db}.b")
    assert site.rows("SELECT count(*) FROM {db}.a") == ([("3",)], [("3",)])


def begin_write(client: MetastoreClient, tables: list[str]) -> int:
    """Open a transaction and write a delta to each table, under a lock as Hive takes it."""
    (txn_id,) = client.open_txns(1)
    for name in tables:
        component = types.LockComponent(
            type=types.LockType.SHARED_READ,
            level=types.LockLevel.TABLE,
            dbname="inc_txn",
            tablename=name,
            operationType=types.DataOperationType.INSERT,
            isTransactional=True,
        )
        client.lock([component], txn_id=txn_id)
        write_id = client.allocate_table_write_ids("inc_txn", name, [txn_id])[txn_id]
        table: Any = client.get_table("inc_txn", name)
        location = Path(local_path(table.sd.location) or "")
        written = next(location.glob("delta_0000001_0000001_*"))
        shutil.copytree(written, location / f"delta_{write_id:07d}_{write_id:07d}_0000")
    return txn_id


def state(site: Cycles, table: str) -> tuple[int | None, list[int]]:
    with site.target.client() as client:
        name = f"inc_txn_copy.{table}"
        valid_ids = client.get_valid_write_ids([name])[name]
    return valid_ids.writeIdHighWaterMark, sorted(valid_ids.invalidWriteIds or ())


def test_lost_events_mend_the_tables_concerned(
    new_cycles: NewCycles, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = new_cycles("inc_lost")
    for table in ("written", "quiet"):
        site.write(f"CREATE TABLE inc_lost.{table} (id int) {ACID}")
        site.write(f"INSERT INTO inc_lost.{table} VALUES (1)")
    site.bootstrap()
    site.write("INSERT INTO inc_lost.written VALUES (2)")
    with site.target.client() as client:
        quiet = client.get_table("inc_lost_copy", "quiet").id
    with monkeypatch.context() as patch:
        # As when they are older than metastore.event.db.listener.timetolive.
        patch.setattr(MetastoreClient, "iter_notification_events", lambda *_, **__: iter(()))
        dumped = site.dump()
    assert dumped.lost
    site.load(dumped.dump)
    site.assert_equal("SELECT ROW__ID, * FROM {db}.written", "SELECT ROW__ID, * FROM {db}.quiet")
    with site.target.client() as client:
        assert client.get_table("inc_lost_copy", "quiet").id == quiet
    site.write("INSERT INTO inc_lost.written VALUES (3)")
    assert not site.cycle().lost
    site.assert_equal("SELECT ROW__ID, * FROM {db}.written")
