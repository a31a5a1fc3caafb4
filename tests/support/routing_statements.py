"""Statements whose tables the router and Spark's own parser must find alike."""

from __future__ import annotations

from collections.abc import Iterator

from tests.support.random_queries import Queries

#: Places of a table in a statement; ``{t}`` is replaced by each of :data:`NAMES`.
_TEMPLATES = (
    "SELECT * FROM {t}",
    "SELECT a.x, b.y FROM {t} a JOIN two b ON a.k = b.k",
    "SELECT * FROM one, {t}, three WHERE one.k = three.k",
    "SELECT * FROM one LEFT OUTER JOIN {t} r ON one.k = r.k AND r.ds = '2026-01-01'",
    "SELECT * FROM one LEFT SEMI JOIN {t} r ON one.k = r.k",
    "SELECT * FROM one LEFT ANTI JOIN {t} r ON one.k = r.k",
    "SELECT * FROM one CROSS JOIN ({t} r JOIN two ON r.k = two.k)",
    "SELECT * FROM one NATURAL JOIN {t}",
    "SELECT * FROM one JOIN {t} r USING (k)",
    "SELECT * FROM (SELECT k FROM {t}) q",
    "SELECT * FROM (SELECT k FROM {t} UNION ALL SELECT k FROM two) q",
    "SELECT k FROM {t} EXCEPT SELECT k FROM two",
    "SELECT k FROM one INTERSECT SELECT k FROM {t}",
    "SELECT * FROM one WHERE k IN (SELECT k FROM {t})",
    "SELECT * FROM one WHERE NOT EXISTS (SELECT 1 FROM {t} r WHERE r.k = one.k)",
    "SELECT * FROM one WHERE k = (SELECT max(k) FROM {t})",
    "SELECT (SELECT max(k) FROM {t}) AS m FROM one",
    "SELECT CASE WHEN k IN (SELECT k FROM {t}) THEN 1 END FROM one",
    "SELECT k, count(*) FROM one GROUP BY k HAVING count(*) > (SELECT count(*) FROM {t})",
    "WITH q AS (SELECT * FROM {t}) SELECT * FROM q",
    "WITH q AS (SELECT * FROM {t}), r AS (SELECT * FROM q) SELECT * FROM r JOIN two ON r.k = two.k",
    "WITH q AS (SELECT 1 FROM {t}) SELECT 1 FROM q WHERE k IN (WITH r AS (SELECT 1 FROM b) SELECT 1 FROM r)",
    "SELECT * FROM (WITH q AS (SELECT * FROM {t}) SELECT * FROM q) x",
    "WITH q(a, b) (SELECT * FROM {t}) SELECT * FROM q",
    "WITH RECURSIVE q(a) (SELECT k FROM {t} UNION ALL SELECT a + 1 FROM q WHERE a < 9) SELECT * FROM q",
    "WITH plain AS (SELECT * FROM {t}) SELECT * FROM plain, two",
    "CREATE TABLE new AS (SELECT * FROM {t})",
    "SELECT * FROM {t} LATERAL VIEW explode(arr) e AS item",
    "SELECT * FROM {t} r LATERAL VIEW OUTER posexplode(arr) e AS p, item WHERE p > 1",
    "SELECT * FROM {t} TABLESAMPLE (10 PERCENT) s",
    "SELECT * FROM {t} TABLESAMPLE (BUCKET 1 OUT OF 4) s",
    "FROM {t} SELECT k WHERE ds = '2026-01-01'",
    "FROM (FROM {t} SELECT k) q SELECT k",
    "FROM {t} JOIN two ON {t}.k = two.k SELECT *",
    "SELECT TRANSFORM(k, v) USING 'cat' AS (a, b) FROM {t}",
    "SELECT TRANSFORM(*) USING 'cat' AS a STRING, b decimal(10, 2) ROW FORMAT SERDE 's' FROM {t}",
    "FROM (FROM {t} MAP k, v USING 'cat' AS a, b) q REDUCE q.a, q.b USING 'cat' AS c",
    "SELECT X'1C7', x'' FROM {t} WHERE b = X'4561'",
    "SELECT * FROM {t} DISTRIBUTE BY k SORT BY v",
    "SELECT * FROM {t} CLUSTER BY k",
    "SELECT rank() OVER (PARTITION BY k ORDER BY v) FROM {t} WINDOW w AS (PARTITION BY k)",
    "SELECT k, grouping(k) FROM {t} GROUP BY k WITH CUBE",
    "SELECT k FROM {t} GROUP BY k, v GROUPING SETS ((k), (v))",
    "SELECT extract(year FROM d) FROM {t} WHERE a IS DISTINCT FROM b",
    "SELECT trim(BOTH ' ' FROM s), substring(s FROM 1 FOR 2) FROM {t}",
    "SELECT trunc(d, 'MM'), last_value(v, true) OVER (ORDER BY k), nvl(a, b) FROM {t}",
    "SELECT `from`, `select` FROM {t} `where`",
    "SELECT * FROM {t} -- , two\n JOIN three ON 1 = 1 /* JOIN four */",
    "SELECT 'FROM two' AS x FROM {t} WHERE y = \"JOIN three\"",
    "SELECT * FROM {t} a, LATERAL (SELECT * FROM two b WHERE a.k = b.k) c",
    "SELECT * FROM {t} PIVOT (sum(v) FOR k IN (1, 2))",
    "SELECT /*+ BROADCAST(two) */ * FROM {t} JOIN two ON 1 = 1",
    "SELECT /*+ MAPJOIN(two) */ * FROM {t} JOIN two ON 1 = 1",
    "SELECT * FROM range(10) r JOIN {t} ON 1 = 1",
    "SELECT * FROM VALUES (1, 2) AS v(a, b), {t}",
    "SELECT * FROM {t} WHERE (a, b) IN (SELECT c, d FROM two)",
    "SELECT filter(arr, x -> x > 1) FROM {t}",
    "SELECT * FROM {t} FULL OUTER JOIN two ON {t}.k <=> two.k ORDER BY 1 LIMIT 3",
    "(SELECT * FROM {t}) UNION DISTINCT (SELECT * FROM two)",
    "SELECT * FROM ((SELECT * FROM {t}) UNION (SELECT * FROM two)) q",
    "INSERT INTO TABLE out SELECT * FROM {t}",
    "INSERT INTO {t} SELECT * FROM two",
    "INSERT INTO {t} (a, b) SELECT a, b FROM two",
    "INSERT INTO {t} VALUES (1, 'FROM x'), (2, 'b')",
    "INSERT OVERWRITE TABLE {t} PARTITION (ds = '2026-01-01', hr) SELECT * FROM two",
    "INSERT OVERWRITE TABLE out PARTITION (ds = '1') IF NOT EXISTS SELECT * FROM {t}",
    "WITH q AS (SELECT * FROM {t}) INSERT INTO TABLE out SELECT * FROM q",
    "INSERT OVERWRITE LOCAL DIRECTORY '/tmp/x' STORED AS orc SELECT * FROM {t}",
    "INSERT OVERWRITE DIRECTORY '/tmp/x' ROW FORMAT DELIMITED FIELDS TERMINATED BY ',' SELECT * FROM {t}",
    "INSERT OVERWRITE DIRECTORY '/x' ROW FORMAT DELIMITED MAP KEYS TERMINATED BY '=' SELECT * FROM {t}",
    "INSERT OVERWRITE DIRECTORY '/x' ROW FORMAT SERDE 's' WITH SERDEPROPERTIES ('a' = 'b') SELECT * FROM {t}",
    "FROM {t} INSERT OVERWRITE TABLE a SELECT k WHERE v = 1 INSERT INTO TABLE b PARTITION (ds) SELECT k, ds",
    "FROM (SELECT * FROM {t} JOIN two ON 1 = 1) q INSERT INTO a SELECT * INSERT INTO b SELECT k GROUP BY k",
    "FROM {t} t1 JOIN two ON t1.k = two.k INSERT INTO a SELECT t1.k INSERT INTO b SELECT two.k LIMIT 3",
    "CREATE TABLE new AS SELECT * FROM {t}",
    "CREATE TABLE IF NOT EXISTS new STORED AS ORC AS SELECT * FROM {t}",
    "CREATE TABLE new USING parquet PARTITIONED BY (ds) AS SELECT * FROM {t}",
    "CREATE TABLE new LIKE {t}",
    "CREATE VIEW new AS SELECT * FROM {t}",
    "CREATE OR REPLACE VIEW new (a COMMENT 'from x', b) AS WITH q AS (SELECT 1 FROM {t}) SELECT 1 FROM q, b",
    "ALTER VIEW {t} AS SELECT * FROM two",
    "ALTER TABLE {t} ADD COLUMNS (x int)",
    "ALTER TABLE {t} DROP IF EXISTS PARTITION (ds = '1')",
    "ALTER TABLE {t} SET TBLPROPERTIES ('a' = 'b')",
    "TRUNCATE TABLE {t}",
    "DROP TABLE IF EXISTS {t}",
    "LOAD DATA LOCAL INPATH '/tmp/x' OVERWRITE INTO TABLE {t} PARTITION (ds = '1')",
    "ANALYZE TABLE {t} COMPUTE STATISTICS FOR COLUMNS a",
    "MSCK REPAIR TABLE {t}",
    "DESCRIBE FORMATTED {t}",
    "SHOW PARTITIONS {t}",
    "SHOW CREATE TABLE {t}",
    "EXPLAIN EXTENDED SELECT * FROM {t}",
    "DELETE FROM {t} WHERE k IN (SELECT k FROM two)",
    "UPDATE {t} SET v = 1 WHERE k IN (SELECT k FROM two)",
    """MERGE INTO {t} AS a USING two AS b ON a.k = b.k WHEN MATCHED THEN UPDATE SET a.v = b.v
    WHEN NOT MATCHED THEN INSERT (k, v) VALUES (b.k, b.v)""",
    "MERGE INTO out USING (SELECT * FROM {t} JOIN two ON 1 = 1) b ON out.k = b.k WHEN MATCHED THEN DELETE",
)
NAMES = ("plain", "db.other", "`Quoted Name`", "`db`.`From`", "2026_days")


def statements() -> Iterator[str]:
    """All of them, some hundred."""
    for template in _TEMPLATES:
        for name in NAMES:
            # A column cannot be qualified by database and table in Hive.
            column = name.partition(".")[2] or name
            yield template.replace("{t}.k", f"{column}.k").replace("{t}", name)
    for seed in range(300):
        yield Queries(seed).query()
