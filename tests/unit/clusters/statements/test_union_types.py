"""Conditions on the result of a set operation exclude partitions only if no branch's key is converted."""

from __future__ import annotations

from datetime import date

import pytest

from airflow_hive_federation.clusters.placement import Session
from airflow_hive_federation.clusters.predicates.conditions import And, may_be_read
from airflow_hive_federation.clusters.routing.route import decide
from airflow_hive_federation.clusters.statements.grammar import analyse
from airflow_hive_federation.clusters.statements.reads import reads
from airflow_hive_federation.clusters.statements.statement import Statement
from tests.support.catalogs import CLUSTERS, Catalog, placed

VALUES = ("1", "4", "10")
#: The keys of the tables; a name begins with the type of the column k.
TABLES = {
    "int_a": [("k", "int")],
    "int_b": [("k", "int")],
    "big": [("k", "bigint")],
    "string_a": [("k", "string")],
    "string_b": [("k", "string")],
    "narrow": [("k", "varchar(3)")],
    "wide": [("k", "varchar(9)")],
    "money": [("k", "decimal(5, 2)")],
    "money_same": [("k", "DECIMAL(5,2)")],
    "money_more": [("k", "decimal(9,2)")],
    "two": [("j", "int"), ("k", "string")],
    "turned": [("k", "string"), ("j", "int")],
    "unkeyed": [],
}


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    made = Catalog()
    for name, keys in TABLES.items():
        if keys:
            places = {(value,) * len(keys): placed("C1") for value in VALUES}
            made.add_partitioned(name, placed("C1"), keys, places)
        else:
            made.add(name, placed("C1"))
    made.add_view("int_view", "SELECT x AS x, k AS k FROM int_a", "x", "k")
    made.add_view("renamed_view", "SELECT j AS j, k AS k FROM two", "k", "j")
    made.add_view("mixed_view", "SELECT k AS k FROM int_a UNION ALL SELECT k AS k FROM string_a", "k")
    for number in range(1, 41):
        below = "int_a" if number == 1 else f"doubled_{number - 1}"
        text = f"SELECT k AS k FROM {below} UNION ALL SELECT k AS k FROM {below}"
        made.add_view(f"doubled_{number}", text, "k")
    return made


def read_of(sql: str, catalog: Catalog, session: Session | None = None) -> dict[str, set[str]]:
    """The values of k in the partitions that each table's reads need."""
    statement = analyse(sql)
    assert isinstance(statement, Statement), statement
    found: dict[str, set[str]] = {}
    for read in reads(statement, catalog, session or Session()):
        if read.facts is not None and read.facts.is_partitioned:
            rows = catalog.rows["default", read.facts.name]
            flags = may_be_read(And(read.conditions), rows, read.facts.partition_keys, [date.min])
            needed = {row.values[0] for row, flag in zip(rows, flags.tolist(), strict=True) if flag}
            found.setdefault(read.facts.name, set()).update(needed)
    return found


def below_5(query: str) -> str:
    return f"SELECT * FROM ({query}) x WHERE k < 5"


SMALL, ALL = {"1", "4"}, set(VALUES)


def test_numbers_that_a_union_makes_texts_compare_as_texts(catalog: Catalog) -> None:
    sql = "SELECT * FROM (SELECT k FROM int_a UNION ALL SELECT k FROM string_a) x WHERE k < '5'"
    assert read_of(sql, catalog) == {"int_a": ALL, "string_a": ALL}
    decision = decide(sql, catalog, CLUSTERS)
    counts = {use.table.name: sum(group.partitions for group in use.groups) for use in decision.inputs}
    assert counts == {"int_a": 3, "string_a": 3}


@pytest.mark.parametrize("operator", ["UNION ALL", "UNION", "INTERSECT", "EXCEPT"])
@pytest.mark.parametrize("sides", [("int_a", "string_a"), ("string_a", "int_a"), ("int_a", "big")])
def test_a_converted_key_excludes_no_partition(
    operator: str, sides: tuple[str, str], catalog: Catalog
) -> None:
    left, right = sides
    found = read_of(below_5(f"SELECT k FROM {left} {operator} SELECT k FROM {right}"), catalog)
    assert found == {left: ALL, right: ALL}


@pytest.mark.parametrize("operator", ["UNION ALL", "UNION", "INTERSECT", "EXCEPT"])
def test_keys_of_one_type_exclude_partitions(operator: str, catalog: Catalog) -> None:
    found = read_of(below_5(f"SELECT k FROM int_a {operator} SELECT k FROM int_b"), catalog)
    assert found == {"int_a": SMALL, "int_b": SMALL}


@pytest.mark.parametrize(
    "branches",
    [
        # Of three branches, the last one differs, or one in parentheses.
        "SELECT k FROM int_a UNION ALL (SELECT k FROM int_b UNION ALL SELECT k FROM int_a)",
        # Through subqueries, common table expressions, views and joins.
        "SELECT k FROM int_a UNION ALL SELECT n FROM (SELECT k AS n FROM int_b) y",
        "SELECT k FROM int_a UNION ALL SELECT n FROM (SELECT k FROM int_b) y(n)",
        "WITH c AS (SELECT k FROM int_b) SELECT k FROM int_a UNION ALL SELECT k FROM c",
        "WITH int_b AS (SELECT k FROM int_b) SELECT k FROM int_a UNION ALL SELECT k FROM int_b",
        "SELECT k FROM int_a UNION ALL SELECT k FROM int_view",
        "SELECT k FROM int_a UNION ALL SELECT k FROM renamed_view",
        "SELECT k FROM int_a UNION ALL SELECT b.k FROM unkeyed a JOIN int_b b ON a.x = b.x",
        # Literals, casts, and what has no known type.
        "SELECT k FROM int_a UNION ALL SELECT NULL",
        "SELECT NULL AS k UNION ALL SELECT k FROM int_a",
        "SELECT k FROM int_a UNION ALL SELECT 7",
        "SELECT k FROM big UNION ALL SELECT 7L",
        "SELECT k FROM int_a UNION ALL SELECT CAST(x AS int) FROM unkeyed",
        # The parameters of types count; their spelling does not.
        "SELECT k FROM money UNION ALL SELECT k FROM money_same",
        # Columns correspond by position.
        "SELECT j AS k, k AS j FROM two UNION ALL SELECT j, k FROM two",
        # The keys are the last columns behind a star.
        "SELECT * FROM int_a UNION ALL SELECT * FROM int_b",
        "SELECT a.* FROM int_a a UNION ALL SELECT * FROM (SELECT * FROM int_b) y",
        "SELECT *, x FROM int_a UNION ALL SELECT *, x FROM int_b",
    ],
)
def test_one_type_excludes_partitions(branches: str, catalog: Catalog) -> None:
    first, *_ = read_of(below_5(branches), catalog).values()
    assert first == SMALL


@pytest.mark.parametrize(
    "branches",
    [
        # Of three branches, the last one differs, or one in parentheses.
        "SELECT k FROM int_a UNION SELECT k FROM int_b UNION SELECT k FROM string_a",
        "SELECT k FROM int_a UNION ALL (SELECT k FROM int_b UNION ALL SELECT k FROM string_a)",
        "(SELECT k FROM string_a EXCEPT SELECT k FROM int_b) UNION ALL SELECT k FROM int_a",
        "SELECT k FROM (SELECT k FROM int_a UNION SELECT k FROM string_a) y UNION SELECT k FROM int_b",
        "SELECT k FROM int_a UNION ALL SELECT k FROM mixed_view",
        # Through subqueries, common table expressions, views and joins.
        "SELECT k FROM int_a UNION ALL SELECT n FROM (SELECT k AS n FROM string_a) y",
        "WITH c AS (SELECT k FROM string_b) SELECT k FROM int_a UNION ALL SELECT k FROM c",
        "SELECT k FROM string_a UNION ALL SELECT k FROM int_view",
        "SELECT k FROM string_a UNION ALL SELECT k FROM renamed_view",
        "SELECT k FROM int_a UNION ALL SELECT b.k FROM int_a a JOIN string_b b ON a.x = b.x",
        # The type counts even where no condition is passed down.
        "SELECT k FROM int_a UNION ALL (SELECT k FROM string_b LIMIT 1)",
        # Behind a semi-join, k is a column of the left side, whose type is unknown.
        "SELECT k FROM int_a UNION ALL SELECT k FROM unkeyed a LEFT SEMI JOIN int_b b ON a.x = b.x",
        # Literals, casts, and what has no known type.
        "SELECT NULL AS k UNION ALL SELECT k FROM int_a UNION ALL SELECT k FROM string_a",
        "SELECT k FROM int_a UNION ALL SELECT '7'",
        "SELECT k FROM int_a UNION ALL SELECT 7000000000",
        "SELECT k FROM int_a UNION ALL SELECT 7.5",
        "SELECT k FROM int_a UNION ALL SELECT CAST(x AS string) FROM unkeyed",
        "SELECT k FROM int_a UNION ALL SELECT k FROM unkeyed",
        "SELECT k FROM int_a UNION ALL SELECT k + 1 FROM int_b",
        "SELECT k FROM int_a UNION ALL SELECT max(k) FROM int_b",
        "SELECT k FROM int_a UNION ALL SELECT k FROM missing",
        # The parameters of types count; their spelling does not.
        "SELECT k FROM money UNION ALL SELECT k FROM money_more",
        # Columns correspond by position.
        "SELECT k, j FROM two UNION ALL SELECT j, k FROM two",
        # The keys are the last columns behind a star.
        "SELECT * FROM int_a UNION ALL SELECT * FROM string_b",
        "SELECT * FROM turned UNION ALL SELECT * FROM two",
        "SELECT *, x FROM int_a UNION ALL SELECT * FROM int_b",
        "SELECT * FROM int_a UNION ALL SELECT *, x FROM two",
        "SELECT * FROM int_a UNION ALL SELECT a.* FROM unkeyed b, int_b a",
        "SELECT * FROM int_a UNION ALL SELECT * FROM int_b LATERAL VIEW explode(x) e AS y",
        "SELECT * FROM int_a UNION ALL SELECT s.* FROM int_b",
        "SELECT * FROM int_a UNION ALL SELECT * EXCEPT (k) FROM int_b",
        "SELECT k, inline(x) FROM int_a UNION ALL SELECT k, inline(x) FROM int_b",
        "SELECT k FROM int_a UNION ALL BY NAME SELECT k FROM int_b",
    ],
)
def test_other_types_and_unknown_ones_exclude_none(branches: str, catalog: Catalog) -> None:
    assert all(needed == ALL for needed in read_of(below_5(branches), catalog).values())


def test_a_temporary_table_hides_the_types_of_the_metastores_table(catalog: Catalog) -> None:
    sql = below_5("SELECT k FROM int_a WHERE k > 1 UNION ALL SELECT k FROM int_b")
    session = Session(temporary={"int_b": "C1"})
    assert read_of(sql, catalog, session) == {"int_a": {"4", "10"}}
    assert read_of(sql, catalog) == {"int_a": {"4"}, "int_b": SMALL}


def test_only_the_columns_that_are_converted_are_undecided(catalog: Catalog) -> None:
    sql = "SELECT * FROM (SELECT j, k FROM two UNION ALL SELECT j, j FROM two) x WHERE {}"
    assert read_of(sql.format("j < 5 AND k > 1"), catalog) == {"two": SMALL}
    assert read_of(sql.format("j < 5 OR k > 1"), catalog) == {"two": ALL}


def test_a_renamed_column_of_a_union(catalog: Catalog) -> None:
    sql = "SELECT * FROM (SELECT x, k FROM int_a UNION ALL SELECT y, k FROM {}) u(a, b) WHERE b < 5"
    assert read_of(sql.format("int_b"), catalog) == {"int_a": SMALL, "int_b": SMALL}
    assert read_of(sql.format("string_b"), catalog) == {"int_a": ALL, "string_b": ALL}


def test_unions_of_a_hundred_branches(catalog: Catalog) -> None:
    branches = ["SELECT k FROM int_a", "SELECT k FROM int_b"] * 50
    assert read_of(below_5(" UNION ALL ".join(branches)), catalog) == {"int_a": SMALL, "int_b": SMALL}
    mixed = [*branches, "SELECT k FROM string_a"]
    expected = {"int_a": ALL, "int_b": ALL, "string_a": ALL}
    assert read_of(below_5(" UNION ALL ".join(mixed)), catalog) == expected


def test_each_query_is_examined_once(catalog: Catalog) -> None:
    """Views and common table expressions that double name 2^40 branches."""
    parts = ["c0 AS (SELECT k FROM int_a)"]
    parts += [f"c{n} AS (SELECT k FROM c{n - 1} UNION ALL SELECT k FROM c{n - 1})" for n in range(1, 41)]
    common = f"WITH {', '.join(parts)} {below_5('SELECT k FROM c40 UNION ALL SELECT k FROM int_b')}"
    views = below_5("SELECT k FROM doubled_40 UNION ALL SELECT k FROM int_b")
    for sql in (common, views):
        assert read_of(sql, catalog).keys() == {"int_a", "int_b"}


@pytest.mark.parametrize("kind", ["LEFT SEMI", "LEFT ANTI"])
def test_a_name_is_no_key_of_the_hidden_side_of_a_semi_join_in_parentheses(
    kind: str, catalog: Catalog
) -> None:
    sql = f"SELECT * FROM (unkeyed a {kind} JOIN int_b b ON a.x = b.x) WHERE k < 5"
    assert read_of(sql, catalog) == {"int_b": ALL}
