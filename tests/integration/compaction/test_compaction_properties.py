"""Codec and Bloom filters of compacted ORC files, read by Hive."""

from __future__ import annotations

import pytest

from airflow_hive_federation.compaction.runners import in_threads
from airflow_hive_federation.compaction.worker import CompactionWorker
from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.embedded.sql import HiveSql
from airflow_hive_federation.metastore import MetastoreSettings
from tests.support.orc_filters import codec_and_filters

DATABASE = "compacted_properties"


@pytest.mark.slow
def test_compacted_files_follow_the_tables_properties(quick_hive: HiveSql, source: EmbeddedMetastore) -> None:
    """A request's own properties count more than the table's, as with Hive's worker."""
    hive, settings = quick_hive, MetastoreSettings(uris=(source.uri,))
    hive.execute(f"create database {DATABASE}")
    properties = (
        "'transactional'='true', 'no_auto_compaction'='true', 'orc.bloom.filter.columns'='id,name,code'"
    )
    columns = "(id int, name string, code char(4), amount decimal(10,2))"
    insert_only = "'transactional_properties'='insert_only', 'orc.compress'='LZ4'"
    hive.execute(
        f"create table {DATABASE}.filtered {columns} stored as orc "
        f"tblproperties ({properties}, 'orc.compress'='ZSTD', 'orc.bloom.filter.fpp'='0.02')"
    )
    hive.execute(
        f"create table {DATABASE}.filtered_too {columns} stored as orc "
        f"tblproperties ({properties}, {insert_only})"
    )
    for table in ("filtered", "filtered_too"):
        for start in (0, 100):
            values = ", ".join(f"({2 * (start + i)}, 'n{2 * i}', 'c', {i}.50)" for i in range(50))
            hive.execute(f"insert into {DATABASE}.{table} values {values}")
    queries = (
        "select id, name from {} where id = 20",
        "select id, name from {} where id = 21",
        "select id from {} where name = 'n44'",
        "select count(*) from {} where code = 'c'",
    )
    hive.set("hive.optimize.index.filter", "true")
    hive.set("hive.optimize.ppd", "true")
    request = "compact 'major' with overwrite tblproperties ('tblprops.orc.compress'='SNAPPY')"
    for table, how, codec in (
        ("filtered", "compact 'minor'", "zstd"),
        ("filtered", request, "snappy"),
        ("filtered_too", "compact 'major'", "lz4"),
    ):
        # One directory alone is not compacted once more.
        hive.execute(f"insert into {DATABASE}.{table} values (1001, 'late', 'd', 0.5)")
        before = [sorted(hive.execute(query.format(f"{DATABASE}.{table}"))) for query in queries]
        assert [len(rows) for rows in before[:3]] == [1, 0, 2]
        hive.execute(f"alter table {DATABASE}.{table} {how}")
        reports = CompactionWorker(settings, in_threads(2), batch_size=4).serve(until_empty=True)
        (report,) = [report for report in reports if report.table == f"{DATABASE}.{table}"]
        assert report.state == "compacted", report
        made = source.warehouse / f"{DATABASE}.db" / table
        (file,) = (path for name in report.directories for path in (made / name).glob("[b0]*"))
        first = 1 if table == "filtered_too" else 7
        assert codec_and_filters(file) == (codec, [first, first + 1])
        assert [sorted(hive.execute(query.format(f"{DATABASE}.{table}"))) for query in queries] == before
