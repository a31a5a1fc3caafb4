"""The tables that the text of a statement names, and the texts that are refused."""

from __future__ import annotations

import pytest

from airflow_hive_federation.clusters.statements.grammar import analyse
from airflow_hive_federation.clusters.statements.queries import select_first
from airflow_hive_federation.clusters.statements.statement import (
    Output,
    Statement,
    Unanalysable,
    UseCluster,
    UseDatabase,
)
from airflow_hive_federation.clusters.statements.tokens import split_script, tokens_of


def written(output: Output) -> str:
    values = ",".join(f"{key}={'?' if value is None else value}" for key, value in output.partition)
    return f"{output.table}{f'[{values}]' if values else ''}{' (temporary)' if output.temporary else ''}"


def summary(sql: str) -> str:
    """Return the verb of a statement, and the tables that it writes (>), reads (<) and describes (?)."""
    statement = analyse(sql)
    assert isinstance(statement, Statement), (sql, statement)
    return " ".join(
        [
            statement.verb,
            *(f">{written(output)}" for output in statement.outputs),
            *(f"<{name}" for name in sorted(statement.outline.names, key=str)),
            *(f"?{name}" for name in statement.described),
        ]
    )


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        # Queries, and Hive's forms that sqlglot does not know.
        ("SELECT * FROM spark_catalog.d.a JOIN hive.d.b", "SELECT <d.a <d.b"),
        ("SELECT trunc(1), last_value(x, true, 3) FROM a", "SELECT <a"),
        ("FROM (FROM a MAP k, v USING 'x' AS k, v) q REDUCE q.k USING 'y' AS k", "SELECT <a"),
        ("SELECT TRANSFORM(*) USING 'cat' AS (x, y) FROM a", "SELECT <a"),
        ("SELECT TRANSFORM(*) USING 'cat' AS x INT, y array<int> FROM a", "SELECT <a"),
        (
            "FROM (FROM a MAP k USING 'cat' AS x INT CLUSTER BY x) q REDUCE x USING 'cat' AS y INT",
            "SELECT <a",
        ),
        (
            "FROM a INSERT INTO b SELECT TRANSFORM(x) USING 'c' AS y INT INSERT INTO c SELECT z",
            "INSERT >b >c <a",
        ),
        ("SELECT X'1C7', x'' FROM a WHERE z = X'41'", "SELECT <a"),
        # Engines that take "…" for a name take a doubled quotation mark for one of the name's letters.
        ('SELECT * FROM "not_""exists"', 'SELECT <not_"exists'),
        ('SELECT * FROM "not_" "exists"', "SELECT <not_"),
        ('SELECT * FROM d."a""""b" JOIN b', 'SELECT <b <d.a""b'),
        ("FROM a MAP f(k, (v)), v USING 'x' AS k", "SELECT <a"),
        ("SELECT map(1, 2), reduce FROM a JOIN b USING (k)", "SELECT <a <b"),
        ("FROM (SELECT * FROM a) q CROSS JOIN b INSERT INTO c SELECT *", "INSERT >c <a <b"),
        # Inserts.
        ("INSERT OVERWRITE TABLE a PARTITION (ds = '5', hr) IF NOT EXISTS SELECT 1", "INSERT >a[ds=5,hr=?]"),
        # Hive writes to xy, an engine that takes "…" for a name fails: no partition is certain.
        ('INSERT INTO a PARTITION (ds = "x""y") SELECT 1', "INSERT >a[ds=?]"),
        ("INSERT INTO a (x, y) SELECT * FROM b", "INSERT >a <b"),
        ("INSERT INTO a PARTITION (k = f(1, 2), j = 7) (x) SELECT * FROM b", "INSERT >a[k=?,j=7] <b"),
        ("INSERT INTO `table` SELECT 1", "INSERT >table"),
        ("DROP TABLE `a-b`", "DROP TABLE >a-b"),
        ("INSERT INTO a BY NAME SELECT * FROM b", "INSERT >a <b"),
        ("INSERT INTO a DEFAULT VALUES", "INSERT >a"),
        ("INSERT INTO a VALUES (1), (2)", "INSERT >a"),
        ("INSERT INTO a (SELECT * FROM b)", "INSERT >a <b"),
        ("INSERT OVERWRITE LOCAL DIRECTORY '/x' STORED AS ORC SELECT * FROM b", "INSERT <b"),
        ("INSERT OVERWRITE DIRECTORY '/x' SELECT * FROM b", "INSERT <b"),
        (
            "INSERT OVERWRITE DIRECTORY '/x' ROW FORMAT DELIMITED MAP KEYS TERMINATED BY '=' SELECT * FROM b",
            "INSERT <b",
        ),
        (
            (
                "INSERT OVERWRITE DIRECTORY '/x' ROW FORMAT SERDE 's' WITH SERDEPROPERTIES ('a' = 'b') "
                "WITH q AS (SELECT * FROM c) SELECT * FROM b, q"
            ),
            "INSERT <b <c <q",
        ),
        ("FROM a INSERT INTO b SELECT x INSERT OVERWRITE DIRECTORY '/x' SELECT y", "INSERT >b <a"),
        ("SELECT `insert` FROM `insert`", "SELECT <insert"),
        # Definitions.
        ("CREATE DATABASE d", "CREATE"),
        ("CREATE TEMPORARY FUNCTION f AS 'x'", "CREATE"),
        ("CREATE OR REPLACE TEMPORARY FUNCTION f AS 'x'", "CREATE"),
        ("FROM a MAP * USING 'x' AS k", "SELECT <a"),
        # The number of a function's arguments is the engine's business.
        ("SELECT date_format(x), if(x) FROM a WHERE regexp_replace(x) = 1", "SELECT <a"),
        ("CREATE OR REPLACE GLOBAL TEMPORARY VIEW a AS SELECT * FROM b", "CREATE VIEW >a (temporary) ?b"),
        ("CREATE VIEW a AS WITH q AS (SELECT * FROM b) SELECT * FROM q, d.q", "CREATE VIEW >a ?b ?d.q"),
        ("CREATE TEMPORARY MACRO m(x INT) x + 1", "CREATE"),
        ("CREATE EXTERNAL TABLE IF NOT EXISTS d.a (x INT)", "CREATE TABLE >d.a"),
        ("CREATE TABLE a LIKE b", "CREATE TABLE >a ?b"),
        ("CREATE TABLE a STORED AS ORC AS SELECT * FROM b", "CREATE TABLE >a <b"),
        ("CREATE TABLE a SELECT * FROM b", "CREATE TABLE >a <b"),
        ("CREATE TABLE a (x STRING COMMENT 'AS SELECT') LOCATION 'x'", "CREATE TABLE >a"),
        ("CREATE MATERIALIZED VIEW a AS SELECT * FROM b", "CREATE MATERIALIZED VIEW >a <b"),
        ("ALTER DATABASE d SET OWNER USER u", "ALTER"),
        ("ALTER TABLE d.a RENAME TO b", "ALTER TABLE >d.a >d.b"),
        ("ALTER TABLE a PARTITION (ds = '5') RENAME TO PARTITION (ds = '6')", "ALTER TABLE >a[ds=5]"),
        ("ALTER TABLE a PARTITION COLUMN (ds INT)", "ALTER TABLE >a"),
        ("ALTER VIEW a AS SELECT * FROM b", "ALTER VIEW >a ?b"),
        (
            "ALTER TABLE a EXCHANGE PARTITION (ds = '5') WITH TABLE b",
            "ALTER TABLE >a[ds=5] >b[ds=5]",
        ),
        ("DROP FUNCTION IF EXISTS f", "DROP"),
        ("DROP DATABASE IF EXISTS d RESTRICT", "DROP DATABASE"),
        ("DROP VIEW IF EXISTS a", "DROP VIEW >a"),
        # Other writers.
        ("TRUNCATE TABLE a PARTITION (ds = '5')", "TRUNCATE TABLE >a[ds=5]"),
        ("LOAD DATA LOCAL INPATH '/x' OVERWRITE INTO TABLE a PARTITION (ds = '5')", "LOAD DATA >a[ds=5]"),
        ("IMPORT EXTERNAL TABLE a PARTITION (ds = '5') FROM '/x'", "IMPORT >a[ds=5]"),
        ("EXPORT TABLE d.a PARTITION (ds = '5') TO '/x'", "EXPORT <d.a"),
        ("MSCK REPAIR TABLE a", "MSCK REPAIR TABLE >a"),
        ("UPDATE a SET x = 1 WHERE k IN (SELECT k FROM b)", "UPDATE >a <a <b"),
        ("DELETE JAR x.jar", "DELETE"),
        ("COMMENT ON TABLE a IS 'x'", "COMMENT >a"),
        ("COMMENT ON DATABASE d IS 'x'", "COMMENT"),
        ("CACHE LAZY TABLE q AS SELECT * FROM a", "CACHE TABLE >q (temporary) <a"),
        ("CACHE TABLE a", "CACHE TABLE ?a"),
        # Questions about definitions.
        ("DESCRIBE DATABASE d", "DESCRIBE"),
        ("DESC EXTENDED TABLE d.a", "DESC ?d.a"),
        ("DESCRIBE table", "DESCRIBE ?table"),
        ("DESCRIBE QUERY SELECT * FROM a", "SELECT <a"),
        ("DESCRIBE SELECT * FROM a", "SELECT <a"),
        ("SHOW CREATE TABLE d.a", "SHOW ?d.a"),
        ("SHOW PARTITIONS a", "SHOW ?a"),
        ("SHOW COLUMNS IN a IN d", "SHOW ?d.a"),
        ("SHOW COLUMNS IN d.a IN d", "SHOW ?d.a"),
        ("SHOW FUNCTIONS", "SHOW"),
        ("REFRESH TABLE a", "REFRESH TABLE ?a"),
        ("LOCK TABLE a SHARED", "LOCK TABLE ?a"),
        ("UNLOCK DATABASE d", "LOCK"),
        ("EXPLAIN CBO COST SELECT * FROM a", "SELECT <a"),
        ("SELECT * FROM a;;", "SELECT <a"),
    ],
)
def test_tables(sql: str, expected: str) -> None:
    assert summary(sql) == expected


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("USE d", UseDatabase("d")),
        ("USE DATABASE `D`", UseDatabase("d")),
        ("USE CLUSTER C2;", UseCluster("C2")),
        ("USE CLUSTER 'C2'", UseCluster("C2")),
        ("USE CLUSTER", UseCluster(None)),
    ],
)
def test_use(sql: str, expected: UseDatabase | UseCluster) -> None:
    assert analyse(sql) == expected


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("", "expected a statement, found 'the end'"),
        ("SELECT 1; SELECT 2", "there are several statements"),
        ("SELECT '\0'", "it contains a zero byte"),
        ("SELECT * FROM a WHERE " + "(" * 201 + "x" + ")" * 201, "parentheses are nested deeper than 200"),
        ("SELECT 1" + " " * 2_000_000, "it has more than 2,000,000 characters"),
        ("SELECT " + "NOT " * 20_000 + "true", "it is nested too deeply to be"),
        ("SELECT * INTO b FROM a", "expected INSERT INTO before SELECT"),
        ("SELECT * FROM IDENTIFIER('d').a", "a table has no plain name"),
        ("SELECT X'no digits' FROM a", "a quotation, comment or number does not end"),
        ("FROM a INSERT INTO b SELECT * INSERT INTO c", "expected a query"),
        ("INSERT OVERWRITE DIRECTORY '/x' STORED AS ORC", "expected a query"),
        ("FROM a INSERT INTO b DEFAULT VALUES INSERT INTO c SELECT *", "expected SELECT"),
        ("INSERT INTO a PARTITION (ds = '5'", "expected )"),
        ("INSERT INTO a PARTITION (, ds) SELECT 1", "expected keys of a partition"),
        ("INSERT INTO a PARTITION (5) SELECT 1", "expected keys of a partition"),
        ("INSERT INTO a SET x = 1", "expected a query"),
        ("CREATE SCHEDULED QUERY q CRON '0' AS SELECT 1", "expected TABLE or VIEW"),
        ("CREATE VIEW v", "expected AS and a query"),
        ("USE d e", "expected the end of the statement"),
        ("USE 5", "expected a name"),
        ("USE", "expected a name"),
        ("ALTER RESOURCES x", "expected TABLE or VIEW"),
        ("ALTER TABLE a EXCHANGE PARTITION (ds = '5') b", "expected WITH TABLE"),
        ("DROP DATABASE d CASCADE", "which may be in several clusters"),
        ("DROP x", "expected TABLE, VIEW or DATABASE"),
        ("INSERT INTO a TABLE b", "expected one query"),
        ("MSCK REPAIR TABLE", "expected the name of a table"),
        ("LOAD DATA INPATH '/x'", "expected LOAD DATA"),
        ("IMPORT FROM '/x'", "the name of the table is in the files"),
        ("LOCK a", "expected LOCK TABLE"),
        ("REPAIR a", "expected REPAIR TABLE"),
        ("SHOW COLUMNS IN d.a IN e", "expected no other database than d"),
        ("ANALYZE TABLES IN d COMPUTE STATISTICS", "all tables of a database"),
        ("DELETE FROM (SELECT 1) q", "expected the table that is changed"),
        ("MERGE a", "Expected table name, at 'a'"),
        ("UNCACHE_ALL", "expected a statement of Hive or Spark"),
    ],
    ids=lambda value: value[:40],
)
def test_refused(sql: str, reason: str) -> None:
    analysis = analyse(sql)
    assert isinstance(analysis, Unanalysable), analysis
    assert reason in analysis.reason


def test_a_constant_with_a_doubled_quotation_mark_is_uncertain() -> None:
    uncertain, certain = (analyse(f"SELECT * FROM a WHERE p = {text}") for text in ('"x""y"', "'x\"y'"))
    assert isinstance(uncertain, Statement)
    assert isinstance(certain, Statement)
    assert (uncertain.uncertain, certain.uncertain) == (frozenset({'x"y'}), frozenset())


def test_scripts_are_divided() -> None:
    script = ";\n-- only this;\nSELECT ';' FROM a; ;\nUSE b; -- end"
    assert split_script(script) == ("-- only this;\nSELECT ';' FROM a", "USE b")


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("FROM ( SELECT 1 ) q JOIN b SELECT x , y", "SELECT x , y FROM ( SELECT 1 ) q JOIN b"),
        ("FROM a SELECT x WHERE k = 1", "SELECT x FROM a WHERE k = 1"),
        (
            "FROM ( FROM a SELECT k GROUP BY k ) q , b SELECT ( FROM c SELECT 1 ) LIMIT 5",
            "SELECT ( SELECT 1 FROM c ) FROM ( SELECT k FROM a GROUP BY k ) q , b LIMIT 5",
        ),
        (
            "FROM a SELECT x UNION ALL FROM b SELECT y",
            "SELECT x FROM a UNION ALL SELECT y FROM b",
        ),
        (
            "WITH q AS ( FROM a SELECT x ) FROM q LATERAL VIEW f ( x ) SELECT extract ( year FROM d )",
            "WITH q AS ( SELECT x FROM a ) SELECT extract ( year FROM d ) FROM q LATERAL VIEW f ( x )",
        ),
        ("SELECT trim ( BOTH 'x' FROM y ) FROM a", None),
        ("SELECT x FROM a WHERE b IS DISTINCT FROM ( SELECT 1 )", None),
        ("DELETE FROM a WHERE x = 1", None),
    ],
)
def test_a_from_clause_moves_behind_its_columns(sql: str, expected: str | None) -> None:
    moved = select_first(tokens_of(sql))
    text = None if moved is None else " ".join(sql[token.start : token.end + 1] for token in moved)
    assert text == expected
