"""The sources of a query's rows, as far as its text shows them for certain."""

from __future__ import annotations

import pytest

from airflow_hive_federation.ingest.query_sources import QuerySources, SourceColumn, dialect_of, query_sources


@pytest.mark.parametrize(
    ("dialect", "sql", "tables", "columns"),
    [
        (
            "postgres",
            "SELECT o.ID, a + b AS c, l.x AS Y, z FROM shop.Orders o JOIN lines l ON o.id = l.id",
            "shop.orders lines",
            "id=shop.orders:id y=lines:x",
        ),
        ("postgres", "((SELECT id, id AS c FROM a))", "a", "id=a:id c=a:id"),
        (
            "postgres",
            'SELECT * FROM (SELECT * FROM "Orders") q',
            '"Orders"',
            'id="Orders":Id c="Orders":c y="Orders":y',
        ),
        ("postgres", 'SELECT "Nr" AS id, c FROM a', "a", "id=a:Nr c=a:c"),
        ("oracle", "SELECT id, sysdate AS c FROM sales.orders", "SALES.ORDERS", "id=SALES.ORDERS:ID"),
        (
            "mysql",
            "SELECT `Id`, c FROM `Sales`.`Orders`",
            "`Sales`.`Orders`",
            "id=`Sales`.`Orders`:Id c=`Sales`.`Orders`:c",
        ),
        ("postgres", "WITH q AS (SELECT nr AS id, x + 1 AS c FROM a) SELECT * FROM q", "a", "id=a:nr"),
        ("postgres", "SELECT id, c FROM a UNION ALL SELECT k, l FROM b", "a b", ""),
        ("postgres", "SELECT id FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.k = id)", "a b", "id=a:id"),
        ("postgres", "SELECT id, c FROM a, generate_series(1, 2) c", "a", ""),
        ("postgres", "SELECT id, c FROM a JOIN b USING (id)", "a b", ""),
        ("postgres", "SELECT q.id FROM (SELECT c FROM a) q(id)", "a", ""),
        ("postgres", "SELECT q.id FROM (SELECT id, c FROM a) q(c, id)", "a", ""),
        ("postgres", "SELECT o.id FROM a o(k, id)", "a", ""),
        # A name outside of FROM clauses.
        ("postgres", "SELECT id FROM a FOR UPDATE OF b", "", ""),
        # The field of a column that is a record.
        ("bigquery", "SELECT t.s.id, s.c FROM t JOIN s ON t.k = s.k", "t s", "c=s:c"),
        ("postgres", "SELECT user AS id, c FROM a", "a", "c=a:c"),
        # Some databases read the alias of another column here.
        ("redshift", "SELECT k + 1 AS x, x AS id, c FROM a", "a", "c=a:c"),
        # SQLite reads a text if there is no such column.
        ("sqlite", 'SELECT "id", c FROM a', "a", "c=a:c"),
        ("snowflake", "SELECT id, c FROM a PIVOT (sum(x) FOR c IN ('p', 'q'))", "A", ""),
        (
            "postgres",
            "WITH RECURSIVE q AS (SELECT id FROM n UNION SELECT id FROM q) SELECT * FROM q",
            "n",
            "",
        ),
        # The common table expression may read itself, or a table of this name.
        ("tsql", "WITH q AS (SELECT id FROM n UNION ALL SELECT id FROM Q) SELECT id FROM q", "", ""),
        ("sqlite", "WITH Q AS (SELECT id FROM n) SELECT id FROM q", "", ""),
        # The second entry may be an array of the first one.
        ("trino", "SELECT o.id FROM a AS o, o.lines AS l", "", ""),
        (None, "SELECT id, c FROM a", "a", ""),
        ("postgres", "SELECT id FROM", "", ""),
        ("postgres", "SELECT id FROM a; SELECT id FROM b", "", ""),
        ("postgres", "DELETE FROM a", "", ""),
    ],
)
def test_only_certain_sources_are_named(dialect: str | None, sql: str, tables: str, columns: str) -> None:
    found = {name: source.split(":") for name, source in (pair.split("=") for pair in columns.split())}
    assert query_sources(sql, dialect, {"id": "Id", "c": "c", "y": "y"}) == QuerySources(
        tables=tuple(tables.split()),
        columns={name: SourceColumn(table=table, column=column) for name, (table, column) in found.items()},
    )


def test_the_dialect_is_one_that_sqlglot_knows() -> None:
    assert dialect_of(["generic", "sqlite"]) == "sqlite"
    assert dialect_of(["mssql"]) == "tsql"
    assert dialect_of(["", "generic", "jdbc"]) is None
