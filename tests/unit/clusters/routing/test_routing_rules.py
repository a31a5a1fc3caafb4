"""Rules of routing beyond the examples of the design."""

from __future__ import annotations

import pickle
from datetime import UTC, date, datetime

import pytest

from airflow_hive_federation.clusters.placement import Clusters, Session
from airflow_hive_federation.clusters.routing import route as routing
from airflow_hive_federation.clusters.routing.decision import Rule
from airflow_hive_federation.clusters.routing.explain import cheapest_copies
from airflow_hive_federation.clusters.routing.route import Policy, decide, next_session, possible_days, route
from airflow_hive_federation.clusters.statements import reads
from airflow_hive_federation.errors import ConfigurationError, RoutingError, UnanalysableError
from tests.support.catalogs import CLUSTERS, Catalog, placed


def cluster(sql: str, catalog: Catalog, session: Session | None = None) -> str | None:
    return decide(sql, catalog, CLUSTERS, session, today=[date(2026, 3, 7)]).cluster


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT 1", "C1"),
        ("SHOW TABLES", "C1"),
        ("SET x=y", "C1"),
        ("SELECT * FROM plain", "C1"),
        ("SELECT * FROM plain JOIN b", None),
        ("SELECT * FROM a, b", "C2"),
        ("SELECT * FROM b, a", "C2"),
        # Inputs are tried in their order, and none of them has both.
        ("SELECT * FROM c, b", None),
        ("SELECT * FROM b JOIN logs ON b.k = logs.k WHERE ds >= date_sub(current_date, 3)", "C2"),
        ("SELECT * FROM b JOIN logs ON b.k = logs.k WHERE ds >= date_sub(current_date, 4)", None),
        ("SELECT * FROM b JOIN logs ON b.k = logs.k WHERE ds > 'x'", "C2"),
        # A condition that is never true excludes all partitions, whatever its columns.
        ("SELECT * FROM b JOIN logs ON b.k = logs.k AND 1 = 0", "C2"),
        ("SELECT * FROM b JOIN logs ON b.k = logs.k WHERE b.k = NULL", "C2"),
        ("SELECT * FROM b LEFT JOIN logs ON b.k = logs.k AND ds > '2026-03-04'", "C2"),
        (
            "SELECT * FROM b LEFT JOIN logs ON b.k = logs.k WHERE logs.ds > '2026-03-04' OR logs.ds IS NULL",
            None,
        ),
        # Behind a semi-join, `ds` cannot be a key of its right side.
        ("SELECT * FROM b LEFT SEMI JOIN logs ON b.k = logs.k WHERE ds = '2026-03-05'", None),
        ("SELECT * FROM b LEFT ANTI JOIN logs ON b.k = logs.k WHERE ds = '2026-03-05'", None),
        ("SELECT * FROM b LEFT SEMI JOIN logs ON b.k = logs.k AND ds = '2026-03-05'", "C2"),
        ("SELECT * FROM b LEFT ANTI JOIN logs ON b.k = logs.k AND logs.ds = '2026-03-05'", "C2"),
        ("SELECT * FROM logs LEFT ANTI JOIN b ON b.k = logs.k AND logs.ds = '2026-03-05'", None),
        ("SELECT * FROM logs LEFT SEMI JOIN b ON b.k = logs.k AND logs.ds = '2026-03-05'", "C2"),
        ("SELECT * FROM logs FULL JOIN b ON b.k = logs.k AND logs.ds = '2026-03-05'", None),
        ("SELECT * FROM logs LATERAL VIEW explode(x) e AS y JOIN b WHERE ds = '2026-03-05'", "C2"),
        ("FROM logs JOIN b ON logs.k = b.k SELECT * WHERE ds = '2026-03-05'", "C2"),
        ("SELECT * FROM (SELECT * FROM logs LIMIT 9) l JOIN b WHERE l.ds = '2026-03-05'", None),
        ("SELECT * FROM (SELECT * FROM logs) l JOIN b WHERE l.ds = '2026-03-05'", "C2"),
        (
            "SELECT * FROM (SELECT ds, rank() OVER (ORDER BY k) FROM logs) l, b WHERE l.ds = '2026-03-05'",
            None,
        ),
        ("SELECT * FROM (SELECT ds, max(k) FROM logs GROUP BY ds) l, b WHERE l.ds = '2026-03-05'", "C2"),
        ("SELECT * FROM (SELECT k AS ds FROM logs) l JOIN b WHERE l.ds = '2026-03-05'", None),
        ("SELECT * FROM (SELECT ds FROM logs GROUP BY length(k), ds) l, b WHERE ds = '2026-03-05'", "C2"),
        ("SELECT * FROM (SELECT ds FROM logs GROUP BY ds WITH ROLLUP) l, b WHERE ds IS NULL", None),
        ("SELECT * FROM (SELECT DISTINCT ON (k) ds FROM logs) l, b WHERE ds = '2026-03-05'", None),
        # Columns that a star does not contribute as they are, or not alone.
        ("SELECT * FROM (SELECT * REPLACE (k AS ds) FROM logs) l, b WHERE l.ds = '2026-03-05'", None),
        ("SELECT * FROM (SELECT k AS ds, logs.* FROM logs) l, b WHERE l.ds = '2026-03-05'", None),
        ("SELECT * FROM (SELECT logs.*, a.* FROM logs, a) l, b WHERE l.ds = '2026-03-05'", None),
        ("SELECT * FROM (SELECT *, inline(x) AS (ds, y) FROM logs) l, b WHERE l.ds = '2026-03-05'", None),
        (
            """WITH RECURSIVE r AS (SELECT ds FROM logs UNION ALL SELECT ds FROM r)
            SELECT * FROM r JOIN b WHERE r.ds = '2026-03-05'""",
            None,
        ),
        ("SELECT * FROM logs AS l(ds, k) JOIN b WHERE l.ds = '2026-03-05'", None),
        ("SELECT * FROM b JOIN logs WHERE ds = '2026\\-03-05'", None),
        ("SELECT * FROM b JOIN logs WHERE ds = '2026-03-' '05'", None),
        ("SELECT * FROM b JOIN logs TABLESAMPLE(5 PERCENT) l WHERE l.ds = '2026-03-05'", "C2"),
        (
            """FROM logs INSERT INTO b SELECT * WHERE ds = '2026-03-05'
            INSERT INTO TABLE b SELECT * WHERE ds = '2026-03-06'""",
            "C2",
        ),
        ("FROM logs INSERT INTO b SELECT * WHERE ds = '2026-03-05' INSERT INTO b SELECT *", None),
        ("SELECT * FROM b WHERE k IN (SELECT k FROM logs WHERE ds = '2026-03-05')", "C2"),
        ("SELECT * FROM b WHERE k IN (SELECT k FROM logs)", None),
        ("WITH logs AS (SELECT * FROM b) SELECT * FROM logs", "C2"),
        ("WITH unused AS (SELECT * FROM b) SELECT * FROM a", "C2"),
        # One of two inserts refers to the expression.
        (
            """WITH q AS (SELECT * FROM logs), r AS (SELECT * FROM q) FROM a INSERT INTO b SELECT *
            INSERT INTO b SELECT * WHERE k IN (SELECT k FROM r WHERE ds = '2026-03-05')""",
            "C2",
        ),
        ("WITH q AS (SELECT * FROM logs) FROM a INSERT INTO b SELECT 1 INSERT INTO b SELECT 2", None),
        ("SELECT * FROM a, LATERAL (SELECT * FROM b WHERE a.k = b.k) x", "C2"),
        ("INSERT INTO TABLE b SELECT * FROM a", "C2"),
        ("INSERT INTO TABLE a SELECT * FROM b", None),
        ("INSERT INTO TABLE logs PARTITION (ds = '2026-03-09') SELECT * FROM a", "C1"),
        ("INSERT OVERWRITE TABLE split PARTITION (ds = '1') SELECT * FROM a", "C1"),
        ("INSERT OVERWRITE TABLE split PARTITION (ds = '9') SELECT * FROM a", "C1"),
        # Hive cuts a value to the length of its type, Spark does not.
        ("SELECT * FROM b JOIN logs WHERE ds = CAST('2026-03-05' AS STRING)", "C2"),
        ("SELECT * FROM b JOIN logs WHERE ds = CAST('2026-03-01-05' AS CHAR(10))", None),
        ("SELECT * FROM b JOIN logs WHERE ds = CAST('2026-03-01-05' AS VARCHAR(10))", None),
        ("SELECT * FROM b JOIN logs WHERE CAST(ds AS CHAR(9)) = '2026-03-0'", None),
        # Two primaries, by the partition.
        ("INSERT OVERWRITE TABLE split PARTITION (ds = '2') SELECT * FROM a", None),
        ("INSERT OVERWRITE TABLE split PARTITION (ds) SELECT * FROM a", None),
        # Engines put another value in the place of the variable, and read the escape differently.
        ("INSERT OVERWRITE TABLE split PARTITION (ds = '${d}') SELECT * FROM a", None),
        ("INSERT OVERWRITE TABLE split PARTITION (ds = '\\x39') SELECT * FROM a", None),
        ("SELECT * FROM split", None),
        ("SELECT * FROM split WHERE ds IN ('1', '3')", "C1"),
        ("SELECT * FROM split WHERE ds = '2'", None),
        ("SELECT * FROM split WHERE ds NOT LIKE '1%'", None),
        ("SELECT * FROM split WHERE ds NOT LIKE '2%'", "C1"),
        ("CREATE TABLE new STORED AS ORC AS SELECT * FROM b", "C2"),
        ("CREATE TABLE new LIKE b", "C2"),
        ("CREATE TEMPORARY TABLE c AS SELECT * FROM b", "C2"),
        ("CREATE TABLE new LIKE b LOCATION 'hdfs://x'", "C2"),
        ("CREATE TABLE new LIKE FILE PARQUET 'hdfs://x'", "C1"),
        ("SHOW COLUMNS FROM default.b FROM default", "C2"),
        ("SHOW COLUMNS FROM default.b FROM other", None),
        ("SELECT FROM a", None),
        # Names that the text does not spell out.
        ("SELECT * FROM IDENTIFIER('b')", None),
        ("SELECT * FROM IDENTIFIER('b' || '')", None),
        ("INSERT INTO IDENTIFIER('b') SELECT 1", None),
        ("SELECT * FROM a.b.c.d", None),
        ("SELECT * FROM f(TABLE(b))", None),
        ("SELECT * FROM f(TABLE(SELECT * FROM b))", "C2"),
        ("SELECT * FROM range(5)", "C1"),
        ("SELECT * FROM ${b}", None),
        ("SELECT * FROM a${b}", None),
        ("SELECT '${b}' FROM a", "C1"),
        # Other dialects.
        ("SELECT * INTO new FROM a", None),
        ("SELECT TOP 5 * FROM [a]", None),
        ("SELECT * FROM 's3://bucket/file.parquet'", None),
        ("REPLACE INTO a VALUES (1)", None),
        ("COPY a FROM 'x'", None),
        ("CREATE INDEX i ON TABLE b (k) AS 'COMPACT'", "C2"),
        ("ALTER INDEX i ON b REBUILD", "C2"),
        ("DROP INDEX IF EXISTS i ON b", "C2"),
        ("DROP INDEX i", None),
        ("SHOW COLUMNS FROM b FROM default", "C2"),
        ("SHOW COLUMNS FROM b FROM other", None),
        ("SELECT * FROM ` b`", None),
        ("CREATE TABLE new (x int)", "C1"),
        ("CREATE VIEW v AS SELECT * FROM b JOIN c", "C2"),
        ("TRUNCATE TABLE b", "C2"),
        ("ALTER TABLE b RENAME TO b2", "C2"),
        ("ALTER TABLE logs DROP PARTITION (ds < '2026')", "C1"),
        ("LOAD DATA INPATH 'x' INTO TABLE c", "C3"),
        ("DELETE FROM b WHERE k IN (SELECT k FROM a)", "C2"),
        ("MERGE INTO b USING a ON a.k = b.k WHEN MATCHED THEN DELETE", "C2"),
        ("MERGE INTO b USING c ON c.k = b.k WHEN MATCHED THEN DELETE", None),
        ("EXPLAIN EXTENDED SELECT * FROM b", "C2"),
        ("DESCRIBE FORMATTED b", "C2"),
        ("ANALYZE TABLE b COMPUTE STATISTICS", "C2"),
        ("EXPORT TABLE b TO 'x'", "C2"),
        ("SELECT * FROM missing", None),
        ("DROP TABLE IF EXISTS missing", "C1"),
        ("USE other", "C1"),
    ],
    ids=lambda value: value if isinstance(value, str) else "fails",
)
def test_rules(catalog: Catalog, sql: str, expected: str | None) -> None:
    assert cluster(sql, catalog) == expected


def test_views_are_expanded_with_conditions_from_outside(catalog: Catalog) -> None:
    catalog.add_view(
        "recent", "SELECT `logs`.`k` AS `k`, `logs`.`ds` AS `day` FROM `default`.`logs`", "k", "day"
    )
    join = "SELECT * FROM b JOIN recent ON b.k = recent.k"
    assert cluster(f"{join} WHERE recent.day = '2026-03-05'", catalog) == "C2"
    decision = decide(join, catalog, CLUSTERS)
    assert decision.cluster is None
    assert (
        "default.logs partitions ds=2026-03-01, ds=2026-03-02, ds=2026-03-03 are not there (they are in C1)"
        in decision.reason
    )
    assert [str(view) for view in decision.inputs[1].views] == ["default.recent"]


def test_a_view_whose_columns_are_not_known_prunes_nothing(catalog: Catalog) -> None:
    # Spark keeps a view's text as it was written: its columns may have other names, or change places.
    catalog.add_view("unknown", "SELECT k, ds FROM logs")
    assert cluster("SELECT * FROM b JOIN unknown u ON b.k = u.k WHERE u.ds = '2026-03-05'", catalog) is None
    catalog.add_view("swapped", "SELECT ds, k FROM logs", "k", "ds")
    assert cluster("SELECT * FROM b JOIN swapped u ON b.k = u.k WHERE u.ds = '2026-03-05'", catalog) is None
    assert cluster("SELECT * FROM b JOIN swapped u ON b.k = u.k WHERE u.k = '2026-03-05'", catalog) == "C2"


def test_names_in_a_view_are_of_its_own_database(catalog: Catalog) -> None:
    catalog.add("a", placed("C3"), database="other")
    catalog.add_view("v", "SELECT * FROM a", database="other")
    catalog.add_view("w", "SELECT * FROM a", database="other", at="default")
    assert cluster("SELECT * FROM other.v", catalog) == "C3"
    assert cluster("SELECT * FROM other.w", catalog) == "C1"
    assert cluster("SELECT * FROM other.v, other.w", catalog) is None


def test_views_that_cannot_be_read(catalog: Catalog) -> None:
    catalog.add_view("circle", "SELECT * FROM round", "x")
    catalog.add_view("round", "SELECT * FROM circle", "x")
    catalog.add_view("broken", "SELECT FROM FROM", "x")
    with pytest.raises(UnanalysableError, match=r"the view default\.circle refers to itself"):
        route("SELECT * FROM circle", catalog, CLUSTERS)
    with pytest.raises(UnanalysableError, match=r"the definition of the view default\.broken cannot be read"):
        route("SELECT * FROM broken", catalog, CLUSTERS)
    for number in range(70):
        catalog.add_view(f"v{number}", f"SELECT * FROM v{number + 1}", "x")
    with pytest.raises(UnanalysableError, match="more than 64 views"):
        route("SELECT * FROM v0", catalog, CLUSTERS)


def test_temporary_tables_are_where_they_were_created(catalog: Catalog) -> None:
    session = Session()
    create = "CREATE TEMPORARY TABLE tmp AS SELECT * FROM b"
    decision = route(create, catalog, CLUSTERS, session)
    assert (decision.cluster, decision.outputs[0].new) == ("C2", True)
    session = next_session(create, session, CLUSTERS, decision)
    assert session.temporary == {"tmp": "C2"}
    assert cluster("SELECT * FROM a JOIN tmp", catalog, session) == "C2"
    assert cluster("SELECT * FROM tmp JOIN c", catalog, session) is None
    assert cluster("INSERT INTO tmp SELECT * FROM c", catalog, session) is None
    assert cheapest_copies(decide("SELECT * FROM tmp JOIN c", catalog, CLUSTERS, session)) is not None
    drop = "DROP TABLE tmp"
    session = next_session(drop, session, CLUSTERS, route(drop, catalog, CLUSTERS, session))
    assert session.temporary == {}


def test_use_changes_the_database(catalog: Catalog) -> None:
    catalog.add("a", placed("C3"), database="other")
    session = next_session("USE other", Session(), CLUSTERS, route("USE other", catalog, CLUSTERS))
    assert cluster("SELECT * FROM a", catalog, session) == "C3"


def test_tables_without_metadata_are_refused_where_no_default_is_assumed(catalog: Catalog) -> None:
    clusters = Clusters(names=("C1", "C2"), default="C1", use_default=False)
    with pytest.raises(RoutingError, match=r"default\.plain: it has no cluster metadata"):
        route("SELECT * FROM plain", catalog, clusters)
    with pytest.raises(RoutingError, match=r"default\.plain: it has no cluster metadata"):
        route("INSERT INTO plain SELECT * FROM b", catalog, clusters)


def test_a_cluster_that_is_not_configured_any_more(catalog: Catalog) -> None:
    clusters = Clusters(names=("C1", "C2"), default="C1")
    with pytest.raises(RoutingError, match=r"C3, the cluster of default\.c, is not configured"):
        route("SELECT * FROM c", catalog, clusters)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT TOP 10 * FROM [a]",
        "SELECT * FROM a WHERE",
        "SELECT * FROM 'a",
        "SELECT 1; SELECT 2",
        "",
        "dfs -rm -r /",
        "SELECT * FROM remote.db.a",
        "SELECT * FROM parquet.`/files/a`",
        "DROP DATABASE d CASCADE",
        "SELECT * FROM " + "(" * 5000 + "a" + ")" * 5000,
        "SELECT " + "-" * 0 + "(" * 190 + "1" + ")" * 190 + " FROM a WHERE (",
        "SELECT * FROM a UNIQUEJOIN PRESERVE b (x)",
        "FROM a INSERT OVERWRITE",
        "\x00",
        "GO",
        "BEGIN TRANSACTION; SELECT 1",
        "INSERT a SELECT * FROM b",
        "INSERT INTO `${t}` SELECT * FROM a",
        "DROP TABLE `${t}`",
        "SELECT * FROM a JOIN `x_${t}`",
    ],
    ids=lambda sql: sql[:30],
)
def test_what_cannot_be_analysed(catalog: Catalog, sql: str) -> None:
    with pytest.raises(UnanalysableError) as caught:
        route(sql, catalog, CLUSTERS)
    assert caught.value.line >= 1
    assert pickle.loads(pickle.dumps(caught.value)).decision.rule is Rule.UNANALYSABLE
    decision = route(sql, catalog, CLUSTERS, policy=Policy.DEFAULT)
    assert (decision.cluster, decision.rule) == ("C1", Rule.UNANALYSABLE)
    assert route(sql, catalog, CLUSTERS, Session(cluster="C2"), policy=Policy.DEFAULT).cluster == "C2"


def test_common_table_expressions_that_double(catalog: Catalog) -> None:
    parts = ["q0 AS (SELECT * FROM logs)"]
    parts += [f"q{n} AS (SELECT * FROM q{n - 1} UNION ALL SELECT * FROM q{n - 1})" for n in range(1, 40)]
    sql = f"WITH {', '.join(parts)} SELECT * FROM q39 WHERE ds = '2026-03-05'"
    decision = decide(sql, catalog, CLUSTERS)
    assert decision.cluster == "C1"


def test_the_number_of_subqueries_is_bounded(catalog: Catalog) -> None:
    sql = f"SELECT {', '.join(['(SELECT 1 FROM a)'] * 2_500)}"
    with pytest.raises(UnanalysableError, match="more than 5000 subqueries"):
        route(sql, catalog, CLUSTERS)


def test_a_table_in_a_form_that_the_walk_does_not_know_is_refused(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reads, "_NODE", ())
    with pytest.raises(UnanalysableError, match="b stands where no table was expected"):
        route("SELECT * FROM a, LATERAL (SELECT * FROM b) x", catalog, CLUSTERS)


def test_long_unions(catalog: Catalog) -> None:
    decision = decide(" UNION ALL ".join(["SELECT * FROM a"] * 3000), catalog, CLUSTERS)
    assert decision.cluster == "C1" or decision.rule is Rule.UNANALYSABLE


def test_a_refusal_in_the_cluster_of_the_session_names_that_cluster_only(catalog: Catalog) -> None:
    with pytest.raises(
        RoutingError, match=r"^The cluster of the session cannot run the statement: .*C1"
    ) as it:
        route("SELECT * FROM b", catalog, CLUSTERS, Session(cluster="C1"))
    assert "USE CLUSTER without a name" in (it.value.remedy or "")


def test_a_primary_cluster_that_is_not_configured_is_named_in_the_remedy(catalog: Catalog) -> None:
    catalog.add("lost", placed("C9"))
    with pytest.raises(RoutingError, match=r"C9, the cluster of default\.lost, is not configured") as caught:
        route("SELECT * FROM lost", catalog, CLUSTERS)
    assert "Add C9 to the registry again" in (caught.value.remedy or "")


def test_a_policy_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="'lax' is no policy") as caught:
        Policy("lax")
    assert "strict, default" in (caught.value.remedy or "")


def test_a_statement_of_the_last_minutes_of_a_day_may_begin_on_the_next() -> None:
    assert possible_days(datetime(2026, 3, 7, 23, 54, 59, tzinfo=UTC)) == (date(2026, 3, 7),)
    assert possible_days(datetime(2026, 3, 7, 23, 55, tzinfo=UTC)) == (date(2026, 3, 7), date(2026, 3, 8))
    assert len(possible_days()) in {1, 2}


def test_a_decision_without_days_is_about_the_possible_ones(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    sql = "SELECT * FROM b JOIN logs ON b.k = logs.k WHERE ds >= date_sub(current_date, 3)"
    days = [date(2026, 3, 7)]
    monkeypatch.setattr(routing, "possible_days", lambda: days)
    assert decide(sql, catalog, CLUSTERS).cluster == "C2"
    days.append(date(2026, 3, 6))
    assert decide(sql, catalog, CLUSTERS).cluster is None
