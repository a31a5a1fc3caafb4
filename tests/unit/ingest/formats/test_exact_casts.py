"""Arrow values and values of a database reach a table unchanged, or not at all."""

from __future__ import annotations

import datetime
import random
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from airflow_hive_federation.ingest.errors import InvalidColumn, SerializationError
from airflow_hive_federation.ingest.formats.arrow_records import conforming_batch
from airflow_hive_federation.ingest.formats.exact_casts import exact_cast
from airflow_hive_federation.ingest.formats.sql_rows import rows_parsed
from airflow_hive_federation.model.types import Column

NAN = float("nan")
INF = float("inf")
DAY_US = 86_400_000_000


def became(array: pa.Array, kind: str) -> list[Any]:
    made = conforming_batch(pa.record_batch([array], names=["c"]), [Column.of("c", kind)])
    return list(made[0].to_pylist())


def stored(value: Any, kind: str) -> Any:
    """Return the stored value; a bad record's reason is raised."""
    parsed = rows_parsed([(value,)], [0], [Column.of("c", kind)])
    if parsed.bad:
        raise ValueError(parsed.bad[0].reason)
    return parsed.rows[0][0].as_py()


@pytest.mark.parametrize(
    ("array", "kind"),
    [
        (pa.array([1.0, 1e300]), "float"),
        (pa.array([1.0, -1e300]), "float"),
        (pa.array([1, 16777217]), "float"),
        (pa.array([1, Decimal(16777217)]), "float"),
        (pa.array([1, Decimal("16777217.00")]), "float"),
        (pa.array([Decimal(1), Decimal(10) ** 60], pa.decimal256(61, 0)), "float"),
        (pa.array([0, 2]), "boolean"),
        (pa.array([0.0, 0.5]), "boolean"),
        (pa.array([DAY_US, DAY_US + 1], pa.timestamp("us")), "date"),
        (pa.array([18_000_000_000, 0], pa.timestamp("us", "America/New_York")), "date"),
        (pa.array([1.2, 1.239]), "decimal(5,2)"),
        (pa.array([0.5, NAN]), "decimal(5,2)"),
        (pa.array([Decimal("1.20"), Decimal("1.23")]), "decimal(5,1)"),
        (pa.array([Decimal("1.00"), Decimal("1.25")]), "bigint"),
        (pa.array([Decimal(1), Decimal(300)]), "tinyint"),
        (pa.array([1.0, 1.5]), "int"),
        (pa.array([1000, 1001], pa.timestamp("ns")), "timestamp"),
        (pa.array([[1], [2, 16777217]]), "array<float>"),
        (pa.array([[1.0], None, [2.0, 1e300]]), "array<float>"),
        (pa.array([{"x": 1.0}, {"x": 1e300}]), "struct<x:float>"),
        (pa.array([[("a", 0)], [("b", 2)]], pa.map_(pa.string(), pa.int64())), "map<string,boolean>"),
    ],
)
def test_a_value_that_would_change_is_refused_with_its_row(array: pa.Array, kind: str) -> None:
    bad = array.null_count + 2 if array.null_count else 2
    with pytest.raises(SerializationError, match=f"Row {bad} of the batch, column c"):
        became(array, kind)


@pytest.mark.parametrize(
    ("array", "kind"),
    [
        (pa.array([1]), "timestamp"),
        (pa.array([1], pa.int32()), "date"),
        (pa.array([1.5]), "timestamp"),
        (pa.array([1], pa.timestamp("us")), "bigint"),
        (pa.array([1], pa.date32()), "int"),
        (pa.array([1], pa.duration("us")), "bigint"),
        (pa.array([1], pa.time64("us")), "bigint"),
        (pa.array([[1]]), "array<timestamp>"),
        (pa.array([{"x": 1, "y": 2}]), "struct<x:bigint>"),
        (pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64())), "map<string,timestamp>"),
    ],
)
def test_a_type_of_another_meaning_is_refused(array: pa.Array, kind: str) -> None:
    with pytest.raises(InvalidColumn, match="cannot become"):
        became(array, kind)


@pytest.mark.parametrize(
    ("array", "kind", "values"),
    [
        (pa.array([0.1, INF, -INF, None]), "float", [0.10000000149011612, INF, -INF, None]),
        (pa.array([Decimal("0.1"), Decimal("16777216.0")]), "float", [0.10000000149011612, 16777216.0]),
        (pa.array([1, 0, None]), "boolean", [True, False, None]),
        (pa.array([DAY_US, None], pa.timestamp("us")), "date", [datetime.date(1970, 1, 2), None]),
        (
            pa.array([18_000_000_000], pa.timestamp("us", "America/New_York")),
            "date",
            [datetime.date(1970, 1, 1)],
        ),
        (pa.array([0.1, None]), "decimal(10,2)", [Decimal("0.10"), None]),
        (pa.array([Decimal(12), None], pa.decimal128(18, 0)), "bigint", [12, None]),
        (pa.array([Decimal(12), None], pa.decimal128(5, 2)), "int", [12, None]),
        (pa.array([Decimal("1.25"), Decimal(2)], pa.decimal64(5, 2)), "double", [1.25, 2.0]),
        (pa.array(["07", None]), "int", [7, None]),
        (pa.array([[1], None, []]), "array<float>", [[1.0], None, []]),
        (pa.array([{"x": 0.5}, None]), "struct<x:float>", [{"x": 0.5}, None]),
        (
            pa.array([[("a", 2)], None, [("b", 1)]], pa.map_(pa.string(), pa.int64()))[1:],
            "map<string,boolean>",
            [None, [("b", True)]],
        ),
        (pa.array([None, None]), "timestamp", [None, None]),
        (pa.array(["1", None]).dictionary_encode(), "int", [1, None]),
    ],
)
def test_a_value_that_does_not_change_is_cast(array: pa.Array, kind: str, values: list[Any]) -> None:
    assert became(array, kind) == values


def test_a_fraction_that_arrow_cuts_off_is_refused() -> None:
    values = pa.array([Decimal("526.39929252819")], pa.decimal256(14, 11))
    with pytest.raises(ValueError, match="a value would change"):
        exact_cast(values, pa.decimal32(5, 0))


def test_decimals_of_doubles_are_not_refused_for_the_last_digit() -> None:
    chance = random.Random(7)
    values = [round(chance.uniform(-1e4, 1e4), chance.randint(0, 9)) for _ in range(20_000)]
    assert len(became(pa.array(values), "decimal(38,18)")) == 20_000


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (1e300, "float"),
        (16777217, "float"),
        (Decimal(16777217), "float"),
        (2**60 + 1, "double"),
        (10**400, "double"),
        (Decimal("1e400"), "double"),
        (Decimal("1e999999"), "double"),
    ],
)
def test_a_number_of_a_database_that_would_change_is_bad(value: Any, kind: str) -> None:
    with pytest.raises(ValueError, match="would change as a floating-point number"):
        stored(value, kind)


@pytest.mark.parametrize(
    ("value", "kind", "result"),
    [
        (0.1, "float", 0.10000000149011612),
        (Decimal("0.1"), "double", 0.1),
        (INF, "float", INF),
        (Decimal("-Infinity"), "double", -INF),
        (16777216, "float", 16777216.0),
        (Decimal("1e20"), "double", 1e20),
    ],
)
def test_a_number_of_a_database_that_stays(value: Any, kind: str, result: float) -> None:
    assert stored(value, kind) == result
    assert stored(NAN, kind) != stored(NAN, kind)
