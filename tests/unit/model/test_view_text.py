"""Texts of views with the target's names: what changes, what stays to the byte, what is refused."""

from __future__ import annotations

import base64
import json
import sys
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlglot import exp

from airflow_hive_federation.errors import DumpCorruptError
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.model import reference_scan, view_text, view_tree
from airflow_hive_federation.model.view_text import (
    Renaming,
    SqlContext,
    UnreadableViewError,
    rewritten,
)
from airflow_hive_federation.model.views import read_by_view, reason_to_leave_out, rewrite_view, text_claim
from tests.support.examples import examples

HIVE = SqlContext(dialect="hive")
SPARK = SqlContext(dialect="spark", catalogs=frozenset({"spark_catalog"}), database="sales")
TRINO = SqlContext(dialect="trino", catalogs=frozenset({"hive"}), database="sales")
#: ``orders`` is called ``new`` on the target, and ``sales`` is called ``far``.
THERE = Renaming(source_database="sales", target_database="far", tables={"orders": "new"})
BACK = Renaming(source_database="far", target_database="sales", tables={"new": "orders"})


@pytest.mark.parametrize(
    ("context", "before", "after"),
    [
        # Hive's expanded text, as Hive 4.2 wrote it.
        (HIVE, "SELECT `t`.`c` FROM `sales`.`t`", "SELECT `t`.`c` FROM `far`.`t`"),
        (HIVE, "SELECT `t`.`c` FROM `SALES`.`t`", "SELECT `t`.`c` FROM `far`.`t`"),
        (
            HIVE,
            "SELECT `orders`.`id` FROM `sales`.`orders` WHERE `orders`.`s` = 'sales.orders'",
            "SELECT `orders`.`id` FROM `far`.`new` `orders` WHERE `orders`.`s` = 'sales.orders'",
        ),
        (HIVE, "SELECT `o`.`sales`.`x` FROM `sales`.`orders` `o`",
         "SELECT `o`.`sales`.`x` FROM `far`.`new` `o`"),
        (HIVE, "SELECT `sales`.`sales` FROM `sales`.`sales`", "SELECT `sales`.`sales` FROM `far`.`sales`"),
        (HIVE, "SELECT `sales`.`a`.`b` FROM `other`.`sales`", "SELECT `sales`.`a`.`b` FROM `other`.`sales`"),
        (HIVE, "SELECT `orders`.`a` FROM `other`.`orders`", "SELECT `orders`.`a` FROM `other`.`orders`"),
        (HIVE, "SELECT sales.f(`t`.`a`) FROM `sales`.`t`", "SELECT far.f(`t`.`a`) FROM `far`.`t`"),
        (
            HIVE,
            "SELECT 1 FROM `sales`.`orders` LATERAL VIEW sales.f(`orders`.`a`) `sales` AS `orders`",
            "SELECT 1 FROM `far`.`new` `orders` LATERAL VIEW far.f(`orders`.`a`) `sales` AS `orders`",
        ),
        (
            HIVE,
            "WITH orders AS (SELECT `orders`.`id` FROM `sales`.`orders`) SELECT `id` FROM orders",
            "WITH orders AS (SELECT `orders`.`id` FROM `far`.`new` `orders`) SELECT `id` FROM orders",
        ),
        (
            HIVE,
            "SELECT 1 FROM (SELECT 1 FROM `sales`.`orders` UNION ALL SELECT 1 FROM `sales`.`a`) `sales.v`",
            "SELECT 1 FROM (SELECT 1 FROM `far`.`new` `orders` UNION ALL SELECT 1 FROM `far`.`a`) `sales.v`",
        ),
        (HIVE, "SELECT  1 -- sales.t\nFROM sales . t  ;", "SELECT  1 -- sales.t\nFROM far . t  ;"),
        (HIVE, "SELECT /* sales.t */ 'ä' FROM `sales`.`2024`", "SELECT /* sales.t */ 'ä' FROM `far`.`2024`"),
        (HIVE, "SELECT 1 FROM sales.orders TABLESAMPLE(10 PERCENT), sales.t",
         "SELECT 1 FROM far.new TABLESAMPLE(10 PERCENT) `orders`, far.t"),
        (HIVE, "SELECT extract(year FROM sales.d) FROM `other`.`sales`",
         "SELECT extract(year FROM sales.d) FROM `other`.`sales`"),
        # Spark's text, as it was typed.
        (SPARK, "select o.id from orders o", "select o.id from new o"),
        (SPARK, "select orders.id from orders", "select orders.id from new `orders`"),
        (SPARK, "select sales.t.id, t.id from sales.t", "select far.t.id, t.id from far.t"),
        (SPARK, "select sales.t.* from spark_catalog.sales.t", "select far.t.* from spark_catalog.far.t"),
        (SPARK, "select spark_catalog.sales.t.id from t", "select spark_catalog.far.t.id from t"),
        (SPARK, "select sales.t.x from (select sales from sales.t) q",
         "select far.t.x from (select sales from far.t) q"),
        # The parser counts positions in a hint from the hint's begin.
        (SPARK, "select /*+ BROADCAST(orders) */ 1 from orders join sales.u",
         "select /*+ BROADCAST(orders) */ 1 from new `orders` join far.u"),
        (SPARK, "select sales.a.b from other.sales", "select sales.a.b from other.sales"),
        (SPARK, "with orders as (select * from orders) select * from orders",
         "with orders as (select * from new `orders`) select * from orders"),
        (SPARK, "with a as (select 1), orders as (select * from a) select * from orders",
         "with a as (select 1), orders as (select * from a) select * from orders"),
        # Trino's.
        (TRINO, 'SELECT "orders".id FROM hive.sales.orders', 'SELECT "orders".id FROM hive.far.new "orders"'),
        (TRINO, 'SELECT "sales"."t".a FROM "sales"."t"', 'SELECT "far"."t".a FROM "far"."t"'),
        (TRINO, "SELECT a FROM t CROSS JOIN UNNEST(b) AS sales (x)",
         "SELECT a FROM t CROSS JOIN UNNEST(b) AS sales (x)"),
    ],
)  # fmt: skip
def test_names_of_the_target(context: SqlContext, before: str, after: str) -> None:
    assert rewritten(before, THERE, context) == after


@pytest.mark.parametrize(
    ("context", "text", "reason"),
    [
        (HIVE, "SELECT FROM WHERE `sales`.`t`", "cannot be parsed as hive SQL"),
        (HIVE, "SELECT 1 FROM `sales`.`t` TABLESAMPLE(BUCKET 1 OUT OF 2 ON `t`.`a`)", "cannot be parsed"),
        (HIVE, "DROP TABLE sales.t", "not one query"),
        (HIVE, "SELECT 1 FROM sales.t; SELECT 1 FROM sales.t", "not one query"),
        (HIVE, "SELECT `id` FROM `orders`", "names orders without a database"),
        (HIVE, "SELECT 1 FROM sales.t.files", "in the same metastore"),
        (HIVE, "SELECT `x` FROM `sales`..`u`", "an empty part"),
        (SPARK, "select sales.orders.id from sales.orders", "another name on the target"),
        (SPARK, "select sales.t.id from sales.t join other.sales", "may begin with the database"),
        (SPARK, "select 1 from ice.sales.t", "in the same metastore"),
        (SPARK, "select 1 from orders version as of 3", "no place for an alias"),
    ],
)
def test_what_is_not_certain_is_refused(context: SqlContext, text: str, reason: str) -> None:
    with pytest.raises(UnreadableViewError, match=reason):
        rewritten(text, THERE, context)


def test_a_reference_that_one_reading_misses_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "SELECT 1 FROM `sales`.`t`"
    monkeypatch.setattr(view_text, "scanned_tables", lambda tokens: iter(()))
    with pytest.raises(UnreadableViewError, match="for certain at character 15"):
        rewritten(text, THERE, HIVE)


def test_a_qualifier_that_no_reading_understands_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view_text._Text, "_function", lambda self, dot: None)
    with pytest.raises(UnreadableViewError, match="for certain at character 8"):
        rewritten("SELECT sales.f(1) FROM `other`.`t`", THERE, HIVE)


def test_a_text_that_means_other_tables_afterwards_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view_text._Text, "_replace", lambda self, identifier, new: None)
    with pytest.raises(UnreadableViewError, match="means other tables"):
        rewritten("SELECT 1 FROM `sales`.`t`", THERE, HIVE)


# -- any query -------------------------------------------------------------------------------------------

NAMES = st.sampled_from(["sales", "orders", "far", "new", "t", "2024", "größe", "from"])
TABLES = st.tuples(st.sampled_from(["sales", "other"]), st.sampled_from(["orders", "sales", "t", "2024"]))
COMMENTS = st.sampled_from([" ", "  ", "\n", " /* sales.orders */ ", " -- `sales`.`orders`\n"])


@st.composite
def _columns(draw: st.DrawFn) -> str:
    kind = draw(st.integers(0, 3))
    name = f"`{draw(NAMES)}`.`{draw(NAMES)}`"
    return [name, f"{name}.`{draw(NAMES)}`", f"upper({name})", "'sales.`orders` ä'"][kind]


@st.composite
def _relations(draw: st.DrawFn, depth: int) -> str:
    if depth and draw(st.booleans()):
        return f"({draw(_queries(depth - 1))}) `{draw(NAMES)}`"
    database, table = draw(TABLES)
    alias = draw(st.sampled_from(["", " `a`", " `sales`", " AS `b`"]))
    return f"`{database}`.`{table}`{alias}"


@st.composite
def _queries(draw: st.DrawFn, depth: int = 2) -> str:
    blank = draw(COMMENTS)
    columns = ", ".join(draw(st.lists(_columns(), min_size=1, max_size=3)))
    relations = draw(st.lists(_relations(depth), min_size=1, max_size=3))
    joined = draw(st.sampled_from([", ", " JOIN ", f"{blank}LEFT JOIN "])).join(relations)
    tail = draw(
        st.sampled_from(
            [
                "",
                " WHERE `sales`.`orders` = 'sales'",
                " LATERAL VIEW explode(`orders`.`a`) `sales` AS `x`",
                " WHERE `a`.`b` IN (SELECT `c`.`d` FROM `sales`.`orders` `c`)",
            ]
        )
    )
    text = f"SELECT{blank}{columns} FROM {joined}{tail}"
    if depth and draw(st.booleans()):
        return f"{text} UNION ALL{blank}{draw(_queries(depth - 1))}"
    return text


@examples(60)
@given(_queries())
def test_the_same_names_leave_the_text_as_it_is(text: str) -> None:
    same = Renaming(source_database="sales", target_database="sales", tables={"orders": "orders"})
    assert rewritten(text, Renaming(source_database="sales", target_database="sales"), HIVE) == text
    # Not by doing nothing.
    assert rewritten(text, same, HIVE).replace(" `orders`", "") == text.replace(" `orders`", "")


@examples(60)
@given(_queries())
def test_there_and_back(text: str) -> None:
    there = rewritten(text, THERE, HIVE)
    assert "`sales`.`orders`" not in view_text.normal_form(there, "hive").replace(" ", "")
    assert rewritten(there, BACK, HIVE) == text


# -- views of three engines ------------------------------------------------------------------------------


def view(expanded: str, original: str | None = None, **parameters: str) -> types.Table:
    return types.Table(
        dbName="sales",
        tableName="v",
        tableType="VIRTUAL_VIEW",
        viewExpandedText=expanded,
        viewOriginalText=expanded if original is None else original,
        parameters=parameters,
    )


def test_of_hive_the_original_text_follows_or_is_replaced() -> None:
    definition = view("SELECT `t`.`1a` FROM `sales`.`t`", "SELECT 1a FROM sales.t")
    rewrite_view(definition, THERE)
    assert definition.viewOriginalText == "SELECT 1a FROM far.t"
    # Hive takes the quotes away that this one needs.
    definition = view("SELECT `t`.`2` FROM `sales`.`2`", "SELECT t.2 FROM sales.2")
    rewrite_view(definition, THERE)
    assert definition.viewOriginalText == definition.viewExpandedText == "SELECT `t`.`2` FROM `far`.`2`"


def sparks(text: str, database: str = "sales", **more: str) -> types.Table:
    namespace = {"numParts": "2", "part.0": "spark_catalog", "part.1": database}
    named = {f"view.catalogAndNamespace.{key}": value for key, value in namespace.items()}
    return view(text, **named, **more)


def test_a_name_whose_place_is_not_certain_is_not_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UnreadableViewError, match="implies made_up, and does not name it"):
        view_text._start(exp.to_identifier("made_up"))
    monkeypatch.setattr(view_text, "_start", lambda identifier: identifier.meta["start"] - 1)
    with pytest.raises(UnreadableViewError, match=r"the place of \w+ in its text is not certain"):
        rewritten("SELECT a FROM sales.t", THERE, HIVE)


def test_names_that_a_view_of_spark_reads_are_those_of_a_text_that_is_certain() -> None:
    quoted = {"view.sqlConfig.spark.sql.ansi.doubleQuotedIdentifiers": "true"}
    with pytest.raises(UnreadableViewError, match="double quotes"):
        read_by_view(sparks('select "a" from t', **quoted))


def test_of_spark_the_namespace_follows() -> None:
    definition = sparks("select t.a from t join sales.u using (a)")
    rewrite_view(definition, THERE)
    assert (
        definition.viewExpandedText == definition.viewOriginalText == "select t.a from t join far.u using (a)"
    )
    assert definition.parameters["view.catalogAndNamespace.part.1"] == "far"
    elsewhere = sparks("select a from orders join sales.orders o using (a)", "other")
    rewrite_view(elsewhere, THERE)
    assert elsewhere.viewExpandedText == "select a from orders join far.new o using (a)"
    assert elsewhere.parameters["view.catalogAndNamespace.part.1"] == "other"
    old = view("select a from t", **{"view.default.database": "sales"})
    rewrite_view(old, THERE)
    assert old.parameters == {"view.default.database": "far"}


@pytest.mark.parametrize(
    ("definition", "reason"),
    [
        (sparks("select a from identifier('sales.t')"), "names of strings"),
        (sparks('select "a" from t', **{
            "view.sqlConfig.spark.sql.ansi.doubleQuotedIdentifiers": "true"}), "double quotes"),
        (view("select 1", **{"view.catalogAndNamespace.numParts": "2"}), "incomplete"),
    ],
)  # fmt: skip
def test_of_spark_what_is_not_certain_stays_out(definition: Any, reason: str) -> None:
    assert reason in (reason_to_leave_out(definition, THERE) or "")
    with pytest.raises(DumpCorruptError, match=reason):
        rewrite_view(definition, THERE)


def trinos(**definition: Any) -> types.Table:
    encoded = base64.b64encode(json.dumps(definition).encode()).decode()
    return view("/* Presto View */", f"/* Presto View: {encoded} */", presto_view="true")


def decoded(definition: Any) -> Any:
    return json.loads(base64.b64decode(definition.viewOriginalText.split(" ")[3]))


def test_of_trino_the_encoded_definition_follows() -> None:
    path = [{"catalogName": "hive", "schemaName": "sales"}, {"catalogName": "tpch", "schemaName": "sales"}]
    definition = trinos(
        originalSql='SELECT "ä" FROM orders', catalog="hive", schema="sales", path=path, columns=[]
    )
    before = definition.viewOriginalText
    rewrite_view(definition, THERE)
    assert decoded(definition) == {
        "originalSql": 'SELECT "ä" FROM new "orders"',
        "catalog": "hive",
        "schema": "far",
        "path": [{"catalogName": "hive", "schemaName": "far"}, path[1]],
        "columns": [],
    }
    assert definition.viewExpandedText == "/* Presto View */"
    rewrite_view(definition, BACK)
    assert text_claim(definition) == text_claim(
        types.Table(viewOriginalText=before, parameters=definition.parameters)
    )
    elsewhere = trinos(originalSql="SELECT 1 FROM nation", catalog="tpch", schema="tiny")
    before = elsewhere.viewOriginalText
    rewrite_view(elsewhere, THERE)
    assert elsewhere.viewOriginalText == before


@pytest.mark.parametrize(
    ("definition", "reason"),
    [
        (view("", "/* Presto View: !! */", presto_view="true"), "not a view as Trino encodes it"),
        (view("", "/* Presto Materialized View: e30= */", presto_view="true"), "materialized"),
        (trinos(catalog="hive", schema="sales"), "no originalSql"),
        (trinos(originalSql="SELECT 1 FROM sales.t", catalog="tpch", schema="x"), "another metastore"),
        (trinos(originalSql="SELECT 1 FROM hive.sales.t", catalog="tpch", schema="x"), "not known"),
        (trinos(originalSql="SELECT (1 FROM sales.t", catalog="hive", schema="sales"), "cannot be parsed"),
    ],
)
def test_of_trino_what_is_not_certain_stays_out(definition: Any, reason: str) -> None:
    assert reason in (reason_to_leave_out(definition, THERE) or "")


def test_quotes_and_case_make_no_difference_between_views() -> None:
    assert text_claim(view("SELECT `A`.b FROM `s`.T")) == text_claim(view("select a.`b`  from s.`t`"))
    assert text_claim(view("SELECT 'A'")) != text_claim(view("SELECT 'a'"))


@pytest.mark.parametrize(
    ("form", "piece"),
    [
        ("SELECT a{} FROM sales.t", ".a"),
        ("SELECT 1 FROM sales.t{}", " UNION ALL SELECT a FROM sales.t"),
        ("SELECT 1 FROM sales.t WHERE a{}", " AND a"),
        ("WITH c AS (SELECT 1 FROM sales.t){} SELECT 1 FROM c", ", c AS (SELECT 1 FROM c)"),
    ],
    ids=["dots", "unions", "conditions", "common tables"],
)
def test_the_work_grows_with_the_length_of_a_text(form: str, piece: str) -> None:
    """Lines that run are counted, not seconds; the ancestors of each part are as many as its square."""
    works = [lines_run(form.format(piece * number)) for number in (50, 100, 200)]
    assert works[2] - works[1] < 2.1 * (works[1] - works[0]), works


def lines_run(sql: str) -> int:
    """Lines of our modules, and of the parser's trees, that run while a text is rewritten and read."""
    files = {
        view_text.__file__,
        view_tree.__file__,
        reference_scan.__file__,
        sys.modules[exp.Expr.__module__].__file__,
    }
    count = 0

    def of_line(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal count
        count += event == "line"
        return of_line

    def of_call(frame: FrameType, event: str, argument: object) -> Any:
        return of_line if frame.f_code.co_filename in files else None

    before = sys.gettrace()
    sys.settrace(of_call)
    try:
        rewritten(sql, THERE, HIVE)
        view_text.names_read(sql, HIVE)
    finally:
        sys.settrace(before)
    return count


def test_a_call_below_many_dots_is_named() -> None:
    names = view_text.names_read("SELECT x" + ".a" * 3000 + ", sales.f(1) FROM sales.t", HIVE)
    assert names.functions == {("sales", "f")}
    assert names.tables == {("sales", "t")}


def test_names_of_another_catalog_stay_where_they_were() -> None:
    """A view that Spark made while another catalog was current means that by names of two parts."""
    where = {"numParts": "2", "part.0": "lake", "part.1": "sales"}
    table = types.Table(
        tableName="v",
        tableType="VIRTUAL_VIEW",
        parameters={f"view.catalogAndNamespace.{key}": value for key, value in where.items()},
        viewExpandedText="SELECT 1 FROM sales.t",
        viewOriginalText="SELECT 1 FROM sales.t",
    )
    assert "lake.sales" in (reason_to_leave_out(table, THERE) or "")
    assert read_by_view(table).elsewhere == {("lake", "t")}
