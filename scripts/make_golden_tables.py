"""Make tests/golden: small tables written by real Hive, and what real Hive reads from them.

Run from the repository's root: ``python scripts/make_golden_tables.py [TABLE…]``. Takes some minutes; the
tables' contents are always the same, their bytes and transaction numbers are not.
"""

# ruff: noqa: S608 - the statements are all of this file's own making
from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from airflow_hive_federation.embedded.jars import sql_jars
from airflow_hive_federation.embedded.jvm import clean_environment, java_command, launcher_classes
from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.embedded.sql import HiveSql
from airflow_hive_federation.metastore import MetastoreClient, MetastoreSettings
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.runtime.java import find_java
from airflow_hive_federation.transactions.snapshots import take_snapshots

ROOT = Path(__file__).parent.parent
GOLDEN = ROOT / "tests" / "golden"
DATABASE = "golden"
ACID = "stored as orc tblproperties ('transactional'='true')"
INSERT_ONLY = "tblproperties ('transactional'='true', 'transactional_properties'='insert_only')"


class Maker:
    """One Hive, and the tables made so far."""

    def __init__(self, metastore: EmbeddedMetastore, hive: HiveSql, client: MetastoreClient) -> None:
        self.metastore, self.hive, self.client = metastore, hive, client
        hive.execute(f"create database {DATABASE}")
        hive.execute(f"use {DATABASE}")

    def run(self, *statements: str) -> None:
        for statement in statements:
            print("  ", statement)
            self.hive.execute(statement)

    def script(self, name: str, *arguments: str) -> None:
        java = find_java()
        jars = sql_jars(java)
        directory = self.metastore.directory
        command = java_command(
            java,
            "groovy.ui.GroovyMain",
            [str(ROOT / "scripts" / name), *arguments],
            class_path=[directory / "sql-conf", launcher_classes(java, jars), *jars],
            argument_file=directory / "script.args",
        )
        subprocess.run(command, check=True, cwd=directory, env=clean_environment(), timeout=120)

    def compact(self, table: str, kind: str, partition: str = "") -> None:
        self.run(f"alter table {table} {partition} compact '{kind}'")
        self.script("golden_compaction.groovy", "90")
        states = [row[5] for row in self.hive.execute("show compactions") if row[2] == table]
        if not any("succeeded" in state or "cleaning" in state for state in states):
            raise SystemExit(f"compaction of {table}: {states}")

    def stream(self, table: str, count: int, *, aborted: set[int], ending: str = "close") -> None:
        """Write ``count`` write ids into one file, of which those with an index in ``aborted`` abort."""
        txns = list(self.client.open_txns(count))
        ids = sorted(self.client.allocate_table_write_ids(DATABASE, table, txns).values())
        location = self.metastore.warehouse / f"{DATABASE}.db" / table
        self.script("golden_streaming.groovy", str(location), str(ids[0]), str(ids[-1]), "0", "3", ending)
        for index, txn in enumerate(txns):
            if index in aborted:
                self._hold(table, txn)
                self.client.abort_txn(txn)
            else:
                self.client.commit_txn(txn)

    def _hold(self, table: str, txn: int) -> None:
        # Without a component in the transaction, the metastore forgets at once that it was aborted.
        component = types.LockComponent(
            type=types.LockType.SHARED_WRITE,
            level=types.LockLevel.TABLE,
            dbname=DATABASE,
            tablename=table,
            operationType=types.DataOperationType.INSERT,
            isTransactional=True,
        )
        self.client.lock([component], txn_id=txn)

    def keep(self, name: str, *, row_ids: bool) -> None:
        """Copy the table's files, and write down what Hive reads from them."""
        table: Any = self.client.get_table(DATABASE, name)
        transactional = (table.parameters or {}).get("transactional") == "true"
        snapshot = (
            take_snapshots(self.client, [f"{DATABASE}.{name}"])[f"{DATABASE}.{name}"]
            if transactional
            else None
        )
        partitions = list(self.client.iter_partitions(DATABASE, name)) if table.partitionKeys else []
        shown = ", ".join(f"`{column.name}`" for column in [*table.sd.cols, *(table.partitionKeys or [])])
        answers = []
        for vectorized in ("true", "false"):
            self.hive.set("hive.vectorized.execution.enabled", vectorized)
            answers.append(sorted(self.hive.execute(f"select {shown} from {name}"), key=str))
        if answers[0] != answers[1]:
            print(
                "   vectorized and not differ:", [a for a in zip(*answers, strict=False) if a[0] != a[1]][:3]
            )
        location = Path(table.sd.location.removeprefix("file:"))
        shutil.rmtree(GOLDEN / name, ignore_errors=True)
        shutil.copytree(location, GOLDEN / name, ignore=shutil.ignore_patterns(".*.crc"))
        description = {
            "columns": [[column.name, column.type] for column in table.sd.cols],
            "partition_keys": [[column.name, column.type] for column in table.partitionKeys or []],
            "partitions": [
                {
                    "path": one.sd.location.removeprefix("file:").removeprefix(f"{location}/"),
                    "values": one.values,
                }
                for one in partitions
            ],
            "input_format": table.sd.inputFormat,
            "parameters": {k: v for k, v in table.parameters.items() if k.startswith("transactional")},
            "write_ids": snapshot.write_ids.text() if snapshot else None,
            "txns": snapshot.txns.text() if snapshot else None,
            "rows": answers[1],
            "rows_with_id": sorted(self.hive.execute(f"select ROW__ID, {shown} from {name}"), key=str)
            if row_ids
            else None,
        }
        text = json.dumps(description, indent=1, ensure_ascii=False, sort_keys=True)
        (GOLDEN / f"{name}.json").write_text(text + "\n", encoding="utf-8")
        print(f"{name}: {len(answers[1])} rows")


def acid_changed(make: Maker) -> None:
    make.run(
        f"create table acid_changed (id int, bucket int, name string) {ACID}",
        "insert into acid_changed values (1, 10, 'one'), (2, 20, 'two'), (3, null, 'three'), (4, 40, null)",
        "insert into acid_changed values (5, 50, 'fünf'), (6, 60, '')",
        "update acid_changed set name = 'TWO' where id = 2",
        "delete from acid_changed where id in (3, 5)",
    )
    make.keep("acid_changed", row_ids=True)


def acid_merged(make: Maker) -> None:
    make.run(
        "create table acid_merged (id int, name string) partitioned by (day date, code string) "
        f"clustered by (id) into 3 buckets {ACID}",
        "insert into acid_merged values (1,'a','2026-01-01','x:y'), (2,'b','2026-01-01','x:y'), "
        "(3,'c','2026-01-01','a b'), (4,'d','2026-01-02','[z]{1}*'), (5,'e',null,'%41'), "
        "(6,'f','2026-01-02',null), (7,'g','2026-01-01','a b'), (8,'h','2026-01-01','a b')",
        "update acid_merged set name = 'B' where id = 2",
        "create table merge_source (id int, name string, day date, code string)",
        "insert into merge_source values (3,'C','2026-01-01','a b'), (7,null,'2026-01-01','a b'), "
        "(9,'new','2026-01-02','[z]{1}*')",
        "merge into acid_merged t using merge_source s on t.id = s.id and t.code = s.code "
        "when matched and s.name is null then delete when matched then update set name = s.name "
        "when not matched then insert values (s.id, s.name, s.day, s.code)",
        "delete from acid_merged where id = 4",
    )
    make.keep("acid_merged", row_ids=True)


def acid_overwritten(make: Maker) -> None:
    make.run(
        f"create table acid_overwritten (id int, name string) {ACID}",
        "insert into acid_overwritten values (1,'old'), (2,'old')",
        "insert overwrite table acid_overwritten values (3,'new'), (4,'new'), (5,'new')",
        "insert into acid_overwritten values (6,'later')",
        "delete from acid_overwritten where id = 4",
    )
    make.keep("acid_overwritten", row_ids=True)


def acid_truncated(make: Maker) -> None:
    make.run(
        f"create table acid_truncated (id int, name string) {ACID}",
        "insert into acid_truncated values (1,'old'), (2,'old')",
        "truncate table acid_truncated",
        "insert into acid_truncated values (3,'new')",
        f"create table acid_emptied (id int, name string) {ACID}",
        "insert into acid_emptied values (1,'old')",
        "truncate table acid_emptied",
    )
    make.keep("acid_truncated", row_ids=True)
    make.keep("acid_emptied", row_ids=True)


def _compacted(make: Maker, table: str, kind: str) -> None:
    make.run(
        f"create table {table} (id int, name string) clustered by (id) into 2 buckets {ACID}",
        f"insert into {table} values (1,'a'), (2,'b'), (3,'c'), (4,'d')",
        f"insert into {table} values (5,'e'), (6,'f')",
        f"update {table} set name = 'B' where id = 2",
        f"delete from {table} where id = 5",
    )
    make.compact(table, kind)
    make.run(f"insert into {table} values (7,'g')", f"delete from {table} where id in (1, 6)")
    make.keep(table, row_ids=True)


def acid_major(make: Maker) -> None:
    _compacted(make, "acid_major", "major")


def acid_minor(make: Maker) -> None:
    _compacted(make, "acid_minor", "minor")


def acid_converted(make: Maker) -> None:
    make.run(
        "create table acid_converted (id int, name string) clustered by (id) into 2 buckets stored as orc "
        "tblproperties ('transactional'='false')",
        "insert into acid_converted values (1,'a'), (2,'b'), (3,'c'), (4,'d')",
        "insert into acid_converted values (5,'e'), (6,'f'), (7,'g')",
        "alter table acid_converted set tblproperties ('EXTERNAL'='FALSE', 'transactional'='true')",
        "update acid_converted set name = 'F' where id = 6",
        "delete from acid_converted where id in (1, 7)",
        "insert into acid_converted values (8,'h')",
    )
    make.keep("acid_converted", row_ids=True)


def acid_loaded(make: Maker) -> None:
    make.run(
        "create external table load_source (id int, name string) stored as orc",
        "insert into load_source values (1,'a'), (2,'b'), (3,'c')",
        f"create table acid_loaded (id int, name string) {ACID}",
        "insert into acid_loaded values (0,'first')",
    )
    source: Any = make.client.get_table(DATABASE, "load_source")
    copied = make.metastore.directory / "to-load"
    for name in ("000000_0", "000001_0"):
        copied.mkdir(exist_ok=True)
        shutil.copy(Path(source.sd.location.removeprefix("file:")) / "000000_0", copied / name)
    make.run(
        f"load data local inpath '{copied}' into table acid_loaded",
        "delete from acid_loaded where id = 2",
    )
    make.keep("acid_loaded", row_ids=True)


def acid_streamed(make: Maker) -> None:
    make.run(f"create table acid_streamed (id int, name string) clustered by (id) into 1 buckets {ACID}")
    make.stream("acid_streamed", 4, aborted={1})
    make.run("insert into acid_streamed values (7, 'between')", "delete from acid_streamed where id = 1001")
    make.keep("acid_streamed", row_ids=True)


def acid_unfinished(make: Maker) -> None:
    make.run(f"create table acid_unfinished (id int, name string) clustered by (id) into 1 buckets {ACID}")
    make.stream("acid_unfinished", 3, aborted={2}, ending="leave-open")
    location = make.metastore.warehouse / f"{DATABASE}.db" / "acid_unfinished"
    (bucket,) = location.glob("delta_*/bucket_00000")
    with bucket.open("ab") as file:
        file.write(b"the writer went on, and died")
    for checksum in location.rglob(".*.crc"):
        checksum.unlink()
    make.keep("acid_unfinished", row_ids=True)


def acid_aborted(make: Maker) -> None:
    make.run(
        f"create table acid_aborted (id int, name string) clustered by (id) into 1 buckets {ACID}",
        "insert into acid_aborted values (1,'a'), (2,'b')",
    )
    make.stream("acid_aborted", 1, aborted={0})
    make.run("insert into acid_aborted values (3,'c')")
    make.keep("acid_aborted", row_ids=True)


# Hive cannot read a "timestamp with local time zone" from ORC (OrcStruct knows no TIMESTAMP_INSTANT).
TYPES = {
    "a_boolean": ("boolean", ["true", "false"]),
    "a_tinyint": ("tinyint", ["-128", "127"]),
    "a_smallint": ("smallint", ["-32768", "32767"]),
    "an_int": ("int", ["-2147483648", "2147483647"]),
    "a_bigint": ("bigint", ["-9223372036854775808", "9223372036854775807"]),
    "a_float": ("float", ["cast('NaN' as float)", "cast(-0.0 as float)"]),
    "a_double": ("double", ["cast('Infinity' as double)", "1.7976931348623157E308"]),
    "a_decimal": (
        "decimal(38,18)",
        ["12345678901234567890.123456789012345678", "-0.000000000000000001"],
    ),
    "small_decimal": ("decimal(5,2)", ["999.99", "-0.10"]),
    "a_string": ("string", ["'Grüße, 世界 🎈'", "''"]),
    "a_char": ("char(6)", ["'ab'", "'äöü'"]),
    "a_varchar": ("varchar(6)", ["'ab  '", "'世界'"]),
    "a_binary": ("binary", ["unhex('00ff10')", "unhex('')"]),
    "a_date": ("date", ["date '1500-03-01'", "date '9999-12-31'"]),
    "a_timestamp": (
        "timestamp",
        ["timestamp '1970-01-01 00:00:00.123456'", "timestamp '2026-03-29 02:30:00'"],
    ),
    "an_array": ("array<int>", ["array(1, cast(null as int), 3)", "array(cast(null as int))"]),
    "a_map": ("map<string,double>", ["map('a', 1.5D, 'b', -0.0D)", "map('', 0.1D)"]),
    "a_struct": (
        "struct<x:int,y:array<string>>",
        ["named_struct('x', 1, 'y', array('p', 'q'))", "named_struct('x', -1, 'y', array(''))"],
    ),
}


def acid_types(make: Maker) -> None:
    columns = ", ".join(f"{name} {kind}" for name, (kind, _) in TYPES.items())
    make.run(f"create table acid_types (id int, {columns}) {ACID}")
    for row in range(2):
        values = ", ".join(
            texts[row] if "<" in kind else f"cast({texts[row]} as {kind})" for kind, texts in TYPES.values()
        )
        make.run(f"insert into acid_types select {row}, {values}")
    make.run("insert into acid_types (id) values (2), (3)", "delete from acid_types where id = 3")
    make.keep("acid_types", row_ids=True)


def acid_evolved(make: Maker) -> None:
    make.run(
        f"create table acid_evolved (id int, name string) {ACID}",
        "insert into acid_evolved values (1,'a'), (2,'b')",
        "alter table acid_evolved add columns (extra decimal(10,2))",
        "insert into acid_evolved values (3,'c',1.50)",
        "alter table acid_evolved change id id bigint",
        "insert into acid_evolved values (5000000000,'d',null)",
        "delete from acid_evolved where id = 2",
    )
    make.keep("acid_evolved", row_ids=True)


def insert_only(make: Maker) -> None:
    make.run(
        "create table insert_only (id int, name string) partitioned by (part int) "
        f"stored as orc {INSERT_ONLY}",
        "insert into insert_only values (1,'a',1), (2,'b',2)",
        "insert overwrite table insert_only partition (part = 2) values (3,'c')",
        "insert into insert_only values (4,null,1), (5,'e',3)",
    )
    make.keep("insert_only", row_ids=False)


def plain(make: Maker) -> None:
    external = "tblproperties ('transactional'='false')"
    for kind in ("orc", "parquet", "textfile"):
        make.run(
            f"create table plain_{kind} (id int, name char(4), amount decimal(8,3), at timestamp) "
            f"partitioned by (day date) stored as {kind} {external}",
            f"insert into plain_{kind} values (1,'a',1.5,'2026-01-01 10:20:30.5','2026-01-01'), "
            "(2,null,null,null,'2026-01-02'), (3,'',-0.001,'1970-01-01 00:00:00','2026-01-01')",
        )
        make.keep(f"plain_{kind}", row_ids=False)


TABLES: list[Callable[[Maker], None]] = [
    acid_changed,
    acid_merged,
    acid_overwritten,
    acid_truncated,
    acid_converted,
    acid_loaded,
    acid_streamed,
    acid_unfinished,
    acid_aborted,
    acid_types,
    acid_evolved,
    insert_only,
    plain,
    acid_major,
    acid_minor,
]


def main(names: list[str]) -> None:
    """Make the tables named, or all."""
    chosen = [one for one in TABLES if not names or one.__name__ in names]
    GOLDEN.mkdir(exist_ok=True)
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as directory:
        settings = {"metastore.compactor.cleaner.on": "false", "hive.compactor.cleaner.on": "false"}
        with (
            EmbeddedMetastore.start("golden", directory=Path(directory), settings=settings) as metastore,
            HiveSql(metastore, settings={"hive.local.time.zone": "UTC"}) as hive,
            MetastoreClient(MetastoreSettings(uris=(metastore.uri,))) as client,
        ):
            make = Maker(metastore, hive, client)
            for one in chosen:
                one(make)
    print(f"{time.monotonic() - started:.0f} s")


if __name__ == "__main__":
    main(sys.argv[1:])
