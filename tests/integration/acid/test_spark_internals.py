"""Each function that reaches into Spark's JVM does its work in the Spark that is installed."""

from __future__ import annotations

import datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.errors import IllegalArgumentException, NumberFormatException, ParseException
from pyspark.sql import SparkSession, functions
from pyspark.sql.types import IntegerType

from airflow_hive_federation.tables import spark_internals
from airflow_hive_federation.tables.spark_internals import Access, Directory, Relation


def test_the_session_of_the_tests_is_supported(spark: SparkSession) -> None:
    spark_internals.check_session(spark)
    spark_internals.check_version(spark.version)


def test_time_zones(spark: SparkSession) -> None:
    row = spark.sql("select reflect('java.time.ZoneId', 'systemDefault')").first()
    assert row is not None
    assert spark_internals.time_zone(spark) == row[0]
    # Java has Paris by its standard time before 1900, and not by its local mean time of 9 minutes 21.
    offsets = {name: spark_internals.standard_offset_s(spark, name) for name in ("UTC", "Europe/Paris")}
    assert offsets == {"UTC": 0, "Europe/Paris": 3600}


@pytest.mark.parametrize(
    ("location", "path", "uri"),
    [
        ("file:/w/a b", "file:/w/a b", "file:/w/a%20b"),
        ("/w//t/", "file:/w/t", "file:/w/t"),
        ("file:/w/p=a%3Ab", "file:/w/p=a%3Ab", "file:/w/p=a%253Ab"),
    ],
)
def test_paths_are_qualified(location: str, path: str, uri: str, spark: SparkSession) -> None:
    qualified, of_uri = spark_internals.qualified_path(spark, location)
    assert (qualified, of_uri.replace("file:///", "file:/")) == (path, uri)


def test_texts_become_a_list_of_java(spark: SparkSession) -> None:
    texts = ["a,b", "", "ä \U0001f600", "\n"]
    # Hadoop's splitting leaves out nothing but empty texts, which are no paths.
    assert list(spark_internals.java_texts(spark, texts)) == [text for text in texts if text]


def test_an_array_of_longs_is_a_literal(spark: SparkSession) -> None:
    values = np.array([0, -1, 2**63 - 1, -(2**63)], np.int64)
    frame = spark.range(2).select(spark_internals.longs_column(spark, values).alias("longs"))
    assert [row.longs for row in frame.collect()] == [values.tolist()] * 2
    assert frame.schema["longs"].dataType.simpleString() == "array<bigint>"


def test_an_arrow_table_becomes_a_frame_of_the_same_types(spark: SparkSession) -> None:
    days = [datetime.date(1, 1, 1), None]
    table = pa.table({"number": pa.array([1, None], pa.int64()), "day": pa.array(days, pa.date32())})
    frame = spark_internals.arrow_frame(spark, table)
    assert frame.schema.simpleString() == "struct<number:bigint,day:date>"
    assert [tuple(row) for row in frame.collect()] == [(1, days[0]), (None, None)]


def test_a_strict_cast_fails_on_a_value_that_does_not_fit(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(" 7 ",), (None,)], "text string")
    cast = spark_internals.cast_strictly(spark, frame.text, IntegerType())
    assert [row[0] for row in frame.select(cast).collect()] == [7, None]
    unfit = spark.createDataFrame([("7",), ("seven",)], "text string")
    with pytest.raises(NumberFormatException, match="seven"):
        unfit.select(spark_internals.cast_strictly(spark, unfit.text, IntegerType())).collect()


def test_a_lenient_cast_makes_null_of_a_value_that_does_not_fit(spark: SparkSession) -> None:
    frame = spark.createDataFrame([("7",), ("seven",), (str(2**31),), (None,)], "text string")
    cast = spark_internals.cast_or_null(spark, frame.text, IntegerType())
    assert [row[0] for row in frame.select(cast).collect()] == [7, None, None, None]


def test_rebalanced_rows_of_one_key_lie_in_one_task(spark: SparkSession) -> None:
    rows = spark.range(90, numPartitions=4).selectExpr("id % 3 as key", "id")
    tasks = functions.spark_partition_id().alias("task")
    assert rows.select("key", tasks).distinct().count() == 12
    balanced = spark_internals.rebalanced(rows, ["key"])
    assert balanced.select("key", tasks).distinct().count() == 3
    assert sorted(row.id for row in balanced.collect()) == list(range(90))


def test_conditions_are_taken_apart_and_made_columns(spark: SparkSession) -> None:
    parts = spark_internals.conjuncts(spark, "id > 1 and (id < 5 or id = 7) and id != 3")
    assert len(parts) == 3
    rows = spark.range(10)
    counts = [rows.where(spark_internals.column_of(spark, part)).count() for part in parts]
    assert counts == [8, 6, 9]
    with pytest.raises(ParseException):
        spark_internals.conjuncts(spark, "id >")


@pytest.mark.parametrize(
    ("condition", "names"),
    [
        ("a + B > 1", {"a", "b"}),
        ("1 = 1", set()),
        ("t.a = 1", {""}),
        ("a = 1 or exists (select 1)", {"a", ""}),
        ("a in (select 1)", {""}),
        ("struct(*) = a", {"", "a"}),
    ],
)
def test_names_in_an_expression(condition: str, names: set[str], spark: SparkSession) -> None:
    (expression,) = spark_internals.conjuncts(spark, condition)
    assert spark_internals.names_in(expression) == names


@pytest.mark.parametrize(
    ("condition", "values"),
    [
        ("a = 1", [1]),
        ("2 = A", [2]),
        ("a in (3, 4)", [3, 4]),
        ("b = 1", []),
        ("a > 1", []),
        ("a + 1 = 2", []),
    ],
)
def test_operands_that_a_column_equals(condition: str, values: list[int], spark: SparkSession) -> None:
    (expression,) = spark_internals.conjuncts(spark, condition)
    operands = spark_internals.operands_equal_to(expression, "a")
    columns = [spark_internals.column_of(spark, operand).alias(f"v{i}") for i, operand in enumerate(operands)]
    row = spark.range(1).select(*columns).first() if columns else ()
    assert list(row or ()) == values


def test_random_conditions_are_not_deterministic(spark: SparkSession) -> None:
    assert spark_internals.is_deterministic(spark.range(3).where("id > 1"))
    assert not spark_internals.is_deterministic(spark.range(3).where("rand() > 0.5"))


def test_frames_stand_for_tables_in_a_statement(spark: SparkSession) -> None:
    frames = {"t": spark.range(4), "u": spark.range(2, 9)}
    seen = []

    def relation_of(parts: tuple[str, ...]) -> Relation | None:
        seen.append(parts)
        if len(parts) != 2:
            return None
        return Relation(name=parts[1], qualifier=("spark_catalog", parts[0]), frame=frames[parts[1]])

    spark.range(1).createOrReplaceTempView("internals_other")
    try:
        rows = spark_internals.sql_with_relations(
            spark,
            "with w as (select u.id from far.u where id in (select id from far.t)) "
            "select spark_catalog.far.t.id, w.id from far.t join w on t.id = w.id "
            "where t.id not in (select id from internals_other) order by 1",
            relation_of,
        )
        assert [tuple(row) for row in rows.collect()] == [(2, 2), (3, 3)]
    finally:
        spark.catalog.dropTempView("internals_other")
    assert {("far", "t"), ("far", "u"), ("internals_other",)} <= set(seen)
    with pytest.raises(ParseException):
        spark_internals.sql_with_relations(spark, "select (", relation_of)


def test_plans_are_checked_in_new_sessions_only(spark: SparkSession, tmp_path: Path) -> None:
    refused, trusted = tmp_path / "refused", "internals.trusted"
    spark.range(2).write.parquet(str(refused / "part=1"))
    before = spark.newSession()
    before.range(1).collect()
    accesses = []

    def objections(access: Access) -> list[str]:
        # The check outlives this test in the application that the tests share.
        if not isinstance(access.target, Directory) or access.target.path != f"file:{refused}":
            return []
        accesses.append((access.writes, [inside.name for inside in access.target.directories()]))
        return ["nobody may", "not this one"]

    spark_internals.check_plans(before, objections, trusted_option=trusted)
    session = spark.newSession()
    for attempt in (
        lambda: session.read.parquet(str(refused)),
        lambda: session.range(1).write.mode("append").parquet(str(refused)),
    ):
        with pytest.raises(IllegalArgumentException, match=r"^nobody may"):
            attempt()
    assert accesses == [(False, ["part=1"]), (True, ["part=1"])]
    assert session.read.option(trusted, "yes").parquet(str(refused)).count() == 2
    assert before.read.parquet(str(refused)).count() == 2
