"""PostgreSQL as a source: its values, and going on behind a key; its cursors, and MariaDB's."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.embedded.sql import HiveSql
from airflow_hive_federation.ingest.errors import InvalidSource, SourceError
from airflow_hive_federation.ingest.queries import QueryRequest, ingest_query
from airflow_hive_federation.ingest.runs import IngestReport
from airflow_hive_federation.metastore import MetastoreSettings
from tests.support.databases import Database, mariadb, postgresql

pytestmark = pytest.mark.slow

HIVE = "from_databases"
PROJECT = Path(__file__).parents[3]
ANSWER_BYTES, TEXT_BYTES = 160_000_000, 4_000


@pytest.fixture(scope="module", params=[postgresql, mariadb], ids=lambda made: made.__name__)
def database(request: pytest.FixtureRequest) -> Iterator[Database]:
    with request.param() as running:
        yield running


@pytest.fixture(scope="module")
def sql(hive_sql_source: HiveSql) -> HiveSql:
    hive_sql_source.execute(f"CREATE DATABASE IF NOT EXISTS {HIVE}")
    return hive_sql_source


def ingest(source: EmbeddedMetastore, database: Database, **request: Any) -> IngestReport:
    settings = MetastoreSettings(uris=(source.uri,))
    return ingest_query(settings, QueryRequest(**request), database.connect, placeholder=database.placeholder)


@pytest.mark.parametrize("database", [postgresql], ids=["postgresql"], indirect=True)
def test_values_and_keys(sql: HiveSql, source: EmbeddedMetastore, database: Database) -> None:
    """Rows of all kinds, in two runs, by a key of two columns of which one is a timestamp."""
    table = f"{HIVE}.values_{database.name}"
    sql.execute(
        f"CREATE TABLE {table} (id bigint, name string, amount decimal(12,2), placed timestamp, due date, "
        "ok boolean, x double, data binary) STORED AS ORC TBLPROPERTIES ('transactional'='true')"
    )
    database.execute(
        "CREATE TABLE orders (id bigint, name varchar(50), amount numeric(12,2), placed timestamp, "
        "due date, ok boolean, x double precision, data bytea)",
        "INSERT INTO orders VALUES "
        "(2, '100 % é😀', 12.50, '2026-01-01 00:00:00.000001', '2026-02-28', true, 1.5, 'ab'), "
        "(1, NULL, -0.01, '2026-01-01 00:00:00.000001', NULL, false, NULL, NULL)",
    )
    request: dict[str, Any] = {
        "table": table,
        "sql": "SELECT * FROM orders WHERE name IS NULL OR name LIKE '%'",
        "order_by": ["placed", "id"],
    }
    assert ingest(source, database, **request).records == 2
    database.execute(
        "INSERT INTO orders VALUES (1, '', 0, '2026-01-01 00:00:00.000002', '1969-12-31', NULL, -1e300, '')"
    )
    assert ingest(source, database, **request).records == 1
    assert ingest(source, database, **request).transactions == 0
    answer = sql.execute(
        f"SELECT id, name, amount, placed, due, ok, x, hex(data) FROM {table} ORDER BY placed, id"
    )
    assert [tuple(row) for row in answer] == [
        ("1", None, "-0.01", "2026-01-01 00:00:00.000001", None, "false", None, None),
        ("2", "100 % é😀", "12.50", "2026-01-01 00:00:00.000001", "2026-02-28", "true", "1.5", "6162"),
        ("1", "", "0.00", "2026-01-01 00:00:00.000002", "1969-12-31", None, "-1.0E300", ""),
    ]


@pytest.mark.parametrize("database", [postgresql], ids=["postgresql"], indirect=True)
def test_what_the_database_refuses(sql: HiveSql, source: EmbeddedMetastore, database: Database) -> None:
    table = f"{HIVE}.refused_{database.name}"
    sql.execute(f"CREATE TABLE {table} (a int) STORED AS ORC TBLPROPERTIES ('transactional'='true')")
    with pytest.raises(SourceError, match="nothing_there"):
        ingest(source, database, table=table, sql="nothing_there", order_by=["a"])
    with pytest.raises(InvalidSource, match="a: 1 comes after 1, and is not greater"):
        ingest(source, database, table=table, sql="SELECT 1 a UNION ALL SELECT 1", order_by=["a"])


def test_an_answer_is_never_held_whole(database: Database) -> None:
    count = ANSWER_BYTES // TEXT_BYTES
    number, numbers = {
        "postgresql": ("generate_series", f"generate_series(1, {count})"),
        "mariadb": ("seq", f"seq_1_to_{count}"),
    }[database.name]
    database.execute(
        "CREATE TABLE large (a int PRIMARY KEY, b text)",
        f"INSERT INTO large SELECT {number}, repeat('x', {TEXT_BYTES}) FROM {numbers}",
    )
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.bounded_query", database.name, str(database.port)],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    report = json.loads(done.stdout)
    assert report["rows"] == count
    assert report["taken_bytes"] < ANSWER_BYTES / 3
