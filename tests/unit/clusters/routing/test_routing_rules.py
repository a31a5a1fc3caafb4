"""Rules of routing beyond the examples of the design."""

from __future__ import annotations

import json
import pickle
from datetime import date

import pytest

from airflow_hive_federation.clusters.placement import Clusters, Session
from airflow_hive_federation.clusters.routing.cache import Router
from airflow_hive_federation.clusters.routing.decision import Rule
from airflow_hive_federation.clusters.routing.explain import as_json, cheapest_copies, in_words
from airflow_hive_federation.clusters.routing.route import Policy, decide, next_session, route
from airflow_hive_federation.clusters.statements import reads
from airflow_hive_federation.errors import ConfigurationError, RoutingError, UnanalysableError
from tests.support.catalogs import CLUSTERS, Catalog, placed

DS = [("ds", "string")]


@pytest.fixture
def catalog() -> Catalog:
    made = Catalog()
    made.add("a", placed("C1", "C2"), size=10)
    made.add("b", placed("C2"), size=1000)
    made.add("c", placed("C3"), size=100)
    made.add("plain", None)
    made.add_partitioned(
        "logs",
        placed("C1"),
        DS,
        {(f"2026-03-0{n}",): placed("C1", "C2") if n > 3 else placed("C1") for n in range(1, 8)},
        size=1 << 20,
    )
    made.add_partitioned(
        "split", placed("C1"), DS, {("1",): placed("C1"), ("2",): placed("C2"), ("3",): None}
    )
    return made


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
        ("SELECT * FROM a, LATERAL (SELECT * FROM b WHERE a.k = b.k) x", "C2"),
        ("INSERT INTO TABLE b SELECT * FROM a", "C2"),
        ("INSERT INTO TABLE a SELECT * FROM b", None),
        ("INSERT INTO TABLE logs PARTITION (ds = '2026-03-09') SELECT * FROM a", "C1"),
        ("INSERT OVERWRITE TABLE split PARTITION (ds = '1') SELECT * FROM a", "C1"),
        ("INSERT OVERWRITE TABLE split PARTITION (ds = '9') SELECT * FROM a", "C1"),
        # Two primaries, by the partition.
        ("INSERT OVERWRITE TABLE split PARTITION (ds = '2') SELECT * FROM a", None),
        ("INSERT OVERWRITE TABLE split PARTITION (ds) SELECT * FROM a", None),
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
        "default.logs partition ds=2026-03-01, ds=2026-03-02, ds=2026-03-03 is not there" in decision.reason
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


# -- EXPLAIN -------------------------------------------------------------------------------------------------


def test_explain_in_words_and_json(catalog: Catalog) -> None:
    decision = decide("SELECT * FROM b JOIN logs ON b.k = logs.k WHERE ds >= '2026-03-03'", catalog, CLUSTERS)
    assert decision.reason == (
        "No cluster can run the statement: not in C2, the primary cluster of an input: "
        "default.logs partition ds=2026-03-03 is not there (it is in C1); "
        "not in C1, the primary cluster of an input: default.b is not there (it is in C2)."
    )
    assert in_words(decision).splitlines() == [
        "Cluster: none",
        f"Rule: input. {decision.reason}",
        "Reads default.b: in C2 (1.0 kB)",
        "Reads default.logs: 5 of 7 partitions; primary cluster C1",
        "  partition ds=2026-03-03: in C1 (1.0 MB)",
        "  partition ds=2026-03-04, ds=2026-03-05, ds=2026-03-06 and 1 more: in C1, C2 (4.2 MB)",
        "Tried C2: default.logs partition ds=2026-03-03 is not there (it is in C1)",
        "Tried C1: default.b is not there (it is in C2)",
        "It could run in C1 after these copies, the cheapest (1.0 kB):",
        "  default.b from C2 to C1 (1.0 kB)",
    ]
    document = json.loads(json.dumps(as_json(decision)))
    assert document["cluster"] is None
    assert document["cheapest_copies"]["copies"] == [
        {"table": "default.b", "from": "C2", "to": "C1", "partitions": None, "examples": [], "bytes": 1000}
    ]
    assert pickle.loads(pickle.dumps(decision)) == decision


def test_explain_of_what_runs(catalog: Catalog) -> None:
    decision = decide("INSERT INTO fresh SELECT a.x FROM a", catalog, CLUSTERS)
    assert in_words(decision).splitlines() == [
        "Cluster: C1",
        "Rule: input. C1 is the primary cluster of default.a, and has all other inputs.",
        "Writes default.fresh: new, created in the cluster that runs the statement",
        "Reads default.a: in C1, C2 (10 bytes)",
        "Tried C1: it has all that the statement needs",
    ]
    assert cheapest_copies(decision) is None


def test_explain_of_what_reads_no_rows(catalog: Catalog) -> None:
    assert in_words(decide("DESCRIBE split", catalog, CLUSTERS)).splitlines()[2:] == [
        "Reads default.split: its definition only; primary cluster C1",
        "Tried C1: it has all that the statement needs",
    ]
    catalog.add_view("v", "SELECT * FROM b")
    assert in_words(decide("DROP VIEW v", catalog, CLUSTERS)).splitlines()[2:] == [
        "Writes default.v: a view, which is in no cluster",
        "Tried C1: it has all that the statement needs",
    ]


def test_explain_of_what_is_not_known(catalog: Catalog) -> None:
    catalog.add_partitioned("vague", placed("C1"), DS, {("1",): placed("C1")}, size=None)
    assert "  partition ds=1: in C1 (size unknown)" in in_words(
        decide("SELECT * FROM vague", catalog, CLUSTERS)
    )
    clusters = Clusters(names=("C1", "C2"), default="C1", use_default=False)
    lines = in_words(decide("INSERT INTO plain SELECT * FROM missing", catalog, clusters)).splitlines()
    assert lines[2:] == [
        "Writes default.plain: it has no cluster metadata, and hive.use.default.cluster is off",
        "Reads default.missing: the metastore has no such table",
    ]


def test_a_decision_names_a_bounded_number_of_partitions(catalog: Catalog) -> None:
    for count, named in ((100, 100), (101, 0)):
        days = {(f"{number:03}",): placed("C1") for number in range(count)}
        catalog.add_partitioned("many", placed("C1"), DS, days)
        (group,) = decide("SELECT * FROM many", catalog, CLUSTERS).inputs[0].groups
        assert (group.partitions, len(group.values)) == (count, named)


def test_a_statement_that_runs_needs_no_copies(catalog: Catalog) -> None:
    decision = decide("SELECT * FROM a, b", catalog, CLUSTERS)
    assert [attempt.cluster for attempt in decision.attempts] == ["C1", "C2"]
    assert cheapest_copies(decision) is None


def test_copies_help_neither_outputs_nor_temporary_tables(catalog: Catalog) -> None:
    session = Session(cluster="C2")
    assert cheapest_copies(decide("INSERT INTO a SELECT * FROM c", catalog, CLUSTERS, session)) is None
    session = Session(cluster="C3", temporary={"tmp": "C2"})
    assert cheapest_copies(decide("SELECT * FROM tmp", catalog, CLUSTERS, session)) is None


def test_no_copies_help_against_two_outputs(catalog: Catalog) -> None:
    decision = decide("FROM a INSERT INTO b SELECT * INSERT INTO c SELECT *", catalog, CLUSTERS)
    assert decision.cluster is None
    assert cheapest_copies(decision) is None


# -- kept decisions ------------------------------------------------------------------------------------------


def test_decisions_are_kept_until_a_table_changes(catalog: Catalog) -> None:
    router = Router(CLUSTERS)
    first = router.route("SELECT * FROM a JOIN b", catalog)
    assert router.route("select *  from A join B -- again", catalog) is first
    assert router.hits == 1
    catalog.touch("b", "2")
    assert router.route("SELECT * FROM a JOIN b", catalog) is not first
    assert router.route("SELECT * FROM a JOIN b", catalog, Session(cluster="C2")) is not first
    assert router.hits == 1
    catalog.touch("b", "")
    for _ in range(2):
        assert router.route("SELECT * FROM b", catalog).cluster == "C2"
    assert router.hits == 1


def test_a_kept_refusal_is_an_error_each_time(catalog: Catalog) -> None:
    router = Router(CLUSTERS)
    for hits in (0, 1):
        with pytest.raises(RoutingError, match="No cluster can run the statement"):
            router.route("SELECT * FROM b, c", catalog)
        assert router.hits == hits


def test_a_table_that_appears_changes_a_kept_decision(catalog: Catalog) -> None:
    router = Router(CLUSTERS)
    assert router.route("INSERT INTO new SELECT * FROM a", catalog).outputs[0].new
    catalog.add("new", placed("C2"))
    assert router.route("INSERT INTO new SELECT * FROM a", catalog).cluster == "C2"


def test_strings_are_part_of_the_template(catalog: Catalog) -> None:
    router = Router(CLUSTERS)
    sql = "SELECT * FROM b JOIN logs ON b.k = logs.k WHERE ds = '2026-03-0{}'"
    assert router.decide(sql.format(5), catalog).cluster == "C2"
    assert router.decide(sql.format(1), catalog).cluster is None


@pytest.mark.parametrize("first", [r"2026-03-05", r"2026\-03-05"])
def test_a_string_with_an_escape_is_never_the_same_as_one_without(catalog: Catalog, first: str) -> None:
    router = Router(CLUSTERS)
    # The kind of comma is that of no other test: templates are shared by the whole process.
    sql = f"SELECT b.k ,logs.k ,'{len(first)}' FROM b JOIN logs ON b.k = logs.k WHERE ds = '{{}}'"
    both = {"2026-03-05": "C2", r"2026\-03-05": None}
    for day in (first, *both):
        assert router.decide(sql.format(day), catalog).cluster == both[day]


def test_the_name_of_a_cluster_is_part_of_the_template(catalog: Catalog) -> None:
    router = Router(CLUSTERS)
    assert router.decide("USE CLUSTER C2", catalog).cluster == "C2"
    assert router.decide("USE CLUSTER c2", catalog).rule is Rule.UNKNOWN_CLUSTER


def test_a_refusal_names_the_place_in_the_statement_at_hand(catalog: Catalog) -> None:
    router = Router(CLUSTERS)
    for text in ("CREATE NOTHING x", "-- why\n\n  create   nothing x"):
        decision = router.decide(text, catalog)
        assert decision == decide(text, catalog, CLUSTERS)
        assert decision.unanalysable is not None


def test_the_number_of_kept_decisions_is_bounded(catalog: Catalog) -> None:
    router = Router(CLUSTERS, size=2)
    for number in (1, 2, 3, 1):
        router.decide(f"SELECT {number} FROM a", catalog)
    assert router.hits == 0
