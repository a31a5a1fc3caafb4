"""Views of a remote database: which can be linked, and what their local text reads."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.model.view_text import Renaming
from airflow_hive_federation.model.views import read_by_view
from airflow_hive_federation.remotes import definitions
from airflow_hive_federation.remotes.links import READ_BY
from airflow_hive_federation.remotes.views import names_read

NAMES = Renaming(source_database="far", target_database="near")
LINKED = {"t": "files", "u": "files", "v": "view", "acid": "read_table"}
PART_0 = "view.catalogAndNamespace.part.0"
SPARKS = {
    "view.catalogAndNamespace.numParts": "2",
    PART_0: "spark_catalog",
    "view.catalogAndNamespace.part.1": "far",
}


def view(text: str, *, original: str | None = None, **parameters: str) -> Any:
    return types.Table(
        dbName="far",
        tableName="v",
        tableType="VIRTUAL_VIEW",
        sd=types.StorageDescriptor(cols=[types.FieldSchema(name="a", type="int")]),
        parameters=parameters,
        viewExpandedText=text,
        viewOriginalText=original or text,
    )


def of_spark(text: str) -> Any:
    return view(text, **SPARKS)


def of_trino(text: str, schema: str = "far") -> Any:
    encoded = base64.b64encode(
        json.dumps({"originalSql": text, "catalog": "hive", "schema": schema}).encode()
    ).decode()
    return view("/* Presto View */", original=f"/* Presto View: {encoded} */", presto_view="true")


@pytest.mark.parametrize(
    ("linked", "text"),
    [
        (
            view("SELECT `t`.`a` FROM `far`.`t` JOIN `far`.`u` ON `t`.`a` = `u`.`a`"),
            "SELECT `t`.`a` FROM `near`.`t` JOIN `near`.`u` ON `t`.`a` = `u`.`a`",
        ),
        (view("SELECT * FROM (SELECT a FROM far.v) s"), "SELECT * FROM (SELECT a FROM near.v) s"),
        (
            view("WITH acid AS (SELECT 1 a) SELECT a FROM acid JOIN far.t USING (a)"),
            "WITH acid AS (SELECT 1 a) SELECT a FROM acid JOIN near.t USING (a)",
        ),
        (of_spark("SELECT a FROM t"), "SELECT a FROM t"),
        (of_spark("SELECT a FROM spark_catalog.far.t"), "SELECT a FROM spark_catalog.near.t"),
    ],
    ids=["join", "a view", "common table", "of Spark", "of Spark, whole name"],
)
def test_a_view_of_linked_tables(linked: Any, text: str) -> None:
    assert definitions.why_not_view(linked, NAMES, LINKED) is None
    made = definitions.local_view(linked, NAMES, name="v", owner="ada", link={"x": "y"})
    assert made.viewExpandedText == text
    assert (made.dbName, made.owner, made.tableType) == ("near", "ada", "VIRTUAL_VIEW")
    assert made.parameters[READ_BY] == "view"
    assert made.parameters.get("view.catalogAndNamespace.part.1", "near") == "near"
    assert "EXTERNAL" not in made.parameters
    other = definitions.local_view(view("SELECT 1 FROM far.t"), NAMES, name="v", owner="ada", link={"x": "y"})
    assert definitions.digest(made, linked) != definitions.digest(other, linked)


def test_a_view_of_trino() -> None:
    trinos = of_trino('SELECT a FROM t JOIN "far".u USING (a)')
    assert read_by_view(trinos).tables == {("far", "t"), ("far", "u")}
    assert definitions.why_not_view(trinos, NAMES, LINKED) is None
    made = definitions.local_view(trinos, NAMES, name="v", owner="ada", link={})
    encoded = made.viewOriginalText.removeprefix("/* Presto View: ").removesuffix(" */")
    assert json.loads(base64.b64decode(encoded)) == {
        "originalSql": 'SELECT a FROM t JOIN "near".u USING (a)',
        "catalog": "hive",
        "schema": "near",
    }


@pytest.mark.parametrize(
    ("view", "why"),
    [
        (view("SELECT * FROM other.t"), r"other\.t, which is of another database"),
        (view("SELECT * FROM far.t WHERE a IN (SELECT a FROM other.u)"), r"other\.u"),
        (view("SELECT * FROM far.missing"), "missing, which is not linked"),
        (view("SELECT * FROM far.acid"), "acid, which is transactional"),
        (view("SELECT * FROM t"), "without the name of its database"),
        (view("SELECT far.f(a) FROM far.t"), "function of a database"),
        (view("SELECT * FROM ((("), "cannot be parsed"),
        (view(""), "not one query|cannot be parsed"),
        (view("DROP TABLE far.t"), "not one query"),
        (of_spark("SELECT * FROM elsewhere.far.t"), "catalog elsewhere"),
        (of_spark("SELECT * FROM IDENTIFIER('far.t')"), "IDENTIFIER"),
        (of_trino("SELECT * FROM lake.far.t"), "catalog lake"),
        (view("SELECT * FROM far.t", **{**SPARKS, PART_0: "lake"}), "reads t of the catalog lake"),
        (view("SELECT * FROM t", **{**SPARKS, PART_0: "lake"}), "reads t of the catalog lake"),
        (of_spark("SELECT * FROM range(3)"), "the rows of a table function"),
        (view("SELECT far.a" + ".a" * 3000 + ".f(1) FROM far.t"), "cannot be parsed|function of a database"),
        (view("x", original="/* Presto View: !!! */", presto_view="true"), "not a view as Trino encodes"),
    ],
    ids=lambda value: value if isinstance(value, str) else "view",
)
def test_a_view_that_is_left_out(view: Any, why: str) -> None:
    import re

    reason = definitions.why_not_view(view, NAMES, LINKED)
    assert reason is not None
    assert re.search(why, reason), reason


def test_partitioned_and_materialized_views_are_left_out() -> None:
    definition = view("SELECT a FROM far.t")
    definition.partitionKeys = [types.FieldSchema(name="p", type="int")]
    assert definitions.why_not_view(definition, NAMES, LINKED) == "it is a view with partitions"
    definition.tableType = "MATERIALIZED_VIEW"
    assert "materialized view" in (definitions.why_not(definition) or "")


def test_what_cannot_be_parsed_reads_nothing() -> None:
    assert names_read(view("SELECT ((")) == set()
    assert names_read(view("SELECT * FROM far.t, other.u")) == {"t", "u"}
