"""Hive 2.3's and Hive 3.1's own SQL engines through the Thrift front, on Hive 4.2."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.embedded.sql import HiveSql
from airflow_hive_federation.gateway.serving import Serving
from airflow_hive_federation.metastore import MetastoreClient
from airflow_hive_federation.replication.dump.drain import open_transactions
from tests.support.gateway_front import gateway
from tests.support.older_sql import OlderSql, OlderSqlError, older_sql

pytestmark = pytest.mark.slow
ACID = "stored as orc tblproperties ('transactional'='true')"


@pytest.fixture(scope="module")
def front(source: EmbeddedMetastore) -> Iterator[Serving]:
    upstream = {"uris": [source.uri], "old_client_capabilities": ["HIVEFULLACIDREAD", "HIVEFULLACIDWRITE"]}
    with gateway({"upstream": upstream}) as serving:
        yield serving


def plain_tables(sql: OlderSql, database: str) -> None:
    """DDL, DML and queries of tables without transactions, partitions by an expression among them."""
    sql.execute(f"create database {database}")
    sql.execute(
        f"create external table {database}.t (id int, n string) partitioned by (p string) stored as orc"
    )
    sql.execute(f"insert into {database}.t partition (p='a') values (1, 'x'), (2, 'y')")
    sql.execute(f"insert into {database}.t partition (p) select id + 10, n, 'b' from {database}.t")
    answer = sql.execute(f"select id, n, p from {database}.t where p = 'b' order by id")
    assert answer == [("11", "x", "b"), ("12", "y", "b")]
    sql.execute(f"alter table {database}.t add columns (extra int)")
    sql.execute(f"analyze table {database}.t partition (p='b') compute statistics for columns")
    sql.execute(f"create view {database}.v as select id from {database}.t where p = 'a'")
    assert sql.execute(f"select id from {database}.v where id > 1") == [("2",)]
    # Hive 4 cannot read by what expression they are chosen: no partition goes, rather than all.
    with pytest.raises(OlderSqlError, match="unknown partitions"):
        sql.execute(f"alter table {database}.t drop partition (p='a')")
    assert sql.execute(f"show partitions {database}.t") == [("p=a",), ("p=b",)]
    sql.execute(f"drop view {database}.v")
    sql.execute(f"drop table {database}.t")


def test_hive_3_1(front: Serving, hive_sql_source: HiveSql, client: MetastoreClient, tmp_path: Path) -> None:
    before = set(open_transactions(client.get_open_txns()))
    with older_sql(3, front.fronts[0].uri, tmp_path / "sql") as sql:
        plain_tables(sql, "gateway_hive_3")
        sql.execute("create database gateway_hive_3_acid")
        sql.execute(
            f"create table gateway_hive_3_acid.t (id int, n string) clustered by (id) into 2 buckets {ACID}"
        )
        sql.execute("insert into gateway_hive_3_acid.t values (1, 'x'), (2, 'y'), (3, 'z')")
        sql.execute("update gateway_hive_3_acid.t set n = 'updated' where id = 1")
        sql.execute("delete from gateway_hive_3_acid.t where id = 2")
        rows = [("1", "updated"), ("3", "z")]
        assert hive_sql_source.execute("select * from gateway_hive_3_acid.t order by id") == rows
        assert sql.execute("select * from gateway_hive_3_acid.t order by id") == rows
        # Hive 3.1 cannot read the name of a file that Hive 4 has written (bucket_00000_0): it fails.
        hive_sql_source.execute("insert into gateway_hive_3_acid.t values (4, 'of 4.2')")
        with pytest.raises(OlderSqlError, match="split generation failed"):
            sql.execute("select * from gateway_hive_3_acid.t order by id")
    valid = client.get_valid_write_ids(["gateway_hive_3_acid.t"])["gateway_hive_3_acid.t"]
    assert (valid.writeIdHighWaterMark, valid.invalidWriteIds) == (4, [])
    # That of the query which failed is aborted, not open; the metastore is shared with other tests.
    assert set(open_transactions(client.get_open_txns())) <= before


def test_hive_2_3(front: Serving, hive_sql_source: HiveSql, client: MetastoreClient, tmp_path: Path) -> None:
    hive_sql_source.execute("create database gateway_hive_2_acid")
    hive_sql_source.execute(
        f"create table gateway_hive_2_acid.t (id int) clustered by (id) into 2 buckets {ACID}"
    )
    hive_sql_source.execute("insert into gateway_hive_2_acid.t values (1)")
    before = set(open_transactions(client.get_open_txns()))
    with older_sql(2, front.fronts[0].uri, tmp_path / "sql") as sql:
        plain_tables(sql, "gateway_hive_2")
        # It knows no write ids, and Hive 4's transactions are none that it can read. It hangs then.
        sql.fails("insert into gateway_hive_2_acid.t values (2)", "Error communicating with the metastore")
    assert hive_sql_source.execute("select * from gateway_hive_2_acid.t") == [("1",)]
    # Transactions of the killed engine would hold up the cleaner of other tests for minutes.
    if left := set(open_transactions(client.get_open_txns())) - before:
        client.abort_txns(sorted(left))
