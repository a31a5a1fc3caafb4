"""Files from which aborted rows were left out, read by real Hive."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from pyarrow import orc

from airflow_hive_federation.acid.rewrite import drop_rows, rewrite_file
from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.embedded.sql import HiveSql
from airflow_hive_federation.metastore import MetastoreClient, MetastoreSettings
from airflow_hive_federation.model.write_ids import ValidWriteIds
from airflow_hive_federation.orc.tail import read_tail

GOLDEN = Path(__file__).parents[2] / "golden"
DATABASE = "rewritten"


@pytest.fixture(scope="module")
def hive(source_sql: HiveSql) -> HiveSql:
    source_sql.execute(f"create database {DATABASE}")
    return source_sql


@pytest.mark.parametrize("name", ["acid_streamed", "acid_unfinished", "acid_types", "acid_changed"])
def test_hive_reads_the_copy(name: str, hive: HiveSql, source: EmbeddedMetastore) -> None:
    described = json.loads((GOLDEN / f"{name}.json").read_text(encoding="utf-8"))
    write_ids = ValidWriteIds.parse(described["write_ids"])
    columns = [f"`{column}` {kind}" for column, kind in described["columns"]]

    table = f"{DATABASE}.{name}"
    hive.execute(
        f"create table {table} ({', '.join(columns)}) stored as orc tblproperties ('transactional'='true')"
    )
    # To this metastore every write id is committed: an aborted row left in a file would show.
    _commit_write_ids(source, name, write_ids.high_watermark)
    location = source.warehouse / f"{DATABASE}.db" / name
    for path in sorted((GOLDEN / name).rglob("bucket_*")):
        if not path.name.endswith("_flush_length"):
            copy = location / path.relative_to(GOLDEN / name)
            copy.parent.mkdir(parents=True, exist_ok=True)
            rewrite_file(f"file:{path}", f"file:{copy}", write_ids.text())
    shown = ", ".join(f"`{column[0]}`" for column in described["columns"])
    expected = sorted((tuple(row) for row in described["rows_with_id"]), key=repr)
    for vectorized in ("true", "false"):
        hive.set("hive.vectorized.execution.enabled", vectorized)
        assert sorted(hive.execute(f"select ROW__ID, {shown} from {table}"), key=repr) == expected
    first = described["columns"][0][0]
    hive.execute(f"delete from {table} where `{first}` = {described['rows'][0][0]}")
    assert len(hive.execute(f"select `{first}` from {table}")) == len(expected) - 1


def test_types_and_metadata_are_those_of_the_source() -> None:
    (path,) = (GOLDEN / "acid_streamed").glob("delta_*_0000004/bucket_00000")
    copied = io.BytesIO()
    source = io.BytesIO(path.read_bytes())
    dropped = drop_rows(source, copied, ValidWriteIds(high_watermark=4, aborted_ids=(2, 3)))
    before, after = read_tail(source, "source"), read_tail(copied, "copy")
    assert dropped == 6
    assert (before.row_count, after.row_count) == (12, 6)
    assert after.types == before.types
    assert after.user_metadata["hive.acid.version"] == b"2"
    assert after.user_metadata["hive.acid.stats"] == b"6,0,0"
    last = orc.ORCFile(io.BytesIO(copied.getvalue())).read().to_pylist()[-1]
    key = f"{last['originalTransaction']},{last['bucket']},{last['rowId']};"
    assert after.user_metadata["hive.acid.key.index"].decode() == key


def test_a_file_of_nothing_but_aborted_rows(hive: HiveSql, source: EmbeddedMetastore) -> None:
    (path,) = (GOLDEN / "acid_streamed").glob("delta_*_0000004/bucket_00000")
    hive.execute(
        f"create table {DATABASE}.emptied (id int, name string) stored as orc "
        "tblproperties ('transactional'='true')"
    )
    _commit_write_ids(source, "emptied", 4)
    directory = source.warehouse / f"{DATABASE}.db" / "emptied" / "delta_0000001_0000004"
    directory.mkdir(parents=True)
    aborted = ValidWriteIds(table=f"{DATABASE}.emptied", high_watermark=4, aborted_ids=(1, 2, 3, 4))
    rewrite_file(f"file:{path}", f"file:{directory}/bucket_00000", aborted.text())
    for vectorized in ("true", "false"):
        hive.set("hive.vectorized.execution.enabled", vectorized)
        assert hive.execute(f"select * from {DATABASE}.emptied") == []


def test_instants_before_1970_with_fractions(hive: HiveSql, source: EmbeddedMetastore) -> None:
    columns = "(id int, t timestamp, a array<timestamp>) stored as orc tblproperties ('transactional'='true')"
    times = ["1969-12-31 23:59:58.5", "1960-02-29 12:00:00.123456789", "1700-01-01 00:00:00.001"]
    times += ["1970-01-01 00:00:00.25", "2026-01-01 00:00:00"]
    rows = [f"select {i}, timestamp'{t}', array(timestamp'{t}', null)" for i, t in enumerate(times)]
    for name in ("early", "early_copied"):
        hive.execute(f"create table {DATABASE}.{name} {columns}")
    hive.execute(f"insert into {DATABASE}.early {' union all '.join(rows)}")
    _commit_write_ids(source, "early_copied", 1)
    database = source.warehouse / f"{DATABASE}.db"
    for path in (database / "early").rglob("bucket_*"):
        copy = database / "early_copied" / path.relative_to(database / "early")
        copy.parent.mkdir(parents=True, exist_ok=True)
        write_ids = ValidWriteIds(table=f"{DATABASE}.early", high_watermark=1)
        rewrite_file(f"file:{path}", f"file:{copy}", write_ids.text())
        assert copy.read_bytes() != path.read_bytes()
    for vectorized in ("true", "false"):
        hive.set("hive.vectorized.execution.enabled", vectorized)
        wanted, rewritten = (
            hive.execute(f"select * from {DATABASE}.{name} order by id") for name in ("early", "early_copied")
        )
        assert rewritten == wanted
        assert [row[1] for row in wanted] == times
        last = f"select id from {DATABASE}.early_copied where t = timestamp'{times[1]}'"
        assert hive.execute(last) == [("1",)]


def _commit_write_ids(source: EmbeddedMetastore, table: str, count: int) -> None:
    with MetastoreClient(MetastoreSettings(uris=(source.uri,))) as client:
        txns = client.open_txns(count)
        client.allocate_table_write_ids(DATABASE, table, txns)
        for txn in txns:
            client.commit_txn(txn)
